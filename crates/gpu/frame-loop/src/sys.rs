//! The system calls of a loop: a frame makes no others.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// CLOCK_MONOTONIC in nanoseconds. No system call if the kernel's clock source is the TSC.
#[inline]
pub fn now() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Nanoseconds, or the maximum if they do not fit.
pub(crate) fn ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Sleeps until the word changes, another thread wakes it, or the time has come. It may return at any moment. (The timer is of the kernel's high-resolution
/// kind, as with clock_nanosleep and an absolute time. Unlike there, a stop of the loop ends the sleep.)
pub(crate) fn sleep(word: &AtomicU32, while_is: u32, until: Option<u64>) {
    let time = until.map(|until| libc::timespec {
        tv_sec: (until / 1_000_000_000) as libc::time_t,
        tv_nsec: (until % 1_000_000_000) as _,
    });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    counted(|| {
        // SAFETY: reads the word, which lives, and the time. FUTEX_WAIT_BITSET takes an absolute time of CLOCK_MONOTONIC.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT_BITSET | libc::FUTEX_PRIVATE_FLAG,
                while_is,
                time,
                std::ptr::null::<u32>(),
                u32::MAX,
            )
        };
    });
}

pub(crate) fn wake(word: &AtomicU32) {
    counted(|| {
        // SAFETY: the word lives; the call takes no other memory.
        unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, i32::MAX) };
    });
}

/// Counts results for threads that wait with epoll.
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub fn new() -> io::Result<Event> {
        // SAFETY: takes numbers.
        match unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) } {
            fd if fd < 0 => Err(io::Error::last_os_error()),
            // SAFETY: a new descriptor that only this call has.
            fd => Ok(Event(unsafe { OwnedFd::from_raw_fd(fd) })),
        }
    }

    pub fn signal(&self) {
        // (A full counter is readable all the same.)
        // SAFETY: reads eight bytes.
        counted(|| unsafe {
            libc::write(self.number(), (&raw const ONE).cast(), 8);
        });
    }

    /// Clears the signals.
    pub fn drain(&self) {
        let mut count = 0u64;
        // SAFETY: writes eight bytes.
        unsafe { libc::read(self.number(), (&raw mut count).cast(), 8) };
    }

    /// Whether it was signalled within that time.
    pub fn wait(&self, limit: Duration) -> bool {
        let mut poll = libc::pollfd { fd: self.number(), events: libc::POLLIN, revents: 0 };
        let ms = i32::try_from(limit.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX);
        // SAFETY: reads and writes one pollfd.
        unsafe { libc::poll(&raw mut poll, 1, ms) == 1 }
    }

    pub fn number(&self) -> i32 {
        self.0.as_raw_fd()
    }
}

static ONE: u64 = 1;

/// A system call that a frame may make; tests count all others.
#[inline]
fn counted(call: impl FnOnce()) {
    #[cfg(test)]
    test_support::counting::stand_in(true);
    call();
    #[cfg(test)]
    test_support::counting::stand_in(false);
}
