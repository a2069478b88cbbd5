//! The shared memory of this process and the recorder.
//!
//! [`attach`] may be called at any time, by the constructor or at the first event that matters, and again in a forked child.

use super::own_lock::OwnLock;
use super::restrictions::{may, need};
use super::session;
use super::wiped::{self, live, word};
use super::{renewal, sys};
use core::ffi::CStr;
use core::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use tape::region::{self, Control, FIXED_BYTES, SLOTS, Slot};
use tape::rings::Rings;
use tape::session::{Session, unwatched};

/// What attaching needs the kernel for.
const NEEDED: u32 = need::MEMORY | need::FILES | need::FUTEX;

static REGION: AtomicUsize = AtomicUsize::new(0);
/// Its descriptor in the recorder.
static FILE: AtomicI32 = AtomicI32::new(-1);
static ATTACH: OwnLock<(), { word::ATTACH }> = OwnLock::new(());

/// Claims a region, maps it, and lets the modules above begin. `None`: nothing is recorded. A process that has attached stays
/// so; one that found no region does not ask again.
#[cold]
#[inline(never)]
pub fn attach() -> Option<()> {
    if active() {
        return Some(());
    }
    let s = session::get()?;
    if wiped::goes_on(live::TURNED_AWAY) || !may(NEEDED) || wiped::is_vfork_child() {
        return None;
    }
    let one = ATTACH.lock()?;
    if active() {
        return Some(());
    }
    if wiped::was_begun(live::RECORDING) {
        renewal::renew_after_fork();
    }
    let Some(c) = map(s) else {
        wiped::begin(live::TURNED_AWAY);
        return None;
    };
    wiped::begin(live::RECORDING);
    // ORDERING: Release: pid and mapping before the state that says the agent is at work.
    c.state.store(1, Ordering::Release);
    drop(one);
    renewal::attached(c);
    Some(())
}

fn map(s: &Session) -> Option<&'static Control> {
    let claim = session::claim(s)?;
    let mapped = open(s.recorder, claim.fd).and_then(|fd| {
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a fresh mapping of the recorder's file; our own descriptor.
        unsafe {
            let at = sys::mmap(sys::AWAY, FIXED_BYTES, rw, libc::MAP_SHARED, fd, 0);
            sys::close(fd);
            at
        }
    });
    // SAFETY: the mapping holds a Control.
    let c = mapped.map(|base| (base, unsafe { &*(base as *const Control) }));
    let good = c.filter(|(_, c)| c.magic == region::MAGIC && c.version == region::VERSION);
    let Some((base, c)) = good else {
        s.abandon(claim.region, session::number(), unwatched::NO_REGION);
        session::call(s);
        return None;
    };
    // SAFETY: in the part that was mapped; atomics only.
    super::identity::say(unsafe { &*((base + region::IDENTITY_AT) as *const region::Identity) });
    c.pid.store(sys::getpid(), Ordering::Relaxed);
    FILE.store(claim.fd, Ordering::Relaxed);
    REGION.store(base, Ordering::Release);
    Some(c)
}

fn open(recorder: i32, fd: i32) -> Option<i32> {
    if !may(need::FILES) {
        return None;
    }
    let mut path = [0; 48];
    session::path(recorder, fd, &mut path);
    sys::open(CStr::from_bytes_until_nul(&path).ok()?, libc::O_RDWR)
}

/// Maps `len` bytes of the region's file from `offset` on at `to`, where an address range of our own lies. The file is opened
/// for each piece, as a descriptor that stayed open would be seen by the program and could be closed by it.
///
/// # Safety
/// Whatever lies at `to` is ours to replace.
pub unsafe fn map_piece(offset: usize, len: usize, to: usize) -> bool {
    let Some(s) = session::get().filter(|_| may(need::MEMORY)) else { return false };
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    if let Some(fd) = open(s.recorder, FILE.load(Ordering::Relaxed)) {
        // SAFETY: the caller's; our own descriptor.
        return unsafe {
            let at = sys::mmap(to, len, rw, libc::MAP_SHARED | libc::MAP_FIXED, fd, offset);
            sys::close(fd);
            at == Some(to)
        };
    }
    // The program has given up the rights that it began with. What is mapped can be mapped again, longer: mremap with an old
    // length of 0 doubles a shared mapping from the file's begin on, and the piece is moved out of that.
    // SAFETY: fresh mappings of our own, of which the piece goes where the caller wants it.
    unsafe {
        let base = REGION.load(Ordering::Relaxed);
        let all = sys::mremap(base, 0, offset + len, libc::MREMAP_MAYMOVE, 0);
        let Some(all) = all else { return false };
        let moved = sys::mremap(all + offset, len, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, to);
        sys::munmap(all, if moved.is_some() { offset } else { offset + len });
        moved == Some(to)
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

/// True if an event that matters is to be recorded here: attaches a process that has not yet.
#[inline]
pub fn arrive() -> bool {
    active() || (session::get().is_some() && attach().is_some())
}

#[inline]
pub fn control() -> Option<&'static Control> {
    let b = REGION.load(Ordering::Relaxed);
    // SAFETY: 0 or the region, which is never unmapped.
    if b == 0 { None } else { Some(unsafe { &*(b as *const Control) }) }
}

/// The table of rings; `None` before [`attach`].
pub fn rings() -> Option<Rings<'static>> {
    let b = REGION.load(Ordering::Relaxed);
    // SAFETY: the region's fixed part, which is never unmapped.
    if b == 0 { None } else { unsafe { Rings::new(b as *const u8) } }
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
