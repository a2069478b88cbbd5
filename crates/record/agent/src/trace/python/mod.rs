//! The Python frames that make a CUDA call: the lines and functions, up to the outermost.
//!
//! The only Python function called is the one that returns the caller's thread state. No Python code runs; the global
//! lock is neither needed nor taken. The frames are read in place ([`frames`]), in the layout of the interpreter's
//! version ([`versions`]), with loads that cannot fault ([`loads`]). A stack that is already on the tape is recorded as a
//! number ([`seen`]).
//!
//! Invariant: before the first frame counts, its contents were compared with the interpreter's exports ([`check`]). If
//! they differ, the recording states that and has no frames, never wrong ones.

mod check;
mod frames;
mod loads;
mod seen;
mod versions;

use crate::process::wiped::{self, live};
use crate::process::{region, sys};
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};
use tape::region::{Control, contents};
use versions::Offsets;

/// The interpreter's exports that are needed: functions, then objects. The first one marks the interpreter.
pub const FUNCTIONS: [&[u8]; 5] = [
    b"PyGILState_GetThisThreadState",
    b"Py_GetVersion",
    b"_Py_IsFinalizing",
    b"Py_IsFinalizing",
    b"_Py_NegativeRefcount",
];
pub const OBJECTS: [&[u8]; 4] = [b"PyCode_Type", b"PyUnicode_Type", b"PyBytes_Type", b"_PyRuntime"];

const THREAD_STATE: usize = 0;
const GET_VERSION: usize = 1;
const IS_FINALIZING: [usize; 2] = [2, 3];
/// Only in debug builds.
const DEBUG: usize = 4;

const CODE_TYPE: usize = 0;

/// Their addresses; 0 for one that is missing.
static FUNCTION: [AtomicUsize; FUNCTIONS.len()] = [const { AtomicUsize::new(0) }; FUNCTIONS.len()];
static OBJECT: [AtomicUsize; OBJECTS.len()] = [const { AtomicUsize::new(0) }; OBJECTS.len()];
/// The interpreter is in a library that was opened later: it may be closed.
static MAY_GO: AtomicBool = AtomicBool::new(false);

/// The version's offsets, after they were checked.
static READY: AtomicPtr<Offsets> = AtomicPtr::new(core::ptr::null_mut());

fn function(which: usize) -> usize {
    FUNCTION.get(which).map_or(0, |at| at.load(Ordering::Relaxed))
}

fn object(which: usize) -> usize {
    OBJECT.get(which).map_or(0, |at| at.load(Ordering::Relaxed))
}

/// A library, or the program, that defines the first of [`FUNCTIONS`]. `late`: it was opened after the start.
pub fn found(functions: [usize; FUNCTIONS.len()], objects: [usize; OBJECTS.len()], late: bool) {
    if function(THREAD_STATE) != 0 {
        return;
    }
    OBJECT.iter().zip(objects).for_each(|(to, at)| to.store(at, Ordering::Relaxed));
    MAY_GO.store(late, Ordering::Relaxed);
    for (to, at) in FUNCTION.iter().zip(functions).rev() {
        // ORDERING: Release: the first of them last, with everything else before it.
        to.store(at, Ordering::Release);
    }
}

/// The process has attached: frames are read from now on, if the recorder requested them.
pub fn begin(c: &'static Control) {
    if c.contents & contents::PYTHON != 0 {
        seen::forget();
        check::attached();
        wiped::begin(live::PYTHON);
    }
}

/// The number of the calling thread's stack, for [`tape::call::CallBody::python`].
#[inline(never)]
pub fn stack() -> u32 {
    let offsets = READY.load(Ordering::Acquire);
    // SAFETY: null, or a row of the table of versions.
    let Some(o) = (unsafe { offsets.as_ref() }) else {
        return if check::decide() { stack_of(READY.load(Ordering::Acquire)) } else { 0 };
    };
    read(o)
}

#[cold]
fn stack_of(offsets: *mut Offsets) -> u32 {
    // SAFETY: as above.
    unsafe { offsets.as_ref() }.map_or(0, read)
}

#[inline(always)]
fn read(o: &'static Offsets) -> u32 {
    let state = thread_state();
    if state == 0 || is_finalizing() {
        return 0;
    }
    let stack = frames::walk(o, state, object(CODE_TYPE));
    if stack.frames().is_empty() {
        return 0;
    }
    seen::number(stack.hash).unwrap_or_else(|| seen::write(o, &stack))
}

/// The calling thread's `PyThreadState`, 0 if it has none.
#[inline(always)]
fn thread_state() -> usize {
    match function(THREAD_STATE) {
        0 => 0,
        at => {
            // SAFETY: PyThreadState *PyGILState_GetThisThreadState(void). It reads one thread-specific value.
            unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> usize>(at)() }
        }
    }
}

/// True while the interpreter is finalized: it frees the states of threads that are in calls.
#[inline(always)]
fn is_finalizing() -> bool {
    let [old, new] = IS_FINALIZING.map(function);
    match if old != 0 { old } else { new } {
        0 => true,
        // SAFETY: int _Py_IsFinalizing(void). It reads one word.
        at => unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> i32>(at)() != 0 },
    }
}

/// The program is about to close a library, which may be the interpreter's.
pub fn about_to_close() {
    if MAY_GO.load(Ordering::Relaxed) {
        READY.store(core::ptr::null_mut(), Ordering::Release);
    }
}

/// The library is closed.
pub fn closed() {
    if MAY_GO.load(Ordering::Relaxed) && !sys::is_readable(function(THREAD_STATE)) {
        FUNCTION.iter().for_each(|at| at.store(0, Ordering::Relaxed));
    }
}

fn say(state: u32) {
    if let Some(c) = region::control() {
        c.python.store(state, Ordering::Relaxed);
    }
}
