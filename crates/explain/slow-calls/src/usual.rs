//! The usual time of calls of one kind, without delays.

use decode::histogram::Histogram;

/// Number of calls before the first estimate from the distribution.
const FEW: u64 = 16;
/// Number of calls between two estimates.
const AGAIN: u64 = 64;

/// Times on a CPU of the calls of one kind, in which no delay is known.
#[derive(Debug, Default)]
pub struct Usual {
    seen: Histogram,
    calls: u64,
    least: u64,
    /// The 10th percentile.
    tenth: u64,
}

impl Usual {
    /// The usual time, from the calls so far; `fallback` before the first one.
    ///
    /// The 10th percentile, not the median: if most calls wait for a full ring, the median does,
    /// too.
    pub fn of(&self, fallback: u64) -> u64 {
        match self.calls {
            0 => fallback,
            n if n < FEW => self.least.max(fallback),
            _ => self.tenth,
        }
    }

    /// Adds a call's time on a CPU.
    pub fn add(&mut self, ticks: u64) {
        self.seen.add(ticks);
        self.least = if self.calls == 0 { ticks } else { self.least.min(ticks) };
        self.calls += 1;
        if self.calls == FEW || self.calls.is_multiple_of(AGAIN) {
            self.tenth = self.seen.percentile(10.0);
        }
    }
}
