//! The short inner lock of a gate: a priority-inheriting futex word. So a holder that is preempted while it sorts the
//! queue delays a waiter of higher priority only for the time of that work.

use crate::tid::Tid;

#[cfg(loom)]
pub(crate) use model::*;
#[cfg(not(loom))]
pub(crate) use real::*;

#[cfg(not(loom))]
mod real {
    use core::sync::atomic::{AtomicU32, Ordering};

    use super::Tid;
    use crate::deadline::{Clock, Deadline};
    use crate::fork::{forks, process};
    use crate::futex::{self, PiError};

    /// Zero when free.
    pub struct Latch(AtomicU32);

    pub struct Latched<'a> {
        latch: &'a Latch,
        me: Tid,
    }

    impl Latch {
        pub const fn new() -> Latch {
            Latch(AtomicU32::new(0))
        }

        #[inline]
        pub fn hold(&self, me: Tid) -> Latched<'_> {
            if self.0.compare_exchange(0, me.raw(), Ordering::Acquire, Ordering::Relaxed).is_err() {
                self.wait(me);
            }
            Latched { latch: self, me }
        }

        /// As [`Latch::hold`]. `None`: the calling thread already holds it, in an outer frame.
        pub fn hold_anew(&self, me: Tid) -> Option<Latched<'_>> {
            (self.0.load(Ordering::Relaxed) & futex::TID_MASK != me.raw()).then(|| self.hold(me))
        }

        #[cold]
        fn wait(&self, me: Tid) {
            loop {
                self.drop_stale_holder();
                match futex::lock_pi(&self.0, None) {
                    Ok(()) => return,
                    Err(PiError::Again | PiError::Interrupted) => {}
                    // A kernel without PI futexes, a holder that ended inside, or memory from before a fork: no thread
                    // can inherit the priority. Sleep rather than spin, or a real-time caller would keep the holder off
                    // its CPU.
                    Err(_) => {
                        let pause = Deadline::after(Clock::Monotonic, core::time::Duration::from_micros(50));
                        let seen = self.0.load(Ordering::Relaxed);
                        if seen != 0 {
                            futex::wait(&self.0, seen, Some(&pause));
                        }
                    }
                }
                if self.0.compare_exchange(0, me.raw(), Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return;
                }
            }
        }

        #[cold]
        fn wake(&self) {
            loop {
                match futex::unlock_pi(&self.0) {
                    Ok(()) => return,
                    Err(PiError::Again | PiError::Interrupted) => {}
                    // Only where `wait` fell back on pauses: no thread sleeps in the kernel as a PI waiter.
                    Err(_) => return self.0.store(0, Ordering::Release),
                }
            }
        }

        /// In a forked child a thread of the parent may appear to hold the latch. The kernel would wait for that thread.
        fn drop_stale_holder(&self) {
            let word = self.0.load(Ordering::Relaxed);
            let holder = word & futex::TID_MASK;
            if forks() == 0 || holder == 0 {
                return;
            }
            // SAFETY: errno is the thread's own. Signal 0 only checks whether this process has that thread.
            let ours = unsafe {
                let errno = libc::__errno_location();
                let saved = *errno;
                let result = libc::syscall(libc::SYS_tgkill, process(), holder, 0);
                let ours = result == 0 || *errno != libc::ESRCH;
                *errno = saved;
                ours
            };
            if !ours {
                // Fails if another thread was faster, or if the holder belonged to this process and has released the latch.
                let _ = self.0.compare_exchange(word, 0, Ordering::Acquire, Ordering::Relaxed);
            }
        }

        /// In a forked child, where the former holder does not exist.
        pub fn reset(&self) {
            self.0.store(0, Ordering::Relaxed);
        }
    }

    impl Drop for Latched<'_> {
        #[inline]
        fn drop(&mut self) {
            let word = &self.latch.0;
            if word.compare_exchange(self.me.raw(), 0, Ordering::Release, Ordering::Relaxed).is_err() {
                self.latch.wake();
            }
        }
    }
}

#[cfg(loom)]
mod model {
    use super::Tid;

    pub struct Latch(loom::sync::Mutex<()>);

    pub struct Latched<'a> {
        _guard: loom::sync::MutexGuard<'a, ()>,
    }

    impl Latch {
        pub fn new() -> Latch {
            Latch(loom::sync::Mutex::new(()))
        }

        pub fn hold(&self, _me: Tid) -> Latched<'_> {
            Latched { _guard: self.0.lock().unwrap() }
        }

        pub fn hold_anew(&self, me: Tid) -> Option<Latched<'_>> {
            Some(self.hold(me))
        }
    }
}
