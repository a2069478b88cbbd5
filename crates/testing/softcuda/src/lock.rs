//! A libcuda lock. Launches take it for reading, and calls that pin host memory take it for writing until they return. Other calls
//! take none here.

use std::cell::UnsafeCell;
use std::time::Duration;

/// glibc's, because a recorder watches those.
struct Lock(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: a rwlock is for use by several threads.
unsafe impl Sync for Lock {}

static LOCK: Lock = Lock(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));

/// To pin a page takes 0.6 us, which is what 256 MiB in 40 ms make. (Fewer than 1 MiB take no time.)
const PAGE: Duration = Duration::from_nanos(600);

struct Unlocked;

impl Drop for Unlocked {
    fn drop(&mut self) {
        // SAFETY: a static lock that this thread holds.
        unsafe { libc::pthread_rwlock_unlock(LOCK.0.get()) };
    }
}

pub(crate) fn launching<T>(then: impl FnOnce() -> T) -> T {
    // SAFETY: a static, initialised lock.
    unsafe { libc::pthread_rwlock_rdlock(LOCK.0.get()) };
    let _held = Unlocked;
    then()
}

pub(crate) fn pinning<T>(bytes: usize, then: impl FnOnce() -> T) -> T {
    // SAFETY: a static, initialised lock.
    unsafe { libc::pthread_rwlock_wrlock(LOCK.0.get()) };
    let _held = Unlocked;
    let pages = u32::try_from(bytes >> 12).unwrap_or(u32::MAX);
    if pages >= 256 {
        std::thread::sleep(PAGE * pages);
    }
    then()
}
