//! How often this process is a fork of one that used these locks. What other threads left behind in a gate at the time of a
//! fork (places in queues, a latch that was just held, sleepers that were counted, a ticket that is held) does not exist in
//! the child; it carries the number of forks then, and is dropped when it is met.

#[cfg(not(loom))]
use core::sync::atomic::{AtomicU32, Ordering};

#[cfg(not(loom))]
static FORKS: AtomicU32 = AtomicU32::new(0);

/// To be called in a forked child before anything else here, with the caller's new [`Tid`](crate::Tid) in use from then on.
#[cfg(not(loom))]
pub fn after_fork_in_child() {
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
