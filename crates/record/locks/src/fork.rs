//! How often this process is a fork of one that used these locks, and its number. What other threads left behind in a gate at
//! the time of a fork (places in queues, a latch that was just held, sleepers that were counted, a ticket that is held) does not
//! exist in the child; it carries the number of forks then, and is dropped when it is met.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, Ordering};

#[cfg(not(loom))]
static FORKS: AtomicU32 = AtomicU32::new(0);
/// 0: not asked for yet.
#[cfg(not(loom))]
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// To be called in a forked child before anything else here: `me` is its one thread, whose number is the process's.
#[cfg(not(loom))]
pub fn after_fork_in_child(me: crate::Tid) {
    PROCESS.store(me.raw(), Ordering::Relaxed);
    FORKS.store(forks().wrapping_add(1), Ordering::Relaxed);
}

#[cfg(not(loom))]
#[inline]
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

#[cfg(loom)]
pub fn forks() -> u32 {
    0
}

/// This process's number. A system call the first time: [`Layout::probe`](crate::layout::Layout::probe) asks, so that no lock
/// does later, when a filter may forbid it.
#[cfg(not(loom))]
pub fn process() -> u32 {
    match PROCESS.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: getpid has no arguments and cannot fail.
            let number = unsafe { libc::getpid() } as u32;
            PROCESS.store(number, Ordering::Relaxed);
            number
        }
        number => number,
    }
}
