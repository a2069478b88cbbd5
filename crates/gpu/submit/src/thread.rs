//! Numbers of threads, the lowest free one each: they decide which threads have their own lane.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The numbers below 64 that threads have.
static TAKEN: AtomicU64 = AtomicU64::new(0);
/// For threads beyond these, which share lanes anyway.
static BEYOND: AtomicUsize = AtomicUsize::new(0);
const NONE: usize = usize::MAX;

/// Gives its number back when its thread ends.
struct Number(Cell<usize>);

impl Drop for Number {
    fn drop(&mut self) {
        give_back(self.0.get());
    }
}

thread_local!(static NUMBER: Number = const { Number(Cell::new(NONE)) });

/// This thread's number. (A thread's first call may allocate: the loader records a destructor for the end of
/// the thread.)
#[inline]
pub(crate) fn number() -> usize {
    let mine = NUMBER.try_with(|number| {
        if number.0.get() == NONE {
            number.0.set(take());
        }
        number.0.get()
    });
    // A thread-local destructor that runs after this one shares a lane.
    mine.unwrap_or(0)
}

#[cold]
fn take() -> usize {
    let lowest = |taken: u64| (taken != u64::MAX).then(|| taken | (taken + 1));
    match TAKEN.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lowest) {
        Ok(before) => before.trailing_ones() as usize,
        Err(_) => 64 + BEYOND.fetch_add(1, Ordering::Relaxed) % (usize::MAX / 2),
    }
}

fn give_back(number: usize) {
    if number < 64 {
        TAKEN.fetch_and(!(1 << number), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_follow_each_other_have_the_same_number() {
        let first = std::thread::spawn(number).join().unwrap();
        for _ in 0..200 {
            // Threads of other tests may have taken it in between, but never 200 of them.
            assert!(std::thread::spawn(number).join().unwrap() < 64);
        }
        assert!(first < 64);
        let here = number();
        assert!(std::thread::scope(|s| s.spawn(number).join().unwrap()) != here && number() == here);
    }
}
