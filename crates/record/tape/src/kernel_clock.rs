//! When kernels ran, from the ends that the GPU stored (`record --gpu-times`).
//!
//! An end is exact: the GPU wrote it. A start is computed. If the stream was idle, the kernel started some time after its doorbell. If the stream was busy, it
//! started some time after the end of the kernel before it. Both times were measured (`IDLE`, `BUSY`). If the channel waited for another, or if kernels
//! overlap, only bounds are known.
//!
//! Facts of a channel ([`Kernels::waits`], [`Kernels::writes`] and others) come in the order of its commands. Each [`Launch`] takes the facts before it.
//! Its ends may follow later, but launches of one stream must get theirs in order. All times are nanoseconds of the GPU's clock; [`Clock`] converts them.

mod clock;

pub use clock::{Clock, Moment};

use pushbuf::snapshot;
use std::collections::HashMap;

/// Nanoseconds from the doorbell to the start of a kernel on an idle stream (measured on four H200: 2.3 to 3.0 us from p1 to p99, and 1.9 to 2.8 on one).
pub const IDLE: u64 = 2_300;
/// From the end that a kernel stores to the start of the next in its stream: the minimum, and the usual time. Measured on two H200: 0.86 to 1.41 us from p1 to
/// p99. Where kernels of other streams ran, one in a hundred started earlier.
pub const BUSY: (u64, u64) = (600, 1_000);
/// The same for a kernel that another one of its graph starts (measured on two H200: 0.22 to 0.42 us).
pub const NODE: u64 = 300;
/// From the end of a copy to the start of a kernel that waits for it: the minimum, and the usual time (measured on an H200: 1.8 us at p1, 3.0 at p50, 9.5 at
/// p99).
const AFTER_A_COPY: (u64, u64) = (1_500, 3_000);
/// From the end of a kernel to the start of the next, with a small fill or an inline write between them: the minimum, and the usual time. (Measured on an H200:
/// 100 such kernels begin 2.35 us after the end, if they last as long as under CUPTI. CUPTI delays them by 2 us more).
pub const AFTER_A_WRITE: (u64, u64) = (1_500, 2_350);

/// Maximum number of words that kernels count up.
const OWN: usize = 1 << 16;

/// A channel, and the stream that was passed to the call.
pub type Stream = (usize, u64);

/// From what a start is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// The doorbell: the stream was idle.
    AfterTheDoorbell,
    /// The end of the kernel before it in its stream or in its graph.
    AfterTheOneBefore,
    /// One of both, unless a write of its channel or a kernel next to it (of another stream, or of its graph) has delayed it.
    Delayed,
    /// Nothing: it is between the earliest start and the end.
    Bounded,
}

/// A kernel that ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    pub from: Start,
    pub start: u64,
    pub earliest: u64,
    pub end: u64,
    /// From the doorbell to the start.
    pub queued: u64,
    /// Maximum error of the doorbell's time.
    pub clock_error: u64,
}

/// A launch of a kernel or of a graph, which has taken what its channel did before it.
#[derive(Debug, Clone, Copy)]
pub struct Launch {
    stream: Stream,
    gpu: Option<u32>,
    /// When its doorbell was rung, and the maximum error of that; `None` if it is not known.
    rung: Option<(u64, u64)>,
    /// It may begin while the kernel before it in its stream still runs.
    is_early: bool,
    since: Since,
}

impl Launch {
    /// Of a graph that was launched before: its channel waits only for that launch.
    pub fn waits_for_itself(mut self) -> Launch {
        self.since.waited = false;
        self
    }
}

/// What a channel did since its last kernel.
#[derive(Debug, Clone, Copy, Default)]
struct Since {
    waited: bool,
    /// Inline data, by itself or by a macro.
    wrote: bool,
    /// When the copies ended that it has waited for; 0 for none.
    copied: u64,
}

/// How a graph's kernel is ordered with others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// QMDs that it acts on when it ends; 0 for none.
    pub starts: [u64; 2],
    /// It may begin while the QMDs that act on it still run.
    pub early: bool,
}

/// A graph's kernel in one launch.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    pub qmd: u64,
    pub order: Order,
    /// `None` if it is not known.
    pub end: Option<u64>,
}

/// The kernels of one process, launch after launch.
#[derive(Debug, Default)]
pub struct Kernels {
    /// Earliest start and end of each stream's last kernel; `None` if they are not known.
    last: HashMap<Stream, Option<(u64, u64)>>,
    /// The latest ends on each GPU.
    latest: HashMap<Option<u32>, Latest>,
    since: HashMap<usize, Since>,
    /// When the last transfer of a channel ended, if that is known. `moved_by` has the same by the semaphore that the channel releases after the transfer.
    moved: HashMap<usize, u64>,
    moved_by: HashMap<u64, u64>,
    /// Words that kernels count up when they end, with the stream of these kernels. A stream waits for its own kernels by such words.
    own: HashMap<u64, Stream>,
}

snapshot!(Since { waited, wrote, copied });
snapshot!(Latest(_));
snapshot!(Kernels { last, latest, since, moved, moved_by, own });

/// The latest ends of the two streams whose kernels ended last.
#[derive(Debug, Default)]
struct Latest([Option<(Stream, u64)>; 2]);

impl Latest {
    /// The latest end of other streams' kernels that were launched before this one; 0 if there is none.
    fn of_others(&mut self, stream: Stream, end: u64) -> u64 {
        let [first, second] = self.0;
        let (mine, other) = match (first, second) {
            (Some((of, ns)), second) if of == stream => (Some(ns), second),
            (first, Some((of, ns))) if of == stream => (Some(ns), first),
            (first, _) => (None, first),
        };
        let mine = Some((stream, mine.map_or(end, |ns| ns.max(end))));
        let ends = |of: Option<(Stream, u64)>| of.map_or(0, |(_, ns)| ns);
        self.0 = if ends(mine) >= ends(other) { [mine, other] } else { [other, mine] };
        ends(other)
    }
}

impl Kernels {
    /// A channel waits, or does something else that may delay its next kernel.
    pub fn waits(&mut self, channel: usize) {
        self.since.entry(channel).or_default().waited = true;
    }

    /// A channel's stream waits for a word of memory.
    pub fn waits_for(&mut self, stream: Stream, word: u64) {
        if self.own.get(&word) != Some(&stream) {
            let since = self.since.entry(stream.0).or_default();
            since.waited = true;
            since.copied = since.copied.max(self.moved_by.get(&word).copied().unwrap_or(0));
        }
    }

    /// A segment of a channel writes inline data, and launches no kernel.
    pub fn writes(&mut self, channel: usize) {
        self.since.entry(channel).or_default().wrote = true;
    }

    /// A transfer of a copy engine's channel ended.
    pub fn moved(&mut self, channel: usize, end: u64) {
        self.moved.insert(channel, end);
    }

    /// A channel releases a word by a command.
    pub fn releases_by_command(&mut self, channel: usize, word: u64) {
        if let Some(end) = self.moved.get(&channel)
            && (self.moved_by.len() < OWN || self.moved_by.contains_key(&word))
        {
            self.moved_by.insert(word, *end);
        }
    }

    /// A kernel of a stream changes a word when it ends.
    pub fn releases(&mut self, stream: Stream, word: u64) {
        if self.own.len() < OWN || self.own.contains_key(&word) {
            self.own.insert(word, stream);
        }
    }

    /// A launch. `rung`: when its doorbell was rung, and the maximum error. `is_early`: it may begin while the kernel before it in its stream still runs.
    pub fn launch(&mut self, stream: Stream, gpu: Option<u32>, rung: Option<(u64, u64)>, is_early: bool) -> Launch {
        Launch { stream, gpu, rung, is_early, since: self.since.remove(&stream.0).unwrap_or_default() }
    }

    /// When the kernel of a launch ran; `None` if its end or its doorbell's time is not known.
    pub fn kernel(&mut self, launch: &Launch, end: Option<u64>) -> Option<Run> {
        let Launch { stream, gpu, rung, is_early, since } = *launch;
        let before = self.last.insert(stream, None);
        let (end, (bell, clock_error)) = (end?, rung?);
        let idle = bell.saturating_add(IDLE);
        let (least, usual) = if since.wrote { AFTER_A_WRITE } else { BUSY };
        // A kernel that ended later was not ahead of this one: it is in a graph launch that several segments upload.
        let ahead = before.flatten().filter(|(_, before)| *before <= end);
        let behind = |gap: u64| ahead.map(|(_, before)| before.saturating_add(gap));
        let busy = behind(usual);
        // A kernel that begins early may begin as soon as the one before it has begun.
        let earliest_busy = if is_early { ahead.map(|(earliest, _)| earliest) } else { behind(least) };
        // Not before its doorbell, not before the end of the kernel ahead of it in its stream, and not before the end of the copy that it waits for.
        let (least, usual) = AFTER_A_COPY;
        let after_copy = |ns: u64| if since.copied == 0 { 0 } else { since.copied.saturating_add(ns) };
        let earliest = earliest_busy.unwrap_or(0).max(bell).max(after_copy(least)).min(end);
        let busy_at = if is_early { earliest_busy } else { busy };
        let start = busy_at.unwrap_or(0).max(idle).max(after_copy(usual)).min(end);
        let next_to_it = self.latest.entry(gpu).or_default().of_others(stream, end);
        let is_busy = busy.is_some_and(|busy| busy > idle);
        let from = match before {
            // A kernel of the stream whose end is not known, or was later; a wait for another channel.
            Some(None) => Start::Bounded,
            Some(Some((_, before))) if before > end => Start::Bounded,
            _ if since.waited || is_early => Start::Bounded,
            _ if next_to_it > start || since.wrote && is_busy => Start::Delayed,
            _ if is_busy => Start::AfterTheOneBefore,
            _ => Start::AfterTheDoorbell,
        };
        let run = Run { from, start, earliest, end, queued: start.saturating_sub(bell), clock_error };
        self.last.insert(stream, Some((earliest, end)));
        Some(run)
    }

    /// When the kernels of a graph ran in a launch, in the order of their ends, each with its index.
    pub fn graph(&mut self, launch: &Launch, nodes: &[Node]) -> Vec<(usize, Run)> {
        let ended = nodes.iter().enumerate().filter_map(|(i, node)| Some((node.end?, i, node)));
        let mut ended: Vec<(u64, usize, &Node)> = ended.collect();
        ended.sort_by_key(|(end, ..)| *end);
        let then = |node: &Node| node.order.starts.into_iter().filter(|qmd| *qmd != 0);
        // The latest end of the kernels that a kernel waits for.
        let mut waits_for: HashMap<u64, u64> = HashMap::new();
        for (end, _, node) in &ended {
            for then in then(node) {
                let latest = waits_for.entry(then).or_insert(*end);
                *latest = (*latest).max(*end);
            }
        }
        // The earliest start of these kernels.
        let mut begun: HashMap<u64, u64> = HashMap::new();
        let is_whole = ended.len() == nodes.len();
        let bell = launch.rung.map_or(0, |(ns, _)| ns);
        let mut all = Vec::with_capacity(ended.len());
        // The first kernel that waits for no other. Other such kernels may run at the same time.
        let mut first: Option<Run> = None;
        for (end, i, node) in ended {
            let run = match (waits_for.get(&node.qmd), first) {
                (Some(before), _) => {
                    let is_early = node.order.early;
                    let after = before.saturating_add(NODE);
                    let start = if is_early { begun.get(&node.qmd).copied().unwrap_or(0) } else { after };
                    let earliest = start.max(bell).min(end);
                    let idle = launch.rung.map_or(0, |(ns, _)| ns.saturating_add(IDLE));
                    let start = earliest.max(idle).min(end);
                    let from = if is_whole && !is_early { Start::AfterTheOneBefore } else { Start::Bounded };
                    let (rung, clock_error) = launch.rung.unwrap_or((earliest, 0));
                    Run { from, start, earliest, end, queued: start.saturating_sub(rung), clock_error }
                }
                (None, Some(first)) => {
                    let from = if first.from == Start::Bounded { Start::Bounded } else { Start::Delayed };
                    Run { from, end, ..first }
                }
                (None, None) => match self.kernel(launch, Some(end)) {
                    Some(run) => *first.insert(run),
                    None => continue,
                },
            };
            for then in then(node) {
                let earliest = begun.entry(then).or_insert(run.earliest);
                *earliest = (*earliest).max(run.earliest);
            }
            all.push((i, run));
        }
        self.last.insert(launch.stream, all.last().map(|(_, last)| (last.earliest, last.end)));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// When the doorbells were rung.
    const BELL: u64 = 1_790_000_000_123_456_789;
    const STREAM: Stream = (1, 0);

    impl Kernels {
        /// A kernel that ended so many nanoseconds after its doorbell.
        fn ran(&mut self, stream: Stream, after: u64) -> Run {
            self.ran_early(stream, after, false)
        }

        fn ran_early(&mut self, stream: Stream, after: u64, is_early: bool) -> Run {
            let launch = self.launch(stream, Some(0), Some((BELL, 50)), is_early);
            self.kernel(&launch, Some(BELL + after)).unwrap()
        }

        fn graph_ran(&mut self, nodes: &[(u64, Order, Option<u64>)]) -> Vec<(usize, Run)> {
            let launch = self.launch(STREAM, Some(0), Some((BELL, 50)), false);
            let node = |(qmd, order, end): &(_, _, Option<u64>)| Node {
                qmd: *qmd,
                order: *order,
                end: end.map(|after| BELL + after),
            };
            self.graph(&launch, &nodes.iter().map(node).collect::<Vec<_>>())
        }
    }

    #[test]
    fn a_kernel_that_waits_for_a_copy_starts_behind_it() {
        let (mut kernels, copied) = (Kernels::default(), BELL + 50_000);
        kernels.moved(7, copied);
        kernels.releases_by_command(7, 0x1000);
        kernels.waits_for(STREAM, 0x1000);
        let run = kernels.ran(STREAM, 60_000);
        assert_eq!((run.from, run.earliest), (Start::Bounded, copied + AFTER_A_COPY.0));
        assert_eq!(run.start, copied + AFTER_A_COPY.1);
        // The next kernel follows the previous one; a wait for another word does not concern copies.
        kernels.waits_for(STREAM, 0x2000);
        let run = kernels.ran(STREAM, 70_000);
        assert_eq!((run.from, run.earliest), (Start::Bounded, BELL + 60_000 + BUSY.0));
    }

    /// (A clock's reading may have any value on a damaged tape.)
    #[test]
    fn clocks_that_are_far_apart_are_no_panic() {
        for (bell, end) in [(1 << 40, 1 << 63), (i64::MAX as u64, 2), (u64::MAX, u64::MAX - 1), (0, 0)] {
            let mut kernels = Kernels::default();
            for end in [end, end.wrapping_sub(1)] {
                kernels.writes(1);
                let launch = kernels.launch(STREAM, None, Some((bell, u64::MAX)), false);
                let run = kernels.kernel(&launch, Some(end)).unwrap();
                assert!(run.earliest <= run.start && run.start <= run.end);
            }
        }
    }

    #[test]
    fn a_kernel_behind_a_write_starts_later() {
        let mut kernels = Kernels::default();
        kernels.ran(STREAM, 20_000);
        kernels.writes(1);
        let run = kernels.ran(STREAM, 60_000);
        assert_eq!((run.from, run.earliest), (Start::Delayed, BELL + 20_000 + AFTER_A_WRITE.0));
        assert_eq!(run.start, BELL + 20_000 + AFTER_A_WRITE.1);
    }

    /// A programmatic dependent launch. The GPU still stores its end after that of the previous kernel.
    #[test]
    fn a_kernel_that_may_begin_early_has_a_bounded_start() {
        let mut kernels = Kernels::default();
        let first = kernels.ran(STREAM, 20_000);
        let second = kernels.ran_early(STREAM, 21_000, true);
        assert_eq!((second.from, second.earliest), (Start::Bounded, first.earliest));
        assert!(second.start < first.end);
        let third = kernels.ran(STREAM, 30_000);
        assert_eq!((third.from, third.earliest), (Start::AfterTheOneBefore, second.end + BUSY.0));
        // The same in a graph.
        let order = |then, early| Order { starts: [then, 0], early };
        let ran = Kernels::default().graph_ran(&[
            (0x1000, order(0x2000, false), Some(20_000)),
            (0x2000, order(0x3000, true), Some(21_000)),
            (0x3000, order(0, false), Some(30_000)),
        ]);
        let starts: Vec<_> = ran.iter().map(|(_, run)| (run.from, run.earliest)).collect();
        let then = (Start::AfterTheOneBefore, second.end + NODE);
        assert_eq!(starts[1..], [(Start::Bounded, first.earliest), then]);
    }

    #[test]
    fn a_graph_without_ends_leaves_the_start_of_the_next_kernel_bounded() {
        let mut kernels = Kernels::default();
        kernels.ran(STREAM, 20_000);
        assert!(kernels.graph_ran(&[(0x1000, Order::default(), None)]).is_empty());
        assert_eq!(kernels.ran(STREAM, 90_000).from, Start::Bounded);
    }

    #[test]
    fn a_kernel_of_another_stream_may_be_in_the_way() {
        let mut kernels = Kernels::default();
        assert_eq!(kernels.ran((1, 1), 20_000).from, Start::AfterTheDoorbell);
        assert_eq!(kernels.ran((1, 2), 22_000).from, Start::Delayed);
        // On its own stream, the kernel before it is known.
        assert_eq!(kernels.ran((1, 2), 90_000).from, Start::AfterTheOneBefore);
        // Another channel of the GPU.
        assert_eq!(kernels.ran((2, 1), 91_000).from, Start::Delayed);
    }

    #[test]
    fn the_latest_ends_of_others_are_remembered() {
        let mut latest = Latest::default();
        let (a, b, c) = ((1, 0), (2, 0), (3, 0));
        assert_eq!(latest.of_others(a, 10), 0);
        assert_eq!(latest.of_others(a, 20), 0);
        assert_eq!(latest.of_others(b, 15), 20);
        assert_eq!(latest.of_others(a, 30), 15);
        assert_eq!(latest.of_others(c, 40), 30);
        assert_eq!(latest.of_others(c, 35), 30);
        assert_eq!(latest.of_others(b, 41), 40);
        assert_eq!(latest.of_others(c, 50), 41);
    }
}
