//! The machine's own noise: no transfer can be expected to be steadier than this.
//!
//! Two probes, on the calling thread. *Wakeups* (as in cyclictest): how late the thread runs again after a periodic deadline. *Gaps* (as in
//! osnoise): how long a thread that never sleeps is off its CPU, measured as the time between two readings of the clock.

use crate::clock::Clock;
use placement::{Placement, Wish, rest_if_due};
use statistics::Summary;
use std::time::Duration;

/// How late periodic wakeups were.
#[derive(Clone, Debug)]
pub struct Wakeups {
    pub period: Duration,
    /// Lateness, ns.
    pub late_ns: Summary,
    /// Periods whose deadline had passed completely before the thread ran: their lateness is part of the one before.
    pub missed: u64,
}

/// Time between consecutive readings of the clock on a busy thread.
#[derive(Clone, Debug)]
pub struct Gaps {
    pub readings: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// Gaps longer than a microsecond: something else had the CPU.
    pub interruptions: u64,
    /// Their sum, parts per million of the time.
    pub lost_ppm: f64,
    /// Gaps longer than 20 us in which the kernel gave the CPU to another thread, and the longest of them.
    pub switched: u64,
    pub switched_max_ns: u64,
    /// The longest without such a switch: interrupts, or the host.
    pub unswitched_max_ns: u64,
}

/// Both probes and their placement.
#[derive(Clone, Debug)]
pub struct Noise {
    pub wakeups: Wakeups,
    pub gaps: Gaps,
    pub cpu: Option<usize>,
    pub fifo: Option<i32>,
    pub notes: Vec<String>,
}

/// Half of `duration` for each probe, in sequence, placed according to `wish` if that is permitted.
pub fn measure(clock: &Clock, wish: Wish, duration: Duration) -> Noise {
    let placed = Placement::take(wish);
    let half = duration / 2;
    let wakeups = wakeups(Duration::from_millis(1), half);
    let gaps = gaps(clock, half);
    Noise { wakeups, gaps, cpu: placed.cpu, fifo: placed.fifo, notes: placed.notes.clone() }
}

/// Sleeps to absolute deadlines, `period` apart, for `duration` (at least one period).
pub fn wakeups(period: Duration, duration: Duration) -> Wakeups {
    let slack = Slack::least();
    let period_ns = (period.as_nanos() as u64).max(1);
    let wanted = (duration.as_nanos() as u64 / period_ns).max(1);
    let mut late = vec![0u64; wanted as usize];
    late.clear();
    let (mut deadline, mut missed) = (monotonic_ns() + period_ns, 0);
    for _ in 0..wanted {
        sleep_until(deadline);
        let lateness = monotonic_ns().saturating_sub(deadline);
        late.push(lateness);
        // A deadline that has already passed is skipped, as in cyclictest: otherwise a late thread would become later.
        let over = lateness / period_ns;
        missed += over;
        deadline += period_ns * (over + 1);
    }
    drop(slack);
    let late_ns = Summary::of(&mut late).unwrap_or_else(|| unreachable!("at least one period was slept"));
    Wakeups { period, late_ns, missed }
}

fn monotonic_ns() -> u64 {
    let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn sleep_until(ns: u64) {
    let t = libc::timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 };
    // SAFETY: reads one timespec. A signal ends the sleep early; it is then begun again.
    while unsafe { libc::clock_nanosleep(libc::CLOCK_MONOTONIC, libc::TIMER_ABSTIME, &t, std::ptr::null_mut()) }
        == libc::EINTR
    {}
}

/// Sets the thread's timer slack to the minimum while this lives: the default lets an ordinary thread sleep 50 us too long.
struct Slack(libc::c_ulong);

impl Slack {
    fn least() -> Slack {
        // SAFETY: both concern the calling thread only and take no pointer.
        unsafe {
            let was = libc::prctl(libc::PR_GET_TIMERSLACK);
            libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong);
            Slack(was.max(0) as libc::c_ulong)
        }
    }
}

impl Drop for Slack {
    fn drop(&mut self) {
        // SAFETY: as above; 0 restores the thread's default.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, self.0) };
    }
}

/// Gaps up to this many ticks are counted in a histogram; longer ones are stored individually.
const COUNTED: usize = 1 << 14;
/// Maximum number of stored long gaps; more are only counted, with their sum and the longest.
const LONG: usize = 1 << 20;

/// Longer gaps are analysed, ns.
const LOOKED_INTO: u64 = 20_000;

/// Reads the clock without a pause for `duration`.
pub fn gaps(clock: &Clock, duration: Duration) -> Gaps {
    let mut looking = Looking::new();
    looking.look(clock, duration);
    looking.gaps(clock)
}

/// The same in several periods, between which the thread may do other work.
#[derive(Debug)]
pub struct Looking {
    counted: Vec<u64>,
    long: Vec<u64>,
    readings: u64,
    max: u64,
    interruptions: u64,
    lost_ns: u64,
    /// Observed ticks.
    looked: u64,
    switched: u64,
    switched_max_ns: u64,
    unswitched_max_ns: u64,
}

impl Default for Looking {
    fn default() -> Looking {
        Looking::new()
    }
}

impl Looking {
    pub fn new() -> Looking {
        // Touched, so that no page fault happens during the observation.
        let (counted, mut long) = (vec![0u64; COUNTED], vec![1; LONG]);
        long.clear();
        let [readings, max, interruptions, lost_ns, looked, switched, switched_max_ns, unswitched_max_ns] = [0; 8];
        Looking {
            counted,
            long,
            readings,
            max,
            interruptions,
            lost_ns,
            looked,
            switched,
            switched_max_ns,
            unswitched_max_ns,
        }
    }

    /// Reads the clock without a pause for `duration`, at least once. A thread with a budget rests when it is due; that is no gap.
    pub fn look(&mut self, clock: &Clock, duration: Duration) {
        let mut switches = involuntary();
        let begin = clock.now();
        let (mut last, mut first) = (begin, true);
        let mut rested = 0;
        while first || clock.ns(last.saturating_sub(begin)) < duration.as_nanos() as u64 {
            first = false;
            let now = clock.now();
            let gap = now.saturating_sub(last);
            last = now;
            self.readings += 1;
            self.max = self.max.max(gap);
            match self.counted.get_mut(gap as usize) {
                Some(n) => *n += 1,
                None if self.long.len() < LONG => self.long.push(gap),
                None => {}
            }
            let ns = clock.ns(gap);
            if ns > 1000 {
                self.interruptions += 1;
                self.lost_ns += ns;
                if ns > LOOKED_INTO {
                    self.look_into(ns, &mut switches);
                    last = clock.now();
                }
            }
            if self.readings.is_multiple_of(REST_EVERY) && rest_if_due() {
                let after = clock.now();
                rested += after.saturating_sub(last);
                (last, switches) = (after, involuntary());
            }
        }
        self.looked += last.saturating_sub(begin).saturating_sub(rested);
    }

    #[cold]
    fn look_into(&mut self, ns: u64, switches: &mut u64) {
        let now = involuntary();
        if now > *switches {
            self.switched += 1;
            self.switched_max_ns = self.switched_max_ns.max(ns);
        } else {
            self.unswitched_max_ns = self.unswitched_max_ns.max(ns);
        }
        *switches = now;
    }

    /// The gaps of all periods.
    pub fn gaps(mut self, clock: &Clock) -> Gaps {
        self.long.sort_unstable();
        let rank =
            |of: u64, out_of: u64| (u128::from(self.readings) * u128::from(of)).div_ceil(u128::from(out_of)) as u64;
        let at = |rank: u64| {
            let mut below = 0;
            let short = self.counted.iter().position(|n| {
                below += n;
                below >= rank
            });
            let long = || self.long.get((rank.saturating_sub(below) as usize).saturating_sub(1)).copied();
            short.map_or_else(|| long().unwrap_or(self.max), |t| t as u64)
        };
        Gaps {
            readings: self.readings,
            p50_ns: clock.ns(at(rank(1, 2))),
            p99_ns: clock.ns(at(rank(99, 100))),
            max_ns: clock.ns(self.max),
            interruptions: self.interruptions,
            lost_ppm: self.lost_ns as f64 / clock.ns(self.looked).max(1) as f64 * 1e6,
            switched: self.switched,
            switched_max_ns: self.switched_max_ns,
            unswitched_max_ns: self.unswitched_max_ns,
        }
    }
}

/// Readings between two checks whether a rest is due, because a check costs a reading of the system's clock.
const REST_EVERY: u64 = 1024;

/// How often the calling thread's CPU was given to another thread (getrusage, ru_nivcsw).
fn involuntary() -> u64 {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: writes one rusage, of which all zeros are a value too.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_nivcsw as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_of_higher_priority_is_seen_as_gaps() {
        // A busy thread on the same CPU takes its share of it: the probe must see whole time slices missing.
        let cpu = placement::affinity().unwrap()[0];
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
            let g = gaps(&clock, Duration::from_millis(300));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            g
        });
        assert!(gaps.max_ns > 100_000 && gaps.interruptions > 0 && gaps.lost_ppm > 10_000.0, "{gaps:?}");
        assert!(gaps.p50_ns <= gaps.p99_ns && gaps.p99_ns <= gaps.max_ns);
        assert!(gaps.switched > 0 && gaps.switched_max_ns > 100_000, "another thread had the CPU: {gaps:?}");
        assert!(gaps.p50_ns < 100_000, "most readings follow one another: {gaps:?}");
    }

    #[test]
    fn wakeups_are_counted_and_never_early() {
        test_support::measured(|| {
            let n = measure(&Clock::new(), Wish { cpu: None, fifo: None }, Duration::from_millis(100));
            let w = &n.wakeups;
            assert_eq!(w.late_ns.count, 50);
            assert!(w.late_ns.min > 0 && w.late_ns.min <= w.late_ns.p50 && w.late_ns.p50 <= w.late_ns.max);
            assert!(n.notes.is_empty(), "{:?}", n.notes);
            if n.gaps.readings > 1000 { Ok(()) } else { Err(format!("{} readings", n.gaps.readings)) }
        });
    }
}
