//! The threads that sleep until submissions of one lane are done, and the expected length of their waits.
//!
//! They share the looks, and no thread depends on another. With n threads asleep each naps n times as long, so that together they look as often as one would.
//! A thread that finds progress on the lane wakes those whose number has been reached. If a thread gets no CPU, or ends during its nap, the others only nap
//! longer, a millisecond at most.
//!
//! The protocol: a sleeper reads `word`, looks, counts itself in `napping`, and sleeps if `word` is still the same. The thread that first finds progress
//! (`seen`) changes `word`, then reads `napping`. So either that thread sees the sleeper, or the kernel sees the changed word.

use crate::wait::{LATE, LONGEST, nap};
use locks::futex;
use locks::{Clock, Deadline};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[derive(Debug)]
pub(crate) struct Sleepers {
    word: AtomicU32,
    napping: AtomicU32,
    /// The highest number that a sleeper has seen done. Numbers of a lane are never reused.
    seen: AtomicU64,
    pub expected: Expected,
}

/// A nap that is about to begin: the value of the word before the last look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Before(u32);

impl Sleepers {
    pub const fn new() -> Sleepers {
        let (word, napping) = (AtomicU32::new(0), AtomicU32::new(0));
        Sleepers { word, napping, seen: AtomicU64::new(0), expected: Expected::new() }
    }

    /// Before a look.
    pub fn before(&self) -> Before {
        // ORDERING: before the look: see the head of the file.
        Before(self.word.load(Ordering::SeqCst))
    }

    /// Sleeps after a failed look for a number, `after` nanoseconds into the wait. Ends when another thread sees that number done, when `limit` nanoseconds
    /// of the wait have passed, or at a signal.
    pub fn nap(&self, before: Before, number: u64, start: u64, after: u64, limit: u64) -> Nap {
        // ORDERING: before the kernel compares the word: see the head of the file.
        let others = self.napping.fetch_add(1, Ordering::SeqCst);
        let alone = nap(after, self.expected.get());
        let long = alone.saturating_mul(u64::from(others) + 1).min(LONGEST);
        let at = start.saturating_add(after).saturating_add(long.min(limit.saturating_sub(after)));
        let at = libc::timespec { tv_sec: (at / 1_000_000_000) as i64, tv_nsec: (at % 1_000_000_000) as i64 };
        // (No cancellation point: glibc's functions that sleep end cancelled threads by unwinding, through frames that cannot be unwound.)
        let deadline = Deadline::new(Clock::Monotonic, at);
        let woken = futex::wait_bitset(&self.word, before.0, Some(&deadline), bit(number)) != futex::Wait::TimedOut;
        self.napping.fetch_sub(1, Ordering::SeqCst);
        Nap { woken, shared: others > 0, long: alone > LATE }
    }

    /// All submissions up to this number are done. Called after a look; wakes the threads that sleep for a number that no thread has seen before.
    pub fn reached(&self, number: u64) {
        let seen = self.seen.fetch_max(number, Ordering::SeqCst);
        if seen >= number {
            return;
        }
        // ORDERING: before `napping` is read: see the head of the file.
        self.word.fetch_add(1, Ordering::SeqCst);
        if self.napping.load(Ordering::SeqCst) > 0 {
            futex::wake_bitset(&self.word, u32::MAX, bits(seen, number));
        }
    }

    /// Wakes all: the lane has died, or the session is not open any more.
    pub fn wake_all(&self) {
        self.word.fetch_add(1, Ordering::SeqCst);
        if self.napping.load(Ordering::SeqCst) > 0 {
            futex::wake(&self.word, u32::MAX);
        }
    }
}

/// The outcome of a nap.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Nap {
    /// It ended before its time.
    pub woken: bool,
    /// Other threads slept when it began, so it was longer than it would have been.
    pub shared: bool,
    /// Because of the expected length, it was longer than the permitted lateness.
    pub long: bool,
}

/// 32 bits distinguish the sleepers.
fn bit(number: u64) -> u32 {
    1 << (number % 32)
}

/// The bits of the numbers after `seen`, up to `number`.
fn bits(seen: u64, number: u64) -> u32 {
    if number - seen >= 32 { futex::MATCH_ANY } else { (seen + 1..=number).map(bit).fold(0, |all, bit| all | bit) }
}

/// A lower bound for how long recent waits took, in nanoseconds; 0 if unknown.
///
/// It falls immediately and at most doubles: one long wait among short ones makes no thread sleep long.
#[derive(Debug)]
pub(crate) struct Expected(AtomicU64);

impl Expected {
    pub const fn new() -> Expected {
        Expected(AtomicU64::new(0))
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// A wait took this long. (If two threads store together, one value is lost.)
    pub fn lasted(&self, nanoseconds: u64) {
        let before = self.get();
        self.0.store(nanoseconds.min(before.saturating_mul(2).max(LATE)), Ordering::Relaxed);
    }

    /// A wait of this length was too long, by an unknown amount.
    pub fn overslept(&self, nanoseconds: u64) {
        self.0.store(nanoseconds / 2, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wait::now;
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    #[test]
    fn one_long_wait_is_not_expected_again_and_one_short_wait_is() {
        let expected = Expected::new();
        expected.lasted(10_000_000);
        assert_eq!(expected.get(), LATE);
        (0..20).for_each(|_| expected.lasted(10_000_000));
        assert_eq!(expected.get(), 10_000_000);
        expected.lasted(70_000);
        assert_eq!(expected.get(), 70_000);
        expected.overslept(60_000);
        assert_eq!(expected.get(), 30_000);
    }

    #[test]
    fn long_and_short_in_turns_are_never_slept_through() {
        let expected = Expected::new();
        for _ in 0..100 {
            expected.lasted(10_000_000);
            assert!(nap(20_000, expected.get()) <= LATE);
            expected.lasted(30_000);
        }
    }

    #[test]
    fn a_wake_is_for_those_whose_number_has_come() {
        assert_eq!(bits(4, 5), bit(5));
        assert_eq!(bits(30, 33), bit(31) | bit(32) | bit(33));
        assert_eq!((bits(0, 32), bits(7, 1 << 40)), (u32::MAX, u32::MAX));
        assert!((1..100).all(|number| (1..=number).all(|seen| bits(seen - 1, number) & bit(number) != 0)));
    }

    #[test]
    fn a_nap_does_not_begin_where_its_number_came_after_the_look() {
        let sleepers = Sleepers::new();
        let before = sleepers.before();
        // (The failed look.) No thread sleeps, so none is woken.
        sleepers.reached(5);
        assert!(sleepers.nap(before, 5, now(), 0, u64::MAX).woken);
        assert!(!sleepers.nap(sleepers.before(), 6, now(), 0, u64::MAX).woken, "nothing has come since");
        // Numbers that were seen before wake no thread again.
        let before = sleepers.before();
        sleepers.reached(5);
        sleepers.reached(4);
        assert!(!sleepers.nap(before, 6, now(), 0, u64::MAX).woken);
    }

    #[test]
    fn a_wake_reaches_who_sleeps_for_its_number_and_nobody_else() {
        let sleepers = Sleepers::new();
        let sleeps = |number: u64| {
            sleepers.napping.fetch_add(1, Ordering::SeqCst);
            let soon = Clock::Monotonic.now();
            let soon = libc::timespec { tv_sec: soon.tv_sec + 2, ..soon };
            futex::wait_bitset(&sleepers.word, 0, Some(&Deadline::new(Clock::Monotonic, soon)), bit(number))
        };
        std::thread::scope(|scope| {
            let threads = [3, 4, 5].map(|number| scope.spawn(move || sleeps(number)));
            while sleepers.napping.load(Ordering::SeqCst) < 3 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(300));
            sleepers.reached(4);
            let ended = threads.map(|thread| thread.join().unwrap());
            assert_eq!(ended, [futex::Wait::Woken, futex::Wait::Woken, futex::Wait::TimedOut]);
        });
    }

    /// Threads sleep for numbers of a counter, and only one of them sees a number in time: the naps of the others are far too long.
    #[test]
    fn no_sleeper_misses_its_number() {
        const THREADS: u64 = 8;
        const ROUNDS: u64 = 2000;
        const LONG: u64 = 20_000_000_000;
        let (sleepers, reached) = (Sleepers::new(), AtomicU64::new(0));
        let late = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (sleepers, reached, late) = (&sleepers, &reached, &late);
                scope.spawn(move || {
                    for number in (0..ROUNDS).map(|round| round * THREADS + thread + 1) {
                        let start = now();
                        loop {
                            let before = sleepers.before();
                            if reached.load(Ordering::SeqCst) >= number {
                                break;
                            }
                            sleepers.napping.fetch_add(1, Ordering::SeqCst);
                            let at = libc::timespec { tv_sec: ((start + LONG) / 1_000_000_000) as i64, tv_nsec: 0 };
                            let deadline = Deadline::new(Clock::Monotonic, at);
                            futex::wait_bitset(&sleepers.word, before.0, Some(&deadline), bit(number));
                            sleepers.napping.fetch_sub(1, Ordering::SeqCst);
                        }
                        late.fetch_or(now() - start > LONG / 2, Ordering::SeqCst);
                    }
                });
            }
            let start = Instant::now();
            let mut number = 0;
            while number < THREADS * ROUNDS {
                number = (number + 1 + number % 7).min(THREADS * ROUNDS);
                reached.store(number, Ordering::SeqCst);
                sleepers.reached(number);
                // Until a thread sleeps, mostly.
                (0..50)
                    .take_while(|_| sleepers.napping.load(Ordering::SeqCst) == 0)
                    .for_each(|_| std::thread::yield_now());
            }
            assert!(start.elapsed() < Duration::from_secs(60));
        });
        assert!(!late.load(Ordering::SeqCst), "a wake-up was lost");
    }
}
