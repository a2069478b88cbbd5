//! A thread's current CUDA call, and its event.

use super::{batch, code, holds, python};
use crate::process::region;
use crate::process::session::wanted;
use crate::process::sys;
use crate::process::thread::{self, Thread};
use crate::process::wiped::{goes_on, live as which};
use crate::record;
use core::arch::asm;
use core::cell::Cell;
use core::sync::atomic::{Ordering, compiler_fence};
use tape::call::{CallBody, FUNCTIONS, Function, Size, Stream, flag, kind, of_thread};
use tape::event::RingBody;
use tape::region::{CallRow, contents};

/// True if calls are recorded in this process now. The first call attaches it.
#[inline(always)]
pub fn live() -> bool {
    are_followed() && !region::paused()
}

/// As [`live`], also in a pause.
#[inline(always)]
pub fn are_followed() -> bool {
    goes_on(which::CALLS) || (wanted(contents::CALLS) && begins())
}

#[cold]
#[inline(never)]
fn begins() -> bool {
    !goes_on(which::TURNED_AWAY) && region::attach().is_some() && goes_on(which::CALLS)
}

/// The arguments, as words: those in registers, and the first on the stack. (If a function takes fewer, the rest is
/// arbitrary and is not used.)
#[derive(Clone, Copy)]
pub struct Words(pub [usize; 11]);

impl Words {
    #[inline(always)]
    pub fn at(&self, i: u8) -> usize {
        self.0.get(i as usize).copied().unwrap_or(0)
    }
}

/// Stores the call that the thread is in.
#[inline(always)]
pub unsafe fn begin(row: &CallRow, f: &Function, mut flags: u32, site: usize, a: &Words) {
    if f.direction_at != Function::NOT_SAID {
        // cudaMemcpyKind: 0 to 4
        let direction = (a.at(f.direction_at) as u32).wrapping_add(1).min(7);
        flags |= direction << flag::DIRECTION_SHIFT;
    }
    let mut object = if matches!(f.object, tape::call::Object::None) { 0 } else { a.at(f.object_at) as u64 };
    // SAFETY: the caller's.
    let (mut size, mut stream) = unsafe { (size(f.size, a), stream(f.stream, a)) };
    if !matches!(f.stream, Stream::None) && is_own(stream, flags) {
        stream = own_stream();
    }
    if f.is_batch() {
        // SAFETY: the caller's.
        let (first, bytes) = unsafe { (batch::first(f.size, a), batch::bytes(f.size, a)) };
        (object, size) = (first.to, bytes.sum);
        flags |= if bytes.is_all { 0 } else { u32::from(flag::AT_LEAST) };
    }
    row.site.store(site as u64, Ordering::Relaxed);
    row.stream.store(stream, Ordering::Relaxed);
    row.object.store(object, Ordering::Relaxed);
    row.size.store(size, Ordering::Relaxed);
    row.flags.store(flags, Ordering::Relaxed);
    row.seq.store(row.seq.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    row.function.store(u32::from(f.number), Ordering::Relaxed);
}

/// A default stream that each thread has of its own.
#[inline(always)]
fn is_own(stream: u64, flags: u32) -> bool {
    stream == 2 || stream == 0 && flags & u32::from(flag::PER_THREAD) != 0
}

/// It gets the thread's number.
#[cold]
#[inline(never)]
fn own_stream() -> u64 {
    of_thread(thread::here().id())
}

/// Finds the Python frames that make the call. (Before the call's function is stored, because this may write events.)
#[inline(always)]
pub fn frames(row: &CallRow) {
    if goes_on(which::PYTHON) {
        row.python.store(python::stack(), Ordering::Relaxed);
    }
}

/// The thread is about to wait for a lock, in a pause. If it is in a call that began in a pause, stores that call for the
/// recorder, with this moment as its begin. Returns whether it is.
#[cold]
pub fn waits(t: &Thread) -> bool {
    // SAFETY: null or a row in a page that is never unmapped.
    let Some(row) = (unsafe { t.call.get().as_ref() }) else { return false };
    let [stack, site, function] = t.paused_call.each_ref().map(Cell::get);
    // (If the thread has left that call by a jump, its stack is not below it.)
    if stack_pointer() >= stack || row.function.load(Ordering::Relaxed) != 0 {
        return false;
    }
    for unknown in [&row.stream, &row.object, &row.size, &row.kernel] {
        unknown.store(0, Ordering::Relaxed);
    }
    row.python.store(0, Ordering::Relaxed);
    row.site.store(site as u64, Ordering::Relaxed);
    row.began.store(sys::rdtsc(), Ordering::Relaxed);
    row.flags.store((function >> 16) as u32, Ordering::Relaxed);
    row.seq.store(row.seq.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    row.function.store(function as u32 & 0xffff, Ordering::Relaxed);
    true
}

/// The wait of [`waits`] is over.
#[cold]
pub fn waited(t: &Thread) {
    // SAFETY: as there.
    if let Some(row) = unsafe { t.call.get().as_ref() } {
        row.function.store(0, Ordering::Relaxed);
    }
}

/// The stack pointer: it is lower in a call within a call.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let at: usize;
    // SAFETY: reads a register.
    unsafe { asm!("mov {}, rsp", out(reg) at, options(nomem, nostack, preserves_flags)) };
    at
}

/// A word to which the caller passes a pointer; 0 without a pointer.
#[inline(always)]
pub(super) unsafe fn behind(pointer: usize, offset: usize) -> u64 {
    if pointer < 4096 {
        return 0;
    }
    // SAFETY: the caller's.
    unsafe { ((pointer + offset) as *const u64).read_unaligned() }
}

#[inline(always)]
fn grid(x: u64, y: u64, z: u64) -> u64 {
    let low = |v: u64| v & 0xffff_ffff;
    low(x).wrapping_mul(low(y)).wrapping_mul(low(z))
}

#[inline(always)]
unsafe fn size(from: Size, a: &Words) -> u64 {
    let word = |i: u8| a.at(i) as u64;
    // SAFETY: the caller's, for memory that the function itself reads.
    unsafe {
        match from {
            // (Batches: see `begin`.)
            Size::None | Size::Copies(..) | Size::Copies3d(..) => 0,
            Size::Word(i) => word(i),
            Size::Compare(i) => word(i) & 3,
            Size::Times(i, n) => word(i).wrapping_mul(u64::from(n)),
            Size::Product(i, j, n) => word(i).wrapping_mul(word(j)).wrapping_mul(u64::from(n)),
            Size::At2(i, at) => {
                let (p, at) = (a.at(i), usize::from(at));
                behind(p, at).wrapping_mul(behind(p, at + 8))
            }
            Size::At3(i, at) => {
                let (p, at) = (a.at(i), usize::from(at));
                behind(p, at).wrapping_mul(behind(p, at + 8)).wrapping_mul(behind(p, at + 16))
            }
            Size::Grid(i) => grid(word(i), word(i + 1), word(i + 2)),
            Size::Dim3(i) => grid(word(i), word(i) >> 32, word(i + 1)),
            Size::Config(i) => {
                let p = a.at(i);
                let xy = behind(p, 0);
                grid(xy, xy >> 32, behind(p, 8))
            }
        }
    }
}

#[inline(always)]
unsafe fn stream(from: Stream, a: &Words) -> u64 {
    match from {
        Stream::None => 0,
        Stream::Word(i) => a.at(i) as u64,
        // SAFETY: the caller's: a launch configuration.
        Stream::Config(i) => unsafe { behind(a.at(i), 32) },
    }
}

/// Adds the thread's current call to the event of its doorbell.
#[inline(always)]
pub fn around(t: &Thread, ring: RingBody) -> RingBody {
    if t.call.get().is_null() {
        return ring;
    }
    // SAFETY: a row in a page that is never unmapped.
    let row = unsafe { &*t.call.get() };
    let function = row.function.load(Ordering::Relaxed);
    if function == 0 {
        return ring;
    }
    let (stream, object) = (row.stream.load(Ordering::Relaxed), row.object.load(Ordering::Relaxed));
    let kernel = row.kernel.load(Ordering::Relaxed);
    let (call, python) = (row.seq.load(Ordering::Relaxed), row.python.load(Ordering::Relaxed));
    RingBody { function, call, stream, object, kernel, python, ..ring }
}

/// The call has returned: its event, from the row and the arguments.
///
/// # Safety
/// The arguments are a caller's of this function, which has not returned to it yet.
#[inline(always)]
pub unsafe fn end<const F: usize>(t: &Thread, row: &CallRow, a: &Words, ended: u64, result: i32) {
    let f = &const { FUNCTIONS[F] };
    let function = f.number;
    t.call_stack.set(0);
    row.function.store(0, Ordering::Relaxed);
    if t.busy.replace(true) {
        return lost();
    }
    compiler_fence(Ordering::SeqCst);
    // (0 past the last word.)
    let mut body = CallBody { source: a.at(f.source_at) as u64, ..body(t, row, result) };
    if f.is_batch() {
        // SAFETY: the caller's.
        let first = unsafe { batch::first(f.size, a) };
        (body.source, body.copies) = (first.from, first.copies);
    }
    // SAFETY: `arrive` has made sure that this thread has a writer, and `busy` keeps a signal handler from making a
    // second reference.
    let w = unsafe { &mut *t.writer.get() };
    let is_there = match f.source_at {
        _ if f.is_batch() => w.push_words(kind::CALL, function, ended, body.words_with_copies()),
        Function::NOT_SAID => w.push_words(kind::CALL, function, ended, body.words()),
        _ => w.push_words(kind::CALL, function, ended, body.words_with_source()),
    };
    if is_there {
        w.publish();
    } else {
        end_with_gap(t, &body, function, ended);
    }
    compiler_fence(Ordering::SeqCst);
    t.busy.set(false);
}

/// As [`end`], of a function of which only the time, the result and the stream are kept.
pub fn end_plain(t: &Thread, row: &CallRow, function: u16, ended: u64, result: i32) {
    forget(t, row);
    if t.busy.replace(true) {
        return lost();
    }
    compiler_fence(Ordering::SeqCst);
    end_with_gap(t, &body(t, row, result), function, ended);
    compiler_fence(Ordering::SeqCst);
    t.busy.set(false);
}

/// The call has returned, and is only counted.
pub fn end_short(t: &Thread, row: &CallRow) {
    forget(t, row);
    if t.busy.replace(true) {
        return lost();
    }
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as in `end`.
    unsafe { &mut *t.writer.get() }.count_short_call();
    compiler_fence(Ordering::SeqCst);
    t.busy.set(false);
}

/// The call has returned.
fn forget(t: &Thread, row: &CallRow) {
    t.call_stack.set(0);
    row.function.store(0, Ordering::Relaxed);
}

#[inline(always)]
fn body(t: &Thread, row: &CallRow, result: i32) -> CallBody {
    CallBody {
        began: row.began.load(Ordering::Relaxed),
        site: row.site.load(Ordering::Relaxed),
        stream: row.stream.load(Ordering::Relaxed),
        object: row.object.load(Ordering::Relaxed),
        size: row.size.load(Ordering::Relaxed),
        result,
        flags: row.flags.load(Ordering::Relaxed) as u16,
        inner: t.calls_inside.get(),
        seq: row.seq.load(Ordering::Relaxed),
        python: row.python.load(Ordering::Relaxed),
        ..CallBody::default()
    }
}

/// The thread has left its current call and does not return to it: the event has no result.
#[cold]
pub fn left(t: &Thread) {
    t.call_stack.set(0);
    if t.call.get().is_null() {
        return;
    }
    // SAFETY: a row in a page that is never unmapped.
    let row = unsafe { &*t.call.get() };
    if let Some((function, body)) = row.event() {
        row.function.store(0, Ordering::Relaxed);
        holds::put(t, kind::IN_CALL, function, body);
    }
}

/// An event that does not fit: waits for room or counts a gap. The thread is busy.
#[cold]
#[inline(never)]
fn end_with_gap(t: &Thread, body: &CallBody, function: u16, ended: u64) {
    // SAFETY: as in `end`.
    let w = unsafe { &mut *t.writer.get() };
    record::push(w, kind::CALL, function, ended, body, &[], &[]);
    w.publish();
}

#[cold]
fn lost() {
    region::count(|c| &c.ringless);
}

/// A thread's first call, or the first from this code. False if it has no ring.
#[cold]
#[inline(never)]
pub fn arrive(t: &Thread, site: usize) -> bool {
    if t.writer.get().is_null() && !record::ready(t) {
        return false;
    }
    code::look(t, site);
    true
}
