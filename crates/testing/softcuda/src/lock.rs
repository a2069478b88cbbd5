//! A libcuda lock. Launches take it for reading; calls that pin host memory or make much of the device's, and copies of pageable memory, take it for writing
//! until they return. Other calls take none here.

use std::cell::UnsafeCell;
use std::time::Duration;

/// glibc's, because a recorder watches those.
struct Lock(UnsafeCell<libc::pthread_rwlock_t>);

// SAFETY: a rwlock is for use by several threads.
unsafe impl Sync for Lock {}

static LOCK: Lock = Lock(UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER));

/// To pin a page takes 0.6 us, which is what 256 MiB in 40 ms make. (Fewer than 1 MiB take no time.)
const PAGE: Duration = Duration::from_nanos(600);

/// To copy a KiB of pageable memory takes 120 ns, which is what 64 MiB in 8 ms make. (Fewer than 64 KiB take no time.)
const KIB: Duration = Duration::from_nanos(120);

/// 2 GiB take 8 ms, here for their allocation and their free. (An H200's take up to 1 and 1.7, which other delays of a busy machine would hide.)
const MIB: Duration = Duration::from_micros(4);

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

/// Pins so many bytes.
pub(crate) fn pinning<T>(bytes: usize, then: impl FnOnce() -> T) -> T {
    let pages = u32::try_from(bytes >> 12).unwrap_or(u32::MAX);
    exclusive(if pages >= 256 { PAGE * pages } else { Duration::ZERO }, then)
}

/// Copies so many bytes of pageable memory.
pub(crate) fn staging<T>(bytes: usize, then: impl FnOnce() -> T) -> T {
    let kib = u32::try_from(bytes >> 10).unwrap_or(u32::MAX);
    exclusive(if kib >= 64 { KIB * kib } else { Duration::ZERO }, then)
}

/// Makes or frees so many bytes of the device's memory. (Fewer than 256 MiB take no lock.)
pub(crate) fn on_device<T>(bytes: u64, then: impl FnOnce() -> T) -> T {
    let mib = u32::try_from(bytes >> 20).unwrap_or(u32::MAX);
    if mib >= 256 { exclusive(MIB * mib, then) } else { then() }
}

pub(crate) fn exclusive<T>(time: Duration, then: impl FnOnce() -> T) -> T {
    // SAFETY: a static, initialised lock.
    unsafe { libc::pthread_rwlock_wrlock(LOCK.0.get()) };
    let _held = Unlocked;
    std::thread::sleep(time);
    then()
}
