//! Ends of a graph's kernels. Their QMDs are uploaded once and launched many times, so each launch first writes new slots into them.
//!
//! A launch of an uploaded graph is a short segment: a wait for the launch before, then the QMDs that start the graph. The GPU gets a copy of that
//! segment ([`super::segments`]). After the wait the copy writes the slots into the QMDs, by an inline write of the same engine.

use super::segments::{self, Words};
use super::stamps;
use crate::process::{locked, sys};
use crate::record;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use pushbuf::gpfifo::Raw;
use pushbuf::header::Kind;
use pushbuf::qmd::end_time::{self, Handed, Node};
use tape::region::Control;
use tape::stamp::{AS_BEFORE, LaunchedBody, Run, STRIDE, kind, payload};

/// Maximum numbers of remembered QMDs of graphs, and of groups of QMDs that start one another.
const NODES: usize = 1 << 15;
const GROUPS: usize = 1 << 12;
/// How far from its hash a QMD may be in the table.
const NEAR: usize = 32;
/// Maximum numbers of QMDs of one upload, and of runs of QMDs of one group.
const UPLOAD: usize = 1 << 12;
const RUNS: usize = 8;
/// Maximum words of a segment that launches a graph.
const SHORT: usize = 1024;
/// Words of a write into QMDs, without the data.
const WRITE: usize = 9;
/// Words of a release that are written: the address and the payload.
const RELEASE: usize = 3;
/// LAUNCH_DMA of the compute class: DST_MEMORY_LAYOUT PITCH, SYSMEMBAR_DISABLE; as CUDA writes QMDs.
const WRITE_DMA: u32 = 0x41;

#[derive(Clone, Copy)]
struct Place {
    qmd: u64,
    group: u32,
    uploaded: u32,
    /// The call that wrote it.
    call: u64,
}

#[derive(Clone, Copy)]
struct Group {
    /// The number of its upload: another upload may use its place.
    uploaded: u32,
    /// Kernels that store their end.
    runs: [Run; RUNS],
    n: u32,
    /// All of its kernels.
    kernels: u32,
}

struct State {
    nodes: [Place; NODES],
    groups: [Group; GROUPS],
    next_group: u32,
    uploads: u32,
    /// The latest upload: `n` nodes in address order. A graph of some thousand nodes is uploaded in several segments.
    upload: [Node; UPLOAD],
    n: usize,
}

/// 1.2 MiB, mapped when the first kernel is stamped, because most programs do not need it. Null until then.
static STATE: AtomicPtr<State> = AtomicPtr::new(core::ptr::null_mut());

/// On a separate cache line: launches read the data that the linker may put next to it.
#[repr(align(128))]
struct Busy(AtomicBool);
static BUSY: Busy = Busy(AtomicBool::new(false));

/// Runs `f` in one thread at a time. `None` if another thread runs one: the tap never waits.
fn alone<R>(f: impl FnOnce(&mut State) -> R) -> Option<R> {
    // ORDERING: Acquire and Release: each thread sees all stores of the one before it.
    if BUSY.0.swap(true, Ordering::Acquire) {
        return None;
    }
    // SAFETY: null, or the mapping that `begin` made and that is never unmapped. BUSY admits one thread.
    let r = unsafe { STATE.load(Ordering::Acquire).as_mut() }.map(f);
    BUSY.0.store(false, Ordering::Release);
    r
}

/// Before the first stamp.
pub fn begin() {
    if !STATE.load(Ordering::Relaxed).is_null() {
        return;
    }
    // All zero is a State: integers and arrays of them.
    let at = locked::zeroed(size_of::<State>());
    if let Some(at) = at.filter(|_| STATE.load(Ordering::Relaxed).is_null()) {
        STATE.store(at as *mut State, Ordering::Release);
    }
}

/// Remembers which QMDs of an uploaded graph start one another. `call`: the thread's call, which uploads it; 0 if it is not known.
#[cold]
#[inline(never)]
pub fn uploaded(length: usize, call: u64, word: impl Fn(usize) -> u32) {
    alone(|s| {
        s.upload(|to| end_time::nodes(length, &word, stamps::is_slot, |node| to.put(Node { call, ..node })));
    });
}

/// Nodes of an upload, after those of the upload before.
struct Upload<'a> {
    nodes: &'a mut [Node; UPLOAD],
    n: usize,
}

impl Upload<'_> {
    fn put(&mut self, node: Node) {
        if let Some(to) = self.nodes.get_mut(self.n) {
            *to = node;
            self.n += 1;
        }
    }
}

/// Where a QMD is among nodes in the order of their addresses.
fn find(nodes: &[Node], address: u64) -> Option<usize> {
    nodes.binary_search_by_key(&address, |node| node.address).ok()
}

/// True if nodes continue the upload before: one of them starts an earlier node, or an earlier node starts one of them.
///
/// (A node that is uploaded again may belong to another graph. So it connects nothing.)
fn continues(before: &[Node], nodes: &[Node]) -> bool {
    let is_old = |qmd: u64| find(before, qmd).is_some() && find(nodes, qmd).is_none();
    let is_new = |qmd: u64| find(nodes, qmd).is_some() && find(before, qmd).is_none();
    nodes.iter().any(|node| node.starts.iter().any(|qmd| is_old(*qmd)))
        || before.iter().any(|node| is_old(node.address) && node.starts.iter().any(|qmd| is_new(*qmd)))
}

impl State {
    /// `each` calls its function with each node that a segment uploads.
    fn upload(&mut self, each: impl Fn(&mut Upload)) {
        let mut put = Upload { nodes: &mut self.upload, n: self.n };
        each(&mut put);
        let (mut from, mut to) = (self.n, put.n);
        if to == UPLOAD {
            let mut put = Upload { nodes: &mut self.upload, n: 0 };
            each(&mut put);
            (from, to) = (0, put.n);
        }
        let Some((before, nodes)) = self.upload.get_mut(..to).and_then(|all| all.split_at_mut_checked(from)) else {
            return;
        };
        nodes.sort_unstable_by_key(|node| node.address);
        let goes_on = continues(before, nodes);
        for node in before {
            // (Without an address it is not a node.)
            if !goes_on || find(nodes, node.address).is_some() {
                *node = Node::NONE;
            }
        }
        self.link(to);
    }

    fn link(&mut self, n: usize) {
        self.uploads = self.uploads.wrapping_add(1).max(1);
        self.n = 0;
        for i in 0..n {
            if let Some(node) = self.upload.get(i).copied().filter(|node| node.address != 0)
                && let Some(to) = self.upload.get_mut(self.n)
            {
                *to = node;
                self.n += 1;
            }
        }
        let n = self.n;
        let Some(nodes) = self.upload.get_mut(..n) else { return };
        nodes.sort_unstable_by_key(|node| node.address);
        // A QMD and those that it starts form one group. Its number is the lowest of its nodes' numbers, passed on until
        // no node changes.
        nodes.iter_mut().enumerate().for_each(|(i, node)| node.group = i as u32);
        loop {
            let mut changed = false;
            for i in 0..n {
                for then in nodes[i].starts {
                    let Some(j) = find(nodes, then) else { continue };
                    let least = nodes[i].group.min(nodes[j].group);
                    changed |= nodes[i].group != least || nodes[j].group != least;
                    (nodes[i].group, nodes[j].group) = (least, least);
                }
            }
            if !changed {
                break;
            }
        }
        for i in 0..n {
            if self.upload[i].group == i as u32 {
                self.group(i, n);
            }
        }
    }

    /// The group whose first node is number `first` of the upload.
    fn group(&mut self, first: usize, n: usize) {
        let index = self.next_group;
        self.next_group = (index + 1) % GROUPS as u32;
        let mut group = Group { uploaded: self.uploads, runs: [Run::default(); RUNS], n: 0, kernels: 0 };
        for i in first..n {
            let node = self.upload[i];
            if node.group != first as u32 {
                continue;
            }
            self.remember(&node, index);
            group.kernels += u32::from(node.is_kernel);
            // Too scattered: its ends remain unknown.
            if node.slot_at != 0 && !put(&mut group.runs, &mut group.n, node.address, node.slot_at) {
                return;
            }
        }
        if let Some(to) = self.groups.get_mut(index as usize) {
            *to = group;
        }
    }

    /// The kernels of a group that another call has written; all where there is no `call`. False if they are too scattered.
    fn runs_of(&self, group: &Group, call: Option<u64>, to: &mut [Run; RUNS], n: &mut u32) -> bool {
        let is_before = |qmd: u64| call.is_none() || self.known(qmd).is_some_and(|place| Some(place.call) != call);
        group.runs.iter().take(group.n as usize).all(|run| {
            let qmds = (0..run.count).map(|i| run.qmd + STRIDE * u64::from(i));
            qmds.filter(|qmd| is_before(*qmd)).all(|qmd| put(to, n, qmd, run.slot_at))
        })
    }

    fn place(&self, qmd: u64) -> usize {
        ((qmd >> 8).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49) as usize % NODES
    }

    fn remember(&mut self, node: &Node, group: u32) {
        let (qmd, call) = (node.address, node.call);
        let (first, uploaded) = (self.place(qmd), self.uploads);
        let place = (0..NEAR).map(|i| (first + i) % NODES).find(|i| [0, qmd].contains(&self.nodes[*i].qmd));
        if let Some(i) = place {
            self.nodes[i] = Place { qmd, group, uploaded, call };
        }
    }

    fn known(&self, qmd: u64) -> Option<&Place> {
        let first = self.place(qmd);
        (0..NEAR).map(|i| &self.nodes[(first + i) % NODES]).find(|p| p.qmd == qmd)
    }

    fn find(&self, qmd: u64) -> Option<u32> {
        let found = self.known(qmd)?;
        let group = self.groups.get(found.group as usize)?;
        (group.uploaded == found.uploaded && group.kernels > 0).then_some(found.group)
    }
}

/// Adds a kernel to runs. False if there are too many.
fn put(runs: &mut [Run; RUNS], n: &mut u32, qmd: u64, slot_at: u32) -> bool {
    let last = (*n as usize).checked_sub(1).and_then(|last| runs.get_mut(last));
    match last {
        Some(run) if run.qmd + STRIDE * u64::from(run.count) == qmd && run.slot_at == slot_at => run.count += 1,
        _ => {
            let Some(run) = runs.get_mut(*n as usize) else { return false };
            *run = Run { qmd, count: 1, slot_at };
            *n += 1;
        }
    }
    true
}

/// If a segment launches graphs that were uploaded before: the GPFIFO entry of a copy that has their ends stored.
///
/// `entry`: the channel's slot, and the entry's number. `can_copy`: whether the GPU may be given a copy. `call`: the segment also writes QMDs of a graph, in
/// this call; only what earlier calls wrote gets slots.
#[inline(never)]
pub fn launch(
    length: usize,
    word: impl Fn(usize) -> u32,
    gp: Raw,
    entry: (u32, u64),
    c: &Control,
    can_copy: bool,
    call: Option<u64>,
) -> Option<Raw> {
    if length > SHORT || call == Some(0) {
        return None;
    }
    let mut first = None;
    end_time::handed(length, &word, |handed| {
        first.get_or_insert(handed);
    });
    let first = first?;
    let can_copy = can_copy && (call.is_none() || end_time::may_write_at(first.at, length, &word));
    alone(|s| s.copy(length, &word, gp, entry, first, c, can_copy, call)).flatten()
}

impl State {
    #[allow(clippy::too_many_arguments)]
    fn copy(
        &mut self,
        length: usize,
        word: impl Fn(usize) -> u32,
        gp: Raw,
        (slot, entry): (u32, u64),
        Handed { at: start, subchannel, .. }: Handed,
        c: &Control,
        can_copy: bool,
        call: Option<u64>,
    ) -> Option<Raw> {
        let mut groups = [0u32; RUNS];
        let (mut n, mut hands_older) = (0, false);
        end_time::handed(length, &word, |handed| {
            hands_older |= self.known(handed.qmd).is_some_and(|place| Some(place.call) != call);
            if let Some(group) = self.find(handed.qmd)
                && !groups.get(..n).is_some_and(|known| known.contains(&group))
                && let Some(to) = groups.get_mut(n)
            {
                *to = group;
                n += 1;
            }
        });
        // (One of several segments of an upload: none of its kernels has run.)
        if call.is_some() && !hands_older {
            return None;
        }
        let mut runs = [Run::default(); RUNS];
        let mut used = 0u32;
        for group in groups.get(..n)? {
            let group = self.groups.get(*group as usize)?;
            // (Those that the segment writes were counted.)
            if stamps::steps_back() && call.is_none() {
                c.by_cupti.fetch_add(group.kernels.into(), Ordering::Relaxed);
            }
            if !self.runs_of(group, call, &mut runs, &mut used) {
                return None;
            }
        }
        let runs = runs.get(..used as usize).filter(|runs| !runs.is_empty())?;
        let kernels: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        let data = RELEASE * kernels as usize;
        let whole = length + runs.len() * WRITE + data;
        let launched = |number: u64| {
            let body = LaunchedBody { entry, number, slot, runs: runs.len() as u32 };
            // SAFETY: Run is Plain.
            let bytes = unsafe { core::slice::from_raw_parts(runs.as_ptr().cast::<u8>(), size_of_val(runs)) };
            record::event(kind::LAUNCHED, 0, sys::tsc(), &body, bytes, &[]);
        };
        let write = |to: &mut Words, number: u64| {
            (0..start).for_each(|i| to.put(word(i)));
            let mut next = number;
            for run in runs {
                to.write_slots(subchannel, run, &mut next);
            }
            (start..length).for_each(|i| to.put(word(i)));
            launched(number);
        };
        let copy = if can_copy { segments::copy(gp, whole, kernels, c, write) } else { None };
        if copy.is_none() {
            launched(AS_BEFORE);
        }
        copy
    }
}

impl Words {
    /// An inline write of the next slots into the QMDs of a run.
    fn write_slots(&mut self, subchannel: u8, run: &Run, next: &mut u64) {
        let first = run.qmd + 4 * u64::from(run.slot_at);
        let count = run.count;
        let bytes = 4 * RELEASE as u32;
        self.header(subchannel, Kind::Inc, end_time::LINE_LENGTH_IN, 5);
        [bytes, count, (first >> 32) as u32, first as u32, STRIDE as u32].into_iter().for_each(|w| self.put(w));
        self.header(subchannel, Kind::Inc, end_time::LAUNCH_DMA, 1);
        self.put(WRITE_DMA);
        self.header(subchannel, Kind::NonInc, end_time::LOAD_INLINE_DATA, (RELEASE as u32 * count) as u16);
        for _ in 0..count {
            let slot = stamps::slot(*next);
            [slot as u32, (slot >> 32) as u32, payload(*next)].into_iter().for_each(|w| self.put(w));
            *next += 1;
        }
    }
}

/// In a forked child: the graphs are the parent's.
pub fn renew() {
    BUSY.0.store(false, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> Box<State> {
        // SAFETY: integers and arrays of them: all zero is a value.
        unsafe { Box::<State>::new_zeroed().assume_init() }
    }

    const SLOT_AT: u32 = 28;

    fn run(qmd: u64, count: u32) -> Run {
        Run { qmd, count, slot_at: SLOT_AT }
    }

    fn upload(s: &mut State, nodes: &[(u64, bool, [u64; 2])]) {
        upload_in(s, 0, nodes);
    }

    fn upload_in(s: &mut State, call: u64, nodes: &[(u64, bool, [u64; 2])]) {
        s.upload(|to| {
            for (address, is_kernel, starts) in nodes {
                to.put(Node {
                    address: *address,
                    is_kernel: *is_kernel,
                    slot_at: if *is_kernel { SLOT_AT } else { 0 },
                    starts: *starts,
                    call,
                    ..Node::NONE
                });
            }
        });
    }

    /// CUDA begins a new segment where its memory for commands ends.
    #[test]
    fn a_graph_that_several_segments_upload_is_one_group() {
        let mut s = state();
        let at = |i: u64| 0x2_0000_0000 + STRIDE * i;
        let chain = |of: std::ops::Range<u64>, end: u64| {
            of.rev().map(|i| (at(i), true, [if i == end { 0 } else { at(i + 1) }, 0])).collect::<Vec<_>>()
        };
        // A graph before it, at its first addresses.
        upload(&mut s, &chain(0..4, 3));
        // 0 to 9 and 20 to 29, then 10 to 19 and 30 to 39.
        upload(&mut s, &[chain(0..10, 39), chain(20..30, 39)].concat());
        upload(&mut s, &[chain(10..20, 39), chain(30..40, 39)].concat());
        let group = s.find(at(0)).unwrap();
        assert!((1..40).all(|i| s.find(at(i)) == Some(group)));
        let of = &s.groups[group as usize];
        assert_eq!((of.n, of.kernels, of.runs[0]), (1, 40, run(at(0), 40)));
        // Another graph at some of its addresses: the rest is removed.
        upload(&mut s, &chain(5..8, 7));
        let other = s.find(at(5)).unwrap();
        assert_ne!(other, group);
        assert_eq!((s.groups[other as usize].kernels, s.n), (3, 3));
        // One node again, with other arguments: it still belongs to its graph.
        upload(&mut s, &[(at(6), true, [at(7), 0])]);
        assert_eq!(s.find(at(6)), s.find(at(7)));
        // More than the table holds.
        upload(&mut s, &chain(0..UPLOAD as u64 + 9, UPLOAD as u64 + 9));
        upload(&mut s, &chain(0..3, 2));
        assert_eq!(s.n, 3);
    }

    #[test]
    fn what_starts_one_another_is_one_group() {
        let mut s = state();
        let at = |i: u64| 0x2_0000_0000 + STRIDE * i;
        // order -> 1 -> 2 -> 3, in CUDA's order of upload; then a kernel of another group.
        upload(
            &mut s,
            &[
                (at(1), true, [at(2), 0]),
                (at(0), false, [at(1), 0]),
                (at(3), true, [0, 0]),
                (at(2), true, [at(3), 0]),
                (at(9), true, [0, 0]),
            ],
        );
        let group = s.find(at(0)).unwrap();
        assert!((1..4).all(|i| s.find(at(i)) == Some(group)));
        let runs = &s.groups[group as usize];
        assert_eq!((runs.n, runs.runs[0]), (1, run(at(1), 3)));
        let other = s.find(at(9)).unwrap();
        assert!(other != group && s.groups[other as usize].runs[0].qmd == at(9));
        assert_eq!(s.find(at(4)), None);
        // Uploaded again, as another graph.
        upload(&mut s, &[(at(1), true, [0, 0])]);
        assert_ne!(s.find(at(1)), Some(group));
    }

    /// Four kernels in a row, and a call that writes some of them again and launches the graph.
    #[test]
    fn an_updated_graph_gives_slots_to_what_it_does_not_write_again() {
        let at = |i: u64| 0x2_0000_0000 + STRIDE * i;
        let chain: Vec<_> = (0..4).map(|i| (at(i), true, [if i == 3 { 0 } else { at(i + 1) }, 0])).collect();
        let slots = |s: &State, call| {
            let (mut runs, mut n) = ([Run::default(); RUNS], 0);
            let group = &s.groups[s.find(at(0)).unwrap() as usize];
            assert!(s.runs_of(group, call, &mut runs, &mut n));
            runs[..n as usize].to_vec()
        };
        for (again, expected) in [(3..4, vec![run(at(0), 3)]), (1..2, vec![run(at(0), 1), run(at(2), 2)])] {
            let mut s = state();
            upload_in(&mut s, 1, &chain);
            assert_eq!(slots(&s, Some(1)), []);
            for call in 2..5 {
                upload_in(&mut s, call, &chain[again.clone()]);
                assert_eq!(slots(&s, Some(call)), expected);
                assert_eq!(slots(&s, None), [run(at(0), 4)]);
            }
        }
    }

    #[test]
    fn a_group_that_is_too_scattered_has_no_times() {
        let mut s = state();
        let nodes: Vec<_> = (0..=RUNS as u64).map(|i| (0x1_0000 * (i + 1), true, [0x1_0000 * (i + 2), 0])).collect();
        upload(&mut s, &nodes);
        assert!(nodes.iter().all(|(at, ..)| s.find(*at).is_none()));
    }
}
