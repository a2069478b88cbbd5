//! Names of kernels: the first thread that launches a handle looks it up once, before that launch.
//!
//! CUDA gives the name, so it does not matter how the program got the handle. The agent uses no thread for it, and no
//! other thread waits.
//!
//! A graph's launches name no handle, only the addresses of code. So when a graph was made, what CUDA's objects for the kernels hold is recorded, too: it has
//! these addresses ([`tape::call::ObjectBody`]).

use crate::fix;
use crate::process::region::control;
use crate::process::restrictions::{may, need};
use crate::process::{region, symbol, sys};
use crate::record;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tape::call::{NAME_TICKS, NameBody, ObjectBody, kind};
use tape::region::trouble;

/// `CUresult cuFuncGetName(const char **name, CUfunction)` and `cuKernelGetName(const char **name, CUkernel)`, since CUDA 12.3.
static FUNCTION: AtomicUsize = AtomicUsize::new(0);
static KERNEL: AtomicUsize = AtomicUsize::new(0);

/// `CUresult cuKernelGetFunction(CUfunction *, CUkernel)` and `cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *)`.
static KERNELS_FUNCTION: AtomicUsize = AtomicUsize::new(0);
static CAPTURE: AtomicUsize = AtomicUsize::new(0);

pub const SYMBOLS: [&[u8]; 4] =
    [b"cuFuncGetName", b"cuKernelGetName", b"cuKernelGetFunction", b"cuThreadExchangeStreamCaptureMode"];

const ROOM_BITS: u32 = 14;
const ROOM: usize = 1 << ROOM_BITS;
/// Handles that were looked up.
static SEEN: [AtomicUsize; ROOM] = [const { AtomicUsize::new(0) }; ROOM];
/// The highest bit of a handle in [`SEEN`] whose object is on the tape. (Handles are addresses of objects, which do not have it.)
const ON_TAPE: usize = 1 << 63;
/// Handles that were looked up since the last look at objects.
static NEW: AtomicU32 = AtomicU32::new(0);
/// Bytes of an object that are read: on driver 580 objects have 0x4a0 bytes, and the address is at 0x68.
const OBJECT: usize = 0x100;

/// Number of places, from its own on, in which a handle may be stored.
const NEAR: usize = 16;

/// Maximum length of a stored name: names of C++ templates can be very long.
const LONGEST: usize = 2048;

/// A library was unloaded, which may have been CUDA's. Functions that still exist are found again.
pub fn unloaded() {
    ALL.into_iter().for_each(|at| at.store(0, Ordering::Relaxed));
    forget();
}

/// A library that defines CUDA's calls has these of [`SYMBOLS`]; 0 for one that it lacks.
pub fn found(at: [usize; 4]) {
    symbol::found(ALL, at);
}

static ALL: [&AtomicUsize; 4] = [&FUNCTION, &KERNEL, &KERNELS_FUNCTION, &CAPTURE];

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
        && !is_of(seen.load(Ordering::Relaxed), handle)
    {
        look(handle, first);
    }
}

/// Whether a place in [`SEEN`] is this handle's.
#[inline(always)]
fn is_of(seen: usize, handle: usize) -> bool {
    seen & !ON_TAPE == handle
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
            Ok(_) => {
                NEW.fetch_add(1, Ordering::Relaxed);
                return ask(handle);
            }
            Err(other) if is_of(other, handle) => return,
            Err(_) => {}
        }
    }
    region::trouble(trouble::NAMES_FULL);
}

/// A graph with kernels was made or changed: their code is loaded.
#[cold]
#[inline(never)]
pub fn objects() {
    if NEW.swap(0, Ordering::Relaxed) == 0 || !may(need::PEEK) {
        return;
    }
    let _keep = sys::Errno::keep();
    for seen in &SEEN {
        let handle = seen.load(Ordering::Relaxed);
        let on_tape = handle | ON_TAPE;
        if handle != 0
            && handle != on_tape
            && seen.compare_exchange(handle, on_tape, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        {
            write_object(handle);
        }
    }
}

fn write_object(handle: usize) {
    let mut function = handle;
    let [get, capture] = [&KERNELS_FUNCTION, &CAPTURE].map(|f| f.load(Ordering::Relaxed));
    if get != 0 && capture != 0 {
        let mut of = 0usize;
        // SAFETY: functions of these types. It checks the handle: that of a function is an error. A kernel of a graph is loaded already.
        let result = unsafe {
            let get: unsafe extern "C" fn(*mut usize, usize) -> i32 = core::mem::transmute(get);
            fix::relaxed(core::mem::transmute::<usize, unsafe extern "C" fn(*mut i32) -> i32>(capture), || {
                get(&raw mut of, handle)
            })
        };
        if result == 0 && of != 0 {
            function = of;
        }
    }
    let mut object = [0u8; OBJECT];
    let pid = control().map_or(0, |c| c.pid.load(Ordering::Relaxed));
    let n = sys::peek(pid, function, &mut object);
    let mut words = [0u8; OBJECT];
    let mut end = 0;
    for word in object.get(..n).unwrap_or(&[]).as_chunks::<8>().0 {
        // Code is aligned, in the part of the address space that CUDA uses.
        let at = u64::from_le_bytes(*word);
        if at.is_multiple_of(128)
            && at >> 32 != 0
            && at >> 49 == 0
            && let Some(to) = words.get_mut(end..end + 8)
        {
            to.copy_from_slice(word);
            end += 8;
        }
    }
    let words = words.get(..end).unwrap_or(&[]);
    let body = ObjectBody { handle: handle as u64, words: words.len() as u32 / 8, pad: 0 };
    record::event(kind::OBJECT, 0, sys::tsc(), &body, words, &[]);
}

/// A kernel of a graph's node: `at` is the CUDA_KERNEL_NODE_PARAMS of a call that has succeeded. (In its first form, without `kern`, `func` is set.)
///
/// # Safety
/// As CUDA has just read it.
pub unsafe fn node(at: usize) {
    /// `kern`, if `func` is null.
    const KERN: usize = 56;
    // SAFETY: the caller's.
    let handle = unsafe {
        match *(at as *const usize) {
            0 => *((at + KERN) as *const usize),
            function => function,
        }
    };
    launched(handle);
}

fn ask(handle: usize) {
    let _keep = sys::Errno::keep();
    let began = sys::tsc();
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
            let now = sys::tsc();
            let ticks = (now.saturating_sub(began) / NAME_TICKS).min(u64::from(u16::MAX)) as u16;
            return record::event(kind::NAME, ticks, now, &body, name, &[]);
        }
    }
}
