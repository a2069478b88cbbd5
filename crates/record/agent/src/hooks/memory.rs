//! The program locks its memory.

use crate::process::{locked, real, sys};
use crate::start;
use core::ffi::c_int;

/// # Safety
/// As mlockall.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mlockall(flags: c_int) -> c_int {
    // SAFETY: the caller's.
    let r = unsafe { real::mlockall(flags) };
    if r == 0 && start::has_begun() {
        let _keep = sys::Errno::keep();
        locked::all(flags);
    }
    r
}
