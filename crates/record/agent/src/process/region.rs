//! The memory that this process shares with the recorder.
//!
//! [`attach`] may be called at any time, by the constructor or at the first event that matters, and again in a forked child.

use super::cores;
use super::own_lock::OwnLock;
use super::restrictions::{may, need};
use super::session;
use super::wiped::{self, live, word};
use super::{environment, place, renewal, sys};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tape::region::{self, Control, FIXED_BYTES, SLOTS, Slot};
use tape::rings::Rings;
use tape::session::{SESSION_BYTES, Session, unwatched};

const RW: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// The system calls that attaching needs.
const NEEDED: u32 = need::MEMORY | need::FILES | need::FUTEX;

static REGION: AtomicUsize = AtomicUsize::new(0);
/// In a forked child without a region: its parent's region, which has the identity of both. 0 elsewhere.
static PARENT: AtomicUsize = AtomicUsize::new(0);
/// Offset of this region in the recorder's slab.
static BEGINS: AtomicUsize = AtomicUsize::new(0);
static ATTACH: OwnLock<(), { word::ATTACH }> = OwnLock::new(());

/// Events that were not recorded because there was no region.
static MISSED: AtomicU32 = AtomicU32::new(0);
/// How many of them a process that found no region lets pass before it tries again.
const PATIENCE: u32 = 256;

/// Claims a region, maps it, and lets the modules above begin. `None`: nothing is recorded. An attached process stays
/// attached. A process that found no region tries again later, and its events until then are counted as lost.
#[cold]
#[inline(never)]
pub fn attach() -> Option<()> {
    if active() {
        return Some(());
    }
    let s = session::get()?;
    let again = wiped::goes_on(live::TURNED_AWAY);
    if wiped::goes_on(live::UNREACHABLE)
        || (again && !MISSED.fetch_add(1, Ordering::Relaxed).is_multiple_of(PATIENCE))
        || !may(NEEDED)
    {
        return None;
    }
    if wiped::is_vfork_child() {
        return None;
    }
    let one = ATTACH.lock()?;
    if active() {
        return Some(());
    }
    if wiped::was_begun(live::RECORDING) {
        renewal::renew_after_fork();
    }
    let Some(c) = map(s, again) else {
        if !again {
            MISSED.store(1, Ordering::Relaxed);
            wiped::begin(live::TURNED_AWAY);
        }
        return None;
    };
    if again {
        wiped::end(live::TURNED_AWAY);
        s.turned_away.fetch_sub(1, Ordering::Relaxed);
        c.ringless.fetch_add(MISSED.load(Ordering::Relaxed).into(), Ordering::Relaxed);
    }
    wiped::begin(live::RECORDING);
    // ORDERING: Release: pid and mapping before the state that marks the agent as active.
    c.state.store(1, Ordering::Release);
    drop(one);
    renewal::attached(c);
    Some(())
}

/// `again`: it was refused before, and counted.
fn map(s: &Session, again: bool) -> Option<&'static Control> {
    let (claim, number) = session::claim(s, again)?;
    let begins = s.begins(claim.place);
    let mapped = begins.and_then(|begins| match open(s) {
        // SAFETY: a fresh mapping of the recorder's file; the agent's own descriptor.
        Some(fd) => unsafe {
            let holds = reserve(s, fd, begins, FIXED_BYTES);
            let at = if holds { sys::mmap(sys::AWAY, FIXED_BYTES, RW, libc::MAP_SHARED, fd, begins) } else { None };
            sys::close(fd);
            at
        },
        None => map_from_session(s, begins, FIXED_BYTES, None),
    });
    let Some(base) = mapped else {
        wiped::begin(live::UNREACHABLE);
        s.abandon(claim.region, number, unwatched::NO_REGION);
        session::call(s);
        return None;
    };
    cores::leave_out(base, FIXED_BYTES);
    // SAFETY: the mapping holds a Control, which belongs to this process by the claim.
    let c = unsafe {
        s.begin_region(base as *mut Control);
        &*(base as *const Control)
    };
    // SAFETY: in the parts that were mapped; atomics only.
    let identity = |base: usize| unsafe { &*((base + region::IDENTITY_AT) as *const region::Identity) };
    match PARENT.swap(0, Ordering::Relaxed) {
        0 => super::identity::say(identity(base)),
        parent => {
            super::identity::same(identity(base), identity(parent));
            // SAFETY: the parent's region stays mapped.
            if unsafe { &*(parent as *const Control) }.pauses.load(Ordering::Relaxed) & 1 != 0 {
                c.pauses.store(1, Ordering::Relaxed);
            }
        }
    }
    c.pid.store(sys::getpid(), Ordering::Relaxed);
    BEGINS.store(begins.unwrap_or(0), Ordering::Relaxed);
    REGION.store(base, Ordering::Release);
    super::identity::attached(c);
    super::children::attached();
    Some(c)
}

/// Opens the session's file, if its path leads there from here.
fn open(s: &Session) -> Option<i32> {
    let path = environment::session().filter(|path| may(need::FILES) && place::holds(path.to_bytes(), &s.starts))?;
    sys::open(path, libc::O_RDWR)
}

/// True if the file system has room for this part of the session's file, and keeps it.
fn reserve(s: &Session, fd: i32, from: usize, len: usize) -> bool {
    if s.reserve == 0 {
        return true;
    }
    // SAFETY: the agent's own descriptor.
    may(need::RESERVE) && unsafe { sys::syscall6(libc::SYS_fallocate, fd as usize, 0, from, len, 0, 0) } == 0
}

/// As [`reserve`], for a piece of this process's region.
pub fn reserve_piece(offset: usize, len: usize) -> bool {
    let Some(s) = session::get().filter(|_| may(need::MEMORY)) else { return false };
    let from = BEGINS.load(Ordering::Relaxed) + offset;
    if let Some(fd) = open(s) {
        let holds = reserve(s, fd, from, len);
        // SAFETY: the agent's own descriptor.
        unsafe { sys::close(fd) };
        return holds;
    }
    let at = map_from_session(s, from, len, None);
    // SAFETY: a fresh mapping of the agent's own.
    at.inspect(|at| unsafe { sys::munmap(*at, len) }).is_some()
}

/// Maps a piece of the session's file through its existing mapping. mremap with an old length of 0 makes a second, longer
/// shared mapping from the same start in the file; the piece is moved out of that. For a process that has given up the
/// rights it started with, or cannot reach the file any more. `to`: one of the agent's address ranges, which the piece
/// replaces.
fn map_from_session(s: &Session, from: usize, len: usize, to: Option<usize>) -> Option<usize> {
    let session = s as *const Session as usize;
    if may(need::LOCKED) {
        // Otherwise a program that locks its memory would get all of the longer mapping in memory.
        // SAFETY: the agent's own mapping, whose contents do not change.
        unsafe { sys::syscall6(libc::SYS_munlock, session, SESSION_BYTES, 0, 0, 0, 0) };
    }
    // SAFETY: the agent's own fresh mappings; the piece replaces only the range that the caller passed.
    unsafe {
        let all = sys::mremap(session, 0, from + len, libc::MREMAP_MAYMOVE, 0)?;
        let piece = match to {
            _ if !is_there(s, all + from, len) => None,
            Some(to) => sys::mremap(all + from, len, len, libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED, to),
            None => Some(all + from),
        };
        // (A piece that was moved away, or is kept, is at the end.)
        sys::munmap(all, if piece.is_some() { from } else { from + len });
        piece
    }
}

/// As [`reserve`], where the file cannot be opened. Linux before 5.14 cannot do this, and then the answer is no.
fn is_there(s: &Session, at: usize, len: usize) -> bool {
    let how = libc::MADV_POPULATE_WRITE as usize;
    // SAFETY: the agent's own mapping, whose contents stay.
    s.reserve == 0 || unsafe { sys::syscall6(libc::SYS_madvise, at, len, how, 0, 0, 0) } == 0
}

/// Maps `len` bytes of the region's file from `offset` on at `to`, in one of the agent's address ranges. The file is
/// opened for each piece: the program would see a descriptor that stayed open, and could close it.
///
/// # Safety
/// The memory at `to` belongs to the agent and may be replaced.
pub unsafe fn map_piece(offset: usize, len: usize, to: usize) -> bool {
    let Some(s) = session::get().filter(|_| may(need::MEMORY)) else { return false };
    let from = BEGINS.load(Ordering::Relaxed) + offset;
    if let Some(fd) = open(s) {
        // SAFETY: the caller's; the agent's own descriptor.
        return unsafe {
            let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
            let at = if reserve(s, fd, from, len) { sys::mmap(to, len, RW, fixed, fd, from) } else { None };
            sys::close(fd);
            if at == Some(to) {
                cores::leave_out(to, len);
            }
            at == Some(to)
        };
    }
    if map_from_session(s, from, len, Some(to)) != Some(to) {
        return false;
    }
    cores::leave_out(to, len);
    true
}

/// In a forked child: the region is the parent's. Its mapping stays, because some of the program's addresses may map
/// parts of it.
pub fn renew() {
    PARENT.store(REGION.swap(0, Ordering::Relaxed), Ordering::Relaxed);
    super::identity::renew();
    super::children::renew();
}

/// True while events may be written: attached, not a forked child.
#[inline]
pub fn active() -> bool {
    wiped::goes_on(live::RECORDING)
}

/// True if this process attached to a recorder and is not its vfork child (which runs in the parent's memory).
pub fn active_here() -> bool {
    active() && control().is_some_and(|c| c.pid.load(Ordering::Relaxed) == sys::getpid())
}

/// True if an event that matters must be recorded here. Attaches a process that has not attached yet.
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

/// Counts the beginnings and ends of pauses. It is odd while only driver calls are recorded.
#[inline(always)]
pub fn pauses() -> u32 {
    control().map_or(0, |c| c.pauses.load(Ordering::Relaxed))
}

#[inline(always)]
pub fn paused() -> bool {
    pauses() & 1 != 0
}

pub fn trouble(bit: u32) {
    if let Some(c) = control() {
        c.trouble.fetch_or(bit, Ordering::Relaxed);
    }
}

/// Adds one to a counter that is read at the end of the recording.
pub fn count(which: fn(&Control) -> &AtomicU64) {
    if let Some(c) = control() {
        which(c).fetch_add(1, Ordering::Relaxed);
    }
}
