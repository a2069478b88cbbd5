//! The shared memory of the recorder's as mapped here.
//!
//! [`attach`] may be called at any time, by the constructor or at the first event that matters.

use super::own_lock::OwnLock;
use super::wiped::{self, live, word};
use super::{environment, renewal, sys};
use core::ffi::CStr;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tape::region::{self, Control, PAGE, SLOTS, Slot};

/// Where our large mappings go if that is free (a hint): away from the program's libraries, whose neighbourhood is kept
/// for stubs, and from the low addresses that CUDA likes.
pub const AWAY: usize = 0x5d00_0000_0000;

static REGION: AtomicUsize = AtomicUsize::new(0);
static ATTACH: OwnLock<(), { word::ATTACH }> = OwnLock::new(());

/// Maps the recorder's region, if the environment named one at the start, and lets the modules above begin. `None`: nothing
/// is recorded. A process that has attached stays so.
pub fn attach() -> Option<()> {
    if active() {
        return Some(());
    }
    let path = environment::region()?;
    let one = ATTACH.lock()?;
    if active() {
        return Some(());
    }
    let c = map(path)?;
    wiped::begin(live::RECORDING);
    c.state.store(1, Ordering::Release);
    drop(one);
    renewal::attached(c);
    Some(())
}

fn map(path: &CStr) -> Option<&'static Control> {
    let flags = (libc::O_RDWR | libc::O_CLOEXEC) as usize;
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { sys::syscall6(libc::SYS_open, path.as_ptr() as usize, flags, 0, 0, 0, 0) };
    if fd < 0 {
        return None;
    }
    let mapped = map_region(fd as i32);
    // SAFETY: our own descriptor; the mapping stays.
    unsafe { sys::syscall6(libc::SYS_close, fd as usize, 0, 0, 0, 0, 0) };
    let base = mapped?;
    // SAFETY: at least the first page is mapped and holds a Control.
    let c = unsafe { &*(base as *const Control) };
    let me = sys::getpid();
    if c.pid.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire).is_err_and(|p| p != me) {
        return None;
    }
    if !wiped::prepare() {
        return None;
    }
    REGION.store(base, Ordering::Release);
    Some(c)
}

fn map_region(fd: i32) -> Option<usize> {
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping of the recorder's file, first only its control page, to learn the size.
    unsafe {
        let probe = sys::mmap(0, PAGE, rw, libc::MAP_SHARED, fd, 0)?;
        let c = &*(probe as *const Control);
        let good = c.magic == region::MAGIC && c.version == region::VERSION;
        if c.magic == region::MAGIC && !good {
            c.refused.store(region::VERSION, Ordering::Relaxed);
        }
        let ring = c.ring_bytes as usize;
        sys::munmap(probe, PAGE);
        if !good || !ring.is_power_of_two() || ring < 2 * tape::ring::MAX_EVENT {
            return None;
        }
        sys::mmap(AWAY, region::region_bytes(ring), rw, libc::MAP_SHARED | libc::MAP_NORESERVE, fd, 0)
    }
}

/// In a forked child: the region is the parent's. Its mapping stays, because the program's own addresses may show parts of it.
pub fn renew() {
    REGION.store(0, Ordering::Relaxed);
}

/// True while events may be written: attached, not a forked child.
#[inline]
pub fn active() -> bool {
    wiped::goes_on(live::RECORDING)
}

/// True if this process attached to a recorder and is not its vfork child (which runs in our memory).
pub fn active_here() -> bool {
    active() && control().is_some_and(|c| c.pid.load(Ordering::Relaxed) == sys::getpid())
}

#[inline]
pub fn control() -> Option<&'static Control> {
    let b = REGION.load(Ordering::Relaxed);
    // SAFETY: 0 or the region, which is never unmapped.
    if b == 0 { None } else { Some(unsafe { &*(b as *const Control) }) }
}

/// The channel slot `i`; `None` before [`attach`] or past the table.
#[inline]
pub fn slot(i: usize) -> Option<&'static Slot> {
    let b = REGION.load(Ordering::Relaxed);
    if b == 0 || i >= SLOTS {
        return None;
    }
    // SAFETY: inside the mapped region.
    Some(unsafe { &*((b + region::SLOTS_AT) as *const Slot).add(i) })
}

/// Address here of the region's byte `offset`.
pub fn address(offset: usize) -> usize {
    REGION.load(Ordering::Relaxed) + offset
}

#[inline]
pub fn stopped() -> bool {
    control().is_none_or(|c| c.stopped.load(Ordering::Relaxed) != 0)
}

pub fn trouble(bit: u32) {
    if let Some(c) = control() {
        c.trouble.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Counts for the end of the recording.
pub fn count(which: fn(&Control) -> &AtomicU64) {
    if let Some(c) = control() {
        which(c).fetch_add(1, Ordering::Relaxed);
    }
}
