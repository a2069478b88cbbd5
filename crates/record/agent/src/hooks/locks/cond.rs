//! Conditions. A wait releases its mutex and takes it again inside libc, where no tap sees it. The hold ends when the
//! call begins, and another begins when it returns. The time of the wake-up and the time of getting the mutex cannot be
//! told apart.
//!
//! All functions of a condition are here: glibc has two kinds of them, and a program from before 2003 that requests the
//! old ones must get all of them from one kind.

use super::mutex::attributes;
use crate::policy;
use crate::process::real::{self, Clock, Cond, Mutex, Time};
use crate::trace::arrival::enter;
use crate::trace::holds::{self, Call};
use core::ffi::{c_int, c_void};
use tape::lock::op;

tap! {
    pthread_cond_wait, "rdx" => wait;
    pthread_cond_timedwait, "rcx" => timedwait;
    pthread_cond_clockwait, "r8" => clockwait;
    pthread_cond_signal, "rsi" => signal;
    pthread_cond_broadcast, "rsi" => broadcast;
    pthread_cond_init, "rdx" => init;
    pthread_cond_destroy, "rsi" => destroy;
}

/// # Safety
/// A condition and a mutex; `f` waits for them.
#[inline(always)]
unsafe fn any_wait(c: Cond, m: Mutex, site: usize, op: u8, f: impl FnOnce() -> c_int) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { policy::cond::wait(m, site, f) };
    };
    // SAFETY: the caller's: a mutex.
    let mutex = Call::new(m as usize, site, op, unsafe { attributes(m) });
    let cond = Call::new(c as usize, site, op, 0);
    holds::suspended(t, &mutex);
    let (r, now, wait) = holds::waiting(t, &cond, f);
    holds::resumed(t, &mutex, now, r);
    holds::op(t, cond, wait, m as u64, r);
    r
}

pub unsafe extern "C" fn wait(c: Cond, m: Mutex, site: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { any_wait(c, m, site, op::COND_WAIT, move || real::pthread_cond_wait(c, m)) }
}

pub unsafe extern "C" fn timedwait(c: Cond, m: Mutex, until: Time, site: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { any_wait(c, m, site, op::COND_TIMEDWAIT, move || real::pthread_cond_timedwait(c, m, until)) }
}

unsafe extern "C" fn clockwait(c: Cond, m: Mutex, clock: Clock, until: Time, site: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { any_wait(c, m, site, op::COND_CLOCKWAIT, move || real::pthread_cond_clockwait(c, m, clock, until)) }
}

#[inline(always)]
fn record_result(c: Cond, site: usize, op: u8, r: c_int) -> c_int {
    if let Some(t) = enter(site) {
        holds::op(t, Call::new(c as usize, site, op, 0), 0, 0, r);
    }
    r
}

/// `f` wakes the waiting threads. (Checked before and after: a woken thread may already have counted the end of its
/// wait.)
#[inline(always)]
fn wake(c: Cond, site: usize, op: u8, f: impl FnOnce() -> c_int) -> c_int {
    let wakes = holds::wakes(c as usize);
    let r = f();
    if wakes || r != 0 || holds::wakes(c as usize) { record_result(c, site, op, r) } else { r }
}

pub unsafe extern "C" fn signal(c: Cond, site: usize) -> c_int {
    // SAFETY: the caller's.
    wake(c, site, op::COND_SIGNAL, move || unsafe { real::pthread_cond_signal(c) })
}

pub unsafe extern "C" fn broadcast(c: Cond, site: usize) -> c_int {
    // SAFETY: the caller's.
    wake(c, site, op::COND_BROADCAST, move || unsafe { real::pthread_cond_broadcast(c) })
}

pub unsafe extern "C" fn init(c: Cond, with: *const c_void, site: usize) -> c_int {
    // SAFETY: the caller's.
    record_result(c, site, op::COND_INIT, unsafe { real::pthread_cond_init(c, with) })
}

pub unsafe extern "C" fn destroy(c: Cond, site: usize) -> c_int {
    // SAFETY: the caller's.
    record_result(c, site, op::COND_DESTROY, unsafe { real::pthread_cond_destroy(c) })
}
