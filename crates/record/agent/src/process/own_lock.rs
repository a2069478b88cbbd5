//! The agent's own locks: they inherit priority and record their owner.
//!
//! A signal handler of the program may interrupt the agent and call a function that the agent interposes. It then finds
//! that its own thread holds the lock, and passes through instead of waiting for itself. An owner holds the lock for
//! microseconds and calls nothing that blocks. If it is preempted, a real-time thread that waits lends it its priority. A
//! wait ends after [`PATIENCE`] at the latest; then the caller passes through, too.
//!
//! The owner's word is in the page that fork wipes ([`wiped`]), so in a child every lock is free. The value that it
//! guards may be half changed there, and is renewed before it is used.

use super::restrictions::{may, need};
use super::{sys, thread, wiped};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use locks::futex::{self, PiError, TID_MASK};
use locks::{Clock, Deadline};

/// The longest wait. No thread holds a lock that long. A wait can last that long if a child of vfork unlocked for its
/// parent.
const PATIENCE: Duration = Duration::from_secs(1);
/// How often a waiter looks at the word before it sleeps: about 2 us.
const LOOKS: u32 = 64;

/// A lock whose word is number `W` (a [`wiped::word`]) in the page. Each word has one lock. (The number is not a field: a
/// large value that is all zero takes no room in the library's file.)
pub struct OwnLock<T, const W: usize>(UnsafeCell<T>);

// SAFETY: the value is reached only through a Guard, and there is only one at a time.
unsafe impl<T, const W: usize> Sync for OwnLock<T, W> {}

pub struct Guard<'a, T, const W: usize> {
    lock: &'a OwnLock<T, W>,
    me: u32,
}

impl<T, const W: usize> OwnLock<T, W> {
    pub const fn new(value: T) -> OwnLock<T, W> {
        OwnLock(UnsafeCell::new(value))
    }

    fn owner(&self) -> &'static AtomicU32 {
        wiped::lock_word(W)
    }

    /// Waits for the lock. `None` if the calling thread already holds it (a signal handler), or if the lock did not
    /// become free within [`PATIENCE`]. Also `None`, without a wait, if the program has forbidden itself to wait.
    pub fn lock(&self) -> Option<Guard<'_, T, W>> {
        self.try_lock().or_else(|| self.wait())
    }

    #[cold]
    #[inline(never)]
    fn wait(&self) -> Option<Guard<'_, T, W>> {
        let me = thread::number() as u32;
        let owner = self.owner();
        for _ in 0..LOOKS {
            if owner.load(Ordering::Relaxed) & TID_MASK == me {
                return None;
            }
            if let Some(guard) = self.try_lock() {
                return Some(guard);
            }
            core::hint::spin_loop();
        }
        sleep(owner).then_some(Guard { lock: self, me })
    }

    /// Releases a lock that the calling thread took and forgot ([`core::mem::forget`]).
    pub fn unlock_forgotten(&self) {
        drop(Guard { lock: self, me: thread::number() as u32 });
    }

    /// The value's address, for readers that detect changes themselves.
    pub fn peek(&self) -> *const T {
        self.0.get()
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<Guard<'_, T, W>> {
        let me = thread::number() as u32;
        // ORDERING: Acquire on success pairs with the Release in drop.
        self.owner().compare_exchange(0, me, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(Guard { lock: self, me })
    }
}

/// Waits in the kernel, which makes the caller the owner. False if it does not.
fn sleep(owner: &AtomicU32) -> bool {
    if !may(need::FUTEX | need::SLEEP) {
        return false;
    }
    let until = Deadline::after(Clock::Monotonic, PATIENCE);
    loop {
        let failed = match futex::lock_pi2(owner, Some(&until)) {
            Ok(()) => return true,
            Err(PiError::NotSupported) => {
                let left = Deadline::after(Clock::Realtime, PATIENCE);
                futex::lock_pi(owner, Some(&left)).err()
            }
            Err(e) => Some(e),
        };
        match failed {
            None => return true,
            Some(PiError::TimedOut | PiError::Deadlock) => return false,
            Some(PiError::Again | PiError::Interrupted) => {}
            // The kernel has no such operation, or the word names no thread of this process: the owner gets the CPU for a
            // moment.
            Some(_) => sys::nap(50_000),
        }
        if until.is_past() {
            return false;
        }
    }
}

impl<T, const W: usize> core::ops::Deref for Guard<'_, T, W> {
    type Target = T;
    fn deref(&self) -> &T {
        // SAFETY: this guard holds the lock.
        unsafe { &*self.lock.0.get() }
    }
}

impl<T, const W: usize> core::ops::DerefMut for Guard<'_, T, W> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: this guard holds the lock.
        unsafe { &mut *self.lock.0.get() }
    }
}

impl<T, const W: usize> Drop for Guard<'_, T, W> {
    fn drop(&mut self) {
        let owner = self.lock.owner();
        // ORDERING: Release: changes made under the lock become visible before the lock is free.
        if owner.compare_exchange(self.me, 0, Ordering::Release, Ordering::Relaxed).is_err() {
            unlock_in_kernel(owner, self.me);
        }
    }
}

/// A thread sleeps in the kernel, or the word was wiped by a fork.
#[cold]
#[inline(never)]
fn unlock_in_kernel(owner: &AtomicU32, me: u32) {
    while owner.load(Ordering::Relaxed) & TID_MASK == me {
        match futex::unlock_pi(owner) {
            Err(PiError::Again | PiError::Interrupted) => {}
            // (Without the kernel's help no thread sleeps in it.)
            Err(PiError::NotSupported) => return owner.store(0, Ordering::Release),
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::wiped::word;
    use super::*;
    use std::sync::Barrier;
    use std::time::Instant;

    #[test]
    fn a_thread_that_holds_the_lock_passes_through_and_others_count_right() {
        static LOCK: OwnLock<u64, { word::MODEL }> = OwnLock::new(0);
        thread::find_numbers();
        let held = LOCK.lock().unwrap();
        assert!(LOCK.lock().is_none() && LOCK.try_lock().is_none());
        drop(held);
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| (0..20_000).for_each(|_| *LOCK.lock().unwrap() += 1));
            }
        });
        assert_eq!(*LOCK.lock().unwrap(), 80_000);
        assert_eq!(wiped::lock_word(word::MODEL).load(Ordering::Relaxed) & TID_MASK, 0);
    }

    #[test]
    fn a_child_forked_while_another_thread_holds_the_lock_finds_it_free() {
        static LOCK: OwnLock<u64, { word::CHANNELS }> = OwnLock::new(0);
        thread::find_numbers();
        assert!(wiped::prepare());
        let (held, forked) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|s| {
            s.spawn(|| {
                let lock = LOCK.lock().unwrap();
                held.wait();
                forked.wait();
                drop(lock);
            });
            held.wait();
            // SAFETY: the child takes one of the agent's locks and exits.
            let child = unsafe { libc::fork() };
            if child == 0 {
                let free = LOCK.try_lock().is_some();
                // SAFETY: ends the child.
                unsafe { libc::_exit(i32::from(!free)) };
            }
            forked.wait();
            let mut status = 0;
            // SAFETY: the test's child.
            assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
            assert_eq!(status, 0, "the lock is held in the child");
        });
    }

    /// Puts the calling thread on one CPU and under this policy. False if that is not allowed.
    fn schedule(cpu: usize, policy: i32, priority: i32) -> bool {
        let with = libc::sched_param { sched_priority: priority };
        // SAFETY: plain calls for the calling thread, with local structs.
        unsafe {
            let mut set: libc::cpu_set_t = core::mem::zeroed();
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of_val(&set), &set) == 0 && libc::sched_setscheduler(0, policy, &with) == 0
        }
    }

    #[test]
    fn a_real_time_thread_waits_no_longer_than_the_owner_works() {
        static LOCK: OwnLock<u64, { word::SITES }> = OwnLock::new(0);
        thread::find_numbers();
        // SAFETY: no arguments.
        let cpu = unsafe { libc::sched_getcpu() } as usize;
        let waited = || {
            let (held, over) = (Barrier::new(3), std::sync::atomic::AtomicBool::new(false));
            std::thread::scope(|s| {
                let owner = s.spawn(|| {
                    assert!(schedule(cpu, libc::SCHED_OTHER, 0));
                    let lock = LOCK.lock().unwrap();
                    held.wait();
                    // From here on the other thread has the CPU until it lends its priority to this one.
                    let from = Instant::now();
                    while from.elapsed().as_millis() < 2 {}
                    drop(lock);
                });
                let waiter = s.spawn(|| {
                    let may = schedule(cpu, libc::SCHED_FIFO, 20);
                    held.wait();
                    let from = Instant::now();
                    let got = LOCK.lock().is_some();
                    over.store(true, Ordering::Relaxed);
                    may.then(|| (from.elapsed(), got))
                });
                // Its priority is between the other two: it keeps the CPU if no thread inherits.
                s.spawn(|| {
                    let may = schedule(cpu, libc::SCHED_FIFO, 10);
                    held.wait();
                    let from = Instant::now();
                    while may && !over.load(Ordering::Relaxed) && from.elapsed().as_millis() < 500 {
                        std::hint::spin_loop();
                    }
                });
                owner.join().unwrap();
                waiter.join().unwrap()
            })
        };
        // Without inheritance the waiter waits 500 ms for the thread with the middle priority.
        let shown = test_support::measured(|| match waited() {
            Some((waited, true)) if waited.as_millis() >= 200 => Err(format!("waited for {waited:?}")),
            shown => Ok(shown),
        });
        let Some((_, got)) = shown else { test_support::skip!("SCHED_FIFO is not allowed") };
        assert!(got);
    }
}
