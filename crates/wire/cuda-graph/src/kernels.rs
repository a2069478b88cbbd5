//! A graph's QMDs and constant banks, as the upload writes them.

use crate::qmd;
use crate::read::Channel;
use crate::recipe::Bank;
use crate::refused::Refused;
use crate::step::{Placed, Step};
use pushbuf::class::Family;
use pushbuf::qmd::Qmd;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The graph's QMDs, by address.
pub(crate) struct Kernels {
    pub all: BTreeMap<u64, Qmd>,
    /// QMD addresses in the order in which the upload writes them. Numbers that follow this order stay the same when the graph is moved.
    order: Vec<u64>,
}

/// Reads the QMD of a compute class at an address from its words.
type Read = fn(u32, u64, &[u32]) -> Result<Qmd, Refused>;

impl Kernels {
    /// Follows PCAS and dependents to every QMD; each must stand in the upload.
    pub fn of(channels: &[Channel], upload: &[Placed], relaunch: &[Placed]) -> Result<Kernels, Refused> {
        Kernels::with(qmd::parse, channels, upload, relaunch)
    }

    /// With this reader of QMDs.
    pub fn with(read: Read, channels: &[Channel], upload: &[Placed], relaunch: &[Placed]) -> Result<Kernels, Refused> {
        let mut written: HashMap<u64, (&[u32], usize)> = HashMap::new();
        for placed in upload {
            if let Step::Write { address, data, .. } = &placed.step {
                written.insert(*address, (data, placed.channel));
            }
        }
        let mut wanted: Vec<u64> = Vec::new();
        for placed in upload.iter().chain(relaunch) {
            if let Step::Pcas { qmd, .. } = placed.step {
                wanted.push(qmd);
            }
        }
        let mut all: BTreeMap<u64, Qmd> = BTreeMap::new();
        while let Some(address) = wanted.pop() {
            if all.contains_key(&address) {
                continue;
            }
            let (words, channel) = *written.get(&address).ok_or(Refused::QmdNotWritten { qmd: address })?;
            let qmd = read(compute_class(channels, channel), address, words)?;
            wanted.extend(qmd.dependents().map(|(_, d)| d.address));
            all.insert(address, qmd);
        }
        if all.values().all(qmd::is_empty) {
            return Err(Refused::NoKernel);
        }
        let mut seen = HashSet::new();
        let writes = upload.iter().filter_map(|placed| match placed.step {
            Step::Write { address, .. } if all.contains_key(&address) => Some(address),
            _ => None,
        });
        let order = writes.filter(|address| seen.insert(*address)).collect();
        Ok(Kernels { all, order })
    }

    /// The QMDs that a launch starts, directly and one by another.
    pub fn started_by(&self, launch: &[Placed]) -> HashSet<u64> {
        let pcas = |placed: &Placed| if let Step::Pcas { qmd, .. } = placed.step { Some(qmd) } else { None };
        let mut wanted: Vec<u64> = launch.iter().filter_map(pcas).collect();
        let mut started = HashSet::new();
        while let Some(address) = wanted.pop() {
            if started.insert(address)
                && let Some(qmd) = self.all.get(&address)
            {
                wanted.extend(qmd.dependents().map(|(_, d)| d.address));
            }
        }
        started
    }

    /// In the order of the upload.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &Qmd)> {
        self.order.iter().filter_map(|address| Some((*address, self.all.get(address)?)))
    }

    pub fn qmd(&self, address: u64) -> Result<&Qmd, Refused> {
        self.all.get(&address).ok_or(Refused::QmdNotWritten { qmd: address })
    }

    pub fn holds(&self, address: u64) -> bool {
        let before = self.all.range(..=address).next_back();
        before.is_some_and(|(at, qmd)| address - at < 4 * qmd.words().len() as u64)
    }
}

fn compute_class(channels: &[Channel], channel: usize) -> u32 {
    let engines = channels.get(channel).map_or(&[][..], |c| &c.engines);
    engines.iter().copied().find(|e| Family::of(*e) == Some(Family::Compute)).unwrap_or(0)
}

/// The graph's constant banks, by address.
pub(crate) struct Banks {
    pub all: Vec<Bank>,
    pub of_address: BTreeMap<u64, usize>,
}

impl Banks {
    pub fn of(upload: &[Placed], kernels: &Kernels) -> Result<Banks, Refused> {
        let mut banks = Banks { all: Vec::new(), of_address: BTreeMap::new() };
        // The first QMD of each, for messages.
        let mut users = Vec::new();
        for (qmd_address, qmd) in kernels.iter().filter(|(_, qmd)| !qmd::is_empty(qmd)) {
            let place = qmd.constant_buffer(0).filter(|b| b.bytes > 0);
            let place = place.ok_or(Refused::BankNotWritten { qmd: qmd_address, bank: 0 })?;
            let number = *banks.of_address.entry(place.address).or_insert(banks.all.len());
            match banks.all.get_mut(number) {
                Some(bank) => bank.bytes = bank.bytes.max(place.bytes),
                None => {
                    let (address, bytes) = (place.address, place.bytes);
                    banks.all.push(Bank { address, bytes, written: Vec::new(), contents: Some(Vec::new()) });
                    users.push(qmd_address);
                }
            }
        }
        for placed in upload {
            if let Step::Write { address, bytes, data, .. } = &placed.step
                && let Some(bank) = banks.at(*address)
            {
                put(bank, *address, *bytes, data)?;
            }
        }
        for (bank, qmd) in banks.all.iter_mut().zip(users) {
            if bank.written.is_empty() {
                return Err(Refused::BankNotWritten { qmd, bank: bank.address });
            }
            // A bank's header names the kernel and the sizes of its blocks: it is never all zeros, but where a recording leaves data out.
            if bank.contents.as_ref().is_some_and(|c| c.iter().take(Bank::HEADER as usize).all(|b| *b == 0)) {
                bank.contents = None;
            }
        }
        Ok(banks)
    }

    fn at(&mut self, address: u64) -> Option<&mut Bank> {
        let (_, i) = self.of_address.range(..=address).next_back()?;
        self.all.get_mut(*i).filter(|b| address - b.address < b.bytes.into())
    }

    /// The bank that begins at an address.
    pub fn bank(&self, address: u64) -> Option<&Bank> {
        self.all.get(*self.of_address.get(&address)?)
    }

    pub fn holds(&self, address: u64) -> bool {
        let before = self.of_address.range(..=address).next_back().and_then(|(_, i)| self.all.get(*i));
        before.is_some_and(|b| address - b.address < b.bytes.into())
    }
}

/// One write of the upload into a bank: the header first, then the rest without gaps.
fn put(bank: &mut Bank, address: u64, bytes: u32, data: &[u32]) -> Result<(), Refused> {
    let at = (address - bank.address) as u32;
    let end = bank.written.last().map_or(0, |(at, bytes)| at + bytes);
    let refused = Refused::Bank { bank: bank.address, from: address, bytes, header: Bank::HEADER };
    let fits = at.checked_add(bytes).is_some_and(|end| end <= bank.bytes);
    if !fits || at != end || (at == 0 && bytes < Bank::HEADER) {
        return Err(refused);
    }
    bank.written.push((at, bytes));
    let contents = bank.contents.get_or_insert_default();
    contents.extend(data.iter().flat_map(|word| word.to_le_bytes()).take(bytes as usize));
    Ok(())
}
