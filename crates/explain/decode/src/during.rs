//! When ranges of NVTX were open, in any thread: for what other threads did meanwhile.

use crate::filter::Pattern;
use crate::ranges::{Key, Range, Style, Texts};
use crate::recording::{InsightError, Recording};
use crate::walk::{Sink, walk};
use std::collections::HashMap;

/// Times of each process, which do not overlap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct During {
    /// Process, begin and end, in this order.
    times: Vec<(u32, u64, u64)>,
}

impl During {
    /// When a range with such a name was open, of those whose end is on the tape.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn of(r: &Recording, pattern: &Pattern) -> Result<During, InsightError> {
        let mut opened = Opened { pattern, wanted: HashMap::new(), during: During::default(), merged: 0 };
        walk(r, &mut opened)?;
        opened.during.merge();
        Ok(opened.during)
    }

    /// Whether one was open in this process.
    pub fn holds(&self, process: u32, tsc: u64) -> bool {
        let after = self.times.partition_point(|(p, began, _)| (*p, *began) <= (process, tsc));
        let last = after.checked_sub(1).and_then(|last| self.times.get(last));
        last.is_some_and(|(p, _, ended)| *p == process && tsc <= *ended)
    }

    fn merge(&mut self) {
        self.times.sort_unstable();
        self.times.dedup_by(|next, last| {
            let meets = next.0 == last.0 && next.1 <= last.2;
            if meets {
                last.2 = last.2.max(next.2);
            }
            meets
        });
    }
}

/// Ranges between two merges, at least.
const SOME: usize = 1 << 16;

struct Opened<'p> {
    pattern: &'p Pattern,
    /// Whether the name is such a one, by its numbers.
    wanted: HashMap<Key, bool>,
    during: During,
    /// Times after the last merge.
    merged: usize,
}

impl Sink for Opened<'_> {
    fn range(&mut self, r: &Range, texts: &Texts) {
        let Some((ended, _)) = r.ended.filter(|_| r.style != Style::Mark) else { return };
        if self.wanted.len() >= SOME {
            self.wanted.clear();
        }
        if !*self.wanted.entry(r.key).or_insert_with(|| self.pattern.matches(&texts.label(r.key))) {
            return;
        }
        self.during.times.push((r.source.process, r.began, ended));
        if self.during.times.len() > 2 * self.merged + SOME {
            self.during.merge();
            self.merged = self.during.times.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_that_meet_are_one() {
        let mut during =
            During { times: vec![(1, 50, 60), (0, 10, 20), (0, 15, 30), (0, 30, 31), (0, 40, 50), (0, 12, 13)] };
        during.merge();
        assert_eq!(during.times, [(0, 10, 31), (0, 40, 50), (1, 50, 60)]);
        let holds =
            [(0, 9), (0, 10), (0, 31), (0, 32), (0, 45), (1, 45), (1, 60), (2, 60)].map(|(p, at)| during.holds(p, at));
        assert_eq!(holds, [false, true, true, false, true, false, true, false]);
        assert!(!During::default().holds(0, 0));
    }
}
