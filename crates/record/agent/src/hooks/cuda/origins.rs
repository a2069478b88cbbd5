//! What the driver's handles were made of: code with its hash, and for a kernel its library or module. A plan finds kernels again by that.

use crate::fix::{image, kernels};
use crate::process::sys;
use crate::record;
use crate::trace::call::live;
use tape::call::{OriginBody, kind, number};

/// This function has loaded code: its arguments, and where it has put its handle.
///
/// # Safety
/// The arguments of a call that has succeeded.
#[inline(always)]
pub unsafe fn loaded(function: u16, handle_at: usize, code: usize) {
    let is_recorded = live();
    if is_recorded || kernels::are_wanted() {
        // SAFETY: the caller's.
        unsafe { look(function, handle_at, code, is_recorded) };
    }
}

#[cold]
#[inline(never)]
unsafe fn look(function: u16, handle_at: usize, code: usize, is_recorded: bool) {
    let _keep = sys::Errno::keep();
    let Some(hash) = image::hash(code) else { return };
    // SAFETY: the caller's.
    let handle = unsafe { *(handle_at as *const usize) };
    if is_recorded {
        write(handle, code, hash);
    }
    kernels::after_load(handle, hash, function == number("cuLibraryLoadData"));
}

/// A call has given a handle of another one: a library's or module's kernel, a kernel's function, a library's module.
///
/// # Safety
/// The arguments of a call that has succeeded.
#[inline(always)]
pub unsafe fn given(handle_at: usize, from: usize) {
    // SAFETY: the caller's.
    write(unsafe { *(handle_at as *const usize) }, from, 0);
}

fn write(handle: usize, from: usize, hash: u64) {
    let body = OriginBody { handle: handle as u64, from: from as u64, hash };
    record::event(kind::ORIGIN, 0, sys::tsc(), &body, &[], &[]);
}
