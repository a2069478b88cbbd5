//! Every address in a recipe: its location, and its target. Also moves the graph to other addresses.

use crate::assemble;
use crate::recipe::{Bank, BankId, Block, BlockId, Form, NodeId, Recipe};
use crate::refused::Refused;
use crate::step::{Placed, Step};
use pushbuf::qmd::Qmd;

/// The location of an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Site {
    /// A constant buffer of a node's QMD, by its number.
    ConstantBuffer(NodeId, u32),
    /// A dependent of a node's QMD.
    Dependent(NodeId, u32),
    /// A semaphore that a node's QMD releases.
    Release(NodeId, u32),
    /// The code of a node's kernel.
    Program(NodeId),
    /// The code that a node's QMD fetches ahead.
    Prefetch(NodeId),
    /// The header of a constant bank, at this offset. It holds the address of the bank itself, of its parameters, or of the kernel's QMD.
    Bank(BankId, u32),
    /// A step of a launch: its destination, semaphore or QMD.
    Step(Form, usize),
    /// What a copy reads.
    Source(Form, usize),
}

/// What an address points to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Target {
    /// The graph's own memory, and the offset in it.
    Own(BlockId, u64),
    /// Memory that is not the graph's: it must stay where it is while the graph may run.
    Foreign(u64),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reference {
    pub site: Site,
    pub target: Target,
}

impl Recipe {
    /// All references: those of the QMDs in the order of the nodes, then those of the banks, of the upload, and of a launch. (Pointers in a
    /// kernel's parameters belong to the program and are not included.)
    pub fn references(&self) -> impl Iterator<Item = Reference> + '_ {
        let of_nodes = self
            .nodes
            .iter()
            .enumerate()
            .flat_map(|(i, node)| node.work.kernel().into_iter().flat_map(move |k| of_qmd(NodeId(i), &k.qmd)));
        let of_banks = self.banks.iter().enumerate().flat_map(|(i, bank)| {
            let header = bank.contents.as_deref().unwrap_or_default();
            let named = self.named_by(bank, 0, header).into_iter();
            named.map(move |(at, target)| Reference { site: Site::Bank(BankId(i), at), target })
        });
        let of_steps = [Form::Upload, Form::Relaunch].into_iter().flat_map(|form| {
            self.steps(form).iter().enumerate().flat_map(move |(i, placed)| of_step(form, i, &placed.step))
        });
        let looked_up = |(site, address)| Reference { site, target: self.target(address) };
        of_nodes.map(looked_up).chain(of_banks).chain(of_steps.map(looked_up))
    }

    fn target(&self, address: u64) -> Target {
        self.block_at(address).map_or(Target::Foreign(address), |(block, offset)| Target::Own(block, offset))
    }

    /// The same graph at other addresses: `to` returns the new address of each block. Everything that points into a block follows it.
    pub fn relocate(&self, mut to: impl FnMut(BlockId, &Block) -> u64) -> Result<Recipe, Refused> {
        let mut places = Vec::with_capacity(self.blocks.len());
        for (i, block) in self.blocks.iter().enumerate() {
            let address = to(BlockId(i), block);
            if !address.is_multiple_of(block.memory.alignment()) {
                return Err(Refused::Alignment { what: block.memory.name(), address });
            }
            places.push(address);
        }
        overlap(&self.blocks, &places)?;
        let moved = |address: u64| match self.target(address) {
            Target::Own(block, offset) => places.get(block.0).map_or(address, |at| at.wrapping_add(offset)),
            Target::Foreign(address) => address,
        };
        let steps = |steps: &[Placed]| {
            steps.iter().map(|placed| self.moved_step(placed, &moved)).collect::<Result<Vec<_>, Refused>>()
        };
        let (upload, relaunch) = (steps(&self.upload)?, steps(&self.relaunch)?);
        let mut recipe = assemble::recipe(&self.channels, upload, vec![relaunch], self.held.clone())?;
        // (With only one launch, the amount added per launch is unknown.)
        recipe.payloads.clone_from(&self.payloads);
        Ok(recipe)
    }

    fn moved_step(&self, placed: &Placed, moved: &impl Fn(u64) -> u64) -> Result<Placed, Refused> {
        let mut placed = placed.clone();
        match &mut placed.step {
            Step::Acquire { address, .. } | Step::Report { address, .. } => *address = moved(*address),
            Step::Pcas { qmd, .. } => *qmd = moved(*qmd),
            Step::Write { address, data, .. } => {
                if let Some(k) = self.kernel_at(*address) {
                    let qmd = moved_qmd(k, moved)?;
                    data.iter_mut().zip(qmd.words()).for_each(|(to, from)| *to = *from);
                }
                if let Some(bank) = self.bank_at(*address) {
                    let begin = (*address - bank.address) as u32;
                    let bytes: Vec<u8> = data.iter().flat_map(|word| word.to_le_bytes()).collect();
                    for (at, target) in self.named_by(bank, begin, &bytes) {
                        let Target::Own(block, offset) = target else { continue };
                        let Some(block) = self.block(block) else { continue };
                        let (word, to) = (((at - begin) / 4) as usize, moved(block.address).wrapping_add(offset));
                        if let Some([low, high]) = data.get_mut(word..word + 2) {
                            (*low, *high) = (to as u32, (to >> 32) as u32);
                        }
                    }
                }
                *address = moved(*address);
            }
            Step::Memset(memset) => memset.address = moved(memset.address),
            Step::Fill { fill, .. } => fill.dst = moved(fill.dst),
            Step::Copy { copy, .. } => (copy.src, copy.dst) = (moved(copy.src), moved(copy.dst)),
            Step::Invalidate { .. } => {}
        }
        Ok(placed)
    }

    /// The QMD that begins at an address.
    fn kernel_at(&self, address: u64) -> Option<&Qmd> {
        let (block, offset) = self.block_at(address)?;
        let crate::recipe::Memory::Qmd(node) = self.block(block)?.memory else { return None };
        (offset == 0).then(|| self.nodes.get(node.0)?.work.kernel().map(|k| &k.qmd))?
    }
}

impl Recipe {
    /// What a bank's header names of the graph's own memory, with the offsets in it, as far as that is in `bytes`, which begin at offset `begin` of the bank.
    /// Seen of driver 580.159.04 on Hopper: at 0x38 the kernel's QMD, at 0xc0 the bank, at 0x198 the first parameter, at 0x1a0 the end of all.
    /// A kernel that takes the address of a parameter (a tensor map) finds it by these.
    fn named_by(&self, bank: &Bank, begin: u32, bytes: &[u8]) -> Vec<(u32, Target)> {
        let header = Bank::HEADER.saturating_sub(begin) as usize;
        let skip = begin.next_multiple_of(8) - begin;
        let words = bytes.get(skip as usize..header.min(bytes.len())).unwrap_or_default().chunks_exact(8);
        let block = self.block_at(bank.address).map(|(block, _)| block);
        let target = |address: u64| {
            // (The end of the parameters may be the bank's, which is in no block.)
            if (bank.address..=bank.address + u64::from(bank.bytes)).contains(&address) {
                return block.map(|block| Target::Own(block, address - bank.address));
            }
            self.kernel_at(address).map(|_| self.target(address))
        };
        let words = (begin + skip..).step_by(8).zip(words);
        words.filter_map(|(at, word)| Some((at, target(u64::from_le_bytes(word.try_into().ok()?))?))).collect()
    }

    /// The constant bank that holds an address.
    fn bank_at(&self, address: u64) -> Option<&Bank> {
        let (block, _) = self.block_at(address)?;
        let crate::recipe::Memory::Bank(id) = self.block(block)?.memory else { return None };
        self.banks.get(id.0)
    }
}

/// Whether blocks at these places would overlap.
fn overlap(blocks: &[Block], places: &[u64]) -> Result<(), Refused> {
    let mut all: Vec<(u64, u64)> = places.iter().copied().zip(blocks.iter().map(|b| b.bytes)).collect();
    all.sort_unstable();
    let overlap = all.windows(2).find_map(|pair| match pair {
        [(one, bytes), (two, _)] if one.saturating_add(*bytes) > *two => Some(*two),
        _ => None,
    });
    overlap.map_or(Ok(()), |address| Err(Refused::Overlap { address }))
}

fn of_qmd(node: NodeId, qmd: &Qmd) -> impl Iterator<Item = (Site, u64)> + '_ {
    let banks = (0..8).filter_map(move |i| Some((Site::ConstantBuffer(node, i), qmd.constant_buffer(i)?.address)));
    let dependents = qmd.dependents().map(move |(i, d)| (Site::Dependent(node, i), d.address));
    let releases = qmd.releases().map(move |(i, r)| (Site::Release(node, i), r.address));
    let program = Some((Site::Program(node), qmd.program_address())).filter(|(_, at)| *at != 0);
    let prefetch = qmd.program_prefetch().map(|at| (Site::Prefetch(node), at));
    banks.chain(dependents).chain(releases).chain(program).chain(prefetch)
}

fn of_step(form: Form, i: usize, step: &Step) -> impl Iterator<Item = (Site, u64)> + use<> {
    let source = match step {
        Step::Copy { copy, .. } => Some((Site::Source(form, i), copy.src)),
        _ => None,
    };
    step.address().map(|address| (Site::Step(form, i), address)).into_iter().chain(source)
}

fn moved_qmd(qmd: &Qmd, moved: &impl Fn(u64) -> u64) -> Result<Qmd, Refused> {
    let mut new = *qmd;
    for i in 0..8 {
        if let Some(bank) = qmd.constant_buffer(i) {
            new.set_constant_buffer(i, moved(bank.address))?;
        }
    }
    for (i, dependent) in qmd.dependents() {
        new.set_dependent(i, moved(dependent.address))?;
    }
    for (i, release) in qmd.releases() {
        new.set_release(i, moved(release.address))?;
    }
    Ok(new)
}
