//! Counts the children that this process starts through libc. A child started by a raw system call (Go's os/exec) passes
//! no hook and is not followed. The recorder sees that a process had children. If none are counted here, it concludes
//! that they were started that way.

use super::region::control;
use core::sync::atomic::{AtomicU64, Ordering};

/// Forks by libc, and programs started through the agent's hooks, by this process or by a child before its exec.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// Called by the constructor of a process that may be recorded.
pub fn begin() {
    // SAFETY: the handler may run in the parent of any fork; it only adds 1. (libc has room for some handlers without
    // allocating.)
    unsafe { libc::pthread_atfork(None, Some(forked), None) };
}

unsafe extern "C" fn forked() {
    count();
}

/// A child was started, or is about to be. (A forked child that is about to exec still uses the parent's region, so it is
/// counted as the parent's child.)
pub fn count() {
    let n = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
    tell(n);
}

/// The process has attached.
pub fn attached() {
    tell(COUNT.load(Ordering::Relaxed));
}

fn tell(n: u64) {
    if let Some(c) = control() {
        c.children.store(n, Ordering::Relaxed);
    }
}

/// In a forked child.
pub fn renew() {
    COUNT.store(0, Ordering::Relaxed);
}
