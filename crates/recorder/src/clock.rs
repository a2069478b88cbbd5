//! Clocks read together.

use tape::file::Clock;

fn tsc() -> u64 {
    // SAFETY: rdtsc is there on every x86-64.
    unsafe { core::arch::x86_64::_rdtsc() }
}

fn ns(clock: libc::clockid_t) -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a timespec to write to.
    unsafe { libc::clock_gettime(clock, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// The tightest of a few readings: tsc around the two clocks.
pub fn read(tsc_hz: f64) -> Clock {
    let mut best: Option<(u64, Clock)> = None;
    for _ in 0..16 {
        let a = tsc();
        let monotonic_ns = ns(libc::CLOCK_MONOTONIC);
        let b = tsc();
        let realtime_ns = ns(libc::CLOCK_REALTIME);
        let width = b.saturating_sub(a);
        let error_ns = (width as f64 / 2.0 / tsc_hz * 1e9).ceil() as u64;
        if best.is_none_or(|(w, _)| width < w) {
            best = Some((width, Clock { tsc: a + width / 2, monotonic_ns, realtime_ns, error_ns }));
        }
    }
    best.map_or_else(Clock::default, |(_, c)| c)
}

/// Time stamp counter ticks a second, from 20 ms of CLOCK_MONOTONIC.
pub fn tsc_hz() -> f64 {
    let (a, t) = (tsc(), ns(libc::CLOCK_MONOTONIC));
    while ns(libc::CLOCK_MONOTONIC) - t < 20_000_000 {
        std::hint::spin_loop();
    }
    let (b, u) = (tsc(), ns(libc::CLOCK_MONOTONIC));
    (b - a) as f64 * 1e9 / (u - t) as f64
}
