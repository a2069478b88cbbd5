//! Hands events to the recorder: each thread's ring.
//!
//! A thread claims a ring at its first event (one time: a few system calls), then writes without lock or system call.
//! The rings belong to one process: a forked child forgets its parent's ([`renew`]) and claims rings of its own.

use crate::process::region::{active, control, map_piece, rings, stopped};
use crate::process::renewal::Child;
use crate::process::restrictions::{may, need};
use crate::process::thread::{self, Thread};
use crate::process::{locked, scheduling, session, sys};
use core::sync::atomic::{AtomicUsize, Ordering, compiler_fence};
use tape::event::{EntryBody, NO_RING, NoteBody, Plain, RingBody, ThreadBody, kind};
use tape::region::{self, PAGE, RingHead};
use tape::ring::{MAX_EVENT, Writer};
use tape::rings::{NoRing, RINGS, Rings, Size};

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

/// Events that a thread without a ring lets go by before it asks for one again.
const PATIENCE: u32 = 256;
/// Rings that a thread tries when the first ones are full.
const TRIES: usize = 16;

/// A ring for a thread that has none; null, and the event counted as lost, if there is none to be had. The caller has
/// made the thread busy.
#[cold]
fn first(t: &Thread) -> *mut Writer {
    let Some(c) = control() else { return core::ptr::null_mut() };
    let patience = t.patience.get();
    let claimed = if patience == 0 { begin_small(t) } else { None };
    let Some((i, at)) = claimed else {
        t.patience.set(if patience == 0 { PATIENCE } else { patience - 1 });
        c.ringless.fetch_add(1, Ordering::Relaxed);
        return core::ptr::null_mut();
    };
    t.rings[0].set(i as u32 + 1);
    // (Locks first: whoever finds a writer finds them, too.)
    t.locks.set((at + region::LOCKS_AT) as *const region::LockTable);
    t.call.set((at + region::CALL_AT) as *const region::CallRow);
    let w = t.room.get().cast();
    t.writer.set(w);
    // SAFETY: this thread's own writer, and the thread is busy: there is no second reference.
    begins(t, unsafe { &mut *w });
    w
}

/// Claims a small ring and begins it. Its number and where its first page is mapped here.
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
        // In the last one it waits, if that is what the user asked for.
        if begin(&mut w, t, NO_RING, 0) || (n + 1 == TRIES && wait_for_room(&mut w) && begin(&mut w, t, NO_RING, 0)) {
            // (Behind the event: its last owner may have left it more than half full.)
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
fn claim(rings: &Rings, t: &Thread, size: Size) -> Option<usize> {
    match rings.claim(session::get()?, t.id(), size) {
        Ok(i) => Some(i),
        Err(NoRing::Memory) => {
            crate::process::region::count(|c| &c.no_memory);
            None
        }
        Err(NoRing::Taken) => None,
    }
}

/// A writer to a ring that this thread has claimed, and where its first page is mapped here.
fn open(rings: &Rings, i: usize, t: &Thread) -> Option<(Writer, usize)> {
    let bytes = rings.geometry.bytes(i);
    let mapped = MAPPED.get(i)?;
    let at = match mapped.load(Ordering::Relaxed) {
        0 => {
            let at = map_ring(rings.geometry.at(i), bytes)?;
            mapped.store(at, Ordering::Relaxed);
            at
        }
        at => at,
    };
    // SAFETY: the ring's first page; the tables may be what its last owner left.
    let (head, locks, call) = unsafe {
        let locks = &*((at + region::LOCKS_AT) as *const region::LockTable);
        (&*(at as *const RingHead), locks, &*((at + region::CALL_AT) as *const region::CallRow))
    };
    head.tid.store(t.id(), Ordering::Relaxed);
    head.pid.store(control().map_or(0, |c| c.pid.load(Ordering::Relaxed)), Ordering::Relaxed);
    head.ordinal.store(t.ordinal.get(), Ordering::Relaxed);
    head.generation.fetch_add(1, Ordering::Relaxed);
    locks.n.store(0, Ordering::Relaxed);
    locks.waits.store(0, Ordering::Relaxed);
    call.function.store(0, Ordering::Relaxed);
    // SAFETY: the ring is ours by the claim and mapped for good.
    let mut w = unsafe { Writer::new(head, (at + PAGE) as *mut u8, bytes as u64) };
    w.prepare_with(make_present);
    Some((w, at))
}

/// The ring's first event of this thread: whose it is, and where the thread's events before lie. False if it does not fit.
fn begin(w: &mut Writer, t: &Thread, from_ring: u32, from_head: u64) -> bool {
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

/// A small ring that is half full: the thread goes on in a large one, where there is one. True: try again.
#[cold]
#[inline(never)]
fn grow(w: &mut Writer) -> bool {
    if !w.is_growable() {
        return false;
    }
    // From now on all of it is used, whatever comes of this.
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

/// The thread ends: what it still holds, and the call that it is in, go on the tape, and the next thread may have its rings. If it does record something
/// more, it is given others.
fn thread_ends(t: &Thread) {
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
        // It was cancelled in there, or has ended itself.
        push(w, tape::call::kind::IN_CALL, function, sys::tsc(), &body, &[], &[]);
        row.function.store(0, Ordering::Relaxed);
    }
    // (Lost events that are not in the ring: the recorder frees it, and says so.)
    let settled = w.settle_gap();
    w.publish();
    // The code first: a signal handler that knows no caller does not look for the tables.
    t.code.iter().for_each(|c| c.set((0, 0)));
    t.call_code.set((0, 0));
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
    // Not in `first`: a doorbell's stub saves no register for a function of libc's. The recorder notices the end of a thread that
    // only rings.
    if !w.is_null() {
        ends::tell(t);
    }
    t.busy.set(false);
    !w.is_null()
}

/// Maps a ring's first page and its events twice in a row. `offset`: where in the region it lies.
fn map_ring(offset: usize, bytes: usize) -> Option<usize> {
    let none = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an address range of our own, then replaced piece by piece by pieces of the region.
    unsafe {
        let at = sys::mmap(sys::AWAY, PAGE + 2 * bytes, libc::PROT_NONE, none, -1, 0)?;
        let ok = map_piece(offset, PAGE + bytes, at) && sys::map_again(at + PAGE, bytes, at + PAGE + bytes);
        if !ok {
            sys::munmap(at, PAGE + 2 * bytes);
            return None;
        }
        locked::mapped(at, PAGE + 2 * bytes);
        Some(at)
    }
}

/// Has pages of a ring in this process's page table, one system call for a few of them. The recorder has allocated and cleared
/// them before, if it was in time (see its `Ring::make_ready`); then this takes a tenth of the page faults that it saves.
fn make_present(at: *mut u8, len: usize) {
    if !may(need::MEMORY) {
        return;
    }
    // To read: the pages of a shared mapping are writable then, and writing to them needs no second look.
    // SAFETY: a range of our own mapping; an older kernel refuses and the faults come later.
    unsafe { sys::syscall6(libc::SYS_madvise, at as usize, len, libc::MADV_POPULATE_READ as usize, 0, 0, 0) };
}

/// Waits for the recorder to make room, if the user asked for that. True: try again.
#[cold]
fn wait_for_room(w: &mut Writer) -> bool {
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
    let words = body.words();
    let fits = has_room(w, Writer::len_of(size_of::<RingBody>(), 0, 0));
    if fits && w.push_words_with(kind::RING, flags, tsc, words, 0).is_some() {
        return true;
    }
    lose(w, 1, 0, 0, tsc);
    false
}

/// Reserves an ENTRY event and returns where its words go. A full ring is waited for or counted.
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

/// True if so many bytes fit, after a wait or in a larger ring if need be.
#[inline(always)]
fn has_room(w: &mut Writer, len: usize) -> bool {
    w.fits(len) || makes_room(w, len)
}

/// (Given no body: one whose address is known here would lie in memory on the usual way, too.)
#[cold]
#[inline(never)]
fn makes_room(w: &mut Writer, len: usize) -> bool {
    len <= MAX_EVENT && ((grow(w) && w.fits(len)) || (wait_for_room(w) && w.fits(len)))
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

/// Something a reader should know.
pub fn note(text: &[u8]) {
    event(kind::NOTE, 0, sys::tsc(), &NoteBody { text: text.len() as u32, pad: 0 }, text, &[]);
}

/// In a forked child: the rings are the parent's.
pub fn renew(child: &Child) {
    locked::renew();
    let geometry = rings().map(|r| r.geometry);
    for (i, mapped) in MAPPED.iter().enumerate() {
        // (Looked at first: a child gets a page of its own for each page that it writes to.)
        let at = mapped.load(Ordering::Relaxed);
        if at == 0 {
            continue;
        }
        mapped.store(0, Ordering::Relaxed);
        if let Some(g) = geometry {
            // SAFETY: our mapping of the parent's ring, which only this thread could write to.
            unsafe { sys::munmap(at, PAGE + 2 * g.bytes(i)) };
        }
    }
    let t = child.thread;
    t.writer.set(core::ptr::null_mut());
    t.locks.set(core::ptr::null());
    t.call.set(core::ptr::null());
    t.rings.iter().for_each(|r| r.set(0));
    t.ordinal.set(0);
    t.busy.set(false);
    t.patience.set(0);
}

/// A thread's end, as libc tells it: by the destructor of a key's value.
pub mod ends {
    use super::*;
    use crate::process::key;
    use core::ffi::c_void;

    /// The key, plus 1.
    static KEY: AtomicUsize = AtomicUsize::new(0);
    /// libc calls destructors so often while they set values again (PTHREAD_DESTRUCTOR_ITERATIONS). The others may record
    /// something, so ours waits for the last time.
    const ROUNDS: usize = 4;

    /// From the constructor: creating a key allocates nothing.
    pub fn begin() {
        if let Some(key) = key::create(ended) {
            KEY.store(key as usize + 1, Ordering::Relaxed);
        }
    }

    /// Gives our key back, for a program that wants all there are. True if there was one.
    pub fn give_key_back() -> bool {
        let ours = KEY.swap(0, Ordering::Relaxed);
        if ours != 0 {
            // SAFETY: our key.
            unsafe { libc::pthread_key_delete((ours - 1) as libc::pthread_key_t) };
        }
        ours != 0
    }

    /// Asks to be told when the calling thread ends. Without a key the recorder notices it.
    pub fn tell(_: &Thread) {
        set(1);
    }

    fn set(round: usize) {
        let key = KEY.load(Ordering::Relaxed);
        if key != 0 {
            // SAFETY: our key, whose value lies in the thread itself.
            unsafe { libc::pthread_setspecific((key - 1) as libc::pthread_key_t, round as *const c_void) };
        }
    }

    unsafe extern "C" fn ended(round: *mut c_void) {
        match round as usize {
            n if n < ROUNDS => set(n + 1),
            _ => thread_ends(thread::here()),
        }
    }
}
