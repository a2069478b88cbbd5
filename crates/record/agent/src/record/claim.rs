//! Gives a thread its ring: claims one, writes its owner into it, and keeps its writer.

use super::mapping::open;
use super::room::wait_for_room;
use super::{push, thread_end};
use crate::process::region::{control, reserve_piece, rings};
use crate::process::thread::Thread;
use crate::process::{scheduling, session, sys};
use core::sync::atomic::Ordering;
use tape::event::{NO_RING, ThreadBody, kind};
use tape::region::{self, contents};
use tape::ring::Writer;
use tape::rings::{NoRing, Rings, Size};

/// Number of events that a thread without a ring lets pass before it tries again.
const PATIENCE: u32 = 256;
/// Rings that a thread tries when the first ones are full.
const TRIES: usize = 16;

/// A ring for a thread that has none. If none is free: null, and the event is counted as lost. The caller has marked the
/// thread as busy.
#[cold]
pub fn first(t: &Thread) -> *mut Writer {
    let Some(c) = control() else { return core::ptr::null_mut() };
    let patience = t.patience.get();
    let claimed = if patience == 0 { begin_small(t) } else { None };
    let Some((i, at)) = claimed else {
        t.patience.set(if patience == 0 { PATIENCE } else { patience - 1 });
        c.ringless.fetch_add(1, Ordering::Relaxed);
        return core::ptr::null_mut();
    };
    t.rings[0].set(i as u32 + 1);
    // (Locks first: code that finds a writer also finds the locks.)
    t.locks.set((at + region::LOCKS_AT) as *const region::LockTable);
    let row = (at + region::CALL_AT) as *const region::CallRow;
    t.call.set(row);
    // SAFETY: in the page just claimed, which is never unmapped.
    unsafe { (*row).seq.store(t.calls.get(), Ordering::Relaxed) };
    let w = t.room.get().cast();
    t.writer.set(w);
    // SAFETY: this thread's own writer, and the thread is busy: there is no second reference.
    begins(t, unsafe { &mut *w });
    w
}

/// Claims a small ring and begins it. Returns its number and the address of its first page.
fn begin_small(t: &Thread) -> Option<(usize, usize)> {
    let rings = rings()?;
    let mut full = [0usize; TRIES];
    let mut n = 0;
    let mut found = None;
    while n < TRIES && found.is_none() {
        let Some(i) = claim(&rings, t, Size::Small) else { break };
        let Some((mut w, at)) = open(&rings, i, t) else {
            rings.give_back(i);
            break;
        };
        // In the last one it waits, if the user asked for that.
        if begin(&mut w, t, NO_RING, 0) || (n + 1 == TRIES && wait_for_room(&mut w) && begin(&mut w, t, NO_RING, 0)) {
            // (After the event: the last owner may have left it more than half full.)
            w.set_growable(rings.geometry.large > rings.geometry.small);
            // SAFETY: the thread's own room, and it is busy.
            unsafe { (*t.room.get()).write(w) };
            found = Some((i, at));
        } else {
            // Its last owner left it full.
            full[n] = i;
            n += 1;
        }
    }
    full[..n].iter().for_each(|i| rings.give_back(*i));
    found
}

/// A ring of this size for the thread.
pub fn claim(rings: &Rings, t: &Thread, size: Size) -> Option<usize> {
    match rings.claim(session::get()?, t.id(), size, |i| {
        reserve_piece(rings.geometry.at(i), rings.geometry.memory(i) as usize)
    }) {
        Ok(i) => Some(i),
        Err(NoRing::Memory) => {
            crate::process::region::count(|c| &c.no_memory);
            None
        }
        Err(NoRing::Taken) => None,
    }
}

/// Writes the ring's first event of this thread: its owner, and where the thread's earlier events are. False if it does
/// not fit.
pub fn begin(w: &mut Writer, t: &Thread, from_ring: u32, from_head: u64) -> bool {
    let body = ThreadBody {
        tid: t.id(),
        ordinal: t.ordinal.get(),
        from_ring,
        pid: control().map_or(0, |c| c.pid.load(Ordering::Relaxed)) as u32,
        from_head,
    };
    let fits = w.push(kind::THREAD, 0, sys::tsc(), &body, &[], &[]);
    if fits {
        w.publish();
        t.ordinal.set(t.ordinal.get() + 1);
    }
    fits
}

/// A thread has got its ring: records its name and scheduling, if requested.
fn begins(t: &Thread, w: &mut Writer) {
    if in_the_middle() {
        let body = scheduling::of_this_thread(t.id(), names());
        push(w, tape::lock::kind::SCHED, 0, sys::tsc(), &body, &[], &[]);
        w.publish();
    }
}

/// True if threads get their rings inside measured calls.
fn in_the_middle() -> bool {
    control().is_some_and(|c| c.contents & (contents::LOCKS | contents::CALLS) != 0)
}

/// True if names may be on the tape.
pub fn names() -> bool {
    control().is_some_and(|c| c.contents & contents::NO_NAMES == 0)
}

/// Gets a thread its ring. False if it continues without.
#[cold]
pub fn ready(t: &Thread) -> bool {
    if t.busy.replace(true) {
        // A signal handler, while the thread was writing or getting its ring.
        crate::process::region::count(|c| &c.ringless);
        return false;
    }
    let w = if t.writer.get().is_null() { first(t) } else { t.writer.get() };
    // Not in `first`: a doorbell's stub does not save the registers that a libc function may use. The recorder notices
    // the end of a thread that only rings doorbells.
    if !w.is_null() {
        thread_end::tell(t);
    }
    t.busy.set(false);
    !w.is_null()
}
