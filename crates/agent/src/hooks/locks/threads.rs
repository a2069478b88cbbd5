//! Names of threads that policies have a part in.

use crate::policy;
use crate::process::real;
use core::ffi::{c_int, c_void};

/// # Safety
/// As pthread_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut c_void,
    attributes: *const c_void,
    start: *const c_void,
    with: *mut c_void,
) -> c_int {
    policy::sched::before_create();
    // SAFETY: the caller's.
    unsafe { real::pthread_create(thread, attributes, start, with) }
}

/// The program gets all the keys that there are, ours among them when no other is left.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_key_create(key: *mut libc::pthread_key_t, destructor: *const c_void) -> c_int {
    // SAFETY: the caller's.
    let r = unsafe { real::pthread_key_create(key, destructor) };
    if r != libc::EAGAIN || !policy::boost::give_key_back() {
        return r;
    }
    // SAFETY: the caller's.
    unsafe { real::pthread_key_create(key, destructor) }
}
