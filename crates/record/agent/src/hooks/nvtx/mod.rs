//! NVTX: ranges and marks that the program sets.
//!
//! NVTX is code in the program, with a copy in each library that uses it (and in the older libnvToolsExt). At its first
//! call a copy reads the path of an injection library with `getenv`. It opens that library and calls a function of it
//! with a table of NVTX's functions, which the library replaces. Here `getenv` returns the agent's own path for that one
//! name, so that the loader finds a library that is already loaded. The program's environment stays as it is.
//!
//! If the program, or a profiler, has set an injection library, that one is used, and the recording has a note that
//! ranges were not watched.
//!
//! Invariant: unless a recorder requested ranges, everything is as without the agent. The functions that replace NVTX's
//! never allocate, lock or make a system call, except for a thread's first event.

mod calls;

use crate::process::session::wanted;
use crate::process::{symbol, sys};
use crate::start;
use crate::trace::ranges;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use tape::nvtx::state;
use tape::region::contents;

const PATH: &CStr = c"NVTX_INJECTION64_PATH";

static GETENV: AtomicUsize = AtomicUsize::new(0);

/// As the C function of that name.
///
/// # Safety
/// As getenv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getenv(name: *const c_char) -> *mut c_char {
    let f = match GETENV.load(Ordering::Relaxed) {
        0 => symbol::resolved(&GETENV, c"getenv"),
        f => f,
    };
    // SAFETY: the function of that name, with the caller's argument; or one that returns null.
    let found = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*const c_char) -> *mut c_char>(f)(name) };
    // SAFETY: a C string, or the real function would have failed.
    if name.is_null() || unsafe { *name } != b'N' as c_char || unsafe { CStr::from_ptr(name) } != PATH {
        return found;
    }
    answer(found)
}

/// A copy of NVTX reads the path of its injection library.
#[cold]
fn answer(found: *mut c_char) -> *mut c_char {
    let _keep = sys::Errno::keep();
    // (Another library's constructor may run first.)
    start::begin();
    if !wanted(contents::NVTX) {
        return found;
    }
    let Some(own) = symbol::own_name().filter(|own| !own.is_empty()) else { return found };
    if found.is_null() {
        return own.as_ptr().cast_mut();
    }
    // SAFETY: the result of getenv.
    let theirs = unsafe { CStr::from_ptr(found) };
    if theirs != own {
        is_theirs(theirs.to_bytes());
    }
    found
}

/// Maximum bytes of a path in a note.
const KEPT: usize = 200;

#[cold]
fn is_theirs(path: &[u8]) {
    let parts =
        [&path[..path.len().min(KEPT)], b": opened with NVTX_INJECTION64_PATH: ranges of NVTX are not recorded"];
    let mut text = [0; KEPT + 80];
    let mut n = 0;
    for part in parts {
        if let Some(to) = text.get_mut(n..n + part.len()) {
            to.copy_from_slice(part);
            n += part.len();
        }
    }
    ranges::is_known(state::OWN, text.get(..n).unwrap_or_default());
}

/// NVTX's function that returns its tables.
type GetExportTable = unsafe extern "C" fn(u32) -> *const c_void;

/// Number of the table of callbacks, and that table.
const CALLBACKS: u32 = 1;

#[repr(C)]
struct Callbacks {
    bytes: usize,
    /// Gets a module's functions: an array of pointers to NVTX's variables for them, and its length.
    functions: Option<unsafe extern "C" fn(u32, *mut *const *mut usize, *mut u32) -> i32>,
}

/// The function that NVTX calls in its injection library, with the function that returns its tables. 1: NVTX uses the new
/// functions; 0: as without.
///
/// # Safety
/// As NVTX calls it.
#[unsafe(no_mangle)]
#[allow(non_snake_case)]
pub unsafe extern "C" fn InitializeInjectionNvtx2(table: Option<GetExportTable>) -> i32 {
    let _keep = sys::Errno::keep();
    let Some(table) = table.filter(|_| wanted(contents::NVTX)) else { return 0 };
    // SAFETY: NVTX's own function and table, which contains its length.
    let replaced = unsafe {
        let callbacks = table(CALLBACKS).cast::<Callbacks>().as_ref();
        let functions = callbacks.filter(|c| c.bytes >= size_of::<Callbacks>()).and_then(|c| c.functions);
        functions.is_some_and(|functions| {
            calls::MODULES.iter().fold(false, |any, (module, ours)| replace(functions, *module, ours) || any)
        })
    };
    ranges::is_known(if replaced { state::CONNECTED } else { state::REFUSED }, b"");
    i32::from(replaced)
}

/// Replaces a module's functions. False if none of them is known.
unsafe fn replace(
    functions: unsafe extern "C" fn(u32, *mut *const *mut usize, *mut u32) -> i32,
    module: u32,
    ours: &[(usize, calls::Replacement)],
) -> bool {
    let mut table: *const *mut usize = core::ptr::null();
    let mut n = 0;
    // SAFETY: NVTX's function, with room for its results.
    if unsafe { functions(module, &raw mut table, &raw mut n) } == 0 || table.is_null() {
        return false;
    }
    let mut any = false;
    for (i, function) in ours.iter().filter(|(i, _)| *i < n as usize) {
        // SAFETY: an array of this length. Each pointer is null, or points to a variable for a function of the type that
        // belongs to its index.
        unsafe {
            let at = *table.add(*i);
            if !at.is_null() {
                at.write(function.0 as usize);
                any = true;
            }
        }
    }
    any
}
