//! Numbers of threads, the lowest that is free: who has a lane of its own is decided by them.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Which of the first 64 numbers threads have.
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

/// This thread's number. (Its first call may allocate: the loader notes what to call when the thread ends.)
#[inline]
pub(crate) fn number() -> usize {
    let mine = NUMBER.try_with(|number| {
        if number.0.get() == NONE {
            number.0.set(take());
        }
        number.0.get()
    });
    // A destructor of the thread's that runs behind ours shares a lane.
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
            // Other tests' threads may have taken it meanwhile; never 200 of them.
            assert!(std::thread::spawn(number).join().unwrap() < 64);
        }
        assert!(first < 64);
        let here = number();
        assert!(std::thread::scope(|s| s.spawn(number).join().unwrap()) != here && number() == here);
    }
}
