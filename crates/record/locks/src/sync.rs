//! The parts of the gates, once for the machine and once for the model checker: an atomic word, data guarded by the
//! latch, and a word to sleep on.

#[cfg(loom)]
pub use model::*;
#[cfg(not(loom))]
pub use real::*;

#[cfg(not(loom))]
mod real {
    use core::cell::UnsafeCell;
    pub use core::sync::atomic::{AtomicU32, Ordering};

    use crate::deadline::Deadline;
    use crate::futex;

    /// How often a waiter reads its own word before it sleeps: about 1 to 3 us.
    pub const SPINS: u32 = 64;

    pub fn spin() {
        core::hint::spin_loop();
    }

    /// Data that only the holder of the latch touches.
    pub struct Guarded<T>(UnsafeCell<T>);

    impl<T: Copy> Guarded<T> {
        pub const fn new(value: T) -> Self {
            Guarded(UnsafeCell::new(value))
        }

        /// # Safety
        /// The caller holds the latch, or no other thread can reach this.
        pub unsafe fn get(&self) -> T {
            // SAFETY: no other access at this time, see above.
            unsafe { *self.0.get() }
        }

        /// # Safety
        /// As [`Guarded::get`].
        pub unsafe fn set(&self, value: T) {
            // SAFETY: no other access at this time, see above.
            unsafe { *self.0.get() = value }
        }
    }

    /// The word that one waiter sleeps on.
    pub struct Word(AtomicU32);

    /// A [`Word`] that may no longer exist when its sleeper is to be woken.
    pub struct Address(*const AtomicU32);

    impl Word {
        pub const fn new(value: u32) -> Word {
            Word(AtomicU32::new(value))
        }

        pub fn value(&self) -> &AtomicU32 {
            &self.0
        }

        pub fn address(&self) -> Address {
            Address(&self.0)
        }

        /// Returns false when the deadline has passed.
        pub fn sleep(&self, expected: u32, deadline: Option<&Deadline>) -> bool {
            futex::wait(&self.0, expected, deadline) != futex::Wait::TimedOut
        }
    }

    impl Address {
        /// # Safety
        /// The word still exists.
        pub unsafe fn swap(&self, value: u32, ordering: Ordering) -> u32 {
            // SAFETY: see above.
            unsafe { (*self.0).swap(value, ordering) }
        }

        pub fn wake(&self) {
            futex::wake(self.0, 1);
        }
    }
}

#[cfg(loom)]
mod model {
    use loom::cell::UnsafeCell;
    pub use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::sync::{Arc, Condvar, Mutex};

    use crate::deadline::Deadline;

    pub const SPINS: u32 = 0;

    pub fn spin() {
        loom::thread::yield_now();
    }

    /// The checker rejects two accesses without an order between them.
    pub struct Guarded<T>(UnsafeCell<T>);

    impl<T: Copy> Guarded<T> {
        pub fn new(value: T) -> Self {
            Guarded(UnsafeCell::new(value))
        }

        /// # Safety
        /// Checked by the model.
        pub unsafe fn get(&self) -> T {
            // SAFETY: the model checks the access.
            self.0.with(|value| unsafe { *value })
        }

        /// # Safety
        /// Checked by the model.
        pub unsafe fn set(&self, new: T) {
            // SAFETY: the model checks the access.
            self.0.with_mut(|value| unsafe { *value = new })
        }
    }

    /// A futex: the comparison and falling asleep are one step, and a wake-up without a sleeper is lost.
    pub struct Word(Arc<(AtomicU32, Mutex<()>, Condvar)>);

    pub struct Address(Arc<(AtomicU32, Mutex<()>, Condvar)>);

    impl Word {
        pub fn new(value: u32) -> Word {
            Word(Arc::new((AtomicU32::new(value), Mutex::new(()), Condvar::new())))
        }

        pub fn value(&self) -> &AtomicU32 {
            &self.0.0
        }

        pub fn address(&self) -> Address {
            Address(self.0.clone())
        }

        /// Every deadline passes immediately: the model checks the race between a withdrawal and a grant.
        pub fn sleep(&self, expected: u32, deadline: Option<&Deadline>) -> bool {
            let (value, bucket, asleep) = &*self.0;
            let guard = bucket.lock().unwrap();
            if value.load(Ordering::Relaxed) != expected {
                return true;
            }
            if deadline.is_some() {
                return false;
            }
            drop(asleep.wait(guard).unwrap());
            true
        }
    }

    impl Address {
        /// # Safety
        /// None needed: the model keeps the word.
        pub unsafe fn swap(&self, value: u32, ordering: Ordering) -> u32 {
            self.0.0.swap(value, ordering)
        }

        pub fn wake(&self) {
            let _bucket = self.0.1.lock().unwrap();
            self.0.2.notify_all();
        }
    }
}
