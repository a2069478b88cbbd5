//! What did not fit into the rings, by the GAP events on the tape.
//!
//! A GAP event carries its ring's totals, and a ring keeps them when its thread ends and another takes it over. Which ring
//! a thread had is not on a tape of version 1, so the totals of two threads may hold the same gaps.

use crate::recording::Source;
use std::collections::HashMap;
use tape::event::GapBody;

/// Totals of events, GPFIFO entries and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gaps {
    pub events: u64,
    pub entries: u64,
    pub bytes: u64,
}

impl Gaps {
    fn of(b: &GapBody) -> Gaps {
        Gaps { events: b.events, entries: b.entries, bytes: b.bytes }
    }

    fn each(self, other: Gaps, f: fn(u64, u64) -> u64) -> Gaps {
        Gaps {
            events: f(self.events, other.events),
            entries: f(self.entries, other.entries),
            bytes: f(self.bytes, other.bytes),
        }
    }
}

/// Gathers the GAP events of a tape.
#[derive(Clone, Debug, Default)]
pub struct GapTotals {
    /// Of each thread: the first and the highest totals that it reported.
    threads: HashMap<Source, (Gaps, Gaps)>,
}

impl GapTotals {
    pub fn add(&mut self, source: Source, b: &GapBody) {
        let now = Gaps::of(b);
        let (_, highest) = self.threads.entry(source).or_insert((now, now));
        *highest = highest.each(now, u64::max);
    }

    /// At least so much is missing, and never more than is: the highest total of any thread, or what rose while threads
    /// had their rings. With one thread it is exact.
    pub fn at_least(&self) -> Gaps {
        let rose = self.threads.values().map(|(first, highest)| highest.each(*first, u64::saturating_sub));
        let rose = rose.fold(Gaps::default(), |n, g| n.each(g, u64::saturating_add));
        self.threads.values().fold(rose, |n, (_, highest)| n.each(*highest, u64::max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(tid: i32) -> Source {
        Source { process: 0, tid }
    }

    fn gap(n: u64) -> GapBody {
        GapBody { events: n, entries: n, bytes: 8 * n }
    }

    #[test]
    fn a_ring_that_is_used_again_counts_its_gaps_once() {
        let mut t = GapTotals::default();
        [3, 10].iter().for_each(|n| t.add(thread(1), &gap(*n)));
        assert_eq!(t.at_least(), Gaps { events: 10, entries: 10, bytes: 80 });
        // Thread 2 got the ring of thread 1 with its totals.
        [11, 15].iter().for_each(|n| t.add(thread(2), &gap(*n)));
        assert_eq!(t.at_least().events, 15);
        // Two rings that lose much meanwhile are told apart by what rose.
        t.add(thread(1), &gap(30));
        assert_eq!(t.at_least().events, 27 + 4);
    }
}
