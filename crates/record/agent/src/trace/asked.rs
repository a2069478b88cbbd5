//! Whether threads wait for a lock, for holders that have not read the clock (`record --locks=waits`).
//!
//! Each address has a place in a table of fixed size; addresses may share one. A thread that is about to wait increments
//! the count of its place, then reads the clock. A thread that has taken a lock keeps the count, and compares it after
//! the release. If the count is the same, no thread has begun to wait for the lock, and the hold is not recorded. If a
//! thread already waits when a lock is taken, the hold is recorded with its times, as under `--locks`.
//!
//! Invariant: [`since`] is never earlier than the begin of the hold: it is the time of a thread that incremented the count after the
//! holder had read it. Two locks that share a place, or a thread that never counts its end, cost readings of the clock; the times stay true.

use crate::process::sys;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const BITS: u32 = 10;
const FIRSTS: usize = 3;

/// Counts and times of the locks that share it.
#[repr(C, align(32))]
struct Place {
    /// Numbers of threads that have begun to wait, and that have ended.
    begun: AtomicU32,
    ended: AtomicU32,
    /// Start times of the threads that found no other thread waiting: [`First`]. In turns, by their number.
    firsts: [AtomicU64; FIRSTS],
}

static PLACES: [Place; 1 << BITS] = [const {
    Place { begun: AtomicU32::new(0), ended: AtomicU32::new(0), firsts: [const { AtomicU64::new(0) }; FIRSTS] }
}; 1 << BITS];

/// A thread's number, and the start of its wait, in one word: two words could be from two threads.
struct First;

impl First {
    const TURN_BITS: u32 = 24;
    /// Bits of a time that are left out, and mask of those that are kept.
    const FINE: u32 = 4;
    const TIME: u64 = (1 << (64 - First::TURN_BITS)) - 1;

    fn word(turn: u32, at: u64) -> u64 {
        ((at >> First::FINE) & First::TIME) << First::TURN_BITS | u64::from(turn) & ((1 << First::TURN_BITS) - 1)
    }

    /// Its distance from `turn`.
    fn behind(word: u64, turn: u32) -> u32 {
        (word as u32).wrapping_sub(turn) & ((1 << First::TURN_BITS) - 1)
    }

    /// The time, if it is not later than `now` and less than 2^43 ticks before it (almost an hour). A thread may begin to wait after another one has read
    /// the clock and before it looks here.
    fn at(word: u64, now: u64) -> Option<u64> {
        let ago = ((now >> First::FINE).wrapping_sub(word >> First::TURN_BITS)) & First::TIME;
        (ago <= First::TIME / 2).then(|| (now >> First::FINE).wrapping_sub(ago) << First::FINE)
    }
}

#[inline(always)]
fn place(addr: usize) -> &'static Place {
    let i = (addr as u64 >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - BITS);
    // (Never out of range.)
    &PLACES[i as usize & ((1 << BITS) - 1)]
}

/// Number of threads that have begun to wait.
#[inline(always)]
pub fn begun(addr: usize) -> u32 {
    // ORDERING: Acquire keeps the compiler from reading it before the operation on the lock; the CPU does not, that operation
    // is a locked instruction.
    place(addr).begun.load(Ordering::Acquire)
}

/// The same for a thread that has just taken the lock; `None` if another thread waits now.
#[inline(always)]
pub fn nobody(addr: usize) -> Option<u32> {
    let p = place(addr);
    // ORDERING: Acquire, in this order: if both are equal, no thread waited when `ended` was read, and none had begun in
    // between.
    let ended = p.ended.load(Ordering::Acquire);
    let begun = p.begun.load(Ordering::Acquire);
    (begun == ended).then_some(begun)
}

/// The thread's first tries failed and it is about to wait. Returns the time.
pub fn begins(addr: usize) -> u64 {
    let p = place(addr);
    // ORDERING: SeqCst, before the lock is tried again: a thread that releases it later finds the count changed.
    let before = p.begun.fetch_add(1, Ordering::SeqCst);
    let at = sys::rdtsc();
    if p.ended.load(Ordering::Acquire) == before {
        let turn = before.wrapping_add(1);
        p.firsts[turn as usize % FIRSTS].store(First::word(turn, at), Ordering::Release);
    }
    at
}

/// The thread's wait has ended.
pub fn ends(addr: usize) {
    // ORDERING: Release: a thread that sees this end also sees its begin counted.
    place(addr).ended.fetch_add(1, Ordering::Release);
}

/// A time at which a lock was held whose holder had kept the count `turn`: the next thread began to wait then. `None` if
/// no thread has come until `now`, or its time is no longer in the table.
#[cold]
pub fn since(addr: usize, turn: u32, now: u64) -> Option<u64> {
    let p = place(addr);
    let come = p.begun.load(Ordering::Acquire).wrapping_sub(turn);
    let words = p.firsts.iter().map(|first| first.load(Ordering::Acquire));
    let first =
        words.filter(|w| (1..=come).contains(&First::behind(*w, turn))).min_by_key(|w| First::behind(*w, turn))?;
    First::at(first, now)
}

/// In a forked child, which has one thread: no thread waits.
pub fn renew() {
    for p in &PLACES {
        let begun = p.begun.load(Ordering::Relaxed);
        if p.ended.load(Ordering::Relaxed) != begun {
            p.ended.store(begun, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_finds_when_the_first_began_to_wait() {
        let addr = 0x1000;
        let turn = nobody(addr).unwrap();
        assert_eq!(since(addr, turn, sys::rdtsc()), None);
        let first = begins(addr);
        let second = begins(addr);
        assert!(nobody(addr).is_none() && begun(addr) == turn.wrapping_add(2));
        let found = since(addr, turn, sys::rdtsc()).unwrap();
        assert!(found <= first && first - found < 16 && first < second, "{found} {first}");
        // Taken after both had begun.
        assert_eq!(since(addr, turn.wrapping_add(2), sys::rdtsc()), None);
        ends(addr);
        assert!(nobody(addr).is_none());
        ends(addr);
        // Another thread waits while the same holder has it: the first is still the first.
        begins(addr);
        ends(addr);
        assert_eq!(since(addr, turn, sys::rdtsc()), Some(found));
        // After so many more its word is overwritten: the result is a later time, never an earlier one.
        for _ in 0..FIRSTS {
            begins(addr);
            ends(addr);
        }
        assert!(since(addr, turn, sys::rdtsc()).unwrap() > second);
    }

    #[test]
    fn counts_that_wrap_and_a_clock_with_high_bits_are_read_right() {
        for (turn, at) in [(0xffff_ffff_u32, 5_u64), (0, u64::MAX - 90), (0x0100_0001, 0xdead_beef_1234_5678)] {
            let word = First::word(turn, at);
            let ago = at.wrapping_sub(First::at(word, at.wrapping_add(1 << 40)).unwrap());
            assert!(ago < 16, "{turn:x} {at:x} {ago}");
            assert_eq!(First::at(word, at.wrapping_sub(100)), None, "later than now");
            assert_eq!(First::behind(word, turn.wrapping_sub(3)), 3);
        }
    }

    #[test]
    fn a_forked_child_waits_for_nobody() {
        let addr = 0x2008;
        begins(addr);
        renew();
        assert!(nobody(addr).is_some());
    }
}
