//! The page faults of a thread until its call ends.

use crate::activity::{Span, What};
use std::collections::VecDeque;
use tape::event::{self, Event};
use tape::fault::MAJOR;

/// Maximum number of remembered faults of a thread, the latest ones: half a gigabyte of small pages.
const MOST: usize = 1 << 17;

/// The times that a thread spent in the faults of an event.
pub fn spans<'e>(e: &Event<'e>, faults: &'e [u8]) -> impl Iterator<Item = Span> + 'e {
    let of = u64::from(e.head.flags & MAJOR);
    event::faults(e.head.tsc, faults).map(move |(from, to)| Span { from, to, what: What::Fault, of })
}

/// A thread's faults since its last call.
#[derive(Debug, Default)]
pub struct Faults {
    spans: VecDeque<Span>,
    /// Some faults before this time are forgotten.
    forgotten: u64,
}

impl Faults {
    pub fn add(&mut self, span: Span) {
        if self.spans.len() >= MOST {
            let oldest = self.spans.pop_front();
            self.forgotten = self.forgotten.max(oldest.map_or(0, |s| s.to));
        }
        self.spans.push_back(span);
    }

    /// Moves the faults of a call that ended to `out`; later ones stay, because an event may have faults of several calls.
    /// Returns whether none of the call's faults was forgotten.
    pub fn of_call(&mut self, began: u64, ended: u64, out: &mut Vec<Span>) -> bool {
        out.extend(self.spans.iter().filter(|s| s.to > began && s.from < ended));
        self.spans.retain(|s| s.to > ended);
        self.forgotten <= began
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_gets_its_own_and_those_before_it_may_be_forgotten() {
        let mut f = Faults::default();
        let span = |i: u64| Span { from: i * 10, to: i * 10 + 5, what: What::Fault, of: 0 };
        (0..MOST as u64 + 100).for_each(|i| f.add(span(i)));
        let mut out = Vec::new();
        assert!(f.of_call(1000, 1100, &mut out));
        assert_eq!((out.len(), out[0]), (10, span(100)));
        out.clear();
        assert!(f.of_call(1100, 1200, &mut out));
        assert_eq!(out.len(), 10);
        assert!(!f.of_call(900, 1300, &mut Vec::new()));
    }
}
