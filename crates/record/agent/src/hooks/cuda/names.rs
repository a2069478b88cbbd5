//! Names of kernels: the first thread that launches a handle looks it up once, before that launch.
//!
//! CUDA gives the name, so it does not matter how the program got the handle. The agent uses no thread for it, and no
//! other thread waits.

use crate::process::{region, symbol, sys};
use crate::record;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicUsize, Ordering};
use tape::call::{NameBody, kind};
use tape::region::trouble;

/// `CUresult cuFuncGetName(const char **name, CUfunction)` and `cuKernelGetName(const char **name, CUkernel)`, since CUDA 12.3.
static FUNCTION: AtomicUsize = AtomicUsize::new(0);
static KERNEL: AtomicUsize = AtomicUsize::new(0);

pub const SYMBOLS: [&[u8]; 2] = [b"cuFuncGetName", b"cuKernelGetName"];

const ROOM_BITS: u32 = 14;
const ROOM: usize = 1 << ROOM_BITS;
/// Handles that were looked up.
static SEEN: [AtomicUsize; ROOM] = [const { AtomicUsize::new(0) }; ROOM];
/// Number of places, from its own on, in which a handle may be stored.
const NEAR: usize = 16;

/// Maximum length of a stored name: names of C++ templates can be very long.
const LONGEST: usize = 2048;

/// A library was unloaded, which may have been CUDA's. Functions that still exist are found again.
pub fn unloaded() {
    [&FUNCTION, &KERNEL].into_iter().for_each(|at| at.store(0, Ordering::Relaxed));
    forget();
}

/// A library that defines CUDA's calls has these of [`SYMBOLS`]; 0 for one that it lacks.
pub fn found(at: [usize; 2]) {
    symbol::found([&FUNCTION, &KERNEL], at);
}

/// Handles may be reused: code was unloaded.
#[cold]
pub fn forget() {
    SEEN.iter().for_each(|seen| seen.store(0, Ordering::Relaxed));
}

/// The thread is about to launch this kernel.
#[inline(always)]
pub fn launched(handle: usize) {
    // Handles are addresses of objects of some hundred bytes.
    let first = (handle >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - ROOM_BITS);
    if let Some(seen) = SEEN.get(first)
        && seen.load(Ordering::Relaxed) != handle
    {
        look(handle, first);
    }
}

#[cold]
#[inline(never)]
fn look(handle: usize, first: usize) {
    if handle == 0 {
        return;
    }
    for i in 0..NEAR {
        let Some(seen) = SEEN.get((first + i) % ROOM) else { return };
        match seen.compare_exchange(0, handle, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return ask(handle),
            Err(other) if other == handle => return,
            Err(_) => {}
        }
    }
    region::trouble(trouble::NAMES_FULL);
}

fn ask(handle: usize) {
    let _keep = sys::Errno::keep();
    for f in [&FUNCTION, &KERNEL].map(|f| f.load(Ordering::Relaxed)) {
        if f == 0 {
            continue;
        }
        let mut name: *const c_char = core::ptr::null();
        // SAFETY: a function of this type. It checks the handle as the following launch does; the name belongs to CUDA.
        unsafe {
            let f: unsafe extern "C" fn(*mut *const c_char, usize) -> i32 = core::mem::transmute(f);
            if f(&raw mut name, handle) != 0 || name.is_null() {
                continue;
            }
            let name = CStr::from_ptr(name).to_bytes();
            let name = name.get(..LONGEST).unwrap_or(name);
            let body = NameBody { handle: handle as u64, name: name.len() as u32, pad: 0 };
            return record::event(kind::NAME, 0, sys::tsc(), &body, name, &[]);
        }
    }
}
