//! Whether a thread's operations are recorded: it needs a ring, and its code's mapping must be on the tape.

use super::{code, holds};
use crate::process::region;
use crate::process::session::wanted;
use crate::process::thread::{self, Thread};
use crate::process::wiped::{goes_on, live as which};
use crate::record;
use tape::region::contents;

/// True if locks are recorded in this process now. The first call attaches it.
#[inline(always)]
pub fn live() -> bool {
    (goes_on(which::LOCKS) || (wanted(contents::LOCKS) && begins())) && !region::paused()
}

/// True if, for locks, only waits are recorded, with the holder that was waited for.
#[inline(always)]
pub fn waits_only() -> bool {
    goes_on(which::WAITS)
}

/// In a pause: a wait is stored for the recorder, which looks when the next part of the recording ends. (The caller has
/// found that it is not [`live`].)
#[inline(always)]
pub fn in_pause() -> bool {
    goes_on(which::LOCKS)
}

/// This thread, with a ring, in a pause; `site` is the caller's address.
#[cold]
#[inline(never)]
pub fn enter_in_pause(site: usize) -> Option<&'static Thread> {
    let t = thread::here();
    if t.writer.get().is_null() && !record::ready(t) {
        return None;
    }
    if !code::is_known(site) {
        code::look(t, site);
    }
    Some(t)
}

#[cold]
#[inline(never)]
fn begins() -> bool {
    !goes_on(which::TURNED_AWAY) && region::attach().is_some() && goes_on(which::LOCKS)
}

/// This thread, if its operations must be recorded; `site` is the caller's address.
#[inline(always)]
pub fn enter(site: usize) -> Option<&'static Thread> {
    if !live() {
        return None;
    }
    known_caller(site).or_else(|| arrive(thread::here(), site))
}

/// This thread, if it has recorded something since the last pause, and the code at `site` is on the tape. (The caller
/// checks [`live`].)
#[inline(always)]
pub fn known_caller(site: usize) -> Option<&'static Thread> {
    let t = thread::here();
    (t.pauses.get() == region::pauses().wrapping_add(1) && code::is_known(site)).then_some(t)
}

/// A thread's first call, the first since a pause, or the first from this code.
#[cold]
#[inline(never)]
fn arrive(t: &'static Thread, site: usize) -> Option<&'static Thread> {
    if t.writer.get().is_null() && !record::ready(t) {
        return None;
    }
    let pauses = region::pauses();
    if pauses & 1 != 0 {
        return None;
    }
    let before = t.pauses.replace(pauses + 1);
    if before != pauses + 1 {
        holds::forget(t, before + 1 == pauses);
    }
    if !code::is_known(site) {
        code::look(t, site);
    }
    Some(t)
}
