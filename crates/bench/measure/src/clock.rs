//! The clock of all samples: the time stamp counter where it is invariant, else CLOCK_MONOTONIC_RAW.

use environment::clock::{Calibrated, Source};
use std::time::{Duration, Instant};

/// A clock that was calibrated when it was made.
#[derive(Clone, Debug)]
pub struct Clock {
    source: Source,
    ns_per_tick: f64,
    error_ppm: f64,
    reading_ns: f64,
}

/// How long the counter is compared with CLOCK_MONOTONIC_RAW.
const CALIBRATION: Duration = Duration::from_millis(50);

impl Clock {
    /// Takes about 50 ms where the time stamp counter is used.
    pub fn new() -> Clock {
        let mut clock = match calibrate() {
            Some((ns_per_tick, error_ppm)) => Clock { source: Source::Tsc, ns_per_tick, error_ppm, reading_ns: 0.0 },
            None => Clock::monotonic_raw(),
        };
        clock.reading_ns = clock.cost();
        clock
    }

    /// The clock for machines without an invariant counter.
    pub fn monotonic_raw() -> Clock {
        let mut clock = Clock { source: Source::MonotonicRaw, ns_per_tick: 1.0, error_ppm: 0.0, reading_ns: 0.0 };
        clock.reading_ns = clock.cost();
        clock
    }

    pub fn source(&self) -> Source {
        self.source
    }

    /// Its properties, for result files.
    pub fn calibrated(&self) -> Calibrated {
        let Clock { source, ns_per_tick, error_ppm, reading_ns } = *self;
        Calibrated { source, tsc_hz: (source == Source::Tsc).then(|| 1e9 / ns_per_tick), error_ppm, reading_ns }
    }

    /// Ticks. Earlier instructions are complete (stores may still be pending), and later instructions have not begun.
    #[inline(always)]
    pub fn now(&self) -> u64 {
        match self.source {
            Source::Tsc => tsc(),
            Source::MonotonicRaw => monotonic_raw_ns(),
        }
    }

    /// One moment: ticks of this clock, the time stamp counter, and how far apart the two can be, ns.
    pub fn beside_counter(&self) -> (u64, u64, f64) {
        match self.source {
            Source::Tsc => {
                let now = self.now();
                (now, now, 0.0)
            }
            Source::MonotonicRaw => {
                let (counter, raw, width) = anchor();
                // The length of a tick of the counter is unknown here; where a counter exists, it is less than a nanosecond.
                (raw, counter, width as f64)
            }
        }
    }

    /// Ticks as nanoseconds, rounded.
    #[inline(always)]
    pub fn ns(&self, ticks: u64) -> u64 {
        (ticks as f64 * self.ns_per_tick).round() as u64
    }

    /// Nanoseconds as ticks.
    pub fn ticks(&self, ns: u64) -> u64 {
        (ns as f64 / self.ns_per_tick).round() as u64
    }

    fn cost(&self) -> f64 {
        let mut distances: Vec<u64> = vec![0; 4097];
        for d in &mut distances {
            *d = self.now();
        }
        let mut distances: Vec<u64> = distances.windows(2).map(|w| w[1].saturating_sub(w[0])).collect();
        distances.sort_unstable();
        distances[distances.len() / 2] as f64 * self.ns_per_tick
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new()
    }
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn tsc() -> u64 {
    use std::arch::x86_64::{__rdtscp, _mm_lfence};
    let mut cpu = 0;
    // ORDERING: rdtscp waits until all earlier instructions have executed and loads are visible; the lfence keeps later ones from starting before
    // it has read the counter. SAFETY: only reached if `calibrate` found rdtscp in CPUID; every x86-64 has lfence.
    unsafe {
        let t = __rdtscp(&mut cpu);
        _mm_lfence();
        t
    }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
fn tsc() -> u64 {
    monotonic_raw_ns()
}

fn monotonic_raw_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Whether CPUID promises a counter that ticks at one speed in every state, and rdtscp to read it.
#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe)] // __cpuid became a safe function in Rust 1.94
pub fn tsc_is_invariant() -> bool {
    use std::arch::x86_64::__cpuid;
    // Leaf 0x8000_0001: EDX bit 27 rdtscp. Leaf 0x8000_0007: EDX bit 8 invariant TSC.
    // SAFETY: CPUID is in every x86-64.
    unsafe {
        __cpuid(0x8000_0000).eax >= 0x8000_0007
            && __cpuid(0x8000_0001).edx & (1 << 27) != 0
            && __cpuid(0x8000_0007).edx & (1 << 8) != 0
    }
}

#[cfg(not(target_arch = "x86_64"))]
pub fn tsc_is_invariant() -> bool {
    false
}

/// Nanoseconds a tick, and the error in parts per million.
fn calibrate() -> Option<(f64, f64)> {
    if !tsc_is_invariant() {
        return None;
    }
    let (tsc0, raw0, width0) = anchor();
    let begin = Instant::now();
    while begin.elapsed() < CALIBRATION {
        std::hint::spin_loop();
    }
    let (tsc1, raw1, width1) = anchor();
    let (ticks, ns) = (tsc1.checked_sub(tsc0)?, raw1.checked_sub(raw0)?);
    if ticks == 0 || ns == 0 {
        return None;
    }
    // The error of each anchor is half of the time between its two counter readings, which enclose the other clock.
    let error = (width0 + width1) as f64 / 2.0 / ticks as f64;
    Some((ns as f64 / ticks as f64, error * 1e6))
}

/// One moment on both clocks, and its uncertainty in ticks: the best of 64 tries.
fn anchor() -> (u64, u64, u64) {
    let one = |_| {
        let before = tsc();
        let raw = monotonic_raw_ns();
        let after = tsc();
        (before + after.saturating_sub(before) / 2, raw, after.saturating_sub(before))
    };
    (0..64).map(one).min_by_key(|a| a.2).unwrap_or((0, 0, u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_clocks_agree_about_a_duration() {
        let (a, b) = (Clock::new(), Clock::monotonic_raw());
        let (a0, b0) = (a.now(), b.now());
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(30) {}
        let (b1, a1) = (b.now(), a.now());
        let (a, b) = (a.ns(a1 - a0) as f64, b.ns(b1 - b0) as f64);
        // The readings of `a` enclose those of `b`; there is no upper bound, because this thread may be off the CPU for any time.
        assert!(a >= b * 0.999, "{a} {b}");
        assert!(b >= 30e6 * 0.999);
    }

    #[test]
    fn the_clock_never_goes_back_and_a_reading_costs_something() {
        let clock = Clock::new();
        let mut last = clock.now();
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
        assert!(clock.calibrated().reading_ns > 0.0);
        assert_eq!(clock.calibrated().tsc_hz.is_some(), tsc_is_invariant());
    }
}
