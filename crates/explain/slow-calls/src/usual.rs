//! What calls of a kind take when nothing is in their way.

use decode::histogram::Histogram;

/// Calls before the first guess by the distribution.
const FEW: u64 = 16;
/// Calls between two guesses.
const AGAIN: u64 = 64;

/// Of the calls of one kind: how long they were on a CPU with nothing known to be in the way.
#[derive(Debug, Default)]
pub struct Usual {
    seen: Histogram,
    calls: u64,
    least: u64,
    /// One call in ten is below.
    tenth: u64,
}

impl Usual {
    /// What would be usual, by the calls so far; `fallback` before there are some.
    ///
    /// One in ten, not one in two: where most calls wait for a full ring, the middle one does, too.
    pub fn of(&self, fallback: u64) -> u64 {
        match self.calls {
            0 => fallback,
            n if n < FEW => self.least.max(fallback),
            _ => self.tenth,
        }
    }

    /// A call was so long on a CPU.
    pub fn add(&mut self, ticks: u64) {
        self.seen.add(ticks);
        self.least = if self.calls == 0 { ticks } else { self.least.min(ticks) };
        self.calls += 1;
        if self.calls == FEW || self.calls.is_multiple_of(AGAIN) {
            self.tenth = self.seen.percentile(10.0);
        }
    }
}
