//! The driver's other functions: one body for all of them.
//!
//! Programs ask for contexts, attributes and addresses by the thousand, in tens of nanoseconds each. Such a call is not written: it is one without a stream that
//! succeeds, in less than [`SHORT`].

use super::call::left;
use super::slots::{self, WAYS};
use super::{names, origins, streams};
use crate::fix;
use crate::process::sys;
use crate::process::thread;
use crate::trace::call::{self as trace, Words, arrive, begin, frames, live, stack_pointer};
use crate::trace::code;
use core::sync::atomic::Ordering;
use locks::leaving;
use tape::call::{Answer, Effect, FUNCTIONS, Function, Stream, number};
use tape::region::CallRow;

/// Ticks of the time stamp counter: 7 to 33 us at 1 to 5 GHz.
const SHORT: u64 = 1 << 15;

/// Whether a call is not worth an event.
pub fn is_short(row: &CallRow, ended: u64, result: i32) -> bool {
    result == 0 && ended.wrapping_sub(row.began.load(Ordering::Relaxed)) < SHORT
}

/// The kernels that a call has given, or of a graph that it has added to or changed.
#[inline(always)]
fn kernels(f: &Function, a: &[usize; 11]) {
    const GIVEN: [u16; 4] = [
        number("cuLibraryGetKernel"),
        number("cuKernelGetFunction"),
        number("cuLibraryGetModule"),
        number("cuModuleGetFunction"),
    ];
    const ADD_KERNEL: u16 = number("cuGraphAddKernelNode");
    const ADD: u16 = number("cuGraphAddNode");
    const KERNEL_PARAMS: u16 = number("cuGraphKernelNodeSetParams");
    const PARAMS: u16 = number("cuGraphNodeSetParams");
    const EXEC_KERNEL_PARAMS: u16 = number("cuGraphExecKernelNodeSetParams");
    const EXEC_PARAMS: u16 = number("cuGraphExecNodeSetParams");
    const INSTANTIATE: u16 = number("cuGraphInstantiate");
    // The word that is the node's parameters, and whether they are a CUgraphNodeParams.
    let (word, is_any) = match f.number {
        ADD_KERNEL => (4, false),
        ADD => (usize::from(f.words) - 1, true),
        KERNEL_PARAMS => (1, false),
        PARAMS => (1, true),
        EXEC_KERNEL_PARAMS => (2, false),
        EXEC_PARAMS => (2, true),
        INSTANTIATE => return names::objects(),
        // SAFETY: the arguments of a call that has succeeded.
        given if GIVEN.contains(&given) => return unsafe { origins::given(a[0], a[1]) },
        _ => return,
    };
    /// CU_GRAPH_NODE_TYPE_KERNEL, and where the kernel's parameters are in a CUgraphNodeParams.
    const KERNEL: i32 = 0;
    const OF_KERNEL: usize = 16;
    let at = a.get(word).copied().unwrap_or(0);
    // SAFETY: the arguments of a call that has succeeded.
    unsafe {
        if at != 0 && (!is_any || *(at as *const i32) == KERNEL) {
            names::node(if is_any { at + OF_KERNEL } else { at });
        }
    }
    if [EXEC_KERNEL_PARAMS, EXEC_PARAMS].contains(&f.number) {
        names::objects();
    }
}

type W = usize;
type Real = unsafe extern "C" fn(W, W, W, W, W, W, W, W, W, W, W, W, W, W, W, W) -> W;

/// Replaces a function of the driver that has no row of its own in the table: see [`super::entry`]. The caller's address and the further arguments are on the stack.
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn call(
    a0: W,
    a1: W,
    a2: W,
    a3: W,
    a4: W,
    a5: W,
    entry: W,
    site: W,
    a6: W,
    a7: W,
    a8: W,
    a9: W,
    a10: W,
    a11: W,
    a12: W,
    a13: W,
    a14: W,
    a15: W,
) -> W {
    // SAFETY: an entry's number.
    let e = unsafe { slots::slot(entry) };
    // SAFETY: the function of this entry takes no more words than these, which are the caller's own.
    let real = || unsafe {
        let real: Real = core::mem::transmute(e.real.load(Ordering::Relaxed));
        real(a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15)
    };
    let (t, stack) = (thread::here(), stack_pointer());
    let Some(f) = FUNCTIONS.get(entry / WAYS) else { return real() };
    let a = Words([a0, a1, a2, a3, a4, a5, a6, a7, a8, a9, a10]);
    let real = || {
        let is_looked_at = !matches!(f.answer, Answer::None) && fix::on();
        if is_looked_at {
            // SAFETY: the caller's arguments. (None of these is answered.)
            unsafe { fix::answer(f.answer, &a.0, false) };
        }
        let r = real();
        if is_looked_at && f.answer == Answer::EndsContext {
            fix::ends_contexts();
        }
        if r as i32 == 0 {
            fix::kernels::moment();
            if live() {
                kernels(f, &a.0);
            }
        }
        r
    };
    // Inside another call of this thread, or not recorded.
    if stack < t.call_stack.get() || !live() {
        return real();
    }
    let is_known = !t.call.get().is_null() && code::is_known(site);
    if !is_known && !arrive(t, site) {
        return real();
    }
    // SAFETY: a thread that has arrived has a ring, and its row is in a page that is never unmapped.
    let row = unsafe { &*t.call.get() };
    // SAFETY: the caller's arguments, which the function also reads.
    unsafe { begin(row, f, e.flags.load(Ordering::Relaxed), site, &a) };
    row.kernel.store(0, Ordering::Relaxed);
    t.calls_inside.set(0);
    t.call_stack.set(stack);
    row.began.store(sys::rdtsc(), Ordering::Relaxed);
    let r = leaving::run(t, left, real);
    let ended = sys::rdtsc();
    // (Kernels that not each launch of a graph runs are counted otherwise.)
    const CHANGES: [u16; 2] = [number("cuGraphConditionalHandleCreate"), number("cuGraphNodeSetEnabled")];
    let makes_stream = f.effect == Effect::MakesStream;
    if makes_stream && r as i32 == 0 {
        // SAFETY: the arguments of a call that has succeeded.
        leaving::run(t, left, || unsafe { streams::made(row, a0) });
    }
    // (`doorbell plan` must see what a fix would look at.)
    let is_seen = CHANGES.contains(&f.number) || matches!(f.answer, Answer::Shares { .. });
    let is_kept = makes_stream || is_seen || f.stream != Stream::None;
    if !is_kept && is_short(row, ended, r as i32) {
        trace::end_short(t, row);
    } else {
        frames(row);
        trace::end_plain(t, row, f.number, ended, r as i32);
    }
    r
}
