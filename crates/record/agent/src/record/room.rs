//! Room for an event in a full ring: a larger ring, or a wait for the recorder.

use super::claim::{begin, claim};
use super::mapping::open;
use crate::process::region::{control, rings};
use crate::process::{session, sys, thread};
use core::sync::atomic::Ordering;
use tape::region;
use tape::ring::{MAX_EVENT, Writer};
use tape::rings::Size;

/// True if this many bytes fit, if necessary after a wait or in a larger ring.
#[inline(always)]
pub fn has_room(w: &mut Writer, len: usize) -> bool {
    w.fits(len) || makes_room(w, len)
}

/// (Does not get the body: if its address were passed here, the usual path would also keep it in memory.)
#[cold]
#[inline(never)]
fn makes_room(w: &mut Writer, len: usize) -> bool {
    len <= MAX_EVENT && ((grow(w) && w.fits(len)) || (wait_for_room(w) && w.fits(len)))
}

/// A small ring is half full: moves the thread to a large one, if there is one. True: try again.
#[cold]
#[inline(never)]
fn grow(w: &mut Writer) -> bool {
    if !w.is_growable() {
        return false;
    }
    // From now on the whole ring is used, even if the move fails.
    w.set_growable(false);
    let t = thread::here();
    if !core::ptr::eq(w, t.writer.get()) {
        return true;
    }
    let Some(rings) = rings() else { return true };
    let Some(i) = claim(&rings, t, Size::Large) else { return true };
    w.publish();
    let (from, head) = (t.rings[0].get().wrapping_sub(1), w.head());
    let opened = open(&rings, i, t);
    match opened.and_then(|(mut large, _)| begin(&mut large, t, from, head).then_some(large)) {
        Some(large) => {
            t.rings[1].set(i as u32 + 1);
            *w = large;
        }
        None => rings.give_back(i),
    }
    true
}

/// Waits for the recorder to make room, if the user asked for that. True: try again.
#[cold]
pub fn wait_for_room(w: &mut Writer) -> bool {
    let (Some(c), Some(s)) = (control(), session::get()) else { return false };
    if c.on_full != region::on_full::WAIT || c.stopped.load(Ordering::Relaxed) != 0 {
        return false;
    }
    w.publish();
    let mut beat = s.beat.load(Ordering::Relaxed);
    let mut still = 0;
    while !w.fits(tape::ring::MAX_EVENT) {
        sys::nap(50_000);
        let b = s.beat.load(Ordering::Relaxed);
        // About a second without a sign of life: the recorder has ended.
        still = if b == beat { still + 1 } else { 0 };
        beat = b;
        if still > 10_000 {
            // The ring has no reader any more; the program must not wait a second time.
            c.stopped.store(1, Ordering::Relaxed);
        }
        if c.stopped.load(Ordering::Relaxed) != 0 {
            return false;
        }
    }
    true
}
