//! The GPU's nanosecond clock, read through the usermode page and compared with the CPU's time stamp counter (tsc).
//!
//! A reading is a load over PCIe, about 1 us. It happened between two readings of the tsc around it, so half their
//! distance is the error. The tightest of many readings has the smallest error.

use crate::device::{Bar, Device};
use crate::stores::lfence;
use rm::abi::usermode::{TIME_0, TIME_1};
use std::arch::x86_64::_rdtsc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// TIME_0 counts in these steps (NSEC 31:5), nanoseconds.
const STEP_NS: u64 = 32;
/// Readings of which the tightest is taken.
const READINGS: usize = 256;
/// The tsc's rate is measured over this time, once in a process.
const RATE_OVER: Duration = Duration::from_millis(25);

/// The GPU's nanosecond clock. Documented steps: 32 ns.
#[derive(Clone, Debug)]
pub struct Clock {
    device: Arc<Device>,
}

/// One moment by both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Correlation {
    /// Time stamp counter, ticks.
    pub tsc: u64,
    /// The GPU's clock, nanoseconds.
    pub gpu_ns: u64,
    /// The two clocks agree within this many nanoseconds either way: half the bracket of the reading, and a step of the
    /// GPU's clock.
    pub error_ns: u64,
    /// Ticks of the tsc a second, measured against the kernel's clock once in a process (a few parts in a million).
    pub tsc_hz: u64,
}

/// The rate of the GPU's clock relative to the tsc, from two correlations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drift {
    from: Correlation,
    ticks: u64,
    gpu_ns: u64,
    error_ns: u64,
}

/// One bracketed reading.
#[derive(Clone, Copy, Debug)]
struct Reading {
    before: u64,
    after: u64,
    gpu_ns: u64,
}

impl Device {
    /// The GPU's own clock.
    pub fn clock(self: &Arc<Self>) -> Clock {
        Clock { device: self.clone() }
    }
}

impl Clock {
    /// Nanoseconds. Three loads from the device: TIME_1, TIME_0, TIME_1 again.
    pub fn now(&self) -> u64 {
        self.reading().gpu_ns
    }

    /// Reads both clocks as close to the same moment as possible, from the tightest of many readings: well below 1 us
    /// on real hardware. Takes about a millisecond, and 25 ms more the first time in a process.
    pub fn correlate(&self) -> Correlation {
        let tsc_hz = tsc_hz();
        let readings: Vec<Reading> = (0..READINGS).map(|_| self.reading()).collect();
        correlation(&readings, tsc_hz)
    }

    fn reading(&self) -> Reading {
        let page = self.device.usermode(Bar::Bar0);
        // SAFETY: the page is mapped as long as the device lives, and contains both registers.
        let read = |offset: u64| unsafe { (*page.add(offset as usize).cast::<AtomicU32>()).load(Ordering::Relaxed) };
        loop {
            let hi = read(TIME_1);
            let before = tsc();
            let lo = read(TIME_0);
            let after = tsc();
            if hi == read(TIME_1) {
                return Reading { before, after, gpu_ns: u64::from(hi) << 32 | u64::from(lo) };
            }
        }
    }
}

/// The tsc, read after the code before it has finished and before the code after it begins.
pub(crate) fn tsc() -> u64 {
    // ORDERING: loads from the device stay on their side of the counter's reading.
    lfence();
    // SAFETY: every x86-64 has RDTSC.
    let ticks = unsafe { _rdtsc() };
    lfence();
    ticks
}

/// Ticks a second.
fn tsc_hz() -> u64 {
    static HZ: OnceLock<u64> = OnceLock::new();
    *HZ.get_or_init(|| {
        // The tightest of a few, as for the GPU's clock.
        let pair = || {
            let readings = std::array::from_fn::<_, 16, _>(|_| {
                let before = tsc();
                let now = Instant::now();
                (tsc() - before, before, now)
            });
            let (width, before, now) = readings.into_iter().min_by_key(|(width, ..)| *width).unwrap_or_else(|| {
                let before = tsc();
                (0, before, Instant::now())
            });
            (before + width / 2, now)
        };
        let (ticks, from) = pair();
        std::thread::sleep(RATE_OVER);
        let (later, to) = pair();
        let ns = to.duration_since(from).as_nanos().max(1);
        u64::try_from(u128::from(later.saturating_sub(ticks)) * 1_000_000_000 / ns).unwrap_or(u64::MAX).max(1)
    })
}

/// The tightest reading, with its error.
fn correlation(readings: &[Reading], tsc_hz: u64) -> Correlation {
    let to_ns = |ticks: u64| scale(ticks, 1_000_000_000, tsc_hz);
    let width = |reading: &Reading| reading.after.saturating_sub(reading.before);
    let Some(best) = readings.iter().min_by_key(|reading| width(reading)) else {
        return Correlation { tsc: 0, gpu_ns: 0, error_ns: u64::MAX, tsc_hz };
    };
    // The clock may count in larger steps than documented. The step is estimated from the common divisor of all
    // readings, and from the longest time that one value was seen to stay.
    let common = readings.iter().fold(0, |all, reading| gcd(all, reading.gpu_ns.abs_diff(best.gpu_ns)));
    let mut stayed = 0;
    for run in readings.chunk_by(|a, b| a.gpu_ns == b.gpu_ns) {
        if let [first, .., last] = run {
            stayed = stayed.max(to_ns(last.before.saturating_sub(first.after)));
        }
    }
    let step = STEP_NS.max(common).max(stayed);
    let error_ns = to_ns(width(best)).div_ceil(2).saturating_add(step);
    Correlation { tsc: best.before + width(best) / 2, gpu_ns: best.gpu_ns, error_ns, tsc_hz }
}

impl Correlation {
    /// The GPU's clock at a reading of the tsc, before this moment or after it. The error grows by that of `tsc_hz` with the
    /// distance: [`Correlation::drift`] does better.
    pub fn gpu_ns_at(&self, tsc: u64) -> u64 {
        along(self.tsc, self.gpu_ns, tsc, 1_000_000_000, self.tsc_hz)
    }

    /// The tsc at a time of the GPU's clock, before this moment or after it.
    pub fn tsc_at(&self, gpu_ns: u64) -> u64 {
        along(self.gpu_ns, self.tsc, gpu_ns, self.tsc_hz, 1_000_000_000)
    }

    /// The rate of the GPU's clock relative to the tsc between this correlation and a later one. `None` if there is no
    /// time between.
    pub fn drift(&self, later: &Correlation) -> Option<Drift> {
        let ticks = later.tsc.checked_sub(self.tsc).filter(|&ticks| ticks != 0)?;
        let gpu_ns = later.gpu_ns.checked_sub(self.gpu_ns).filter(|&ns| ns != 0)?;
        let error_ns = self.error_ns.saturating_add(later.error_ns);
        Some(Drift { from: *self, ticks, gpu_ns, error_ns })
    }
}

impl Drift {
    /// How much faster the GPU's clock is than the tsc, in millionths; negative if it is slower. Only as exact as the
    /// measured `tsc_hz`; conversions do not need it.
    pub fn ppm(&self) -> f64 {
        let seconds = self.ticks as f64 / self.from.tsc_hz as f64;
        (self.gpu_ns as f64 / 1e9 / seconds - 1.0) * 1e6
    }

    /// The two correlations' errors together, in millionths either way.
    pub fn error_ppm(&self) -> f64 {
        self.error_ns as f64 / self.gpu_ns as f64 * 1e6
    }

    /// The GPU's clock at a reading of the tsc, by the rate seen. If both clocks ran evenly, the error between the two
    /// correlations is at most the greater of theirs.
    pub fn gpu_ns_at(&self, tsc: u64) -> u64 {
        along(self.from.tsc, self.from.gpu_ns, tsc, self.gpu_ns, self.ticks)
    }

    /// As [`Drift::gpu_ns_at`], in the other direction.
    pub fn tsc_at(&self, gpu_ns: u64) -> u64 {
        along(self.from.gpu_ns, self.from.tsc, gpu_ns, self.ticks, self.gpu_ns)
    }
}

/// `to` moved by the distance from `from` to `at`, scaled by the given ratio; saturates at the ends of u64.
fn along(from: u64, to: u64, at: u64, numerator: u64, denominator: u64) -> u64 {
    let distance = scale(at.abs_diff(from), numerator, denominator);
    if at >= from { to.saturating_add(distance) } else { to.saturating_sub(distance) }
}

fn scale(value: u64, numerator: u64, denominator: u64) -> u64 {
    u64::try_from(u128::from(value) * u128::from(numerator) / u128::from(denominator.max(1))).unwrap_or(u64::MAX)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A clock that starts at `origin` and counts in steps of `step`, read in brackets whose load takes place at `part`/256.
    fn readings(origin: u64, step: u64, brackets: &[(u16, u8)]) -> Vec<Reading> {
        let mut tsc = 1_000_000;
        let mut all = Vec::new();
        for &(width, part) in brackets {
            let before = tsc;
            let at = before + u64::from(width) * u64::from(part) / 256;
            all.push(Reading { before, after: before + u64::from(width), gpu_ns: (origin + at) / step * step });
            tsc += u64::from(width) + 700;
        }
        all
    }

    proptest! {
        /// One tick a nanosecond: the true offset is known, and the stated error holds it.
        #[test]
        fn the_error_holds_the_truth(
            origin in 0..1u64 << 60,
            step in prop::sample::select(vec![1u64, 32, 1000, 1024, 31_250]),
            brackets in prop::collection::vec((1..5000u16, any::<u8>()), 64..256),
        ) {
            let all = readings(origin, step, &brackets);
            let found = correlation(&all, 1_000_000_000);
            let truth = origin + found.tsc;
            prop_assert!(found.gpu_ns.abs_diff(truth) <= found.error_ns + step.saturating_sub(common_step(&all)), "{found:?} {truth}");
        }

        #[test]
        fn conversions_come_back(
            tsc in any::<u32>(), gpu_ns in any::<u32>(), hz in 100_000_000..10_000_000_000u64, away in 0..1u64 << 50,
        ) {
            let here = Correlation { tsc: tsc.into(), gpu_ns: gpu_ns.into(), error_ns: 1, tsc_hz: hz };
            let at = here.tsc + away;
            let back = here.tsc_at(here.gpu_ns_at(at));
            prop_assert!(back.abs_diff(at) <= hz / 1_000_000_000 + 1, "{back} {at}");
            prop_assert_eq!(here.gpu_ns_at(here.tsc), here.gpu_ns);
        }

        #[test]
        fn nothing_overflows(a in any::<[u64; 4]>(), b in any::<[u64; 4]>(), at in any::<u64>()) {
            let [a, b] = [a, b].map(|[tsc, gpu_ns, error_ns, tsc_hz]| Correlation { tsc, gpu_ns, error_ns, tsc_hz });
            let _ = (a.gpu_ns_at(at), a.tsc_at(at));
            if let Some(drift) = a.drift(&b) {
                let _ = (drift.ppm(), drift.error_ppm(), drift.gpu_ns_at(at), drift.tsc_at(at));
            }
        }
    }

    /// The step of a coarse clock, as the readings alone show it.
    fn common_step(all: &[Reading]) -> u64 {
        all.iter().fold(0, |common, reading| gcd(common, reading.gpu_ns.abs_diff(all[0].gpu_ns)))
    }

    #[test]
    fn a_second_correlation_gives_the_rate() {
        let first = Correlation { tsc: 1 << 40, gpu_ns: 5_000, error_ns: 500, tsc_hz: 2_000_000_000 };
        // Ten seconds later by the tsc; the GPU's clock is 30 ppm fast.
        let second = Correlation { tsc: first.tsc + 20_000_000_000, gpu_ns: 5_000 + 10_000_300_000, ..first };
        let drift = first.drift(&second).unwrap();
        assert!((drift.ppm() - 30.0).abs() < 1e-6, "{}", drift.ppm());
        assert!((drift.error_ppm() - 0.1).abs() < 1e-3, "{}", drift.error_ppm());
        assert_eq!(drift.gpu_ns_at(second.tsc), second.gpu_ns);
        assert_eq!(drift.tsc_at(second.gpu_ns), second.tsc);
        assert_eq!(drift.gpu_ns_at(first.tsc + 10_000_000_000), 5_000 + 5_000_150_000);
        assert_eq!(first.drift(&first), None);
        assert_eq!(second.drift(&first), None);
    }

    #[test]
    fn a_clock_that_stands_still_has_no_small_error() {
        let all: Vec<_> = (0..100).map(|n| Reading { before: n * 1000, after: n * 1000 + 10, gpu_ns: 7 }).collect();
        assert!(correlation(&all, 1_000_000_000).error_ns >= 98_000);
    }
}
