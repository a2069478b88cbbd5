//! Maximum error of the clock of a recording's rows.

use crate::recording::Recording;
use crate::rows;

/// Largest difference, ns, between a time in a recording and CLOCK_MONOTONIC since the first reading of both. It includes the
/// drift that later readings show, and the errors of the readings themselves. `None` if the clocks were not read, or if the tape
/// does not have the rate of its time stamps.
pub fn clock_error_ns(r: &Recording) -> Option<u64> {
    let first = r.clocks().first()?;
    let clock = rows::clock(r);
    let off = |c: &tape::file::Clock| {
        let passed = c.monotonic_ns.wrapping_sub(first.monotonic_ns) as i64;
        let off = (clock.seconds(c.tsc)? * 1e9 - passed as f64).abs().round() as u64;
        Some(off.saturating_add(c.error_ns).saturating_add(first.error_ns))
    };
    r.clocks().iter().map(off).try_fold(0, |worst, off| Some(off?.max(worst)))
}
