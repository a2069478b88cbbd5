//! Locks that stay usable after a panic of the thread that held them.
//!
//! The invariant is the user's: what such a lock protects is right after each single change, so a panic leaves nothing half done.

use std::sync::{LockResult, PoisonError};

/// The guard or the value, whether or not a thread panicked with the lock.
#[inline]
pub fn ignore<T>(taken: LockResult<T>) -> T {
    taken.unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[test]
    fn a_lock_is_usable_after_a_panic() {
        let lock = Mutex::new(1);
        std::thread::scope(|threads| {
            let panics = threads.spawn(|| {
                let mut held = ignore(lock.lock());
                *held = 2;
                panic!("with the lock");
            });
            assert!(panics.join().is_err());
        });
        assert!(lock.is_poisoned());
        assert_eq!(*ignore(lock.lock()), 2);
    }
}
