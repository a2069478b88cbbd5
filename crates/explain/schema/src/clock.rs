//! The clock of all rows.

/// Turns time stamps into times since the recording began.
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

    /// The nearest nanosecond. `None` in the same case as [`Clock::seconds`], and for times of centuries.
    pub fn ns(&self, tsc: u64) -> Option<i64> {
        // (A rate is measured, so it is no whole number: millionths of a tick a second.)
        let (rate, ticks) = ((self.hz * 1e6) as i128, i128::from(tsc.wrapping_sub(self.zero) as i64));
        (ticks * 1_000_000_000_000_000 + rate / 2).checked_div_euclid(rate)?.try_into().ok()
    }

    /// The time stamp at a time, rounded up, or the one next to it. `None` in the same case as [`Clock::seconds`], and
    /// for times of centuries.
    pub fn tsc(&self, seconds: f64) -> Option<u64> {
        let ticks = (seconds * self.hz).ceil();
        (self.hz > 0.0 && ticks.abs() < 1e18).then(|| self.zero.saturating_add_signed(ticks as i64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_stamp_is_at_the_nearest_nanosecond() {
        let clock = Clock::new(1000, 2e9);
        let ns = [1000, 1001, 1002, 1003, 999, 998].map(|tsc| clock.ns(tsc));
        assert_eq!(ns, [0, 1, 1, 2, 0, -1].map(Some));
        // After a year, at a rate that is no whole number.
        let year = 365 * 86_400;
        assert_eq!(
            Clock::new(0, 2_099_998_732.5).ns(year * 2_099_998_732 + year / 2),
            Some(year as i64 * 1_000_000_000)
        );
        // Rates and stamps of a damaged recording.
        assert_eq!((Clock::new(0, 0.0).ns(7), Clock::new(0, 1e-9).ns(7)), (None, None));
        assert_eq!((Clock::new(0, 1.0).ns(i64::MAX as u64), Clock::new(0, 1e300).ns(7)), (None, Some(0)));
    }
}
