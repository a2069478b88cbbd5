//! A thread's end, which libc reports through the destructor of a key's value. The locks that the thread still holds are
//! recorded, and its rings are given back.

use super::{pauses, push};
use crate::process::region::{active, rings};
use crate::process::thread::{self, Thread};
use crate::process::{key, sys};
use core::ffi::c_void;
use core::sync::atomic::{AtomicUsize, Ordering, compiler_fence};

/// The key, plus 1.
static KEY: AtomicUsize = AtomicUsize::new(0);
/// libc calls destructors this many times while they set values again (PTHREAD_DESTRUCTOR_ITERATIONS). The program's destructors
/// may record something, so the agent's acts at the last call.
const ROUNDS: usize = 4;

/// Called by the constructor: creating a key allocates nothing.
pub fn begin() {
    if let Some(key) = key::create(ended) {
        KEY.store(key as usize + 1, Ordering::Relaxed);
    }
}

/// Gives the key back, for a program that needs all keys. True if there was one.
pub fn give_key_back() -> bool {
    let ours = KEY.swap(0, Ordering::Relaxed);
    if ours != 0 {
        // SAFETY: the agent's key.
        unsafe { libc::pthread_key_delete((ours - 1) as libc::pthread_key_t) };
    }
    ours != 0
}

/// Makes libc report the calling thread's end. Without a key the recorder notices it.
pub fn tell(_: &Thread) {
    set(1);
}

fn set(round: usize) {
    let key = KEY.load(Ordering::Relaxed);
    if key != 0 {
        // SAFETY: the agent's key, whose value is stored in the thread itself.
        unsafe { libc::pthread_setspecific((key - 1) as libc::pthread_key_t, round as *const c_void) };
    }
}

unsafe extern "C" fn ended(round: *mut c_void) {
    match round as usize {
        n if n < ROUNDS => set(n + 1),
        _ => thread_ends(thread::here()),
    }
}

/// The thread ends: its held locks and its current call are recorded, and the next thread may have its rings. If it
/// records another event, it gets other rings.
fn thread_ends(t: &Thread) {
    if t.capturing.replace((0, 0)).1 != 0 {
        pauses::range_ends();
    }
    let w = t.writer.get();
    if w.is_null() || !active() || t.busy.replace(true) {
        return;
    }
    // SAFETY: this thread's own writer, and the thread is busy.
    let w = unsafe { &mut *w };
    // SAFETY: set together with the writer, to a page that is never unmapped.
    let table = unsafe { &*t.locks.get() };
    let n = table.n.load(Ordering::Relaxed) as usize;
    for held in table.held.get(..n).unwrap_or(&table.held) {
        let (flags, body) = held.event(0);
        push(w, tape::lock::kind::HELD, flags, sys::tsc(), &body, &[], &[]);
    }
    table.n.store(0, Ordering::Relaxed);
    // SAFETY: as above.
    let row = unsafe { &*t.call.get() };
    if let Some((function, body)) = row.event() {
        // The thread was cancelled in the call, or has ended itself.
        push(w, tape::call::kind::IN_CALL, function, sys::tsc(), &body, &[], &[]);
        row.function.store(0, Ordering::Relaxed);
    }
    t.calls.set(row.seq.load(Ordering::Relaxed));
    // (If the count of lost events does not fit into the ring, the recorder, which frees the ring, reports them.)
    let settled = w.settle_gap();
    w.publish();
    // This first: a signal handler that finds 0 does not use the tables.
    t.pauses.set(0);
    compiler_fence(Ordering::SeqCst);
    t.writer.set(core::ptr::null_mut());
    t.locks.set(core::ptr::null());
    t.call.set(core::ptr::null());
    t.patience.set(0);
    if let Some(rings) = rings() {
        for ring in &t.rings {
            if let Some(i) = ring.replace(0).checked_sub(1).filter(|_| settled) {
                rings.give_back(i as usize);
            }
        }
    }
    t.busy.set(false);
}
