//! dlopen, dlmopen and dlclose. A library that is opened with its own scope (RTLD_DEEPBIND) or its own namespace bypasses
//! the agent's functions and calls libc's locks directly. The recording has a note of it, so that missing events are not
//! taken for missing calls.
//!
//! The real function sees its caller's return address: `$ORIGIN`, RUNPATH and the namespace are the caller's.

use crate::process::wiped::{goes_on, live};
use crate::process::{region, symbol, sys};
use crate::record;
use crate::trace::{code, python};
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use tape::region::trouble;

static DLOPEN: AtomicUsize = AtomicUsize::new(0);
static DLMOPEN: AtomicUsize = AtomicUsize::new(0);
static DLCLOSE: AtomicUsize = AtomicUsize::new(0);

macro_rules! opens {
    ($name:ident, $first:ident) => {
        /// As the C function of that name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "push rdi",
                "push rsi",
                "push rdx",
                ".cfi_adjust_cfa_offset 24",
                "call {first}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -24",
                "jmp rax",
                ".cfi_endproc",
                first = sym $first,
            )
        }
    };
}

opens!(dlopen, before_dlopen);
opens!(dlmopen, before_dlmopen);

/// As the C function of that name. Another library's code may be at the same addresses afterwards.
///
/// # Safety
/// As dlclose.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlclose(handle: *mut c_void) -> c_int {
    let f = real(&DLCLOSE, c"dlclose");
    // SAFETY: the function of that name, or one that returns 0.
    let f = unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(*mut c_void) -> c_int>(f) };
    code::about_to_close();
    python::about_to_close();
    // SAFETY: the caller's.
    let r = unsafe { f(handle) };
    code::close();
    python::closed();
    r
}

fn real(at: &AtomicUsize, name: &CStr) -> usize {
    match at.load(Ordering::Relaxed) {
        0 => symbol::resolved(at, name),
        f => f,
    }
}

extern "C" fn before_dlopen(path: *const c_char, flags: i32) -> usize {
    if flags & libc::RTLD_DEEPBIND != 0 {
        bypassed(path, b"RTLD_DEEPBIND");
    }
    real(&DLOPEN, c"dlopen")
}

extern "C" fn before_dlmopen(namespace: isize, path: *const c_char, flags: i32) -> usize {
    // (0 is the program's own namespace.)
    if namespace != 0 || flags & libc::RTLD_DEEPBIND != 0 {
        bypassed(path, b"dlmopen");
    }
    real(&DLMOPEN, c"dlmopen")
}

/// Maximum bytes of a path in a note.
const NAME: usize = 200;

#[cold]
fn bypassed(path: *const c_char, how: &[u8]) {
    if path.is_null() || !goes_on(live::LOCKS | live::CALLS) {
        return;
    }
    let _keep = sys::Errno::keep();
    // SAFETY: a C string, or the program's call would fail.
    let path = unsafe { CStr::from_ptr(path) }.to_bytes();
    let parts = [&path[..path.len().min(NAME)], b": opened with ", how, b": its locks and calls are not recorded"];
    let mut text = [0; NAME + 80];
    let mut n = 0;
    for part in parts {
        if let Some(to) = text.get_mut(n..n + part.len()) {
            to.copy_from_slice(part);
            n += part.len();
        }
    }
    record::note(text.get(..n).unwrap_or_default());
    region::trouble(trouble::BYPASSED);
}
