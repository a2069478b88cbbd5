//! How a thread waits: it polls all the time, or it sleeps between polls.
//!
//! The GPU wakes no thread. It writes a word of host memory, which a waiting thread must read. Each sleeping thread naps by itself. It depends on no other
//! thread, which may have a lower priority, and a fork or the end of the process needs no clean-up. Naps get longer with the wait, so that looks cost
//! little compared with the work that is waited for: see [`nap`]. Threads that sleep for one lane share the looks: [`crate::sleepers`].

use crate::sleepers::{Before, Nap, Sleepers};
use std::time::Duration;

/// How a thread waits for submissions.
///
/// | | polls | CPU time | late by |
/// |---|---|---|---|
/// | `Spin` | without a pause for some 100 us, then with other threads between polls | all of it | some 100 ns while the thread has a CPU |
/// | `Sleep` | without a pause for `spin`, then after naps | `spin`, and a wake-up for each nap | an eighth of the wait, at most 50 us, and the kernel's wake-up |
///
/// A nap is longer than 50 us only if the last waits for this lane took longer. It then lasts until seven eighths of their length, up to a millisecond. So
/// the first short wait after several long ones may be late by a millisecond, the next by half of that, and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Wait {
    #[default]
    Spin,
    Sleep {
        /// How long it polls without a pause first. A submission that ends within that time is noticed as early as by [`Wait::Spin`].
        spin: Duration,
    },
}

impl Wait {
    /// Spins for 20 us, as long as a copy of some 100 KiB takes, and then sleeps.
    pub const SLEEP: Wait = Wait::Sleep { spin: Duration::from_micros(20) };

    pub(crate) fn encode(self) -> u64 {
        match self {
            Wait::Spin => u64::MAX,
            Wait::Sleep { spin } => nanoseconds(spin).min(u64::MAX - 1),
        }
    }

    pub(crate) fn decode(code: u64) -> Wait {
        if code == u64::MAX { Wait::Spin } else { Wait::Sleep { spin: Duration::from_nanos(code) } }
    }
}

/// Consecutive looks without a pause, some 100 us: longer waits let other threads run.
const EAGER: u64 = 4096;
/// Looks between two readings of the clock.
const CLOCK: u64 = 64;
/// The same for a thread that sleeps soon.
const SOON: u64 = 8;
/// How long a wait lasts before it checks for errors.
const AGAIN: u64 = 10_000_000;
/// Naps, in nanoseconds: the shortest, the longest if no length is expected, and the longest of all.
const SHORTEST: u64 = 10_000;
pub(crate) const LATE: u64 = 50_000;
pub(crate) const LONGEST: u64 = 1_000_000;

pub(crate) fn nanoseconds(of: Duration) -> u64 {
    u64::try_from(of.as_nanos()).unwrap_or(u64::MAX)
}

/// The monotonic clock.
#[inline]
pub(crate) fn now() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec of this function.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// Length of a nap after a wait of `after`, if `expected` is its expected length.
pub(crate) fn nap(after: u64, expected: u64) -> u64 {
    let early = expected - expected / 8;
    let short = (after / 8).clamp(SHORTEST, LATE);
    early.saturating_sub(after).min(LONGEST).max(short)
}

/// The result of a pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Paused {
    /// Look again.
    Again,
    /// And check for errors.
    Doubt,
    /// The time limit has passed.
    Over,
}

/// One wait: its pauses between looks.
#[derive(Debug)]
pub(crate) struct Pace<'s> {
    sleepers: &'s Sleepers,
    /// The number of the submission that is waited for, among the sleepers' numbers.
    number: u64,
    how: Wait,
    start: u64,
    limit: u64,
    looks: u64,
    doubt: u64,
    /// Before the next look.
    before: Before,
    last: Nap,
    slack: Option<Slack>,
}

impl<'s> Pace<'s> {
    /// Call it before the first look.
    #[inline]
    pub fn new(how: Wait, limit: Duration, sleepers: &'s Sleepers, number: u64) -> Pace<'s> {
        Pace {
            sleepers,
            number,
            how,
            start: now(),
            limit: nanoseconds(limit),
            looks: 0,
            doubt: AGAIN,
            before: sleepers.before(),
            last: Nap::default(),
            slack: None,
        }
    }

    /// Nanoseconds since the start of the wait.
    #[inline]
    pub fn after(&self) -> u64 {
        now().saturating_sub(self.start)
    }

    pub fn left(&self) -> Duration {
        Duration::from_nanos(self.limit.saturating_sub(self.after()))
    }

    /// It has slept.
    #[inline]
    pub fn has_slept(&self) -> bool {
        self.slack.is_some()
    }

    /// Called after a failed look.
    #[inline]
    pub fn pause(&mut self) -> Paused {
        self.looks += 1;
        let after = match self.how {
            Wait::Spin => {
                if self.looks < EAGER {
                    std::hint::spin_loop();
                } else {
                    std::thread::yield_now();
                }
                if !self.looks.is_multiple_of(CLOCK) {
                    return Paused::Again;
                }
                self.after()
            }
            Wait::Sleep { spin } => {
                if !spin.is_zero() && !self.looks.is_multiple_of(SOON) && self.slack.is_none() {
                    std::hint::spin_loop();
                    return Paused::Again;
                }
                let after = self.after();
                if after < nanoseconds(spin) { after } else { self.sleep(after) }
            }
        };
        if after > self.limit {
            Paused::Over
        } else if after > self.doubt {
            self.doubt = after + AGAIN;
            Paused::Doubt
        } else {
            Paused::Again
        }
    }

    fn sleep(&mut self, after: u64) -> u64 {
        self.slack.get_or_insert_with(Slack::least);
        self.last = self.sleepers.nap(self.before, self.number, self.start, after, self.limit);
        self.before = self.sleepers.before();
        self.after()
    }

    /// The submission is done: updates the expected length of the next wait.
    pub fn done(&self) {
        let Wait::Sleep { .. } = self.how else { return };
        let (expected, late) = (&self.sleepers.expected, !self.last.woken);
        if self.looks > 0 && !(late && self.last.shared) {
            if late && self.last.long { expected.overslept(self.after()) } else { expected.lasted(self.after()) }
        }
    }
}

/// Until this is dropped, this thread's timers may be late by a nanosecond, not by the usual 50 us.
#[derive(Debug)]
pub(crate) struct Slack(Option<libc::c_ulong>);

impl Slack {
    pub fn least() -> Slack {
        // SAFETY: concerns the calling thread only and takes no pointer.
        let before = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
        // 0: a real-time thread, whose timers have none.
        let before = libc::c_ulong::try_from(before).ok().filter(|slack| *slack > 1);
        if before.is_some() {
            // SAFETY: as above.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
        }
        Slack(before)
    }
}

impl Drop for Slack {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            // SAFETY: as above.
            unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, before) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nap_is_an_eighth_of_the_wait_and_no_longer_than_what_is_promised() {
        for after in [0, 1, 79_999, 80_000, 200_000, 400_000, 10_000_000, u64::MAX] {
            let nap = nap(after, 0);
            assert!((SHORTEST..=LATE).contains(&nap) && (nap == SHORTEST || nap <= after / 8), "{after}: {nap}");
        }
    }

    #[test]
    fn what_is_expected_is_slept_through_to_seven_eighths_and_a_millisecond_at_most() {
        assert_eq!(nap(100_000, 1_000_000), 775_000);
        assert_eq!(nap(870_000, 1_000_000), LATE);
        assert_eq!(nap(2_000_000, 1_000_000), LATE);
        assert_eq!(nap(0, 10_000_000_000), LONGEST);
        assert_eq!(nap(20_000, 60_000), 32_500);
    }

    #[test]
    fn the_threads_timer_slack_is_what_it_was_after_a_wait() {
        // SAFETY: concerns the calling thread only.
        let slack = || unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
        let (before, sleepers) = (slack(), Sleepers::new());
        let mut pace = Pace::new(Wait::Sleep { spin: Duration::ZERO }, Duration::from_millis(3), &sleepers, 1);
        assert_eq!(pace.pause(), Paused::Again);
        assert_eq!(slack(), 1);
        while pace.pause() != Paused::Over {}
        drop(pace);
        assert_eq!(slack(), before);
    }

    #[test]
    fn a_limit_is_kept_also_where_more_is_expected() {
        let sleepers = Sleepers::new();
        (0..30).for_each(|_| sleepers.expected.lasted(10_000_000_000));
        let mut pace = Pace::new(Wait::SLEEP, Duration::from_micros(300), &sleepers, 1);
        while pace.pause() != Paused::Over {}
        // (Far less than the expected length; the machine may be busy.)
        assert!(pace.after() < 1_000_000_000, "{}", pace.after());
    }

    #[test]
    fn ways_of_waiting_survive_their_number() {
        for how in [Wait::Spin, Wait::SLEEP, Wait::Sleep { spin: Duration::ZERO }] {
            assert_eq!(Wait::decode(how.encode()), how);
        }
        assert_ne!(Wait::decode(Wait::Sleep { spin: Duration::MAX }.encode()), Wait::Spin);
    }
}
