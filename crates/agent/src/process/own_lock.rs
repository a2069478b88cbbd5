//! The agent's own locks: spin locks that know their owner.
//!
//! A signal handler of the program may interrupt us and call a function that we interpose; it then finds its own thread
//! holding the lock and passes through instead of waiting for itself. The owner is at work for microseconds and calls
//! nothing that blocks.
//!
//! The owner's word lies in the page that fork wipes ([`wiped`]): in a child every lock is free. What it guards may be half
//! changed there, and is renewed before it is used.

use super::sys;
use super::wiped;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicI32, Ordering};

/// A lock whose word is number `W` (a [`wiped::word`]) of those in the page. Each word has one lock. (The number is no field: a large
/// value that is all zero takes no room in the library's file.)
pub struct OwnLock<T, const W: usize>(UnsafeCell<T>);

// SAFETY: the value is reached only through a Guard, of which there is one at a time.
unsafe impl<T, const W: usize> Sync for OwnLock<T, W> {}

pub struct Guard<'a, T, const W: usize>(&'a OwnLock<T, W>);

impl<T, const W: usize> OwnLock<T, W> {
    pub const fn new(value: T) -> OwnLock<T, W> {
        OwnLock(UnsafeCell::new(value))
    }

    fn owner(&self) -> &'static AtomicI32 {
        wiped::lock_word(W)
    }

    /// Waits for the lock; `None` if this very thread holds it (we are in a signal handler).
    pub fn lock(&self) -> Option<Guard<'_, T, W>> {
        let me = sys::gettid();
        let owner = self.owner();
        let mut spins = 0u32;
        // ORDERING: Acquire on success pairs with the Release in drop.
        while let Err(now) = owner.compare_exchange_weak(0, me, Ordering::Acquire, Ordering::Relaxed) {
            if now == me {
                return None;
            }
            spins += 1;
            if spins.is_multiple_of(128) {
                sys::sched_yield();
            }
            core::hint::spin_loop();
        }
        Some(Guard(self))
    }

    /// The value's address, for readers that find out by themselves whether it changed under them.
    pub fn peek(&self) -> *const T {
        self.0.get()
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<Guard<'_, T, W>> {
        // ORDERING: as in `lock`.
        self.owner().compare_exchange(0, sys::gettid(), Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Guard(self))
    }
}

impl<T, const W: usize> core::ops::Deref for Guard<'_, T, W> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: we hold the lock.
        unsafe { &*self.0.0.get() }
    }
}

impl<T, const W: usize> core::ops::DerefMut for Guard<'_, T, W> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we hold the lock.
        unsafe { &mut *self.0.0.get() }
    }
}

impl<T, const W: usize> Drop for Guard<'_, T, W> {
    fn drop(&mut self) {
        // ORDERING: Release: what we changed, before the lock is free.
        self.0.owner().store(0, Ordering::Release);
    }
}
