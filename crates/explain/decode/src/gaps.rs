//! Events that did not fit into the rings, by the GAP events on the tape: for each thread, and in total.
//!
//! A GAP event has the total losses of its thread since it took its ring, and is written by that thread. Tapes of
//! version 1 do not record where a thread begins. There a GAP event has the ring's totals, which a ring keeps when another thread
//! takes it over, so the totals of two threads may count the same gaps twice.

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

pushbuf::snapshot!(Gaps { events, entries, bytes });

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
    threads: HashMap<Source, Thread>,
    /// The tape has events that mark where a thread takes a ring.
    has_begins: bool,
}

/// The totals that a thread reported.
#[derive(Clone, Copy, Debug)]
struct Thread {
    first: Gaps,
    highest: Gaps,
    /// Totals in this ring so far, and in earlier ones.
    here: Gaps,
    before: Gaps,
}

pushbuf::snapshot!(Thread { first, highest, here, before });
pushbuf::snapshot!(GapTotals { threads, has_begins });

impl Thread {
    fn all(&self) -> Gaps {
        self.before.each(self.here, u64::saturating_add)
    }
}

impl GapTotals {
    /// The thread takes a ring.
    pub fn begins(&mut self, source: Source) {
        self.has_begins = true;
        if let Some(t) = self.threads.get_mut(&source) {
            (t.before, t.here) = (t.all(), Gaps::default());
        }
    }

    pub fn add(&mut self, source: Source, b: &GapBody) {
        let now = Gaps::of(b);
        let none = Gaps::default();
        let t = self.threads.entry(source).or_insert(Thread { first: now, highest: now, here: none, before: none });
        t.highest = t.highest.each(now, u64::max);
        t.here = t.here.each(now, u64::max);
    }

    /// The losses of a thread. `None` on a tape of version 1.
    pub fn of_thread(&self, source: Source) -> Option<Gaps> {
        self.has_begins.then(|| self.threads.get(&source).map_or(Gaps::default(), Thread::all))
    }

    /// A lower bound of the losses: the sum over the threads. On a tape of version 1, the highest total of any thread, or the
    /// increases while threads had their rings; with one thread that is exact.
    pub fn at_least(&self) -> Gaps {
        let sum = |n: Gaps, g: Gaps| n.each(g, u64::saturating_add);
        if self.has_begins {
            return self.threads.values().map(Thread::all).fold(Gaps::default(), sum);
        }
        let rose = self.threads.values().map(|t| t.highest.each(t.first, u64::saturating_sub));
        let rose = rose.fold(Gaps::default(), sum);
        self.threads.values().fold(rose, |n, t| n.each(t.highest, u64::max))
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
        // Thread 2 took the ring of thread 1 with its totals.
        [11, 15].iter().for_each(|n| t.add(thread(2), &gap(*n)));
        assert_eq!(t.at_least().events, 15);
        // Two rings that both lose events in the same period are distinguished by the increase.
        t.add(thread(1), &gap(30));
        assert_eq!(t.at_least().events, 27 + 4);
    }

    #[test]
    fn each_threads_gaps_are_its_own() {
        let mut t = GapTotals::default();
        [1, 2].iter().for_each(|n| t.begins(thread(*n)));
        [3, 10].iter().for_each(|n| t.add(thread(1), &gap(*n)));
        t.add(thread(2), &gap(4));
        // Thread 1 gets another ring, which counts from 0.
        t.begins(thread(1));
        t.add(thread(1), &gap(5));
        let of = |tid| t.of_thread(thread(tid)).unwrap().events;
        assert_eq!((of(1), of(2), of(3), t.at_least().events), (15, 4, 0, 19));
    }
}
