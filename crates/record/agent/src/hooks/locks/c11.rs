//! The locks of C11's `threads.h`. glibc's are its pthread locks under other names, called inside libc where no tap sees
//! them. Here they use the pthread taps, and results are translated as libc does.

use super::{cond, mutex};
use crate::policy;
use crate::process::real::{self, Cond, Mutex, Time};
use core::ffi::{c_int, c_void};

tap! {
    mtx_init, "rdx" => init;
    mtx_lock, "rsi" => lock;
    mtx_trylock, "rsi" => trylock;
    mtx_timedlock, "rdx" => timedlock;
    mtx_unlock, "rsi" => unlock;
    mtx_destroy, "rsi" => destroy;
    cnd_init, "rsi" => cond_init;
    cnd_wait, "rdx" => cond_wait;
    cnd_timedwait, "rcx" => cond_timedwait;
    cnd_signal, "rsi" => cond_signal;
    cnd_broadcast, "rsi" => cond_broadcast;
    cnd_destroy, "rsi" => cond_destroy;
}

/// `thrd_success` and the other results (threads.h), as in glibc's `thrd_err_map`.
const fn thrd(r: c_int) -> c_int {
    match r {
        0 => 0,
        libc::EBUSY => 1,
        libc::ENOMEM => 3,
        libc::ETIMEDOUT => 4,
        _ => 2,
    }
}

unsafe extern "C" fn init(m: Mutex, kind: c_int, site: usize) -> c_int {
    // SAFETY: the caller's: memory for a mutex.
    let r = unsafe { real::mtx_init(m, kind) };
    // SAFETY: made just now, if that worked.
    unsafe {
        if r == 0 {
            policy::mutex::was_made(m, site);
        }
        // (libc refuses only kinds that it does not support.)
        mutex::was_made(m, site, if r == 0 { 0 } else { libc::EINVAL });
    }
    r
}

unsafe extern "C" fn lock(m: Mutex, site: usize) -> c_int {
    // SAFETY: the caller's: a mutex, as a `mtx_t` of glibc is; the same below.
    thrd(unsafe { mutex::lock(m, site) })
}

unsafe extern "C" fn trylock(m: Mutex, site: usize) -> c_int {
    // SAFETY: the caller's.
    thrd(unsafe { mutex::trylock(m, site) })
}

unsafe extern "C" fn timedlock(m: Mutex, until: Time, site: usize) -> c_int {
    // SAFETY: the caller's.
    thrd(unsafe { mutex::timedlock(m, until, site) })
}

unsafe extern "C" fn unlock(m: Mutex, site: usize) -> c_int {
    // SAFETY: the caller's.
    thrd(unsafe { mutex::unlock(m, site) })
}

unsafe extern "C" fn destroy(m: Mutex, site: usize) {
    // SAFETY: the caller's.
    unsafe { mutex::destroy(m, site) };
}

unsafe extern "C" fn cond_init(c: Cond, site: usize) -> c_int {
    // SAFETY: the caller's.
    thrd(unsafe { cond::init(c, core::ptr::null::<c_void>(), site) })
}

unsafe extern "C" fn cond_wait(c: Cond, m: Mutex, site: usize) -> c_int {
    // SAFETY: the caller's.
    thrd(unsafe { cond::wait(c, m, site) })
}

unsafe extern "C" fn cond_timedwait(c: Cond, m: Mutex, until: Time, site: usize) -> c_int {
    // SAFETY: the caller's.
    thrd(unsafe { cond::timedwait(c, m, until, site) })
}

unsafe extern "C" fn cond_signal(c: Cond, site: usize) -> c_int {
    // SAFETY: the caller's.
    thrd(unsafe { cond::signal(c, site) })
}

unsafe extern "C" fn cond_broadcast(c: Cond, site: usize) -> c_int {
    // SAFETY: the caller's.
    thrd(unsafe { cond::broadcast(c, site) })
}

unsafe extern "C" fn cond_destroy(c: Cond, site: usize) {
    // SAFETY: the caller's.
    unsafe { cond::destroy(c, site) };
}
