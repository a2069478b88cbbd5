//! The kernel's number of a thread: the value in a priority-inheriting futex word while the thread owns it.

/// Reading it is a system call (about 170 ns, and a filter may forbid it), so callers keep it, and renew it in a forked child.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Tid(u32);

impl Tid {
    #[cfg(not(loom))]
    pub fn current() -> Tid {
        // SAFETY: gettid has no arguments and cannot fail, so errno does not change. (libc has a function for it since
        // glibc 2.30.)
        Tid(unsafe { libc::syscall(libc::SYS_gettid) } as u32)
    }

    /// # Panics
    /// Debug builds: when `raw` is no thread number (zero, or over 30 bits).
    pub const fn from_raw(raw: u32) -> Tid {
        debug_assert!(raw != 0 && raw < 1 << 30);
        Tid(raw)
    }

    pub const fn raw(self) -> u32 {
        self.0
    }
}
