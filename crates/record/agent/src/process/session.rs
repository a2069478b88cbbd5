//! The recorder's session as mapped here: what to record, and where a process finds its region.
//!
//! At its start a process only maps the session. It claims a region at its first event that matters
//! ([`super::region::attach`]), so a process that uses no GPU and takes no recorded lock costs the recorder nothing.

use super::cores;
use super::environment;
use super::place;
use super::sys;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tape::session::{Claim, PATIENCE_MS, SESSION_BYTES, Session};

/// Address of its mapping; 0: no recorder.
static SESSION: AtomicUsize = AtomicUsize::new(0);

/// Maps the session that the environment names. Called by the constructor. `None`: nothing is recorded.
pub fn open() -> Option<&'static Session> {
    let fd = sys::open(environment::session()?, libc::O_RDWR)?;
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping of the recorder's file; the agent's own descriptor.
    let at = unsafe {
        let at = sys::mmap(sys::AWAY, SESSION_BYTES, rw, libc::MAP_SHARED, fd, 0);
        sys::close(fd);
        at?
    };
    cores::leave_out(at, SESSION_BYTES);
    // SAFETY: mapped above, in the size that the recorder gives it.
    let s = unsafe { &*(at as *const Session) };
    if !s.check() {
        if s.magic == tape::session::MAGIC {
            s.refused.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: no other thread has seen it.
        unsafe { sys::munmap(at, SESSION_BYTES) };
        return None;
    }
    s.starts.arrive();
    SESSION.store(at, Ordering::Release);
    Some(s)
}

/// The session; `None` without a recorder.
pub fn get() -> Option<&'static Session> {
    let at = SESSION.load(Ordering::Acquire);
    // SAFETY: 0 or a mapping that is never unmapped.
    (at != 0).then(|| unsafe { &*(at as *const Session) })
}

/// True if a recorder needs driver files reported.
#[inline]
pub fn is_there() -> bool {
    SESSION.load(Ordering::Relaxed) != 0
}

/// This process's number as the recorder gets it: see [`place::number`].
pub fn number() -> i32 {
    get().map_or_else(sys::getpid, |s| place::number(&s.starts))
}

/// Signals the recorder that something has changed.
pub fn call(s: &Session) {
    s.call();
    sys::futex_wake(&s.calls);
}

/// Claims a region. If all entries are in use, waits at most [`PATIENCE_MS`] for the recorder to free one, and is counted
/// as refused. `again`: it was counted before, and does not wait. Also returns the number that the claim was made under.
pub fn claim(s: &Session, again: bool) -> Option<(Claim, i32)> {
    if s.stopped.load(Ordering::Acquire) != 0 {
        return None;
    }
    let (pid, parent) = (number(), sys::getppid());
    let namespace = if pid < 0 { place::namespace() } else { 0 };
    for _ in 0..=PATIENCE_MS {
        // ORDERING: Acquire: read before the claim, so that a region offered after that wakes this thread.
        let word = s.word.load(Ordering::Acquire);
        if let Some(c) = s.claim(pid, namespace, parent, sys::tsc()) {
            call(s);
            return Some((c, pid));
        }
        if again || s.stopped.load(Ordering::Acquire) != 0 {
            return None;
        }
        call(s);
        sys::futex_wait(&s.word, word, 1);
    }
    s.turned_away.fetch_add(1, Ordering::Relaxed);
    call(s);
    None
}

/// [`Session::contents`]
static CONTENTS: AtomicU32 = AtomicU32::new(0);

/// Called by the constructor.
pub fn set_contents(what: u32) {
    CONTENTS.store(what, Ordering::Relaxed);
}

/// True if the recorder asked for one of these.
#[inline(always)]
pub fn wanted(what: u32) -> bool {
    CONTENTS.load(Ordering::Relaxed) & what != 0
}
