//! What a rank did between events that all ranks have in common: each moment is put down to one thing.
//!
//! While the GPU ran something, that counts: a kernel, else a copy, else a collective, in which the rank waited for others. While the GPU was idle, it waited for the
//! thread that made the next submission or event. Then the thread's activity counts: a wait for a lock, a call, a wait for a condition, or time outside of CUDA's calls.

use decode::Source;
use lock_analysis::fast_map::FastMap;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of events of one name that are listed.
const KEPT: usize = 256;
/// Maximum number of names of events.
const NAMES: usize = 16;

/// Which one counts of two at the same time: the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    Kernel,
    Copy,
    Collective,
    Lock,
    Call,
    Condition,
    Outside,
}

/// A time and what it was spent on. Times are time stamps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub from: u64,
    pub to: u64,
    pub level: Level,
    pub of: u32,
}

/// An event that all ranks have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    pub begin: u64,
    pub end: u64,
    /// Number of its name.
    pub name: u32,
    pub thread: Source,
}

/// An event that is listed, and how the time since the begin of the listed event before it was spent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub event: Event,
    pub number: u64,
    pub spent: Vec<(u32, u64)>,
}

/// Pieces in order that do not overlap.
pub fn flat(spans: &[Span]) -> Vec<Span> {
    let mut ends: Vec<(u64, bool, usize)> = Vec::with_capacity(2 * spans.len());
    for (i, s) in spans.iter().enumerate().filter(|(_, s)| s.from < s.to) {
        ends.extend([(s.from, true, i), (s.to, false, i)]);
    }
    ends.sort_unstable();
    let (mut out, mut active, mut at) = (Vec::<Span>::new(), BTreeSet::new(), 0);
    for (tsc, begins, i) in ends {
        if let Some((level, of, _)) = active.first().copied().filter(|_| tsc > at) {
            match out.last_mut() {
                Some(last) if (last.to, last.level, last.of) == (at, level, of) => last.to = tsc,
                _ => out.push(Span { from: at, to: tsc, level, of }),
            }
        }
        at = tsc;
        let key = (spans[i].level, spans[i].of, i);
        if begins {
            active.insert(key);
        } else {
            active.remove(&key);
        }
    }
    out
}

/// What the threads did that the GPU waited for. `marks`: when which thread submitted something. `outside`: the number that stands for time outside of calls.
fn host(threads: &FastMap<Source, Vec<Span>>, marks: &[(u64, Source)], outside: u32) -> Vec<Span> {
    let mut out = Vec::new();
    let flat: FastMap<Source, Vec<Span>> = threads.iter().map(|(thread, spans)| (*thread, flat(spans))).collect();
    let mut last: Option<u64> = None;
    for (tsc, thread) in marks {
        let Some(from) = last.replace(*tsc).filter(|from| from < tsc) else { continue };
        out.push(Span { from, to: *tsc, level: Level::Outside, of: outside });
        let spans = flat.get(thread).map_or(&[][..], Vec::as_slice);
        let first = spans.partition_point(|s| s.to <= from);
        let within = spans[first..].iter().take_while(|s| s.from < *tsc);
        out.extend(within.map(|s| Span { from: s.from.max(from), to: s.to.min(*tsc), ..*s }));
    }
    out
}

/// The steps between events. `gpu`: what the GPU ran.
pub fn steps(
    mut events: Vec<Event>,
    gpu: &[Span],
    threads: &FastMap<Source, Vec<Span>>,
    submissions: &[(u64, Source)],
    outside: u32,
) -> Vec<Step> {
    events.sort_by_key(|e| (e.begin, e.end));
    let mut marks = submissions.to_vec();
    marks.extend(events.iter().map(|e| (e.begin, e.thread)));
    marks.sort_unstable_by_key(|(tsc, thread)| (*tsc, thread.process, thread.tid));
    let mut spans = host(threads, &marks, outside);
    spans.extend(gpu);
    let pieces = flat(&spans);
    let mut next = 0;
    let mut before: Option<u64> = None;
    let each = listed(events).into_iter().map(|(number, event)| {
        let mut spent = BTreeMap::<u32, u64>::new();
        let from = before.replace(event.begin).unwrap_or(event.begin);
        while let Some(piece) = pieces.get(next).filter(|piece| piece.from < event.begin) {
            let ticks = piece.to.min(event.begin).saturating_sub(piece.from.max(from));
            *spent.entry(piece.of).or_default() += ticks;
            if piece.to > event.begin {
                break;
            }
            next += 1;
        }
        spent.retain(|_, ticks| *ticks > 0);
        Step { event, number, spent: spent.into_iter().collect() }
    });
    each.collect()
}

/// The events that are listed, in order, with their numbers: of each name each, or every 2nd, 4th, 8th ...: the same on each rank, however long it ran.
fn listed(events: Vec<Event>) -> Vec<(u64, Event)> {
    let mut counts = BTreeMap::<u32, u64>::new();
    events.iter().for_each(|e| *counts.entry(e.name).or_default() += 1);
    let mut by_count: Vec<(u64, u32)> = counts.iter().map(|(name, count)| (*count, *name)).collect();
    by_count.sort_by_key(|(count, name)| (std::cmp::Reverse(*count), *name));
    let wanted: BTreeSet<u32> = by_count.into_iter().take(NAMES).map(|(_, name)| name).collect();
    let mut seen = BTreeMap::<u32, u64>::new();
    let numbered = events.into_iter().map(|e| {
        let n = seen.entry(e.name).or_default();
        *n += 1;
        (*n - 1, e)
    });
    let stride = |name| counts.get(&name).map_or(1, |count| count.div_ceil(KEPT as u64).next_power_of_two());
    numbered.filter(|(n, e)| wanted.contains(&e.name) && n % stride(e.name) == 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: Source = Source { process: 0, tid: 1 };
    const OUTSIDE: u32 = 9;

    fn span(from: u64, to: u64, level: Level, of: u32) -> Span {
        Span { from, to, level, of }
    }

    fn event(begin: u64, end: u64) -> Event {
        Event { begin, end, name: 0, thread: T }
    }

    #[test]
    fn each_moment_is_put_down_to_one_thing() {
        // A kernel from 10 to 40 within a call from 5 to 60, a wait for a lock in that call, a collective from 100 on.
        let gpu = [span(10, 40, Level::Kernel, 1), span(100, 130, Level::Collective, 2)];
        let calls = vec![span(5, 60, Level::Call, 3), span(50, 55, Level::Lock, 4)];
        let found =
            steps(vec![event(0, 0), event(100, 130)], &gpu, &[(T, calls)].into_iter().collect(), &[(8, T)], OUTSIDE);
        assert_eq!(found[0].spent, []);
        assert_eq!(found[1].spent, [(1, 30), (3, 20), (4, 5), (OUTSIDE, 45)]);
    }

    /// The GPU is idle from 0 to 50. The loader submits at 50 and sleeps before that. The other thread waits for it in a call.
    #[test]
    fn an_idle_gpu_waits_for_the_thread_that_submits_next() {
        let other = Source { process: 0, tid: 2 };
        let waits = vec![span(0, 80, Level::Call, 3)];
        let threads: FastMap<Source, Vec<Span>> = [(other, waits)].into_iter().collect();
        let found = steps(vec![event(0, 0), event(90, 95)], &[], &threads, &[(50, T), (60, other)], OUTSIDE);
        assert_eq!(found[1].spent, [(3, 10), (OUTSIDE, 80)]);
    }

    #[test]
    fn long_recordings_list_the_same_events() {
        let numbers = |count: u64| -> Vec<u64> {
            listed((0..count).map(|n| event(n, n)).collect()).into_iter().map(|(n, _)| n).collect()
        };
        let (long, longer) = (numbers(10_000), numbers(10_100));
        assert!(long.len() <= KEPT && longer.starts_with(&long), "{} {}", long.len(), longer.len());
        assert_eq!(numbers(KEPT as u64).len(), KEPT);
    }

    #[test]
    fn pieces_of_the_same_thing_are_one() {
        let spans = [span(0, 10, Level::Call, 1), span(10, 20, Level::Call, 1), span(5, 15, Level::Kernel, 2)];
        let pieces = [span(0, 5, Level::Call, 1), span(5, 15, Level::Kernel, 2), span(15, 20, Level::Call, 1)];
        assert_eq!(flat(&spans), pieces);
    }
}
