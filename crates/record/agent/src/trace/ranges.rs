//! NVTX ranges and marks, and the number of ranges that a thread is in.
//!
//! A thread's count continues while nothing is recorded. So the program gets the same numbers, and a reader that has
//! missed ends learns from the next event which ranges are still open.

use super::texts::{self, Text};
use crate::process::region;
use crate::process::renewal::Child;
use crate::process::session::wanted;
use crate::process::sys;
use crate::process::thread::{self, Thread};
use crate::process::wiped::{self, goes_on, live as which};
use crate::record::{self, pauses};
use crate::trace::has_clock;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, compiler_fence};
use tape::event::NoteBody;
use tape::event::kind::NOTE;
use tape::nvtx::{EndBody, LAYOUT, NO_DEPTH, NvtxBody, RangeBody, kind, state};
use tape::region::{Control, capture, contents, trouble};
use tape::session::{ANY_DOMAIN, Session};

/// The known [`state`]s of NVTX, and whether each is on the tape: [`SAID`].
static STATES: [AtomicU32; 4] = [const { AtomicU32::new(0) }; 4];
const NOT_SAID: u32 = 1;
const SAID: u32 = 2;

/// The process has attached: begins, if the recorder requested ranges.
pub fn begin(c: &'static Control) {
    if c.contents & contents::NVTX == 0 || !has_clock() {
        return;
    }
    wiped::begin(which::NVTX);
    tell(state::READY);
    for (state, known) in (0..).zip(&STATES) {
        if known.load(Ordering::Relaxed) != 0 {
            tell(state);
        }
    }
}

fn tell(state: u32) {
    if let Some(known) = STATES.get(state as usize) {
        known.store(SAID, Ordering::Relaxed);
    }
    if matches!(state, state::OWN | state::REFUSED) {
        region::trouble(trouble::NO_RANGES);
    }
    record::event(kind::NVTX, 0, sys::tsc(), &NvtxBody { layout: LAYOUT, state }, &[], &[]);
}

/// A state of NVTX is known. The first time, `note` describes it for people. It is recorded when the process attaches.
#[cold]
pub fn is_known(state: u32, note: &[u8]) {
    let Some(known) = STATES.get(state as usize) else { return };
    let before = known.fetch_max(NOT_SAID, Ordering::Relaxed);
    if before != SAID && region::arrive() && known.load(Ordering::Relaxed) != SAID {
        tell(state);
    }
    if before == 0 && !note.is_empty() {
        record::event(NOTE, 0, sys::tsc(), &NoteBody { text: note.len() as u32, pad: 0 }, note, &[]);
    }
}

/// In a forked child: it is in the ranges of its only thread, but none of them is on its tape.
pub fn renew(child: &Child) {
    texts::renew();
    STATES.iter().for_each(|s| _ = s.fetch_min(NOT_SAID, Ordering::Relaxed));
    child.thread.capturing.set((0, 0));
    pauses::no_range();
}

/// True if ranges are recorded in this process now. The first call attaches it.
#[inline(always)]
fn live() -> bool {
    (goes_on(which::NVTX) || (wanted(contents::NVTX) && begins())) && !region::paused()
}

#[cold]
#[inline(never)]
fn begins() -> bool {
    !goes_on(which::TURNED_AWAY) && region::attach().is_some() && goes_on(which::NVTX)
}

/// NVTX's `no tracking of ranges`, for a domain that is not counted.
const NOT_COUNTED: i32 = -2;
/// For an end without a begin.
const IN_NONE: i32 = -1;

fn level(depth: Option<u64>, otherwise: i32) -> i32 {
    depth.map_or(otherwise, |d| i32::try_from(d).unwrap_or(i32::MAX))
}

/// The description of a range or a mark.
pub struct About {
    pub domain: u64,
    pub text: Text,
    pub payload: u64,
    pub color: u32,
    pub category: u32,
    /// [`tape::nvtx::range_flags`]
    pub flags: u16,
}

/// A range of the thread begins. Returns the depth in its domain before.
#[inline(always)]
pub fn push(a: &About) -> i32 {
    let t = thread::here();
    let depth = t.ranges.push(a.domain);
    if is_captured(a) {
        capture_in_thread(t, a.domain, depth);
    }
    if live() {
        begun(t, kind::PUSH, a, depth.unwrap_or(NO_DEPTH));
    }
    level(depth, NOT_COUNTED)
}

/// It ends. Returns the depth in its domain now.
#[inline(always)]
pub fn pop(domain: u64) -> i32 {
    let t = thread::here();
    let depth = t.ranges.pop(domain);
    if live() {
        ended(t, kind::POP, domain, depth.unwrap_or(NO_DEPTH));
    }
    if t.capturing.get().1 != 0 {
        capture_in_thread_ends(t, domain, depth);
    }
    level(depth, IN_NONE)
}

/// Numbers of ranges that any thread may end.
static STARTED: AtomicU64 = AtomicU64::new(0);
/// A bit of such a number: recording lasts until the range ends.
const CAPTURES: u64 = 1 << 62;

/// A range of the process begins. Returns the number that ends it.
#[inline(always)]
pub fn start(a: &About) -> u64 {
    let mut id = STARTED.fetch_add(1, Ordering::Relaxed) + 1;
    if is_captured(a) {
        id |= CAPTURES;
        pauses::range_begins();
    }
    if live() {
        begun(thread::here(), kind::START, a, id);
    }
    id
}

#[inline(always)]
pub fn end(domain: u64, id: u64) {
    if live() {
        ended(thread::here(), kind::END, domain, id);
    }
    if id & CAPTURES != 0 && CAPTURED.load(Ordering::Relaxed) != 0 {
        pauses::range_ends();
    }
}

#[inline(always)]
pub fn mark(a: &About) {
    if live() {
        begun(thread::here(), kind::MARK, a, 0);
    }
}

#[inline(always)]
fn begun(t: &Thread, k: u16, a: &About, id: u64) {
    let tsc = sys::rdtsc();
    if !is_ready(t) || t.busy.replace(true) {
        return lost();
    }
    compiler_fence(Ordering::SeqCst);
    // SAFETY: a ready thread has its own writer, and `busy` keeps a signal handler from making a second reference.
    let w = unsafe { &mut *t.writer.get() };
    texts::say(w, &Text::of_handle(a.domain as usize));
    texts::say(w, &a.text);
    let body =
        RangeBody { domain: a.domain, text: a.text.id, id, payload: a.payload, color: a.color, category: a.category };
    if !w.push_words(k, a.flags, tsc, body.words()) {
        record::push(w, k, a.flags, tsc, &body, &[], &[]);
    }
    w.publish();
    compiler_fence(Ordering::SeqCst);
    t.busy.set(false);
}

#[inline(always)]
fn ended(t: &Thread, k: u16, domain: u64, id: u64) {
    let tsc = sys::rdtsc();
    if !is_ready(t) || t.busy.replace(true) {
        return lost();
    }
    compiler_fence(Ordering::SeqCst);
    // SAFETY: as in `begun`.
    let w = unsafe { &mut *t.writer.get() };
    let body = EndBody { domain, id };
    if !w.push_words(k, 0, tsc, body.words()) {
        record::push(w, k, 0, tsc, &body, &[], &[]);
    }
    w.publish();
    compiler_fence(Ordering::SeqCst);
    t.busy.set(false);
}

/// True if the thread has a ring.
#[inline(always)]
fn is_ready(t: &Thread) -> bool {
    !t.writer.get().is_null() || becomes_ready(t)
}

#[cold]
#[inline(never)]
fn becomes_ready(t: &Thread) -> bool {
    let _keep = sys::Errno::keep();
    record::ready(t)
}

#[cold]
fn lost() {
    region::count(|c| &c.ringless);
}

/// The text of the range with which recording begins, 0 for none, and its domain.
static CAPTURED: AtomicU64 = AtomicU64::new(0);
static CAPTURED_DOMAIN: AtomicU64 = AtomicU64::new(0);

/// Called by the constructor: whether a range decides when the program is recorded.
pub fn prepare(s: &Session) {
    if s.capture == capture::RANGE {
        CAPTURED_DOMAIN.store(s.range_domain, Ordering::Relaxed);
        CAPTURED.store(s.range, Ordering::Relaxed);
    }
}

#[inline(always)]
fn is_captured(a: &About) -> bool {
    let wanted = CAPTURED.load(Ordering::Relaxed);
    wanted != 0 && wanted == a.text.id && {
        let domain = CAPTURED_DOMAIN.load(Ordering::Relaxed);
        domain == ANY_DOMAIN || domain == a.domain
    }
}

#[cold]
#[inline(never)]
fn capture_in_thread(t: &Thread, domain: u64, depth: Option<u64>) {
    // (A range inside another one that captures changes nothing.)
    if let (0, Some(depth)) = (t.capturing.get().1, depth) {
        t.capturing.set((domain, depth + 1));
        pauses::range_begins();
    }
}

#[cold]
#[inline(never)]
fn capture_in_thread_ends(t: &Thread, domain: u64, depth: Option<u64>) {
    if t.capturing.get() == (domain, depth.map_or(0, |depth| depth + 1)) {
        t.capturing.set((0, 0));
        pauses::range_ends();
    }
}
