//! This process's number, and how many forks are between it and the process that first used these locks. State of other
//! threads that was in a gate at a fork (places in queues, a held latch, counted sleepers, a held ticket) refers to
//! threads that do not exist in the child. Such state carries the number of forks and is dropped when it is found.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, Ordering};

#[cfg(not(loom))]
static FORKS: AtomicU32 = AtomicU32::new(0);
/// 0: not read yet.
#[cfg(not(loom))]
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// To be called in a forked child before any other function here. `me` is its only thread, whose number is the process's.
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

/// This process's number. The first call makes a system call: [`Layout::probe`](crate::layout::Layout::probe) makes it,
/// so that no later lock has to when a filter may forbid it.
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
