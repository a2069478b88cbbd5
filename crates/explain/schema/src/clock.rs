//! The clock of all rows.

/// Turns time stamps into seconds since the recording began.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    zero: u64,
    hz: f64,
}

impl Clock {
    /// Counts from `zero` at `hz` ticks a second; an invalid rate is stored as 0.
    pub fn new(zero: u64, hz: f64) -> Clock {
        Clock { zero, hz: if hz.is_finite() && hz > 0.0 { hz } else { 0.0 } }
    }

    /// `None` if the tape does not have the rate of its time stamps.
    pub fn seconds(&self, tsc: u64) -> Option<f64> {
        (self.hz > 0.0).then(|| tsc.wrapping_sub(self.zero) as i64 as f64 / self.hz)
    }

    /// The time stamp at a time, rounded up, or the one next to it. `None` in the same case as [`Clock::seconds`], and
    /// for times of centuries.
    pub fn tsc(&self, seconds: f64) -> Option<u64> {
        let ticks = (seconds * self.hz).ceil();
        (self.hz > 0.0 && ticks.abs() < 1e18).then(|| self.zero.saturating_add_signed(ticks as i64))
    }
}
