//! The cold zone's lock: a spin lock that knows its owner.
//!
//! A signal handler of the program may interrupt us and call a function that we interpose; it then finds its own thread
//! holding the lock and passes through instead of waiting for itself. The owner is at work for microseconds and calls
//! nothing that blocks.

use crate::sys;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicI32, Ordering};

pub struct Cold<T> {
    owner: AtomicI32,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through a Guard, of which there is one at a time.
unsafe impl<T> Sync for Cold<T> {}

pub struct Guard<'a, T>(&'a Cold<T>);

impl<T> Cold<T> {
    pub const fn new(value: T) -> Cold<T> {
        Cold { owner: AtomicI32::new(0), value: UnsafeCell::new(value) }
    }

    /// Waits for the lock; `None` if this very thread holds it (we are in a signal handler).
    pub fn lock(&self) -> Option<Guard<'_, T>> {
        let me = sys::gettid();
        let mut spins = 0u32;
        // ORDERING: Acquire on success pairs with the Release in drop.
        while let Err(owner) = self.owner.compare_exchange_weak(0, me, Ordering::Acquire, Ordering::Relaxed) {
            if owner == me {
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
        self.value.get()
    }

    /// Takes the lock if nobody holds it.
    pub fn try_lock(&self) -> Option<Guard<'_, T>> {
        // ORDERING: as in `lock`.
        self.owner.compare_exchange(0, sys::gettid(), Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Guard(self))
    }
}

impl<T> core::ops::Deref for Guard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: we hold the lock.
        unsafe { &*self.0.value.get() }
    }
}

impl<T> core::ops::DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: we hold the lock.
        unsafe { &mut *self.0.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    fn drop(&mut self) {
        // ORDERING: Release: what we changed, before the lock is free.
        self.0.owner.store(0, Ordering::Release);
    }
}
