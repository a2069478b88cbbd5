//! Hands events to the recorder: each thread's ring.
//!
//! A thread claims a ring at its first event (one time: a few system calls), then writes without lock or system call.
//! After a fork the child finds [`active`] false and records nothing: the rings belong to the parent.

use crate::process::region::{AWAY, active, control, map_again, rings, session, stopped};
use crate::process::renewal::Child;
use crate::process::restrictions::{may, need};
use crate::process::thread::{self, Thread};
use crate::process::{scheduling, sys};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tape::event::{EntryBody, GapBody, NO_RING, NoteBody, Plain, ThreadBody, kind};
use tape::region::{self, PAGE, RingHead};
use tape::ring::Writer;
use tape::rings::{RINGS, Size};

struct Writers(UnsafeCell<[MaybeUninit<Writer>; RINGS]>);
// SAFETY: element i is touched only by the thread that has claimed ring i.
unsafe impl Sync for Writers {}
static WRITERS: Writers = Writers(UnsafeCell::new([const { MaybeUninit::uninit() }; RINGS]));
/// Where ring i's head page is mapped here (its data, twice, behind it); 0 until first claimed.
static MAPPED: [AtomicUsize; RINGS] = [const { AtomicUsize::new(0) }; RINGS];

/// This thread's id, asked for once.
#[inline]
pub fn tid() -> i32 {
    thread::here().id()
}

/// Runs `f` with this thread's writer and id. `None` if there is none to be had, or if a signal handler of the program
/// came in while this thread was writing.
#[inline]
pub fn with<R>(f: impl FnOnce(&mut Writer, i32) -> R) -> Option<R> {
    if !active() {
        return None;
    }
    let t = thread::here();
    if t.busy.replace(true) {
        return None;
    }
    let w = if t.writer.get().is_null() { first(t) } else { t.writer.get() };
    // SAFETY: this thread's own writer, and `busy` keeps a second reference from being made.
    let r = if w.is_null() { None } else { Some(f(unsafe { &mut *w }, t.tid.get())) };
    t.busy.set(false);
    r
}

/// Attempts of a thread without a ring to get one: one in so many events.
const PATIENCE: u32 = 256;

/// A ring for a thread that has none; null, and the event counted as lost, if there is none to be had. The caller has
/// made the thread busy.
#[cold]
fn first(t: &Thread) -> *mut Writer {
    let Some(c) = control() else { return core::ptr::null_mut() };
    let patience = t.patience.get();
    let claimed = if patience == 0 { claim(t.id()) } else { None };
    let Some((w, at)) = claimed else {
        t.patience.set(if patience == 0 { PATIENCE } else { patience - 1 });
        c.ringless.fetch_add(1, Ordering::Relaxed);
        return core::ptr::null_mut();
    };
    // (Locks first: whoever finds a writer finds them, too.)
    t.locks.set((at + region::LOCKS_AT) as *const region::LockTable);
    t.call.set((at + region::CALL_AT) as *const region::CallRow);
    t.writer.set(w);
    // SAFETY: this thread's own writer, and the thread is busy: there is no second reference.
    begins(t, unsafe { &mut *w });
    w
}

/// A thread has got its ring: says who it is, where that is asked for.
fn begins(t: &Thread, w: &mut Writer) {
    if in_the_middle() {
        let body = scheduling::of_this_thread(t.id(), names());
        push(w, tape::lock::kind::SCHED, 0, sys::tsc(), &body, &[], &[]);
        w.publish();
    }
}

/// True if threads get their rings in calls that are measured.
fn in_the_middle() -> bool {
    control().is_some_and(|c| c.locks & (region::locks::RECORD | region::locks::CALLS) != 0)
}

/// True if names may be on the tape.
pub fn names() -> bool {
    control().is_some_and(|c| c.locks & region::locks::NO_NAMES == 0)
}

/// Gets a thread its ring. False if it goes on without.
#[cold]
pub fn ready(t: &Thread) -> bool {
    if t.busy.replace(true) {
        // A signal handler, while the thread was writing or getting its ring.
        crate::process::region::count(|c| &c.ringless);
        return false;
    }
    let w = if t.writer.get().is_null() { first(t) } else { t.writer.get() };
    t.busy.set(false);
    !w.is_null()
}

#[cold]
/// A ring's writer, and where its first page is mapped here.
fn claim(tid: i32) -> Option<(*mut Writer, usize)> {
    if !may(need::MEMORY) {
        return None;
    }
    let (c, s, rings) = (control()?, session()?, rings()?);
    let i = rings.claim(s, tid, Size::Large).or_else(|_| rings.claim(s, tid, Size::Small)).ok()?;
    let bytes = rings.geometry.bytes(i);
    let mapped = MAPPED.get(i)?;
    let mut here = mapped.load(Ordering::Relaxed);
    if here == 0 {
        let Some(a) = map_ring(rings.geometry.at(i), bytes) else {
            rings.give_back(i);
            return None;
        };
        mapped.store(a, Ordering::Relaxed);
        here = a;
        if !in_the_middle() {
            make_resident(here as *mut u8, PAGE + 2 * bytes);
        }
    }
    // SAFETY: the ring's first page, where its last owner may have left locks and a call.
    let (head, locks, call) = unsafe {
        let at = |offset| here + offset;
        (
            &*(here as *const RingHead),
            &*(at(region::LOCKS_AT) as *const region::LockTable),
            &*(at(region::CALL_AT) as *const region::CallRow),
        )
    };
    locks.n.store(0, Ordering::Relaxed);
    locks.waits.store(0, Ordering::Relaxed);
    call.function.store(0, Ordering::Relaxed);
    let pid = c.pid.load(Ordering::Relaxed);
    head.tid.store(tid, Ordering::Relaxed);
    head.pid.store(pid, Ordering::Relaxed);
    head.ordinal.store(0, Ordering::Relaxed);
    head.generation.fetch_add(1, Ordering::Relaxed);
    // SAFETY: element i is ours by the claim; the ring is mapped for good.
    let w = unsafe {
        let w = (WRITERS.0.get() as *mut MaybeUninit<Writer>).add(i);
        (*w).write(Writer::new(here as *const RingHead, (here + PAGE) as *mut u8, bytes as u64))
    };
    if in_the_middle() {
        // Every thread of the program comes here, in the middle of something, and 8 MiB take 8 to 15 ms.
        w.prepare_with(make_resident);
    }
    let body = ThreadBody { tid, ordinal: 0, from_ring: NO_RING, pid: pid as u32, from_head: 0 };
    if !w.push(kind::THREAD, 0, sys::tsc(), &body, &[], &[]) {
        // Full of its last owner's events.
        rings.give_back(i);
        return None;
    }
    Some((w, here))
}

/// Maps a ring's head page and its data twice in a row.
fn map_ring(at: usize, bytes: usize) -> Option<usize> {
    let none = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let (rw, over) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_FIXED);
    // SAFETY: an address range of our own, then replaced piece by piece by pieces of the region.
    unsafe {
        let a = sys::mmap(AWAY, PAGE + 2 * bytes, libc::PROT_NONE, none, -1, 0)?;
        let whole = map_again(a, at, PAGE + bytes, rw, over)
            .and_then(|_| map_again(a + PAGE + bytes, at + PAGE, bytes, rw, over));
        if whole.is_none() {
            sys::munmap(a, PAGE + 2 * bytes);
        }
        whole.map(|_| a)
    }
}

/// Page faults now, not in the tap. The recorder has made the first rings resident.
fn make_resident(at: *mut u8, len: usize) {
    // SAFETY: a range of our own mapping; an older kernel refuses and the faults come later.
    unsafe {
        sys::syscall6(libc::SYS_madvise, at as usize, len, 23 /* MADV_POPULATE_WRITE */, 0, 0, 0)
    };
}

/// Waits for the recorder to make room, if the user asked for that. True: try again.
#[cold]
fn wait_for_room(w: &mut Writer) -> bool {
    let (Some(c), Some(s)) = (control(), session()) else { return false };
    if c.on_full != region::on_full::WAIT || !may(need::SLEEP) || c.stopped.load(Ordering::Relaxed) != 0 {
        return false;
    }
    w.publish();
    let mut beat = s.beat.load(Ordering::Relaxed);
    let mut still = 0;
    while !w.fits(tape::ring::MAX_EVENT) {
        sys::nap(50_000);
        let b = s.beat.load(Ordering::Relaxed);
        // About a second without a sign of life: the recorder is gone.
        still = if b == beat { still + 1 } else { 0 };
        beat = b;
        if still > 10_000 {
            // Nobody will read any more; the program must not wait a second time.
            c.stopped.store(1, Ordering::Relaxed);
        }
        if c.stopped.load(Ordering::Relaxed) != 0 {
            return false;
        }
    }
    true
}

/// Gaps of this thread's ring not yet on the tape are noted before the next event that fits.
static GAPS: AtomicU64 = AtomicU64::new(0);

/// Appends an event, waiting or counting a gap when the ring is full. Not published.
#[inline]
pub fn push<B: Plain>(w: &mut Writer, k: u16, flags: u16, tsc: u64, body: &B, a: &[u8], b: &[u8]) -> bool {
    if w.push(k, flags, tsc, body, a, b) || (wait_for_room(w) && w.push(k, flags, tsc, body, a, b)) {
        if GAPS.load(Ordering::Relaxed) != 0 {
            note_gap(w, tsc);
        }
        return true;
    }
    lose(w, 1, 0, (a.len() + b.len()) as u64);
    false
}

/// Reserves an ENTRY event and returns where its words go. A full ring is waited for or counted.
#[inline]
pub fn entry(w: &mut Writer, flags: u16, tsc: u64, body: &EntryBody) -> Option<*mut u8> {
    let n = body.words as usize * 4;
    if let Some(p) = w.push_with(kind::ENTRY, flags, tsc, body, n) {
        return Some(p);
    }
    if wait_for_room(w)
        && let Some(p) = w.push_with(kind::ENTRY, flags, tsc, body, n)
    {
        return Some(p);
    }
    lose(w, 1, (flags & tape::event::entry_flags::CONTINUED == 0) as u64, n as u64);
    None
}

#[cold]
fn lose(w: &mut Writer, events: u64, entries: u64, bytes: u64) {
    GAPS.store(1, Ordering::Relaxed);
    w.count_gap(events, entries, bytes);
}

#[cold]
fn note_gap(w: &mut Writer, tsc: u64) {
    // The totals so far; where they rise on the tape is where the gap was.
    GAPS.store(0, Ordering::Relaxed);
    let (events, entries, bytes) = w.gaps();
    let _ = w.push(kind::GAP, 0, tsc, &GapBody { events, entries, bytes }, &[], &[]);
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

/// Something a reader should know.
pub fn note(text: &[u8]) {
    event(kind::NOTE, 0, sys::tsc(), &NoteBody { text: text.len() as u32, pad: 0 }, text, &[]);
}

/// In a forked child: the rings are the parent's.
pub fn renew(child: &Child) {
    let geometry = rings().map(|r| r.geometry);
    for (i, mapped) in MAPPED.iter().enumerate() {
        let at = mapped.swap(0, Ordering::Relaxed);
        if let Some(g) = geometry.filter(|_| at != 0) {
            // SAFETY: our mapping of the parent's ring, which only this thread could write to.
            unsafe { sys::munmap(at, PAGE + 2 * g.bytes(i)) };
        }
    }
    let t = child.thread;
    t.writer.set(core::ptr::null_mut());
    t.locks.set(core::ptr::null());
    t.call.set(core::ptr::null());
    t.busy.set(false);
    t.patience.set(0);
}
