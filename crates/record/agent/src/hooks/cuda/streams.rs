//! A stream that was made: CUDA gives its priority, and the SMs of its green context. Which call made it, and in which context, does not matter.

use crate::process::{symbol, sys};
use core::sync::atomic::{AtomicUsize, Ordering};
use tape::call::{SMS_NOT_KNOWN, of_stream};
use tape::region::CallRow;

/// `CUresult cuStreamGetPriority(CUstream, int *)`; since CUDA 12.4 `cuStreamGetGreenCtx(CUstream, CUgreenCtx *)`, which gives null without one, and
/// `cuGreenCtxGetDevResource(CUgreenCtx, CUdevResource *, CUdevResourceType)`.
pub const SYMBOLS: [&[u8]; 3] = [b"cuStreamGetPriority", b"cuStreamGetGreenCtx", b"cuGreenCtxGetDevResource"];
static FUNCTIONS: [AtomicUsize; 3] = [const { AtomicUsize::new(0) }; 3];

/// CU_DEV_RESOURCE_TYPE_SM, the words of a CUdevResource (144 bytes, with room), and which of them is `sm.smCount`.
const SM: i32 = 1;
const RESOURCE: usize = 64;
const SM_COUNT: usize = 96 / 4;

#[repr(C, align(8))]
struct Resource([u32; RESOURCE]);

/// A library that defines CUDA's calls has these of [`SYMBOLS`]; 0 for one that it lacks.
pub fn found(at: [usize; 3]) {
    symbol::found(&FUNCTIONS, at);
}

/// A library was unloaded, which may have been CUDA's.
pub fn unloaded() {
    FUNCTIONS.iter().for_each(|f| f.store(0, Ordering::Relaxed));
}

/// The thread's call has made a stream, whose handle is at `at`: puts the handle and what it is like into the row.
///
/// # Safety
/// The call has succeeded, and `at` is its first argument.
#[cold]
#[inline(never)]
pub unsafe fn made(row: &CallRow, at: usize) {
    let _keep = sys::Errno::keep();
    // SAFETY: the caller's: CUDA has just written there.
    let Some(&stream) = (unsafe { (at as *const usize).as_ref() }) else { return };
    let [get_priority, get_green, get_resource] = FUNCTIONS.each_ref().map(|f| f.load(Ordering::Relaxed));
    let (mut priority, mut green, mut resource) = (0i32, 0usize, Resource([0; RESOURCE]));
    let mut sms = 0;
    // SAFETY: functions of these types, a stream that is there, and places for the results.
    unsafe {
        if get_priority != 0 {
            let get: unsafe extern "C" fn(usize, *mut i32) -> i32 = core::mem::transmute(get_priority);
            if get(stream, &raw mut priority) != 0 {
                priority = 0;
            }
        }
        if get_green != 0 {
            let get: unsafe extern "C" fn(usize, *mut usize) -> i32 = core::mem::transmute(get_green);
            if get(stream, &raw mut green) == 0 && green != 0 {
                sms = SMS_NOT_KNOWN;
            }
        }
        if sms != 0 && get_resource != 0 {
            let get: unsafe extern "C" fn(usize, *mut Resource, i32) -> i32 = core::mem::transmute(get_resource);
            if get(green, &raw mut resource, SM) == 0 && resource.0[SM_COUNT] != 0 {
                sms = resource.0[SM_COUNT];
            }
        }
    }
    row.stream.store(stream as u64, Ordering::Relaxed);
    row.object.store(of_stream(priority, sms), Ordering::Relaxed);
}
