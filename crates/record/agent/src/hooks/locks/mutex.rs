//! Mutexes.

use crate::policy;
use crate::process::real::{self, Clock, Mutex, Time};
use crate::process::sys;
use crate::process::thread::{self, Thread};
use crate::trace::arrival::{enter, in_pause, known_caller, live, waits_only};
use crate::trace::holds::{self, Call, not_released};
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

/// True if a thread holds it, maybe the caller: the low word of the struct is not 0.
///
/// # Safety
/// `m` is a mutex.
#[inline(always)]
unsafe fn is_held(m: Mutex) -> bool {
    // SAFETY: the caller's; as in [`attributes`].
    unsafe { m.cast::<u32>().read_volatile() != 0 }
}

/// Locks it with `f`, without recording. In a pause a wait is stored for the recorder. (A lock that another thread takes
/// after the look at it is not: a free one must cost no store.)
#[inline(always)]
unsafe fn unrecorded(m: Mutex, site: usize, op: u8, f: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's: a mutex.
    if in_pause() && unsafe { is_held(m) } {
        // SAFETY: as above.
        return holds::waiting_in_pause(unsafe { call(m, site, op) }, has, f);
    }
    f()
}

/// True if the call got the lock.
fn has(r: c_int) -> bool {
    r == 0 || r == libc::EOWNERDEAD
}

/// Tries, and waits with `f` if another thread has the lock. If the try has any other result (the thread's own lock, a
/// ceiling, an owner that died), locking has the same one.
#[inline(always)]
unsafe fn take(t: &'static Thread, m: Mutex, site: usize, op: u8, f: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's: a mutex. Attributes are read afterwards: fewer words to keep over the call.
    let (r, c) = unsafe { (real::pthread_mutex_trylock(m), call(m, site, op)) };
    if r == 0 {
        return holds::took_now(t, &c);
    }
    if r == libc::EBUSY { wait(t, c, f) } else { refused(t, c, r) }
}

/// Takes a lock that was not free.
#[inline(never)]
fn wait(t: &'static Thread, c: Call, f: impl FnOnce() -> c_int) -> c_int {
    let (r, now, wait) = holds::waiting(t, &c, f);
    if has(r) {
        holds::took_late(t, c, now, wait, r);
    } else {
        holds::op(t, c, wait, 0, r);
    }
    r
}

#[inline(never)]
fn refused(t: &'static Thread, c: Call, r: c_int) -> c_int {
    if has(r) {
        holds::took_late(t, c, sys::rdtsc(), 0, r);
    } else {
        holds::op_without_wait(t, c, r);
    }
    r
}

// The most frequent calls have separate paths, each of which ends in a jump. Code with calls in its middle must save
// registers for its whole length, and a dozen stores are a third of a tap's cost.
pub unsafe extern "C" fn lock(m: Mutex, site: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        if live() {
            recorded_lock(m, site)
        } else if in_pause() && is_held(m) {
            lock_in_pause(m, site)
        } else {
            policy::mutex::lock(m, site)
        }
    }
}

#[cold]
#[inline(never)]
unsafe extern "C" fn lock_in_pause(m: Mutex, site: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { unrecorded(m, site, op::MUTEX_LOCK, move || policy::mutex::lock(m, site)) }
}

#[inline(never)]
unsafe extern "C" fn recorded_lock(m: Mutex, site: usize) -> c_int {
    if known_caller(site).is_none() {
        // SAFETY: the caller's.
        return unsafe { lock_otherwise(m, site) };
    }
    // SAFETY: the caller's: a mutex.
    let r = unsafe { real::known::pthread_mutex_trylock(m) };
    if r != 0 {
        // SAFETY: as above.
        return unsafe { not_free(m, site, r) };
    }
    if waits_only() {
        // SAFETY: as above.
        return holds::took_open(thread::here(), &unsafe { call(m, site, op::MUTEX_LOCK) });
    }
    // ORDERING: rdtsc follows the locked instruction that took the mutex, and precedes the one that will release it. Both
    // are full barriers for memory, but rdtsc is not: a core may execute it while the first still waits for its cache
    // line. So a hold may begin too early on the tape, by the time that a line takes: 15 ns at most in 6 million
    // contended pairs on an EPYC, some 100 ns between sockets. rdtscp or lfence prevent that, for 36 and 54 ns per pair.
    // A preemption cannot fall in between, as it could with a reading outside of the section.
    let tsc = sys::rdtsc();
    // SAFETY: as above.
    holds::took(thread::here(), &unsafe { call(m, site, op::MUTEX_LOCK) }, tsc)
}

/// A mutex that was not free at the first try.
#[cold]
#[inline(never)]
unsafe fn not_free(m: Mutex, site: usize, r: c_int) -> c_int {
    let t = thread::here();
    // SAFETY: the caller's: a mutex.
    let c = unsafe { call(m, site, op::MUTEX_LOCK) };
    if r == libc::EBUSY {
        // SAFETY: as above.
        wait(t, c, move || unsafe { real::pthread_mutex_lock(m) })
    } else {
        refused(t, c, r)
    }
}

/// A lock by a thread that is new here, or new in this code.
#[cold]
#[inline(never)]
unsafe extern "C" fn lock_otherwise(m: Mutex, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { policy::mutex::lock(m, site) };
    };
    // SAFETY: the caller's: a mutex.
    unsafe { take(t, m, site, op::MUTEX_LOCK, move || real::pthread_mutex_lock(m)) }
}

pub unsafe extern "C" fn trylock(m: Mutex, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { policy::mutex::trylock(m, site) };
    };
    // SAFETY: the caller's: a mutex.
    let (c, r) = unsafe { (call(m, site, op::MUTEX_TRYLOCK), real::pthread_mutex_trylock(m)) };
    if r == 0 {
        return holds::took_now(t, &c);
    }
    refused(t, c, r)
}

pub unsafe extern "C" fn timedlock(m: Mutex, until: Time, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { unrecorded(m, site, op::MUTEX_TIMEDLOCK, move || policy::mutex::timedlock(m, until, site)) };
    };
    // (glibc checks the time only when it must wait.)
    // SAFETY: the caller's: a mutex.
    unsafe { take(t, m, site, op::MUTEX_TIMEDLOCK, move || real::pthread_mutex_timedlock(m, until)) }
}

unsafe extern "C" fn clocklock(m: Mutex, clock: Clock, until: Time, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe {
            unrecorded(m, site, op::MUTEX_CLOCKLOCK, move || policy::mutex::clocklock(m, clock, until, site))
        };
    };
    // SAFETY: the caller's: a mutex.
    let c = unsafe { call(m, site, op::MUTEX_CLOCKLOCK) };
    // SAFETY: as above.
    let f = move || unsafe { real::pthread_mutex_clocklock(m, clock, until) };
    // It checks the clock first, and may support fewer clocks for a mutex with priority inheritance.
    if clock == libc::CLOCK_REALTIME || (clock == libc::CLOCK_MONOTONIC && c.flags as u8 & attr::INHERIT == 0) {
        // SAFETY: as above.
        unsafe { take(t, m, site, op::MUTEX_CLOCKLOCK, f) }
    } else {
        wait(t, c, f)
    }
}

pub unsafe extern "C" fn unlock(m: Mutex, site: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { if live() { recorded_unlock(m, site) } else { policy::mutex::unlock(m, site) } }
}

#[inline(never)]
unsafe extern "C" fn recorded_unlock(m: Mutex, site: usize) -> c_int {
    if known_caller(site).is_none() {
        // SAFETY: the caller's.
        return unsafe { unlock_otherwise(m, site) };
    }
    // ORDERING: as in `recorded_lock`; the locked instruction that releases waits for the reading before it.
    let tsc = holds::releases(thread::here(), m as usize);
    // SAFETY: the caller's: a mutex. After the unlock another thread may destroy it.
    let r = unsafe { real::known::pthread_mutex_unlock(m) };
    let c = Call::new(m as usize, site, op::MUTEX_UNLOCK, 0);
    if r != 0 {
        return not_released(c.addr, site, c.flags, r);
    }
    holds::has_released(thread::here(), &c, tsc)
}

/// An unlock by a thread that is new here, or new in this code.
#[cold]
#[inline(never)]
unsafe extern "C" fn unlock_otherwise(m: Mutex, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { policy::mutex::unlock(m, site) };
    };
    let tsc = holds::releases(t, m as usize);
    // SAFETY: the caller's: a mutex.
    let r = unsafe { real::pthread_mutex_unlock(m) };
    let c = Call::new(m as usize, site, op::MUTEX_UNLOCK, 0);
    if r == 0 {
        holds::has_released(t, &c, tsc);
    } else {
        holds::op(t, c, 0, 0, r);
    }
    r
}

unsafe extern "C" fn init(m: Mutex, with: *const c_void, site: usize) -> c_int {
    // SAFETY: the caller's.
    let r = unsafe { policy::mutex::init(m, with, site) };
    // SAFETY: made just now, if that worked.
    unsafe { was_made(m, site, r) };
    r
}

/// Records an initialisation and its result.
///
/// # Safety
/// `m` is a mutex if `r` is 0.
pub unsafe fn was_made(m: Mutex, site: usize, r: c_int) {
    if let Some(t) = enter(site) {
        // SAFETY: the caller's.
        let attr = if r == 0 { unsafe { attributes(m) } } else { 0 };
        holds::op(t, Call::new(m as usize, site, op::MUTEX_INIT, attr), 0, 0, r);
    }
}

pub unsafe extern "C" fn destroy(m: Mutex, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { real::pthread_mutex_destroy(m) };
    };
    // SAFETY: the caller's: a mutex until it is destroyed.
    let c = unsafe { call(m, site, op::MUTEX_DESTROY) };
    // SAFETY: as above.
    let r = unsafe { real::pthread_mutex_destroy(m) };
    holds::op(t, c, 0, 0, r);
    r
}
