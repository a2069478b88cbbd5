//! Turns the steps of the launches into a recipe. It lists QMDs, banks and counters, which QMD starts which, and the waits of each group.

use crate::early;
use crate::fans;
use crate::kernels::{Banks, Kernels};
use crate::qmd;
use crate::read::Channel;
use crate::recipe::{
    BankId, Block, Counter, Edge, Group, How, Kernel, Memory, Node, NodeId, Payload, Recipe, Start, Wait, Work,
};
use crate::refused::Refused;
use crate::step::{Placed, Step};
use pushbuf::encode::MAX_INLINE;
use pushbuf::qmd::{DependentAction, PcasAction};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A semaphore with the time has 16 bytes; all trackers are taken to have them.
const TRACKER_BYTES: u64 = 16;
const COUNTER_BYTES: u64 = 4;

/// Puts a recipe together.
pub(crate) fn recipe(
    channels: &[Channel],
    upload: Vec<Placed>,
    again: Vec<Vec<Placed>>,
    held: Option<Vec<u64>>,
) -> Result<Recipe, Refused> {
    let mut again = again.into_iter();
    let relaunch = again.next().ok_or(Refused::NoRelaunch)?;
    let payloads = payloads(&relaunch, again.next().as_deref())?;
    let mut upload = upload;
    let mut kernels = Kernels::of(channels, &upload, &relaunch)?;
    let mut banks = Banks::of(&upload, &kernels)?;
    if let Some(replaced) = fans::replaced(&upload, &relaunch, &kernels, &banks)? {
        upload = replaced;
        kernels = Kernels::of(channels, &upload, &relaunch)?;
        banks = Banks::of(&upload, &kernels)?;
    }
    fans::left(&upload, &relaunch, &kernels, &banks)?;
    let counters = counters(&kernels);
    let mut launch = Launch::new(&kernels, &banks, &counters, held.as_deref());
    launch.groups(&relaunch)?;
    launch.check_upload(&upload)?;
    launch.started()?;
    let Launch { groups, mut nodes, mut edges, number, .. } = launch;
    edges.sort_by_key(|e| (e.from, e.to));
    edges.dedup();
    // (A decrement does not start a node by itself.)
    let begun = groups.iter().flat_map(|g| &g.starts).filter(|s| s.action != Some(PcasAction::DecrementDependence));
    early::drop_overlap(&mut nodes, &edges, &begun.map(|start| start.node).collect())?;
    let counters = counters.into_iter().map(|(address, released)| Counter {
        address,
        released: released.iter().filter_map(|(qmd, i, adds)| Some((*number.get(qmd)?, *i, *adds))).collect(),
    });
    let recipe = Recipe {
        channels: channels.to_vec(),
        nodes,
        edges,
        groups,
        counters: counters.collect(),
        banks: banks.all,
        blocks: Vec::new(),
        upload,
        relaunch,
        payloads,
        held,
    };
    with_blocks(recipe)
}

/// The payloads by which the steps of two launches differ; any other difference is refused.
fn payloads(one: &[Placed], two: Option<&[Placed]>) -> Result<Vec<(usize, Payload)>, Refused> {
    if let Some(two) = two
        && two.len() != one.len()
    {
        return Err(Refused::LengthsDiffer { first: one.len(), second: two.len() });
    }
    let mut found = Vec::new();
    for (i, placed) in one.iter().enumerate() {
        let other = two.and_then(|two| two.get(i));
        let Some(first) = payload(&placed.step) else {
            match other {
                Some(other) if staged(&placed.step, &other.step).is_some() => {
                    return Err(Refused::Staged { address: staged(&placed.step, &other.step).unwrap_or(0) });
                }
                Some(other) if other != placed => return Err(Refused::differ(i, &placed.step, &other.step)),
                _ => continue,
            }
        };
        let step = match other {
            None => None,
            Some(other) => {
                let mut same = other.clone();
                set_payload(&mut same.step, first);
                let second = payload(&other.step).filter(|_| same == *placed);
                Some(second.ok_or_else(|| Refused::differ(i, &placed.step, &other.step))?.wrapping_sub(first))
            }
        };
        found.push((i, Payload { first, step }));
    }
    Ok(found)
}

/// The end of a copy that another launch has elsewhere.
fn staged(one: &Step, two: &Step) -> Option<u64> {
    let (Step::Copy { copy: one, .. }, Step::Copy { copy: two, .. }) = (one, two) else { return None };
    let from = *two == pushbuf::ops::Copy { src: two.src, ..*one };
    let to = *two == pushbuf::ops::Copy { dst: two.dst, ..*one };
    match (from, to) {
        (true, false) => Some(two.src),
        (false, true) => Some(two.dst),
        _ => None,
    }
}

/// The number in a step that may change from launch to launch: of semaphores and of writes of one word.
fn payload(step: &Step) -> Option<u32> {
    match step {
        Step::Acquire { payload, .. } => u32::try_from(*payload).ok(),
        Step::Report { payload, .. } => Some(*payload),
        Step::Write { data, bytes: 4, .. } => data.first().copied(),
        _ => None,
    }
}

fn set_payload(step: &mut Step, to: u32) {
    match step {
        Step::Acquire { payload, .. } => *payload = to.into(),
        Step::Report { payload, .. } => *payload = to,
        Step::Write { data, bytes: 4, .. } => data.iter_mut().for_each(|word| *word = to),
        _ => {}
    }
}

/// Addresses that QMD releases count up. Each has its QMDs: QMD address, number of the release, and the amount that it adds.
type Released = Vec<(u64, Vec<(u64, u32, u64)>)>;

fn counters(kernels: &Kernels) -> Released {
    let mut counters = Released::new();
    let mut numbers: HashMap<u64, usize> = HashMap::new();
    for (address, qmd) in kernels.iter() {
        for (i, release) in qmd.releases() {
            let number = *numbers.entry(release.address).or_insert(counters.len());
            if number == counters.len() {
                counters.push((release.address, Vec::new()));
            }
            if let Some((_, by)) = counters.get_mut(number) {
                by.push((address, i, release.payload));
            }
        }
    }
    counters
}

/// A launch taken apart.
struct Launch<'a> {
    kernels: &'a Kernels,
    banks: &'a Banks,
    counters: &'a Released,
    /// See [`Recipe::held`].
    held: Option<&'a [u64]>,
    /// Number of each counter.
    numbers: BTreeMap<u64, usize>,
    groups: Vec<Group>,
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    /// Node of each QMD that is started.
    number: HashMap<u64, NodeId>,
    /// Decrements that each QMD gets in a launch.
    decrements: HashMap<u64, u32>,
}

impl<'a> Launch<'a> {
    fn new(kernels: &'a Kernels, banks: &'a Banks, counters: &'a Released, held: Option<&'a [u64]>) -> Launch<'a> {
        Launch {
            kernels,
            banks,
            counters,
            held,
            numbers: counters.iter().enumerate().map(|(i, (address, _))| (*address, i)).collect(),
            groups: Vec::new(),
            nodes: Vec::new(),
            edges: Vec::new(),
            number: HashMap::new(),
            decrements: HashMap::new(),
        }
    }

    /// Whether it is inline data, and no counter.
    fn is_inline(&self, step: &Step) -> bool {
        match step {
            Step::Write { address, .. } => !self.numbers.contains_key(address),
            Step::Memset(_) => !is_copy_engines(step),
            _ => false,
        }
    }

    /// Whether the stream finishes it before it starts the next step: true for inline data.
    fn stays_in_order(&self, start: &Start) -> bool {
        let work = self.nodes.get(start.node.0).map(|node| &node.work);
        match work {
            Some(Work::Memset(memset)) => !is_copy_engines(&Step::Memset(*memset)),
            Some(Work::Write { .. }) => true,
            _ => false,
        }
    }

    /// Cuts the launch into groups. A new group begins where the channel waits, and after a release of the channel (unless only inline data
    /// preceded the release). It also begins where a step without a QMD follows a QMD, where the copy engine follows anything, and where the launch
    /// continues on another channel.
    fn groups(&mut self, relaunch: &[Placed]) -> Result<(), Refused> {
        // The group that set each counter last, and the group that released each tracker.
        let mut set: HashMap<usize, usize> = HashMap::new();
        let mut reports: HashMap<u64, (usize, usize)> = HashMap::new();
        for (i, placed) in relaunch.iter().enumerate() {
            let acquires = matches!(placed.step, Step::Acquire { .. });
            let (inline, copies) = (self.is_inline(&placed.step), is_copy_engines(&placed.step));
            let goes_on = self.groups.last().is_some_and(|g| {
                let untouched = g.starts.is_empty() && g.sets.is_empty() && g.reports.is_empty();
                // (After a release of the stream, or after work that does not finish in stream order, CUDA may have left out a wait because the
                // work was done. Inline data is in order.)
                let beside = g.starts.iter().any(|start| !self.stays_in_order(start));
                let behind = beside && (!g.reports.is_empty() || inline) || copies && !g.starts.is_empty();
                let is_report = matches!(placed.step, Step::Report { .. });
                g.channel == placed.channel && (!acquires || untouched) && (is_report || !behind)
            });
            if !goes_on {
                self.groups.push(Group {
                    channel: placed.channel,
                    steps: i..i,
                    acquires: Vec::new(),
                    sets: Vec::new(),
                    starts: Vec::new(),
                    nodes: Vec::new(),
                    reports: Vec::new(),
                });
            }
            let at = self.groups.len() - 1;
            let before = match placed.step {
                Step::Acquire { address, payload, .. } => self.is_before(relaunch, address, payload as u32),
                _ => false,
            };
            let Some(group) = self.groups.get_mut(at) else { continue };
            group.steps.end = i + 1;
            match &placed.step {
                Step::Invalidate { .. } => {}
                Step::Acquire { address, .. } => {
                    let wait = match (self.numbers.get(address), reports.get(address)) {
                        (Some(counter), _) if set.contains_key(counter) => Wait::Counter(*counter),
                        (Some(counter), _) => Wait::LaunchBefore(*counter),
                        (None, _) if before => Wait::Before,
                        (None, Some((_, step))) => Wait::Tracker(*step),
                        (None, None) => return Err(Refused::ForeignAcquire { address: *address }),
                    };
                    group.acquires.push((i, wait));
                }
                Step::Report { address, .. } => {
                    group.reports.push(i);
                    reports.insert(*address, (at, i));
                }
                Step::Write { address, bytes, .. } => match self.numbers.get(address) {
                    Some(counter) if *bytes == COUNTER_BYTES as u32 => {
                        group.sets.push((i, *counter));
                        set.insert(*counter, at);
                    }
                    _ if self.kernels.holds(*address) || self.banks.holds(*address) => {
                        return Err(Refused::Updated { address: *address });
                    }
                    _ => self.alone(at, Work::Write { address: *address, bytes: *bytes }),
                },
                Step::Memset(memset) => self.alone(at, Work::Memset(*memset)),
                Step::Fill { fill, .. } => self.alone(at, Work::Fill(*fill)),
                Step::Copy { copy, .. } => self.alone(at, Work::Copy(*copy)),
                Step::Pcas { qmd, action } => self.pcas(at, *qmd, *action)?,
            }
        }
        self.follow()?;
        self.stream_edges(&reports);
        Ok(())
    }

    /// Whether a wait is for what the stream had before the launch: for a semaphore that was released there, or for less than the launch itself releases.
    fn is_before(&self, relaunch: &[Placed], at: u64, least: u32) -> bool {
        let first = relaunch.iter().find_map(|placed| match placed.step {
            Step::Report { address, payload, .. } if address == at => Some(payload),
            _ => None,
        });
        let less = first.is_none_or(|first| first.wrapping_sub(least) as i32 > 0);
        self.held.is_some_and(|before| less && (first.is_some() || before.contains(&at)))
    }

    fn add(&mut self, group: usize, work: Work) -> NodeId {
        let node = NodeId(self.nodes.len());
        self.nodes.push(Node { group, work });
        if let Some(group) = self.groups.get_mut(group) {
            group.nodes.push(node);
        }
        node
    }

    /// A node that has no QMD.
    fn alone(&mut self, group: usize, work: Work) {
        let node = self.add(group, work);
        if let Some(group) = self.groups.get_mut(group) {
            group.starts.push(Start { node, action: None });
        }
    }

    /// The node of a QMD; it joins the group that starts it first.
    fn node_of(&mut self, group: usize, address: u64) -> Result<NodeId, Refused> {
        if let Some(node) = self.number.get(&address) {
            return Ok(*node);
        }
        let qmd = *self.kernels.qmd(address)?;
        let bank = qmd.constant_buffer(0).and_then(|b| self.banks.of_address.get(&b.address).copied()).map(BankId);
        let kernel = Kernel { address, qmd, bank };
        let work = if qmd::is_empty(&qmd) { Work::Order(kernel) } else { Work::Kernel(kernel) };
        let node = self.add(group, work);
        self.number.insert(address, node);
        Ok(node)
    }

    fn pcas(&mut self, group: usize, qmd: u64, action: PcasAction) -> Result<(), Refused> {
        match action {
            PcasAction::InvalidatePrefetchCopySchedule | PcasAction::InvalidateCopySchedule => {}
            PcasAction::DecrementDependence => *self.decrements.entry(qmd).or_default() += 1,
            action => return Err(Refused::Pcas { qmd, action }),
        }
        let node = self.node_of(group, qmd)?;
        if let Some(group) = self.groups.get_mut(group) {
            group.starts.push(Start { node, action: Some(action) });
        }
        Ok(())
    }

    /// From each node to the QMDs that it acts on when it is done.
    fn follow(&mut self) -> Result<(), Refused> {
        let mut next = 0;
        while let Some(node) = self.nodes.get(next) {
            let (from, group) = (NodeId(next), node.group);
            next += 1;
            let Some(qmd) = node.work.kernel().map(|k| k.qmd) else { continue };
            for (slot, dependent) in qmd.dependents() {
                let to = self.node_of(group, dependent.address)?;
                let how = How::Dependent { slot, action: dependent.action, prefetch: dependent.prefetch };
                if dependent.action == DependentAction::DecrementDependence {
                    *self.decrements.entry(dependent.address).or_default() += 1;
                }
                self.edges.push(Edge { from, to, how });
            }
        }
        Ok(())
    }

    /// Every QMD of the graph is started, as often decremented as it counts, and not by itself.
    fn started(&mut self) -> Result<(), Refused> {
        for (address, qmd) in &self.kernels.all {
            if !self.number.contains_key(address) {
                return Err(Refused::QmdNotStarted { qmd: *address });
            }
            let given = self.decrements.get(address).copied().unwrap_or(0);
            let counter = qmd.dependence_counter();
            if given != counter {
                return Err(Refused::Dependence { qmd: *address, counter, given });
            }
        }
        self.circles()
    }

    /// Removes nodes without predecessors until none is left. The rest are circles.
    fn circles(&self) -> Result<(), Refused> {
        let mut before = vec![0usize; self.nodes.len()];
        let mut after: Vec<Vec<usize>> = vec![Vec::new(); self.nodes.len()];
        for edge in &self.edges {
            if let (Some(n), Some(to)) = (before.get_mut(edge.to.0), after.get_mut(edge.from.0)) {
                *n += 1;
                to.push(edge.to.0);
            }
        }
        let mut free: Vec<usize> = before.iter().enumerate().filter(|(_, n)| **n == 0).map(|(i, _)| i).collect();
        while let Some(i) = free.pop() {
            for to in after.get(i).into_iter().flatten() {
                if let Some(n) = before.get_mut(*to) {
                    *n -= 1;
                    if *n == 0 {
                        free.push(*to);
                    }
                }
            }
        }
        let bound = before.iter().position(|n| *n != 0);
        let qmd = bound.and_then(|i| self.nodes.get(i)).map(|n| n.work.kernel().map_or(0, |k| k.address));
        qmd.map_or(Ok(()), |qmd| Err(Refused::Circle { qmd }))
    }

    /// Edges that the streams imply: waits between groups, and nodes without a QMD before the steps that follow them.
    fn stream_edges(&mut self, reports: &HashMap<u64, (usize, usize)>) {
        let mut edges = Vec::new();
        let roots = |group: &Group| group.starts.iter().map(|s| s.node).collect::<Vec<_>>();
        for group in &self.groups {
            for (_, wait) in &group.acquires {
                let (from, how): (Vec<NodeId>, How) = match wait {
                    Wait::LaunchBefore(_) | Wait::Before => continue,
                    Wait::Counter(c) => {
                        let released = self.counters.get(*c).into_iter().flat_map(|(_, by)| by);
                        let from = released.filter_map(|(qmd, ..)| self.number.get(qmd).copied());
                        (from.collect(), How::Counter(*c))
                    }
                    Wait::Tracker(step) => {
                        let of = reports.values().find(|(_, at)| at == step).map(|(group, _)| *group);
                        let from = of.and_then(|g| self.groups.get(g)).map_or(Vec::new(), |g| g.nodes.clone());
                        (from, How::Tracker)
                    }
                };
                for to in roots(group) {
                    edges.extend(from.iter().filter(|from| **from != to).map(|from| Edge { from: *from, to, how }));
                }
            }
            let mut alone: Option<NodeId> = None;
            for start in &group.starts {
                if let Some(from) = alone.filter(|from| *from != start.node) {
                    edges.push(Edge { from, to: start.node, how: How::Stream });
                }
                alone = if start.action.is_none() { Some(start.node) } else { alone };
            }
        }
        self.edges.extend(edges);
    }

    /// All other steps of the upload, apart from writes of QMDs, banks and counters, must also be in each launch.
    fn check_upload(&self, upload: &[Placed]) -> Result<(), Refused> {
        let works: HashSet<u64> = self.nodes.iter().filter_map(|n| alone_at(&n.work)).collect();
        for placed in upload {
            match &placed.step {
                Step::Write { address, bytes, .. } => {
                    let counter = self.numbers.contains_key(address) && u64::from(*bytes) == COUNTER_BYTES;
                    let own = self.kernels.all.contains_key(address) || self.banks.holds(*address);
                    if !counter && !own && !works.contains(address) {
                        return Err(Refused::UnknownWrite { address: *address, bytes: *bytes });
                    }
                }
                Step::Memset(memset) if !works.contains(&memset.address) => {
                    return Err(Refused::Form { what: "a fill in the upload that later launches lack" });
                }
                Step::Fill { fill, .. } if !works.contains(&fill.dst) => {
                    return Err(Refused::Form { what: "a fill in the upload that later launches lack" });
                }
                Step::Copy { copy, .. } if !works.contains(&copy.dst) => {
                    return Err(Refused::Form { what: "a copy in the upload that later launches lack" });
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Whether doorbell's form of the launch uses the copy engine for it.
fn is_copy_engines(step: &Step) -> bool {
    match step {
        Step::Fill { .. } | Step::Copy { .. } => true,
        Step::Memset(memset) => memset.bytes as usize > MAX_INLINE,
        _ => false,
    }
}

fn alone_at(work: &Work) -> Option<u64> {
    match work {
        Work::Memset(memset) => Some(memset.address),
        Work::Fill(fill) => Some(fill.dst),
        Work::Copy(copy) => Some(copy.dst),
        Work::Write { address, .. } => Some(*address),
        Work::Kernel(_) | Work::Order(_) => None,
    }
}

/// Lists the graph's own memory.
fn with_blocks(mut recipe: Recipe) -> Result<Recipe, Refused> {
    let mut blocks = Vec::new();
    for (i, node) in recipe.nodes.iter().enumerate() {
        if let Some(k) = node.work.kernel() {
            let bytes = 4 * k.qmd.words().len() as u64;
            blocks.push(Block { memory: Memory::Qmd(NodeId(i)), address: k.address, bytes });
        }
    }
    for (i, bank) in recipe.banks.iter().enumerate() {
        blocks.push(Block { memory: Memory::Bank(BankId(i)), address: bank.address, bytes: bank.bytes.into() });
    }
    for (i, counter) in recipe.counters.iter().enumerate() {
        blocks.push(Block { memory: Memory::Counter(i), address: counter.address, bytes: COUNTER_BYTES });
    }
    let mut trackers: Vec<u64> = recipe.upload.iter().chain(&recipe.relaunch).filter_map(tracker).collect();
    trackers.sort_unstable();
    trackers.dedup();
    blocks.extend(trackers.iter().map(|at| Block { memory: Memory::Tracker, address: *at, bytes: TRACKER_BYTES }));
    blocks.sort_by_key(|b| b.address);
    for pair in blocks.windows(2) {
        if let [one, two] = pair
            && one.address.saturating_add(one.bytes) > two.address
        {
            return Err(Refused::Overlap { address: two.address });
        }
    }
    recipe.blocks = blocks;
    Ok(recipe)
}

fn tracker(placed: &Placed) -> Option<u64> {
    match placed.step {
        Step::Report { address, .. } => Some(address),
        _ => None,
    }
}
