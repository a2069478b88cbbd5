//! Hands events to the recorder: the shared region as mapped here, and each thread's ring.
//!
//! A thread claims a ring at its first event (one time: a few system calls), then writes without lock or system call.
//! After a fork the child finds [`active`] false and records nothing: the rings belong to the parent.

use crate::sys;
use crate::thread::{self, Thread};
use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use tape::event::{EntryBody, GapBody, NoteBody, Plain, kind};
use tape::region::{self, Control, PAGE, RINGS, RingHead, SLOTS, Slot};
use tape::ring::Writer;

/// Where our large mappings go if that is free (a hint): away from the program's libraries, whose neighbourhood is kept
/// for stubs, and from the low addresses that CUDA likes.
const AWAY: usize = 0x5d00_0000_0000;

static REGION: AtomicUsize = AtomicUsize::new(0);
/// A page that fork wipes in the child (MADV_WIPEONFORK): its first word is 1 while we may record.
static LIVE: AtomicPtr<u32> = AtomicPtr::new(core::ptr::null_mut());

struct Writers(UnsafeCell<[MaybeUninit<Writer>; RINGS]>);
// SAFETY: element i is touched only by the thread that has claimed ring i.
unsafe impl Sync for Writers {}
static WRITERS: Writers = Writers(UnsafeCell::new([const { MaybeUninit::uninit() }; RINGS]));
/// Where ring i's head page is mapped here (its data, twice, behind it); 0 until first claimed.
static MAPPED: [AtomicUsize; RINGS] = [const { AtomicUsize::new(0) }; RINGS];

/// Maps the recorder's region. Called once, from the constructor. `None`: nothing is recorded.
pub fn attach(path: *const core::ffi::c_char) -> Option<()> {
    // SAFETY: a NUL-terminated path.
    let fd =
        unsafe { sys::syscall6(libc::SYS_open, path as usize, (libc::O_RDWR | libc::O_CLOEXEC) as usize, 0, 0, 0, 0) };
    if fd < 0 {
        return None;
    }
    let mapped = map_region(fd as i32);
    // SAFETY: our own descriptor; the mapping stays.
    unsafe { sys::syscall6(libc::SYS_close, fd as usize, 0, 0, 0, 0, 0) };
    let base = mapped?;
    // SAFETY: at least the first page is mapped and holds a Control.
    let c = unsafe { &*(base as *const Control) };
    let me = sys::getpid();
    if c.pid.compare_exchange(0, me, Ordering::AcqRel, Ordering::Acquire).is_err_and(|p| p != me) {
        return None;
    }
    // SAFETY: an anonymous page of our own.
    let live = unsafe {
        sys::mmap(0, PAGE, libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?
    };
    // SAFETY: the page just mapped.
    unsafe {
        if sys::syscall6(libc::SYS_madvise, live, PAGE, 18 /* MADV_WIPEONFORK */, 0, 0, 0) != 0 {
            return None;
        }
        (live as *mut u32).write_volatile(1);
    }
    REGION.store(base, Ordering::Release);
    LIVE.store(live as *mut u32, Ordering::Release);
    c.state.store(1, Ordering::Release);
    crate::locks::begin(c, live as *mut u32);
    crate::calls::begin(c, live as *mut u32);
    Some(())
}

fn map_region(fd: i32) -> Option<usize> {
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping of the recorder's file, first only its control page, to learn the size.
    unsafe {
        let probe = sys::mmap(0, PAGE, rw, libc::MAP_SHARED, fd, 0)?;
        let c = &*(probe as *const Control);
        let good = c.magic == region::MAGIC && c.version == region::VERSION;
        if c.magic == region::MAGIC && !good {
            c.refused.store(region::VERSION, Ordering::Relaxed);
        }
        let ring = c.ring_bytes as usize;
        sys::munmap(probe, PAGE);
        if !good || !ring.is_power_of_two() || ring < 2 * tape::ring::MAX_EVENT {
            return None;
        }
        sys::mmap(AWAY, region::region_bytes(ring), rw, libc::MAP_SHARED | libc::MAP_NORESERVE, fd, 0)
    }
}

/// True while events may be written: attached, not a forked child.
#[inline]
pub fn active() -> bool {
    let p = LIVE.load(Ordering::Relaxed);
    // SAFETY: null or the page mapped by `attach`, never unmapped.
    !p.is_null() && unsafe { p.read_volatile() } == 1
}

/// True if this process attached to a recorder and is not its vfork child (which runs in our memory).
pub fn active_here() -> bool {
    active() && control().is_some_and(|c| c.pid.load(Ordering::Relaxed) == sys::getpid())
}

#[inline]
pub fn control() -> Option<&'static Control> {
    let b = REGION.load(Ordering::Relaxed);
    // SAFETY: 0 or the region, which is never unmapped.
    if b == 0 { None } else { Some(unsafe { &*(b as *const Control) }) }
}

/// The channel slot `i`; `None` before `attach` or past the table.
#[inline]
pub fn slot(i: usize) -> Option<&'static Slot> {
    let b = REGION.load(Ordering::Relaxed);
    if b == 0 || i >= SLOTS {
        return None;
    }
    // SAFETY: inside the mapped region.
    Some(unsafe { &*((b + region::SLOTS_AT) as *const Slot).add(i) })
}

/// Address here of the region's byte `offset`.
pub fn region_addr(offset: usize) -> usize {
    REGION.load(Ordering::Relaxed) + offset
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
pub fn first(t: &Thread) -> *mut Writer {
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
    crate::locks::thread_begins(t, unsafe { &mut *w });
    w
}

/// True if threads get their rings in calls that are measured.
fn in_the_middle() -> bool {
    crate::locks::live() || crate::calls::live()
}

#[cold]
/// A ring's writer, and where its first page is mapped here.
fn claim(tid: i32) -> Option<(*mut Writer, usize)> {
    let c = control()?;
    let bytes = c.ring_bytes as usize;
    for (i, mapped) in MAPPED.iter().enumerate() {
        let at = region_addr(region::ring_at(i, bytes));
        // SAFETY: inside the region.
        let head = unsafe { &*(at as *const RingHead) };
        // ORDERING: Acquire pairs with the recorder's Release when it freed the ring.
        if head.state.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            continue;
        }
        head.tid.store(tid, Ordering::Relaxed);
        // SAFETY: the ring's first page, where its last owner may have left locks.
        let locks = unsafe { &*((at + region::LOCKS_AT) as *const region::LockTable) };
        locks.n.store(0, Ordering::Relaxed);
        locks.waits.store(0, Ordering::Relaxed);
        // SAFETY: as above.
        let call = unsafe { &*((at + region::CALL_AT) as *const region::CallRow) };
        call.function.store(0, Ordering::Relaxed);
        head.generation.fetch_add(1, Ordering::Relaxed);
        c.rings.fetch_max(i as u32 + 1, Ordering::AcqRel);
        let mut here = mapped.load(Ordering::Relaxed);
        if here == 0 {
            let a = map_ring(at, bytes)?;
            mapped.store(a, Ordering::Relaxed);
            here = a;
            if !in_the_middle() {
                make_resident(here as *mut u8, PAGE + 2 * bytes);
            }
        }
        // SAFETY: element i is ours by the claim; the ring is mapped for good.
        return unsafe {
            let w = (WRITERS.0.get() as *mut MaybeUninit<Writer>).add(i);
            let w = (*w).write(Writer::new(here as *const RingHead, (here + PAGE) as *mut u8, bytes as u64));
            if in_the_middle() {
                // Every thread of the program comes here, in the middle of something, and 8 MiB take 8 to 15 ms.
                w.prepare_with(make_resident);
            }
            Some((w, here))
        };
    }
    None
}

/// Maps a ring's head page and its data twice in a row.
fn map_ring(at: usize, bytes: usize) -> Option<usize> {
    let none = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an address range of our own, then replaced piece by piece by pieces of the region.
    unsafe {
        let a = sys::mmap(AWAY, PAGE + 2 * bytes, libc::PROT_NONE, none, -1, 0)?;
        let ok = sys::map_again(at, PAGE + bytes, a) && sys::map_again(at + PAGE, bytes, a + PAGE + bytes);
        if !ok {
            return None;
        }
        Some(a)
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
    let Some(c) = control() else { return false };
    if c.on_full != region::on_full::WAIT || c.stopped.load(Ordering::Relaxed) != 0 {
        return false;
    }
    w.publish();
    let mut beat = c.beat.load(Ordering::Relaxed);
    let mut still = 0;
    while !w.fits(tape::ring::MAX_EVENT) {
        sys::nap(50_000);
        let b = c.beat.load(Ordering::Relaxed);
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

/// Counts for the end of the recording.
pub fn count(which: fn(&Control) -> &AtomicU64) {
    if let Some(c) = control() {
        which(c).fetch_add(1, Ordering::Relaxed);
    }
}

pub fn count_patched() {
    if let Some(c) = control() {
        let p: &AtomicU32 = &c.patched;
        p.fetch_add(1, Ordering::Relaxed);
    }
}
