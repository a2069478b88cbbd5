//! Clocks read together.

use std::time::Duration;
use tape::file::Clock;

pub fn tsc() -> u64 {
    // SAFETY: every x86-64 has rdtsc.
    unsafe { core::arch::x86_64::_rdtsc() }
}

fn ns(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes only this timespec.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The tightest of a few readings, with the time stamp counter read around the two clocks. Also returns the ticks
/// between its two counter values.
fn pair(readings: u32) -> (Clock, u64) {
    let mut best = (Clock::default(), u64::MAX);
    for _ in 0..readings {
        let a = tsc();
        let monotonic_ns = ns(libc::CLOCK_MONOTONIC);
        let b = tsc();
        let realtime_ns = ns(libc::CLOCK_REALTIME);
        let width = b.saturating_sub(a);
        if width < best.1 {
            best = (Clock { tsc: a + width / 2, monotonic_ns, realtime_ns, error_ns: 0 }, width);
        }
    }
    best
}

/// Both clocks at one moment, as nearly as they can be read.
pub fn read(tsc_hz: f64) -> Clock {
    let (clock, width) = pair(16);
    Clock { error_ns: (width as f64 / 2.0 / tsc_hz * 1e9).ceil() as u64, ..clock }
}

/// Both clocks at about the same time, to a few hundred nanoseconds, unless this thread was delayed in every reading.
pub fn near() -> Clock {
    pair(4).0
}

/// Ticks of the time stamp counter per second, from 20 ms of CLOCK_MONOTONIC between two tight readings.
pub fn tsc_hz() -> f64 {
    let (a, _) = pair(16);
    std::thread::sleep(Duration::from_millis(20));
    let (b, _) = pair(16);
    b.tsc.saturating_sub(a.tsc) as f64 * 1e9 / b.monotonic_ns.saturating_sub(a.monotonic_ns).max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_maps_ticks_to_nanoseconds() {
        let hz = tsc_hz();
        assert!((1e8..1e11).contains(&hz), "{hz}");
        let a = read(hz);
        std::thread::sleep(Duration::from_millis(50));
        let b = read(hz);
        let by_tsc = (b.tsc - a.tsc) as f64 / hz * 1e9;
        let by_clock = (b.monotonic_ns - a.monotonic_ns) as f64;
        assert!((by_tsc / by_clock - 1.0).abs() < 0.01, "{by_tsc} {by_clock}");
    }
}
