//! A launch in doorbell's own form: one counter, which only counts up, tracks all work.
//!
//! CUDA sets a counter for each group, waits for it, and signals its streams with separate releases. In doorbell's form every QMD adds to one
//! *tracker* instead of the counter that it releases in CUDA's form. A launch that adds `adds` takes the numbers from `before + 1` to
//! `before + adds`, where `before` is what the tracker is to reach with all that was launched earlier. Each acquire waits for `before` and what the
//! groups ahead of it add. So these payloads are the only words that change between launches. The GPU does the waiting, never the CPU, and the
//! launch is done when the tracker reaches its last number.
//!
//! Groups of several channels stand in one stream one after another, in the order in which they were given. A group that waits for another waits
//! for everything that was started before it, unless that is known to be done at this point. This is at least what CUDA's wait covers. Copies,
//! fills and writes have a separate release of the tracker, ahead of the QMDs of their group, because the stream orders them only with respect to
//! later steps.
//!
//! The engine that starts kernels also writes inline data, in order: kernels of the same group need no wait for it, and it is done when they are.
//! (CUDA puts its memsets and counter writes ahead of kernels in this way.) After copy engine work, the host waits for the tracker.

use crate::encode::{append, write};
use crate::recipe::{Bank, BankId, How, Memory, NodeId, Recipe, Wait};
use crate::refused::Refused;
use crate::step::{Memset, Placed, Step};
use pushbuf::encode::subchannel::{COMPUTE, COPY, HOST};
use pushbuf::encode::{CONSTANT_CACHES, MAX_INLINE, Words, inline_dma, launch_dma};
use pushbuf::qmd::{PcasAction, Qmd};
use pushbuf::semaphore::Execute;
use std::collections::{HashMap, HashSet};

const TOO_MANY: Refused = Refused::Form { what: "a launch of more than 2^32 releases" };
/// What one QMD may add to the tracker.
const MOST_ADDED: u64 = 1 << 16;

/// A graph's words in doorbell's own form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// Writes constant banks and QMDs and arms those that others start. It starts nothing.
    pub upload: Vec<u32>,
    pub launch: Vec<u32>,
    /// The words of `launch` that change.
    pub counts: Vec<Count>,
    /// How much one launch adds to the tracker.
    pub adds: u32,
    /// Where the launch's last words begin, if these are a copy engine's release of the tracker: all else is over there, and it adds 1.
    pub release: Option<usize>,
    /// Addresses of the QMDs, ascending.
    pub qmds: Vec<u64>,
    pub parameters: Vec<Parameters>,
    /// What copies, fills and writes of the launch touch.
    pub touched: Vec<Touched>,
}

/// Word `word` of a launch is the tracker's value before the launch and `more`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Count {
    pub word: usize,
    pub more: u32,
}

/// The address and size in bytes of a kernel's parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    pub node: NodeId,
    pub address: u64,
    pub bytes: u32,
}

/// A range of memory that is not the graph's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Touched {
    pub node: NodeId,
    pub address: u64,
    pub bytes: u64,
}

impl Own {
    /// Encodes a graph whose QMDs and banks are at their final addresses. `tracker` is the address of the counter, 4 bytes.
    pub fn of(recipe: &Recipe, tracker: u64) -> Result<Own, Refused> {
        let parts = Parts::new(recipe, tracker)?;
        let mut launch = Launch { parts: &parts, to: Stream::default(), complete: 0 };
        for at in 0..recipe.groups.len() {
            launch.group(at)?;
        }
        let Stream { words, counts, released: adds, release, .. } = launch.to;
        let release = release.filter(|(_, end)| *end == words.len()).map(|(begin, _)| begin);
        Ok(Own {
            upload: parts.upload()?,
            launch: words,
            counts,
            adds,
            release,
            qmds: parts.qmds(),
            parameters: parts.parameters(),
            touched: parts.touched(),
        })
    }
}

struct Parts<'a> {
    recipe: &'a Recipe,
    /// What QMDs add to.
    tracker: u64,
    /// See [`Parts::settled`].
    ready: Vec<usize>,
    /// What the QMDs add that have all been given with a group that they wait for.
    adds: Vec<u32>,
}

impl<'a> Parts<'a> {
    fn new(recipe: &'a Recipe, tracker: u64) -> Result<Parts<'a>, Refused> {
        if !tracker.is_multiple_of(4) {
            return Err(Refused::Alignment { what: "tracker", address: tracker });
        }
        if let Some(bank) = recipe.banks.iter().find(|b| b.contents.is_none()) {
            return Err(Refused::BankLeftOut { bank: bank.address });
        }
        let mut parts = Parts { recipe, tracker, ready: Vec::new(), adds: vec![0; recipe.groups.len()] };
        parts.check_all_release()?;
        parts.in_order()?;
        parts.ready = parts.settled()?;
        let of_nodes = parts.added()?;
        for (group, adds) in parts.ready.iter().zip(of_nodes) {
            if let Some(sum) = parts.adds.get_mut(*group) {
                *sum = sum.saturating_add(adds);
            }
        }
        Ok(parts)
    }

    fn qmd_of(&self, node: usize) -> Option<&Qmd> {
        self.recipe.nodes.get(node).and_then(|n| n.work.kernel()).map(|k| &k.qmd)
    }

    /// What each node's QMD adds to the tracker.
    fn added(&self) -> Result<Vec<u32>, Refused> {
        let of = |node| {
            let mut sum = 0u32;
            for (_, release) in self.qmd_of(node).into_iter().flat_map(Qmd::releases) {
                let adds =
                    u32::try_from(release.payload).ok().filter(|adds| (1..=MOST_ADDED).contains(&(*adds).into()));
                let adds =
                    adds.ok_or(Refused::Form { what: "a QMD that adds 0 or more than 65,536 to its counter" })?;
                sum = sum.saturating_add(adds);
            }
            Ok(sum)
        };
        (0..self.recipe.nodes.len()).map(of).collect()
    }

    /// Checks that each QMD either releases a counter or starts a QMD that does. Otherwise its end could not be detected.
    fn check_all_release(&self) -> Result<(), Refused> {
        let nodes = self.recipe.nodes.len();
        let mut before: Vec<Vec<usize>> = vec![Vec::new(); nodes];
        for edge in self.recipe.edges.iter().filter(|e| matches!(e.how, How::Dependent { .. })) {
            if let Some(of) = before.get_mut(edge.to.0) {
                of.push(edge.from.0);
            }
        }
        let mut heard = vec![false; nodes];
        let releases = |node: &usize| self.qmd_of(*node).is_some_and(|q| q.releases().next().is_some());
        let mut left: Vec<usize> = (0..nodes).filter(releases).collect();
        while let Some(node) = left.pop() {
            match heard.get_mut(node) {
                Some(heard) if !*heard => *heard = true,
                _ => continue,
            }
            left.extend(before.get(node).into_iter().flatten());
        }
        let unheard = self.recipe.nodes.iter().zip(heard).find_map(|(n, heard)| n.work.kernel().filter(|_| !heard));
        unheard.map_or(Ok(()), |k| Err(Refused::Unheard { qmd: k.address }))
    }

    /// No group waits for all that a later one sets and its QMDs add: it would be taken for a wait for the launch before.
    fn in_order(&self) -> Result<(), Refused> {
        let step = |i: usize| self.recipe.relaunch.get(i).map(|placed| &placed.step);
        let sets: Vec<(usize, usize)> = self.recipe.groups.iter().flat_map(|g| g.sets.iter().copied()).collect();
        for (i, wait) in self.recipe.groups.iter().flat_map(|g| &g.acquires) {
            let (Wait::LaunchBefore(counter), Some(Step::Acquire { address, payload, .. })) = (wait, step(*i)) else {
                continue;
            };
            let released = self.recipe.counters.get(*counter).map_or(&[][..], |c| &c.released);
            let adds = released.iter().fold(0u32, |sum, (.., adds)| sum.wrapping_add(*adds as u32));
            for (set, _) in sets.iter().filter(|(_, of)| of == counter) {
                let Some(Step::Write { data, .. }) = step(*set) else { continue };
                let value = data.first().copied().unwrap_or(0);
                if (*payload as u32).wrapping_sub(value) == adds {
                    return Err(Refused::Order { address: *address });
                }
            }
        }
        Ok(())
    }

    /// For each node, the group after which all its predecessors have been submitted: the last group that starts or decrements the node or one of
    /// its predecessors.
    fn settled(&self) -> Result<Vec<usize>, Refused> {
        let mut ready: Vec<usize> = self.recipe.nodes.iter().map(|n| n.group).collect();
        for (number, group) in self.recipe.groups.iter().enumerate() {
            for start in &group.starts {
                if let Some(at) = ready.get_mut(start.node.0) {
                    *at = (*at).max(number);
                }
            }
        }
        // Without circles, each round settles at least one more node.
        for _ in 0..=self.recipe.nodes.len() {
            let mut moved = false;
            for edge in self.recipe.edges.iter().filter(|e| matches!(e.how, How::Dependent { .. })) {
                let from = ready.get(edge.from.0).copied().unwrap_or(0);
                if let Some(to) = ready.get_mut(edge.to.0).filter(|to| **to < from) {
                    (*to, moved) = (from, true);
                }
            }
            if !moved {
                return Ok(ready);
            }
        }
        Err(Refused::Circle { qmd: 0 })
    }

    fn qmds(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.recipe.nodes.iter().filter_map(|n| Some(n.work.kernel()?.address)).collect();
        all.sort_unstable();
        all
    }

    fn bank(&self, id: BankId) -> Option<&Bank> {
        self.recipe.banks.get(id.0)
    }

    /// Only for kernels that do not share their bank: a change to one kernel must not change another.
    fn parameters(&self) -> Vec<Parameters> {
        let mut users: HashMap<BankId, usize> = HashMap::new();
        let banks = self.recipe.nodes.iter().filter_map(|n| n.work.kernel()?.bank);
        banks.for_each(|bank| *users.entry(bank).or_default() += 1);
        let of = |(i, node): (usize, &crate::recipe::Node)| {
            let id = node.work.kernel()?.bank.filter(|id| users.get(id) == Some(&1))?;
            let bank = self.bank(id)?;
            let (offset, bytes) = bank.parameters();
            let address = bank.address.checked_add(offset.into())?;
            (bytes > 0).then_some(Parameters { node: NodeId(i), address, bytes })
        };
        self.recipe.nodes.iter().enumerate().filter_map(of).collect()
    }

    fn touched(&self) -> Vec<Touched> {
        use crate::recipe::Work;
        let lines = |lines: u32, pitch: u32, bytes: u64| {
            u64::from(lines.saturating_sub(1)).saturating_mul(pitch.into()).saturating_add(bytes)
        };
        let of = |(i, node): (usize, &crate::recipe::Node)| {
            let at = |address, bytes| Touched { node: NodeId(i), address, bytes };
            match &node.work {
                Work::Kernel(_) | Work::Order(_) => Vec::new(),
                Work::Memset(memset) => vec![at(memset.address, memset.bytes.into())],
                Work::Fill(fill) => vec![at(fill.dst, fill.bytes())],
                Work::Copy(c) => {
                    let bytes = |pitch| lines(c.line_count, pitch, c.line_length.into());
                    vec![at(c.src, bytes(c.src_pitch)), at(c.dst, bytes(c.dst_pitch))]
                }
                Work::Write { address, bytes } => vec![at(*address, (*bytes).into())],
            }
        };
        self.recipe.nodes.iter().enumerate().flat_map(of).collect()
    }

    /// The memory of the graph's own at an address.
    fn memory_at(&self, address: u64) -> Option<Memory> {
        self.recipe.block_at(address).and_then(|(id, _)| self.recipe.block(id)).map(|b| b.memory)
    }

    /// The steps of CUDA's upload that write banks and QMDs, and the steps that arm QMDs which others start.
    fn upload(&self) -> Result<Vec<u32>, Refused> {
        let started: HashSet<u64> = self.recipe.relaunch.iter().filter_map(|p| copies(&p.step)).collect();
        let mut to = Stream::default();
        for placed in &self.recipe.upload {
            match &placed.step {
                Step::Write { address, .. } => match self.memory_at(*address) {
                    Some(Memory::Bank(_)) => append(&mut to.words, placed)?,
                    Some(Memory::Qmd(node)) => to.step(&self.released_here(&placed.step, node)?)?,
                    _ => {}
                },
                Step::Invalidate { .. } => append(&mut to.words, placed)?,
                Step::Pcas { qmd, .. } if copies(&placed.step).is_some() => {
                    let node = self.recipe.nodes.iter().find_map(|n| n.work.kernel().filter(|k| k.address == *qmd));
                    let waits = node.is_some_and(|k| k.qmd.field("REQUIRE_SCHEDULING_PCAS") == Some(1));
                    match (waits, started.contains(qmd)) {
                        (true, _) => append(&mut to.words, placed)?,
                        (false, true) => {}
                        (false, false) => return Err(Refused::Armed { qmd: *qmd }),
                    }
                }
                _ => {}
            }
        }
        // Drops older data at these addresses, and data that was fetched when a QMD was armed before the next QMD's bank was written.
        to.step(&Step::Invalidate { caches: CONSTANT_CACHES })?;
        Ok(to.words)
    }

    /// The write of a QMD, with all that it releases moved to the tracker.
    fn released_here(&self, step: &Step, node: NodeId) -> Result<Step, Refused> {
        let mut step = step.clone();
        if let (Step::Write { data, .. }, Some(qmd)) = (&mut step, self.qmd_of(node.0)) {
            let mut ours = *qmd;
            let tracker = self.ready.get(node.0).map_or(0, |_| self.tracker);
            for (i, _) in qmd.releases() {
                ours.set_release(i, tracker)?;
            }
            data.iter_mut().zip(ours.words()).for_each(|(to, from)| *to = *from);
        }
        Ok(step)
    }
}

/// The QMD that a step has copied from memory and scheduled.
fn copies(step: &Step) -> Option<u64> {
    match step {
        Step::Pcas { qmd, action: PcasAction::InvalidatePrefetchCopySchedule | PcasAction::InvalidateCopySchedule } => {
            Some(*qmd)
        }
        _ => None,
    }
}

/// The words of a stream, and what the tracker will have been added by them.
#[derive(Default)]
struct Stream {
    words: Vec<u32>,
    counts: Vec<Count>,
    released: u32,
    /// What the last acquire waits for.
    acquired: Option<u32>,
    /// The last release by a copy engine: its words, from and to.
    release: Option<(usize, usize)>,
}

impl Stream {
    fn step(&mut self, step: &Step) -> Result<(), Refused> {
        append(&mut self.words, &Placed { channel: 0, step: step.clone() })
    }

    /// Words of which one is a payload: found as the one that differs where the payload does.
    fn counted(&mut self, more: u32, put: impl Fn(&mut Words<'_>, u32) -> Result<(), Refused>) -> Result<(), Refused> {
        let (mut zeros, mut ones) = ([0; 32], [0; 32]);
        let mut length = 0;
        for (words, payload) in [(&mut zeros, 0), (&mut ones, u32::MAX)] {
            let mut to = Words::new(words);
            put(&mut to, payload)?;
            length = to.len();
        }
        let differs = zeros.iter().zip(&ones).position(|(a, b)| a != b);
        let at = differs.ok_or(Refused::Form { what: "a semaphore without a payload" })?;
        self.counts.push(Count { word: self.words.len() + at, more });
        self.words.extend_from_slice(zeros.get(..length).unwrap_or_default());
        Ok(())
    }

    /// Releases the tracker by the copy engine, after its copies.
    fn copied(&mut self, tracker: u64, more: u32) -> Result<(), Refused> {
        let begin = self.words.len();
        self.counted(more, |w, n| Ok(w.copy_release(COPY, tracker, n, false)?))?;
        self.release = Some((begin, self.words.len()));
        Ok(())
    }
}

struct Launch<'a> {
    parts: &'a Parts<'a>,
    to: Stream,
    /// This many groups, counted from the first, are known to be done at this point of the stream.
    complete: usize,
}

impl Launch<'_> {
    /// How many groups from the first are done when a wait of the one at `at` is.
    fn needed(&self, at: usize, wait: &Wait) -> usize {
        let recipe = self.parts.recipe;
        let here = |group: usize| (group < at).then_some(group);
        match wait {
            Wait::LaunchBefore(_) | Wait::Before => 0,
            Wait::Counter(counter) => {
                let by = recipe.counters.get(*counter).into_iter().flat_map(|c| &c.released);
                let groups = by.filter_map(|(node, ..)| here(*self.parts.ready.get(node.0)?));
                groups.max().map_or(0, |group| group + 1)
            }
            Wait::Tracker(step) => {
                let group = recipe.groups.iter().position(|g| g.steps.contains(step));
                group.and_then(here).map_or(0, |at| at + 1)
            }
        }
    }

    /// Waits for all that the groups before this one add. What is waited for is the work of the channel's own engines, so the wait lets no other
    /// channel group run, as CUDA's waits for its kernels' counters. (CUDA's waits for other channels let other groups run; a wait that has to wait
    /// then takes 12 us longer, H200.)
    fn wait(&mut self, at: usize) -> Result<(), Refused> {
        let (tracker, more) = (self.parts.tracker, self.to.released);
        if self.to.acquired != Some(more) {
            self.to
                .counted(more, |w, payload| Ok(w.host_semaphore(HOST, tracker, payload.into(), Execute::WAIT)?))?;
            self.to.acquired = Some(more);
        }
        self.complete = at;
        Ok(())
    }

    /// The group with this number.
    fn group(&mut self, at: usize) -> Result<(), Refused> {
        let parts = self.parts;
        let Some(group) = parts.recipe.groups.get(at) else { return Ok(()) };
        let earlier = |wait: &Wait| matches!(wait, Wait::LaunchBefore(_) | Wait::Before);
        let mut waits = group.acquires.iter().filter(|(_, wait)| !earlier(wait)).peekable();
        // (If CUDA does not wait for any of the launch's work, it may have left out a wait for work that was done.)
        let left_out = waits.peek().is_none() && parts.recipe.held.is_none();
        let needed = if left_out { at } else { 0 };
        let needed = waits.map(|(_, wait)| self.needed(at, wait)).max().unwrap_or(needed);
        if at == 0 || needed > self.complete {
            self.wait(at)?;
        }
        let steps = parts.recipe.relaunch.get(group.steps.clone()).unwrap_or_default();
        let set = |i: usize| group.sets.iter().any(|(step, _)| *step == group.steps.start + i);
        let alone = steps.iter().enumerate().filter(|(i, _)| !set(*i)).filter_map(|(_, placed)| match &placed.step {
            Step::Memset(memset) => Some(inline_write(memset).unwrap_or_else(|| placed.step.clone())),
            Step::Write { .. } | Step::Fill { .. } | Step::Copy { .. } => Some(placed.step.clone()),
            _ => None,
        });
        let alone: Vec<Step> = alone.collect();
        let goes_inline = |step: &Step| matches!(step, Step::Write { .. });
        // What the copy engine does in between is not ordered by the engine of kernels.
        let starts = steps.iter().any(|placed| matches!(placed.step, Step::Pcas { .. }));
        let in_order = starts && alone.iter().all(goes_inline);
        for (n, step) in alone.iter().enumerate() {
            if n == 0 || !in_order {
                self.wait(at)?;
            }
            match step {
                Step::Memset(memset) => self.memset(memset)?,
                step if in_order => self.to.step(step)?,
                step => self.alone(step)?,
            }
        }
        if !alone.is_empty() && !in_order && starts {
            self.wait(at)?;
        }
        for placed in steps.iter().filter(|p| matches!(p.step, Step::Pcas { .. } | Step::Invalidate { .. })) {
            append(&mut self.to.words, placed)?;
        }
        // What the QMDs add that have all been given now that they wait for.
        let adds = parts.adds.get(at).copied().unwrap_or(0);
        self.to.released = self.to.released.checked_add(adds).ok_or(TOO_MANY)?;
        Ok(())
    }

    /// A fill by the copy engine.
    fn memset(&mut self, memset: &Memset) -> Result<(), Refused> {
        let Memset { address, bytes, value, .. } = *memset;
        if !bytes.is_multiple_of(4) {
            return Err(Refused::Form { what: "a macro's fill of more than 32 KiB that are no whole words" });
        }
        let (tracker, launch) = (self.parts.tracker, launch_dma::NON_PIPELINED | launch_dma::PITCH);
        let more = self.to.released.checked_add(1).ok_or(TOO_MANY)?;
        let mut words = [0; 32];
        let mut to = Words::new(&mut words);
        to.fill(COPY, address, value, bytes / 4, launch)?;
        self.to.words.extend_from_slice(to.as_slice());
        self.to.copied(tracker, more)?;
        self.to.released = more;
        Ok(())
    }

    /// A step without a QMD, then a release of the tracker by the same engine.
    fn alone(&mut self, step: &Step) -> Result<(), Refused> {
        let tracker = self.parts.tracker;
        let more = self.to.released.checked_add(1).ok_or(TOO_MANY)?;
        match step {
            Step::Write { address, bytes, data, launch } => {
                // The tracker's number must be written after the barrier of the data that it reports.
                let launch = launch & !inline_dma::NO_SYSMEMBAR;
                self.to.step(&Step::Write { address: *address, bytes: *bytes, data: data.clone(), launch })?;
                let word = inline_dma::PITCH | inline_dma::NO_SYSMEMBAR;
                self.to.counted(more, |w, n| Ok(w.inline(COMPUTE, tracker, &n.to_le_bytes(), word)?))?;
            }
            step => {
                let step = on_copy(step.clone());
                let mut words = [0; 32];
                let mut to = Words::new(&mut words);
                write(&mut to, &step)?;
                self.to.words.extend_from_slice(to.as_slice());
                self.to.copied(tracker, more)?;
            }
        }
        self.to.released = more;
        Ok(())
    }
}

/// A macro fill as one without a macro: its words in the stream, unless there are too many.
fn inline_write(memset: &Memset) -> Option<Step> {
    let Memset { address, bytes, value, launch, .. } = *memset;
    let data = vec![value; bytes.div_ceil(4) as usize];
    (bytes as usize <= MAX_INLINE).then_some(Step::Write { address, bytes, data, launch })
}

/// A copy or fill on the subchannel that the copy engine has on graphics channels.
fn on_copy(mut step: Step) -> Step {
    if let Step::Fill { subch, .. } | Step::Copy { subch, .. } = &mut step {
        *subch = COPY;
    }
    step
}
