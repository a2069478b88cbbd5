//! Time between two calls of a thread in which it waited for Python's lock, the GIL. No call is slow then, but the program is.
//!
//! CPython's GIL is a flag with a condition (`take_gil` in Python/ceval_gil.c). A thread that needs it waits for that condition,
//! for 5 ms at a time, and a thread that drops it signals it. The GIL is therefore recognised by its condition: the one that is
//! part of Python itself.

use crate::activity::{Span, What};
use decode::Source;
use lock_analysis::labels::Labels;
use lock_analysis::ops::Class;
use std::cmp::Reverse;

/// The waits of a thread between two of its calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    pub source: Source,
    /// From the begin of the first wait to the end of the last.
    pub from: u64,
    pub to: u64,
    pub ticks: u64,
    pub waits: u64,
    pub lock: u64,
    /// The call after the gap: function and number.
    pub function: u16,
    pub number: u32,
}

#[derive(Debug, Default)]
pub struct Between {
    pub gaps: u64,
    pub ticks: u64,
    pub longest: u64,
    /// The longest ones; not sorted until the end.
    worst: Vec<Gap>,
}

impl Between {
    pub fn add(&mut self, gap: Gap, is_wanted: bool, most: usize) {
        self.gaps += 1;
        self.ticks = self.ticks.saturating_add(gap.ticks);
        self.longest = self.longest.max(gap.ticks);
        if is_wanted && most > 0 {
            self.worst.push(gap);
            if self.worst.len() >= most.saturating_mul(2).max(64) {
                self.cut(most);
            }
        }
    }

    fn cut(&mut self, most: usize) {
        self.worst.sort_by_key(|g| (Reverse(g.ticks), g.from, g.source.tid));
        self.worst.truncate(most);
    }

    /// The longest ones, in descending order.
    pub fn worst(&mut self, most: usize) -> Vec<Gap> {
        self.cut(most);
        std::mem::take(&mut self.worst)
    }
}

/// The waits for the GIL among what a thread did between two calls.
pub fn gap(
    labels: &Labels<'_>,
    source: Source,
    spans: &[Span],
    (from, to): (u64, u64),
    next: (u16, u32),
) -> Option<Gap> {
    let mut found: Option<Gap> = None;
    let waits = spans.iter().filter(|s| s.what == What::Condition && s.from >= from && s.to <= to);
    for s in waits.filter(|s| is_gil(labels, s.of)) {
        let (function, number) = next;
        let first = Gap { source, from: s.from, to: s.to, ticks: 0, waits: 0, lock: s.of, function, number };
        let gap = found.get_or_insert(first);
        gap.ticks += s.to - s.from;
        gap.waits += 1;
        (gap.from, gap.to) = (gap.from.min(s.from), gap.to.max(s.to));
    }
    found
}

fn is_gil(labels: &Labels<'_>, lock: u64) -> bool {
    let lock = lock as usize;
    let is_condition = labels.facts.locks.get(lock).is_some_and(|l| l.class == Class::Cond);
    is_condition
        && labels.names.get(lock).is_some_and(|(name, by)| *by == "static" && lock_analysis::names::is_of_python(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_are_kept() {
        let mut b = Between::default();
        let source = Source { process: 0, tid: 1 };
        let gap =
            |i: u64| Gap { source, from: i, to: i, ticks: i * 37 % 1000, waits: 1, lock: 0, function: 1, number: 1 };
        (0..1000).for_each(|i| b.add(gap(i), i % 2 == 0, 3));
        assert_eq!((b.gaps, b.longest), (1000, 999));
        assert_eq!(b.worst(3).iter().map(|g| g.ticks).collect::<Vec<_>>(), [998, 996, 994]);
    }
}
