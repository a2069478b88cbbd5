//! Mutexes.

use super::enter;
use super::held::{self, Call};
use super::real::{self, Clock, Mutex, Time};
use crate::thread::Thread;
use crate::{policy, sys};
use core::ffi::{c_int, c_void};
use tape::lock::{attr, op};

tap! {
    pthread_mutex_lock, "rsi" => lock;
    __pthread_mutex_lock, "rsi" => lock;
    pthread_mutex_trylock, "rsi" => trylock;
    __pthread_mutex_trylock, "rsi" => trylock;
    pthread_mutex_timedlock, "rdx" => timedlock;
    pthread_mutex_clocklock, "rcx" => clocklock;
    pthread_mutex_unlock, "rsi" => unlock;
    __pthread_mutex_unlock, "rsi" => unlock;
    pthread_mutex_init, "rdx" => init;
    __pthread_mutex_init, "rdx" => init;
    pthread_mutex_destroy, "rsi" => destroy;
    __pthread_mutex_destroy, "rsi" => destroy;
}

/// Low byte of `__kind`, `struct __pthread_mutex_s` +16 on x86-64, without the bits that [`attr`] uses for itself.
///
/// # Safety
/// `m` is a mutex.
#[inline(always)]
pub unsafe fn attributes(m: Mutex) -> u8 {
    // SAFETY: the caller's; another thread may store to it (elision), so the read is volatile.
    let kind = unsafe { m.cast::<u32>().add(4).read_volatile() };
    kind as u8 & !attr::DEPTH
}

#[inline(always)]
unsafe fn call(m: Mutex, site: usize, op: u8) -> Call {
    // SAFETY: the caller's: a mutex.
    Call::new(m as usize, site, op, unsafe { attributes(m) })
}

/// True if the call has the lock.
fn has(r: c_int) -> bool {
    r == 0 || r == libc::EOWNERDEAD
}

/// Tries, and waits with `f` if another thread has the lock. What a try refuses for another reason, and with which
/// result (a lock of the thread's own, a ceiling, an owner that died), locking does too.
#[inline(always)]
unsafe fn take(t: &'static Thread, m: Mutex, site: usize, op: u8, f: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's: a mutex. Its attributes afterwards: fewer words to keep over the call.
    let (r, c) = unsafe { (real::pthread_mutex_trylock(m), call(m, site, op)) };
    if r == 0 {
        held::took(t, &c, sys::tsc());
        return 0;
    }
    if r == libc::EBUSY { wait(t, c, f) } else { refused(t, c, r) }
}

/// Takes a lock that was not free.
#[inline(never)]
fn wait(t: &'static Thread, c: Call, f: impl FnOnce() -> c_int) -> c_int {
    let (r, now, wait) = held::waiting(t, &c, f);
    if has(r) {
        held::took_late(t, c, now, wait, r);
    } else {
        held::op(t, c, wait, 0, r);
    }
    r
}

#[inline(never)]
fn refused(t: &'static Thread, c: Call, r: c_int) -> c_int {
    if has(r) {
        held::took_late(t, c, sys::tsc(), 0, r);
    } else {
        held::op(t, c, 0, 0, r);
    }
    r
}

unsafe extern "C" fn lock(m: Mutex, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { policy::mutex::lock(m, site) };
    };
    // SAFETY: the caller's: a mutex.
    unsafe { take(t, m, site, op::MUTEX_LOCK, move || real::pthread_mutex_lock(m)) }
}

unsafe extern "C" fn trylock(m: Mutex, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { policy::mutex::trylock(m, site) };
    };
    // SAFETY: the caller's: a mutex.
    let (c, r) = unsafe { (call(m, site, op::MUTEX_TRYLOCK), real::pthread_mutex_trylock(m)) };
    if r == 0 {
        held::took(t, &c, sys::tsc());
        return 0;
    }
    refused(t, c, r)
}

unsafe extern "C" fn timedlock(m: Mutex, until: Time, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { policy::mutex::timedlock(m, until, site) };
    };
    // (glibc looks at the time only when it has to wait.)
    // SAFETY: the caller's: a mutex.
    unsafe { take(t, m, site, op::MUTEX_TIMEDLOCK, move || real::pthread_mutex_timedlock(m, until)) }
}

unsafe extern "C" fn clocklock(m: Mutex, clock: Clock, until: Time, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { policy::mutex::clocklock(m, clock, until, site) };
    };
    // SAFETY: the caller's: a mutex.
    let c = unsafe { call(m, site, op::MUTEX_CLOCKLOCK) };
    // SAFETY: as above.
    let f = move || unsafe { real::pthread_mutex_clocklock(m, clock, until) };
    // It looks at the clock first, and may know fewer of them for a mutex with priority inheritance.
    if clock == libc::CLOCK_REALTIME || (clock == libc::CLOCK_MONOTONIC && c.flags as u8 & attr::INHERIT == 0) {
        // SAFETY: as above.
        unsafe { take(t, m, site, op::MUTEX_CLOCKLOCK, f) }
    } else {
        wait(t, c, f)
    }
}

unsafe extern "C" fn unlock(m: Mutex, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { policy::mutex::unlock(m, site) };
    };
    let tsc = sys::tsc();
    // SAFETY: the caller's: a mutex. Behind the unlock another thread may destroy it.
    let r = unsafe { real::pthread_mutex_unlock(m) };
    let c = Call::new(m as usize, site, op::MUTEX_UNLOCK, 0);
    if r == 0 {
        held::released(t, &c, tsc);
    } else {
        held::op(t, c, 0, 0, r);
    }
    r
}

unsafe extern "C" fn init(m: Mutex, with: *const c_void, site: usize) -> c_int {
    // SAFETY: the caller's.
    let r = unsafe { policy::mutex::init(m, with, site) };
    if let Some(t) = enter(site) {
        // SAFETY: made just now, if that worked.
        let attr = if r == 0 { unsafe { attributes(m) } } else { 0 };
        held::op(t, Call::new(m as usize, site, op::MUTEX_INIT, attr), 0, 0, r);
    }
    r
}

unsafe extern "C" fn destroy(m: Mutex, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { real::pthread_mutex_destroy(m) };
    };
    // SAFETY: the caller's: a mutex until it is destroyed.
    let c = unsafe { call(m, site, op::MUTEX_DESTROY) };
    // SAFETY: as above.
    let r = unsafe { real::pthread_mutex_destroy(m) };
    held::op(t, c, 0, 0, r);
    r
}
