//! The names of signals.

use crate::process::real;
use crate::signals;
use core::ffi::c_int;

/// # Safety
/// As sigaction.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(s: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the caller's.
    unsafe { signals::sigaction(s, new, old) }
}

/// # Safety
/// As signal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(s: c_int, handler: usize) -> usize {
    // SAFETY: the caller's.
    unsafe { signals::signal(s, handler) }
}

/// # Safety
/// As pthread_sigmask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_sigmask(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int {
    // SAFETY: the caller's.
    unsafe { signals::mask(real::pthread_sigmask, how, set, old) }
}

/// # Safety
/// As sigprocmask.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigprocmask(how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int {
    // SAFETY: the caller's.
    unsafe { signals::mask(real::sigprocmask, how, set, old) }
}
