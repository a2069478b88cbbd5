//! The body of an entry: one call, and its event.

use super::slots::Slot;
use super::{names, origins, others, slots, stamps, streams};
use crate::fix;
use crate::policy::{Me, guard};
use crate::process::sys;
use crate::process::thread::{self, Thread};
use crate::record::pauses;
use crate::trace::arrival::in_pause;
use crate::trace::call::{self as trace, Words, are_followed, arrive, begin, end, frames, live, stack_pointer};
use crate::trace::code;
use core::ffi::c_void;
use core::sync::atomic::Ordering;
use locks::leaving;
use tape::call::{Answer, Effect, FUNCTIONS, Function, flag};
use tape::region::CallRow;

/// Calls a function of `words` arguments.
///
/// # Safety
/// It takes this many words, all of class INTEGER, and they are the caller's own.
#[inline(always)]
pub unsafe fn real(at: usize, words: u8, a: &Words) -> usize {
    let [a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10] = a.0;
    type W = usize;
    // (Only the words on the stack that it takes are copied: each costs a load and a store.)
    // SAFETY: the caller's.
    unsafe {
        if words <= 6 {
            let f: unsafe extern "C" fn(W, W, W, W, W, W) -> W = core::mem::transmute(at);
            f(a0, a1, a2, a3, a4, a5)
        } else if words <= 8 {
            let f: unsafe extern "C" fn(W, W, W, W, W, W, W, W) -> W = core::mem::transmute(at);
            f(a0, a1, a2, a3, a4, a5, a6, a7)
        } else {
            let f: unsafe extern "C" fn(W, W, W, W, W, W, W, W, W, W, W) -> W = core::mem::transmute(at);
            f(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10)
        }
    }
}

/// CUDA's function, or what a fix answers in its place.
///
/// # Safety
/// As [`real`].
#[inline(always)]
unsafe fn answered<const F: usize>(e: &Slot, at: usize, a: &Words) -> usize {
    let answer = const { FUNCTIONS[F].answer };
    let (word, least) = const { FUNCTIONS[F].answer.least() };
    if matches!(answer, Answer::BeginsCapture | Answer::EndsCapture) {
        // SAFETY: the caller's.
        return fix::captures(answer, || unsafe { real(at, const { FUNCTIONS[F].words }, a) });
    }
    if const { FUNCTIONS[F].answer.fixes() != 0 } && a.0[word] >= least && fix::on() {
        let per_thread = e.flags.load(Ordering::Relaxed) & u32::from(flag::PER_THREAD) != 0;
        // SAFETY: the caller's.
        if let Some(result) = unsafe { fix::answer(answer, &a.0, per_thread) } {
            return result;
        }
    }
    // SAFETY: the caller's.
    unsafe { real(at, const { FUNCTIONS[F].words }, a) }
}

/// Replaces function `F` of the table: see [`super::entry`]. The caller's address and the further arguments are on the
/// stack.
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn call<const F: usize>(
    a0: usize,
    a1: usize,
    a2: usize,
    a3: usize,
    a4: usize,
    a5: usize,
    number: usize,
    site: usize,
    a6: usize,
    a7: usize,
    a8: usize,
    a9: usize,
    a10: usize,
) -> usize {
    let a = Words([a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10]);
    // SAFETY: an entry's number.
    let e = unsafe { slots::slot(number) };
    let at = e.real.load(Ordering::Relaxed);
    let t = thread::here();
    let stack = stack_pointer();
    let effect = const { FUNCTIONS[F].effect };
    if effect == Effect::StartsProfilers {
        pauses::profiler(false);
    }
    // In a pause, too: after it, the handle may belong to another kernel.
    if effect == Effect::UnloadsCode {
        fix::kernels::unloads(a0);
        if are_followed() {
            names::forget();
        }
    }
    let outermost = stack >= t.call_stack.get();
    // SAFETY: the caller's.
    let r = unsafe { one::<F>(t, stack, site, e, at, &a) };
    if matches!(effect, Effect::MakesGraph | Effect::ChangesGraph) && r as i32 == 0 && live() {
        names::objects();
    }
    // (A file's code is not looked at.)
    if const { matches!(FUNCTIONS[F].answer, Answer::Compiles { is_file: false, .. }) } && r as i32 == 0 {
        // SAFETY: the arguments of a call that has succeeded.
        unsafe { origins::loaded(const { FUNCTIONS[F].number }, a0, a1) };
    }
    if effect == Effect::StopsProfilers && outermost {
        pauses::profiler(true);
    }
    r
}

/// The call.
///
/// # Safety
/// As the function at `at`.
#[inline(always)]
unsafe fn one<const F: usize>(t: &'static Thread, stack: usize, site: usize, e: &Slot, at: usize, a: &Words) -> usize {
    let f = &const { FUNCTIONS[F] };
    if stack < t.call_stack.get() {
        // Inside another call of this thread.
        t.calls_inside.set(t.calls_inside.get().saturating_add(1));
        if const { FUNCTIONS[F].is_drivers_launch() } && live() {
            // SAFETY: a thread that is in a recorded call has a row, in a page that is never unmapped.
            if let Some(row) = unsafe { t.call.get().as_ref() } {
                launches(row, f, a);
            }
        }
        if const { FUNCTIONS[F].is_drivers_transfer() } && live() {
            stamps::launches();
        }
        // SAFETY: the caller's.
        return unsafe { answered::<F>(e, at, a) };
    }
    if !live() {
        // SAFETY: the caller's.
        return unsafe { unrecorded::<F>(t, stack, site, e, at, a) };
    }
    let is_known = !t.call.get().is_null() && code::is_known(site);
    if !is_known && !arrive(t, site) {
        // SAFETY: the caller's.
        return unsafe { answered::<F>(e, at, a) };
    }
    // SAFETY: a thread that has arrived has a ring, and its row is in a page that is never unmapped.
    let row = unsafe { &*t.call.get() };
    frames(row);
    // SAFETY: the caller's arguments, which the function also reads.
    unsafe { begin(row, f, e.flags.load(Ordering::Relaxed), site, a) };
    row.kernel.store(0, Ordering::Relaxed);
    t.calls_inside.set(0);
    t.call_stack.set(stack);
    let r = leaving::run(t, left, || {
        // (The first launch makes calls of the agent's own. They are inside this one, and not in its time.)
        if const { FUNCTIONS[F].is_drivers_launch() } {
            launches(row, f, a);
        } else if const { FUNCTIONS[F].is_drivers_transfer() } {
            stamps::launches();
        }
        row.began.store(sys::rdtsc(), Ordering::Relaxed);
        // SAFETY: the caller's.
        unsafe { answered::<F>(e, at, a) }
    });
    let ended = sys::rdtsc();
    if const { FUNCTIONS[F].is_brief() } && others::is_short(row, ended, r as i32) {
        trace::end_short(t, row);
        return r;
    }
    if const { matches!(FUNCTIONS[F].effect, Effect::MakesStream) } && r as i32 == 0 {
        // SAFETY: the arguments of a call that has succeeded.
        leaving::run(t, left, || unsafe { streams::made(row, a.0[0]) });
    }
    // SAFETY: the caller's arguments, and this is its call.
    unsafe { end::<F>(t, row, a, ended, r as i32) };
    r
}

/// The driver is about to get a kernel.
#[inline(always)]
fn launches(row: &CallRow, f: &Function, a: &Words) {
    let handle = a.0.get(usize::from(f.object_at)).copied().unwrap_or(0);
    names::launched(handle);
    stamps::launches();
    row.kernel.store(handle as u64, Ordering::Relaxed);
}

/// A thread's outermost call, if calls are not recorded.
///
/// # Safety
/// As the function at `at`.
#[inline(always)]
unsafe fn unrecorded<const F: usize>(t: &Thread, stack: usize, site: usize, e: &Slot, at: usize, a: &Words) -> usize {
    let f = &const { FUNCTIONS[F] };
    if guard::on() {
        // SAFETY: the caller's.
        return unsafe { guarded::<F>(t, e, at, stack, a) };
    }
    let [outer, caller, function] = &t.paused_call;
    let is_noted = in_pause() && (outer.get() == 0 || stack >= outer.get());
    if is_noted {
        caller.set(site);
        function.set(usize::from(f.number) | (e.flags.load(Ordering::Relaxed) as usize) << 16);
        outer.set(stack);
    }
    // SAFETY: the caller's.
    let r = unsafe { answered::<F>(e, at, a) };
    if is_noted {
        outer.set(0);
    }
    r
}

/// As [`unrecorded`], through the guard.
///
/// # Safety
/// As there.
#[inline(always)]
unsafe fn guarded<const F: usize>(t: &Thread, e: &Slot, at: usize, stack: usize, a: &Words) -> usize {
    let inside = if const { FUNCTIONS[F].class.is_guarded() } { guard::enter() } else { None };
    t.call_stack.set(stack);
    let outermost = Guarded { t, inside };
    // SAFETY: the caller's.
    let r = leaving::run(&outermost, left_guarded, || unsafe { answered::<F>(e, at, a) });
    outermost.is_over();
    r
}

struct Guarded<'a> {
    t: &'a Thread,
    inside: Option<Me>,
}

impl Guarded<'_> {
    fn is_over(&self) {
        self.t.call_stack.set(0);
        if let Some(me) = self.inside {
            guard::leave(me);
        }
    }
}

extern "C" fn left_guarded(outermost: *mut c_void) {
    // SAFETY: `leaving::run` was given a Guarded, which lives as long as its frame.
    unsafe { &*outermost.cast::<Guarded>() }.is_over();
}

/// The thread leaves a call by a jump, or ends in it: later calls are not inside it.
pub(super) extern "C" fn left(t: *mut c_void) {
    // SAFETY: `leaving::run` was given the thread's own data.
    trace::left(unsafe { &*t.cast::<Thread>() });
}
