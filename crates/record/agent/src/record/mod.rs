//! Hands events to the recorder: each thread's ring.
//!
//! A thread claims a ring at its first event (`claim`; once: a few system calls). After that it writes without a lock or
//! system call. If a ring is full, the thread waits or moves to a larger one (`room`). Rings are mapped in one process
//! only (`mapping`): a forked child forgets its parent's and claims its own.

mod claim;
mod mapping;
pub mod pauses;
mod room;
pub mod thread_end;

use crate::process::region::{active, stopped};
use crate::process::sys;
use crate::process::thread::{self, Thread};
pub use claim::{names, ready};
pub use mapping::renew;
use room::has_room;
use tape::event::{EntryBody, NoteBody, Plain, RingBody, kind};
use tape::ring::Writer;

/// This thread's id, looked up once.
#[inline]
pub fn tid() -> i32 {
    thread::here().id()
}

/// Runs `f` with this thread's writer and id. `None` if it has no writer, or from a signal handler that interrupted this
/// thread while it was writing.
#[inline]
pub fn with<R>(f: impl FnOnce(&mut Writer, &Thread) -> R) -> Option<R> {
    if !active() {
        return None;
    }
    let t = thread::here();
    if t.busy.replace(true) {
        return None;
    }
    let w = if t.writer.get().is_null() { claim::first(t) } else { t.writer.get() };
    // SAFETY: this thread's own writer, and `busy` keeps a second reference from being made.
    let r = if w.is_null() { None } else { Some(f(unsafe { &mut *w }, t)) };
    t.busy.set(false);
    r
}

/// Appends an event, waiting or counting a gap when the ring is full. Not published.
#[inline(always)]
pub fn push<B: Plain>(w: &mut Writer, k: u16, flags: u16, tsc: u64, body: &B, a: &[u8], b: &[u8]) -> bool {
    let fits = has_room(w, Writer::len_of(size_of::<B>(), a.len(), b.len()));
    if fits && w.push(k, flags, tsc, body, a, b) {
        return true;
    }
    lose(w, 1, 0, (a.len() + b.len()) as u64, tsc);
    false
}

/// Appends the event of a doorbell, as [`push`].
#[inline(always)]
pub fn ring(w: &mut Writer, flags: u16, tsc: u64, body: RingBody) -> bool {
    let fits = has_room(w, Writer::len_of(size_of::<RingBody>(), 0, 0));
    let is_there = match body.python {
        0 => fits && w.push_words_with(kind::RING, flags, tsc, body.words(), 0).is_some(),
        // (In registers, too: a body in memory would be read back wider than it was written.)
        _ => fits && w.push_words_with(kind::RING, flags, tsc, body.words_with_python(), 0).is_some(),
    };
    if is_there {
        return true;
    }
    lose(w, 1, 0, 0, tsc);
    false
}

/// Reserves an ENTRY event and returns the address for its words. If the ring is full, waits or counts the loss.
#[inline(always)]
pub fn entry(w: &mut Writer, flags: u16, tsc: u64, body: EntryBody) -> Option<*mut u8> {
    let (n, words) = (body.words as usize * 4, body.words());
    if has_room(w, Writer::len_of(size_of::<EntryBody>(), 0, n))
        && let Some(p) = w.push_words_with(kind::ENTRY, flags, tsc, words, n)
    {
        return Some(p);
    }
    lose(w, 1, (flags & tape::event::entry_flags::CONTINUED == 0) as u64, n as u64, tsc);
    None
}

#[cold]
#[inline(never)]
fn lose(w: &mut Writer, events: u64, entries: u64, bytes: u64, tsc: u64) {
    w.count_gap(events, entries, bytes, tsc);
}

/// One event on its own, published.
pub fn event<B: Plain>(k: u16, flags: u16, tsc: u64, body: &B, a: &[u8], b: &[u8]) {
    if stopped() {
        return;
    }
    with(|w, _| {
        push(w, k, flags, tsc, body, a, b);
        w.publish();
    });
}

/// A note for a reader.
pub fn note(text: &[u8]) {
    event(kind::NOTE, 0, sys::tsc(), &NoteBody { text: text.len() as u32, pad: 0 }, text, &[]);
}
