//! Absolute deadlines on the two clocks that pthread locks use.

use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

static BY_SYSTEM_CALL: AtomicBool = AtomicBool::new(false);

/// From now on clocks are read by a system call: the program may not read the time stamp counter (PR_SET_TSC), which
/// clock_gettime reads in user space.
pub fn ask_the_kernel_for_the_time() {
    BY_SYSTEM_CALL.store(true, Ordering::Relaxed);
}

/// Like clock_gettime, except that it keeps errno.
pub type Read = unsafe extern "C" fn(libc::clockid_t, *mut libc::timespec) -> libc::c_int;

/// A [`Read`] (null: libc's).
static READ: AtomicPtr<()> = AtomicPtr::new(core::ptr::null_mut());

/// From now on clocks are read with this function, which gives the kernel's time.
pub fn read_clocks_with(read: Read) {
    READ.store(read as *mut (), Ordering::Relaxed);
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Clock {
    Monotonic,
    Realtime,
}

impl Clock {
    pub fn id(self) -> libc::clockid_t {
        match self {
            Clock::Monotonic => libc::CLOCK_MONOTONIC,
            Clock::Realtime => libc::CLOCK_REALTIME,
        }
    }

    pub fn now(self) -> libc::timespec {
        let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let read = READ.load(Ordering::Relaxed);
        // SAFETY: `now` is a local timespec. Both clocks exist on every Linux, so errno does not change. `read` is null
        // or a Read.
        unsafe {
            if BY_SYSTEM_CALL.load(Ordering::Relaxed) {
                libc::syscall(libc::SYS_clock_gettime, self.id(), &raw mut now);
            } else if read.is_null() {
                libc::clock_gettime(self.id(), &mut now);
            } else {
                core::mem::transmute::<*mut (), Read>(read)(self.id(), &mut now);
            }
        }
        now
    }
}

/// A point in time, stored as the caller gave it: its validity matters only to a caller that would block.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    pub clock: Clock,
    pub at: libc::timespec,
}

impl Deadline {
    pub const fn new(clock: Clock, at: libc::timespec) -> Deadline {
        Deadline { clock, at }
    }

    pub fn after(clock: Clock, from_now: core::time::Duration) -> Deadline {
        let now = clock.now();
        let nanoseconds = now.tv_nsec + i64::from(from_now.subsec_nanos());
        let seconds = i64::try_from(from_now.as_secs()).unwrap_or(i64::MAX);
        let tv_sec = now.tv_sec.saturating_add(seconds).saturating_add(nanoseconds / 1_000_000_000);
        Deadline { clock, at: libc::timespec { tv_sec, tv_nsec: nanoseconds % 1_000_000_000 } }
    }

    /// POSIX requires `tv_nsec` in 0..1,000,000,000; `tv_sec` may be negative, which is long past.
    pub fn is_valid(&self) -> bool {
        (0..1_000_000_000).contains(&self.at.tv_nsec)
    }

    pub fn is_past(&self) -> bool {
        let now = self.clock.now();
        (now.tv_sec, now.tv_nsec) >= (self.at.tv_sec, self.at.tv_nsec)
    }
}
