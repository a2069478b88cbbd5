//! The shared memory of the recorder's as mapped here.
//!
//! [`attach`] may be called at any time, by the constructor or at the first event that matters.

use super::own_lock::OwnLock;
use super::restrictions::{may, need};
use super::wiped::{self, live, word};
use super::{environment, renewal, sys};
use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use tape::region::{self, Control, RINGS_AT, SLOTS, Slot};
use tape::rings::Rings;
use tape::session::{self, SESSION_BYTES, Session};

/// Where our large mappings go if that is free (a hint): away from the program's libraries, whose neighbourhood is kept
/// for stubs, and from the low addresses that CUDA likes.
pub const AWAY: usize = 0x5d00_0000_0000;

static SESSION: AtomicUsize = AtomicUsize::new(0);
static REGION: AtomicUsize = AtomicUsize::new(0);
/// The region's descriptor in the recorder.
static FD: AtomicI32 = AtomicI32::new(-1);
static ATTACH: OwnLock<(), { word::ATTACH }> = OwnLock::new(());

/// Claims a region of the recorder's, if the environment named a session at the start, and lets the modules above begin.
/// `None`: nothing is recorded. A process that has attached stays so.
pub fn attach() -> Option<()> {
    if active() {
        return Some(());
    }
    let path = environment::session().filter(|_| may(need::FILES | need::MEMORY))?;
    let one = ATTACH.lock()?;
    if active() {
        return Some(());
    }
    let s = join(path)?;
    let c = claim(s)?;
    wiped::begin(live::RECORDING);
    c.state.store(1, Ordering::Release);
    drop(one);
    renewal::attached(c);
    Some(())
}

fn open(path: &CStr) -> Option<i32> {
    let flags = (libc::O_RDWR | libc::O_CLOEXEC) as usize;
    // SAFETY: a NUL-terminated path.
    let fd = unsafe { sys::syscall6(libc::SYS_open, path.as_ptr() as usize, flags, 0, 0, 0, 0) };
    (fd >= 0).then_some(fd as i32)
}

fn close(fd: i32) {
    // SAFETY: our own descriptor; mappings stay.
    unsafe { sys::syscall6(libc::SYS_close, fd as usize, 0, 0, 0, 0, 0) };
}

/// The session, mapped once.
fn join(path: &CStr) -> Option<&'static Session> {
    if let Some(s) = session() {
        return Some(s);
    }
    let fd = open(path)?;
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping of the recorder's file.
    let at = unsafe { sys::mmap(0, SESSION_BYTES, rw, libc::MAP_SHARED, fd, 0) };
    close(fd);
    let at = at?;
    // SAFETY: as many bytes as a session has.
    let s = unsafe { &*(at as *const Session) };
    if !s.check() {
        if s.magic == session::MAGIC {
            s.refused.fetch_add(1, Ordering::Relaxed);
        }
        return None;
    }
    s.started.fetch_add(1, Ordering::Relaxed);
    SESSION.store(at, Ordering::Release);
    Some(s)
}

/// The session that this process has joined.
pub fn session() -> Option<&'static Session> {
    let at = SESSION.load(Ordering::Acquire);
    // SAFETY: 0 or the session, which is never unmapped.
    if at == 0 { None } else { Some(unsafe { &*(at as *const Session) }) }
}

fn claim(s: &Session) -> Option<&'static Control> {
    let me = sys::getpid();
    let claimed = s.claim(me, sys::getppid(), sys::tsc())?;
    s.call();
    sys::wake(&s.calls);
    FD.store(claimed.fd, Ordering::Relaxed);
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping of the recorder's file.
    let base = unsafe { map_again(AWAY, 0, RINGS_AT, rw, libc::MAP_SHARED | libc::MAP_NORESERVE) };
    let Some(base) = base.filter(|_| wiped::prepare()) else {
        s.abandon(claimed.region, me, session::unwatched::NO_REGION);
        return None;
    };
    // SAFETY: at least the first page is mapped and holds a Control.
    let c = unsafe { &*(base as *const Control) };
    c.pid.store(me, Ordering::Relaxed);
    REGION.store(base, Ordering::Release);
    Some(c)
}

/// Maps a piece of the region: `len` bytes from `offset`. The file is opened by its path in the recorder's descriptors.
///
/// # Safety
/// As mmap: with MAP_FIXED, what lies at `at` is replaced.
pub unsafe fn map_again(at: usize, offset: usize, len: usize, rights: i32, flags: i32) -> Option<usize> {
    let s = session()?;
    let mut path = [0u8; 48];
    let mut n = 0;
    let mut put = |bytes: &[u8]| {
        for b in bytes {
            if let Some(to) = path.get_mut(n) {
                *to = *b;
            }
            n += 1;
        }
    };
    put(b"/proc/");
    put(sys::decimal(s.recorder as u32, &mut [0; 10]));
    put(b"/fd/");
    put(sys::decimal(FD.load(Ordering::Relaxed) as u32, &mut [0; 10]));
    let fd = open(CStr::from_bytes_until_nul(&path).ok()?)?;
    // SAFETY: the caller's.
    let at = unsafe { sys::mmap(at, len, rights, flags, fd, offset) };
    close(fd);
    at
}

/// The table of rings.
pub fn rings() -> Option<Rings<'static>> {
    let b = REGION.load(Ordering::Relaxed);
    // SAFETY: the region, which is never unmapped.
    if b == 0 { None } else { unsafe { Rings::new(b as *const u8) } }
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
