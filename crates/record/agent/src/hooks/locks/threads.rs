//! The functions of threads that concern policies and signals.

use crate::policy;
use crate::process::real;
use crate::record;
use crate::signals::inherit::make_thread;
use crate::trace::arrival;
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
    // A forked child is renewed while it has one thread.
    let _ = arrival::live();
    // SAFETY: the caller's.
    unsafe { make_thread(attributes, start, with, |start, with| real::pthread_create(thread, attributes, start, with)) }
}

/// # Safety
/// As thrd_create.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn thrd_create(thread: *mut c_void, start: *const c_void, with: *mut c_void) -> c_int {
    policy::sched::before_create();
    // SAFETY: the caller's.
    unsafe { make_thread(core::ptr::null(), start, with, |start, with| real::thrd_create(thread, start, with)) }
}

/// The program can get every key: if no other is left, also the agent's.
///
/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_key_create(key: *mut libc::pthread_key_t, destructor: *const c_void) -> c_int {
    // SAFETY: the caller's.
    let r = unsafe { real::pthread_key_create(key, destructor) };
    if r != libc::EAGAIN || !(policy::boost::give_key_back() || record::thread_end::give_key_back()) {
        return r;
    }
    // SAFETY: the caller's.
    unsafe { real::pthread_key_create(key, destructor) }
}
