//! Calls of CUDA's that hold other threads up, answered in another way with the same result (`run --fix`).
//!
//! An answer is made of other functions of the driver, which take no lock that launches need. Anything that is not known to be
//! the same is passed on: [`Why`] says which. The numbers behind the answers are in docs/how-it-works/fix.md.
//!
//! Invariant: the program gets the result that CUDA's function would give. If a step of an answer fails, the call is passed on: CUDA
//! then gives the error, or makes the whole copy again. A copy whose step has a result that it should not have turns the fix off.

mod batch;
mod bytes;
mod code;
mod copies;
mod driver;
mod gpu_memory;
pub mod image;
pub mod kernels;
mod known;
mod memory;
mod node;
mod nodes;
mod pages;
mod pins;
mod ring;
mod table;
mod told;

use crate::process::wiped::{self, goes_on, live};
use crate::process::{environment, locked, sys};
use batch::Batch;
use copies::Copy;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
pub use driver::{Driver, Loading, relaxed};
use locks::cancel;
use tape::call::Answer;
use tape::fix::{self, Count, Fixes, Why};

static FIXES: AtomicPtr<Fixes> = AtomicPtr::new(core::ptr::null_mut());
static IS_ALONE: AtomicBool = AtomicBool::new(false);

/// Begins, if a fix is wanted. Called by the constructor. `alone`: no call has an entry for another reason.
pub fn begin(fixes: &'static Fixes, alone: bool) {
    let has_table = fixes.wanted & (fix::PINS | fix::MEMORY) != 0;
    if fixes.wanted == 0 || environment::fixes_off() || (has_table && !table::begin()) {
        return;
    }
    IS_ALONE.store(alone, Ordering::Relaxed);
    FIXES.store(core::ptr::from_ref(fixes).cast_mut(), Ordering::Release);
    wiped::begin(live::FIXES);
}

/// Begins the fixes of the environment, for a program that doorbell did not start. They have no report.
pub fn begin_own(wanted: u32) {
    if let Some(at) = locked::zeroed(size_of::<Fixes>()) {
        let fixes = at as *mut Fixes;
        // SAFETY: zeroed memory of that size, which is never unmapped. No other thread has its address.
        unsafe {
            (&raw mut (*fixes).wanted).write(wanted);
            begin(&*fixes, true);
        }
    }
}

fn fixes() -> Option<&'static Fixes> {
    // SAFETY: null, or what `begin` was given, which is never unmapped.
    unsafe { FIXES.load(Ordering::Acquire).as_ref() }
}

/// True if a call needs an entry: if calls are only answered, and not followed or guarded, those that a wanted fix looks at.
pub fn needs(answer: Answer) -> bool {
    !IS_ALONE.load(Ordering::Relaxed) || fixes().is_some_and(|fixes| fixes.wanted & answer.fixes() != 0)
}

/// True if calls are answered in this process. A forked child cannot use its parent's CUDA, so its calls are passed on.
#[inline(always)]
pub fn on() -> bool {
    goes_on(live::FIXES)
}

/// The result of a call, if it is answered here. `real`: CUDA's function for it; `per_thread`: its stream 0 is the thread's.
///
/// # Safety
/// The arguments are a caller's of that function.
#[cold]
#[inline(never)]
pub unsafe fn answer(how: Answer, a: &[usize; 11], per_thread: bool) -> Option<usize> {
    // (Programs ask of any memory, and often.)
    if how.address().is_some_and(|word| !a.get(usize::from(word)).is_some_and(|&at| table::may_contain(at))) {
        return None;
    }
    let fixes = fixes()?;
    let which = fixes.wanted & how.fixes();
    let count = fixes.counts.get(which.trailing_zeros() as usize)?;
    let _errno = sys::Errno::keep();
    // (A thread that is cancelled between the driver's calls would lose its pieces.)
    let cancelled = cancel::defer();
    let [first, second, third, fourth, ..] = *a;
    let is_capturing = is_capturing();
    // SAFETY: the caller's.
    let result = unsafe {
        match how {
            Answer::HostAlloc => Some(pins::alloc(count, first, second, third as u32)),
            Answer::AllocHost => Some(pins::alloc(count, first, second, 0)),
            Answer::FreeHost => pins::free(first).map(Ok),
            Answer::Alloc if is_capturing => Some(Err(Why::Capture)),
            Answer::Alloc => Some(gpu_memory::alloc(count, first, second)),
            Answer::Free => gpu_memory::free(first).map(Ok),
            Answer::Tells(what) => told::tell(what, a).map(Ok),
            Answer::Shares { address } => {
                gpu_memory::shared(a.get(usize::from(address)).copied().unwrap_or(0));
                None
            }
            Answer::Register if !is_capturing => {
                pins::populate(count, first, second, third as u32);
                None
            }
            Answer::Copy { .. } | Answer::Batch { .. } | Answer::Batch3d { .. } if is_capturing => {
                Some(Err(Why::Capture))
            }
            Answer::Batch { stream } => {
                let [to, from, bytes, count_of, attributes, attributes_at, attributes_count, ..] = *a;
                let batch =
                    Batch::Copies { to, from, bytes, count: count_of, attributes, attributes_at, attributes_count };
                Some(pages::batch(count, &batch, a.get(usize::from(stream)).copied().unwrap_or(0)))
            }
            Answer::Batch3d { stream } => {
                // (Flags are the word before the stream.)
                let [flags, stream] = [stream - 1, stream].map(|n| a.get(usize::from(n)).copied().unwrap_or(0));
                Some(pages::batch(count, &Batch::Operations { at: second, count: first, flags: flags as u64 }, stream))
            }
            Answer::Copy { direction, waits } => {
                let stream = match if waits { 0 } else { fourth } {
                    0 if per_thread => driver::PER_THREAD,
                    0 => driver::LEGACY,
                    given => given,
                };
                Some(copies::copy(count, &Copy { to: first, from: second, bytes: third, direction, stream, waits }))
            }
            Answer::Initialises => {
                pages::observe();
                None
            }
            Answer::Compiles { is_file, options, names, values } => {
                let [count_of, names, values] =
                    [options, names, values].map(|n| a.get(usize::from(n)).copied().unwrap_or(0));
                let options = code::Options { count: if options == 0 { 0 } else { count_of }, names, values };
                code::compile(count, fixes.compiler, second, is_file, &options).err().map(Err)
            }
            Answer::None | Answer::Register | Answer::EndsContext | Answer::BeginsCapture | Answer::EndsCapture => None,
        }
    };
    cancelled.put_back();
    match result? {
        Ok(result) => Some(result as usize),
        Err(why) => {
            count.passed_on(why);
            None
        }
    }
}

/// Streams that are being captured. Then CUDA refuses some calls, and an answer made of other calls would not.
static CAPTURES: AtomicU32 = AtomicU32::new(0);

fn is_capturing() -> bool {
    CAPTURES.load(Ordering::SeqCst) != 0
}

/// Counts a call that begins or ends a capture.
pub fn captures(how: Answer, call: impl FnOnce() -> usize) -> usize {
    /// Results of a call that ends no capture: INVALID_VALUE, INVALID_HANDLE, ILLEGAL_STATE, STREAM_CAPTURE_UNMATCHED,
    /// STREAM_CAPTURE_WRONG_THREAD.
    const NO_CAPTURE: [i32; 5] = [1, 400, 401, 903, 908];
    let begins = how == Answer::BeginsCapture;
    if begins {
        CAPTURES.fetch_add(1, Ordering::SeqCst);
    }
    let result = call();
    let is_over = if begins { result as i32 != 0 } else { !NO_CAPTURE.contains(&(result as i32)) };
    if is_over {
        // (Not below 0: a capture may have begun before the fix did.)
        let _ = CAPTURES.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
    }
    result
}

/// After a call that may have ended a context.
#[cold]
pub fn ends_contexts() {
    if let Some(d) = Driver::here().filter(|_| fixes().is_some_and(|fixes| fixes.wanted & fix::MEMORY != 0)) {
        let _errno = sys::Errno::keep();
        let cancelled = cancel::defer();
        table::end_with_contexts(&d);
        cancelled.put_back();
    }
}

/// The driver, unless the fix has turned itself off.
fn driver(count: &Count) -> Result<Driver, Why> {
    if count.turned_off.load(Ordering::Relaxed) != 0 {
        return Err(Why::Off);
    }
    Driver::here().ok_or(Why::Driver)
}

/// A step of an answer had a result that it should not have.
#[cold]
fn turn_off(count: &Count, result: i32) -> Why {
    let _ = count.turned_off.compare_exchange(
        0,
        (result as u32).wrapping_add(1).max(1),
        Ordering::Relaxed,
        Ordering::Relaxed,
    );
    Why::Off
}
