//! The machine's own noise: no transfer can be expected to be steadier than this.
//!
//! As in osnoise: how long a thread that never sleeps is off its CPU, measured as the time between two readings of the clock.

use crate::clock::Clock;
use environment::placement::rest_if_due;
use run_folder::Noise;
use std::time::Duration;

/// Gaps up to this many ticks are counted in a histogram; longer ones are stored individually.
const COUNTED: usize = 1 << 14;
/// Maximum number of stored long gaps; more are only counted, with their sum and the longest.
const LONG: usize = 1 << 20;

/// Readings between two checks whether a rest is due, because a check costs a reading of the system's clock.
const REST_EVERY: u64 = 1024;

/// Reads the clock without a pause for `duration`, at least once. A thread with a budget rests when it is due; that is no gap.
pub fn noise(clock: &Clock, duration: Duration) -> Noise {
    // Touched, so that no page fault happens during the observation.
    let (mut counted, mut long) = (vec![0u64; COUNTED], vec![1; LONG]);
    long.clear();
    let [mut readings, mut max, mut interruptions, mut lost_ns, mut rested] = [0u64; 5];
    let begin = clock.now();
    let mut last = begin;
    while readings == 0 || clock.ns(last.saturating_sub(begin)) < duration.as_nanos() as u64 {
        let now = clock.now();
        let gap = now.saturating_sub(last);
        last = now;
        readings += 1;
        max = max.max(gap);
        match counted.get_mut(gap as usize) {
            Some(n) => *n += 1,
            None if long.len() < LONG => long.push(gap),
            None => {}
        }
        let ns = clock.ns(gap);
        if ns > 1000 {
            interruptions += 1;
            lost_ns += ns;
        }
        if readings.is_multiple_of(REST_EVERY) && rest_if_due() {
            let after = clock.now();
            rested += after.saturating_sub(last);
            last = after;
        }
    }
    let looked = last.saturating_sub(begin).saturating_sub(rested);
    long.sort_unstable();
    let percentile = |percent: u64| {
        let rank = (u128::from(readings) * u128::from(percent)).div_ceil(100) as u64;
        let mut below = 0;
        let short = counted.iter().position(|n| {
            below += n;
            below >= rank
        });
        let of_long = || long.get((rank.saturating_sub(below) as usize).saturating_sub(1)).copied();
        clock.ns(short.map_or_else(|| of_long().unwrap_or(max), |t| t as u64))
    };
    Noise {
        readings,
        p50_ns: percentile(50),
        p99_ns: percentile(99),
        max_ns: clock.ns(max),
        interruptions,
        lost_ppm: lost_ns as f64 / clock.ns(looked).max(1) as f64 * 1e6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use environment::placement::{Placement, Wish};

    #[test]
    fn a_thread_of_higher_priority_is_seen_as_gaps() {
        // A busy thread on the same CPU takes its share of it: the probe must see whole time slices missing.
        let cpu = environment::placement::affinity().unwrap()[0];
        let clock = Clock::new();
        let stop = std::sync::atomic::AtomicBool::new(false);
        let gaps = std::thread::scope(|s| {
            s.spawn(|| {
                let _here = Placement::take(Wish { cpu: Some(cpu), fifo: None });
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let _here = Placement::take(Wish { cpu: Some(cpu), fifo: None });
            let gaps = noise(&clock, Duration::from_millis(300));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            gaps
        });
        assert!(gaps.max_ns > 100_000 && gaps.interruptions > 0 && gaps.lost_ppm > 10_000.0, "{gaps:?}");
        assert!(gaps.p50_ns <= gaps.p99_ns && gaps.p99_ns <= gaps.max_ns);
        assert!(gaps.p50_ns < 100_000, "most readings follow one another: {gaps:?}");
    }
}
