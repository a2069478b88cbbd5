//! Whether this process starts its children through libc. What is started by raw system calls (Go's os/exec) passes no hook:
//! it is not followed. The recorder sees that a process had children; it takes them for such where none is counted here.

use super::region::control;
use core::sync::atomic::{AtomicU64, Ordering};

/// Forks of libc's, and programs that were started through our hooks, by this process or by a child before its exec.
static COUNT: AtomicU64 = AtomicU64::new(0);

/// From the constructor of a process that may be recorded.
pub fn begin() {
    // SAFETY: the handler may run in the parent of any fork: it adds 1. (libc has room for some without allocating.)
    unsafe { libc::pthread_atfork(None, Some(forked), None) };
}

unsafe extern "C" fn forked() {
    count();
}

/// One was started, or is about to be. (In a forked child that is about to exec, the region is still the parent's, so it is
/// the parent's child that is counted.)
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
