//! Readers-writer locks.

use crate::policy;
use crate::process::real::{self, Clock, Rwlock, Time};
use crate::process::sys;
use crate::process::thread::{self, Thread};
use crate::trace::arrival::{enter, in_pause, known_caller, live, waits_only};
use crate::trace::holds::{self, Call, not_released};
use core::ffi::{c_int, c_void};
use tape::lock::{attr, op, readers};

tap! {
    pthread_rwlock_rdlock, "rsi" => rdlock;
    __pthread_rwlock_rdlock, "rsi" => rdlock;
    pthread_rwlock_tryrdlock, "rsi" => tryrdlock;
    __pthread_rwlock_tryrdlock, "rsi" => tryrdlock;
    pthread_rwlock_timedrdlock, "rdx" => timedrdlock;
    pthread_rwlock_clockrdlock, "rcx" => clockrdlock;
    pthread_rwlock_wrlock, "rsi" => wrlock;
    __pthread_rwlock_wrlock, "rsi" => wrlock;
    pthread_rwlock_trywrlock, "rsi" => trywrlock;
    __pthread_rwlock_trywrlock, "rsi" => trywrlock;
    pthread_rwlock_timedwrlock, "rdx" => timedwrlock;
    pthread_rwlock_clockwrlock, "rcx" => clockwrlock;
    pthread_rwlock_unlock, "rsi" => unlock;
    __pthread_rwlock_unlock, "rsi" => unlock;
    pthread_rwlock_init, "rdx" => init;
    __pthread_rwlock_init, "rdx" => init;
    pthread_rwlock_destroy, "rsi" => destroy;
    __pthread_rwlock_destroy, "rsi" => destroy;
}

/// From `__flags` (+48) and `__shared` (+28) of `struct __pthread_rwlock_arch_t`, x86-64.
///
/// # Safety
/// `l` is a rwlock.
#[inline(always)]
unsafe fn attributes(l: Rwlock) -> u8 {
    // SAFETY: the caller's; both are only written when it is made.
    let (flags, shared) = unsafe { (l.cast::<u32>().add(12).read(), l.cast::<u32>().add(7).read()) };
    (flags as u8 & attr::KIND) | if shared != 0 { attr::SHARED } else { 0 }
}

#[inline(always)]
unsafe fn call(l: Rwlock, site: usize, op: u8) -> Call {
    // SAFETY: the caller's: a rwlock.
    Call::new(l as usize, site, op, unsafe { attributes(l) })
}

/// True if a call of this kind may have to wait. Without writers, a reader does not.
///
/// # Safety
/// `l` is a rwlock.
#[inline(always)]
unsafe fn may_wait(l: Rwlock, reads: bool) -> bool {
    // SAFETY: the caller's; other threads store to it, so the read is volatile.
    let word = unsafe { l.cast::<u32>().read_volatile() };
    word & readers::HAS_WRITER != 0 || (!reads && word >> readers::SHIFT != 0)
}

/// As for mutexes.
#[inline(always)]
unsafe fn unrecorded(l: Rwlock, site: usize, op: u8, f: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's: a rwlock.
    if in_pause() && unsafe { may_wait(l, op <= op::RWLOCK_CLOCKRDLOCK) } {
        // SAFETY: as above.
        return holds::waiting_in_pause(unsafe { call(l, site, op) }, |r| r == 0, f);
    }
    f()
}

type Try = unsafe fn(Rwlock) -> c_int;

/// Tries, and waits with `f` if the lock is not free. If the try has any other result, the waiting call has the same one.
#[inline(always)]
unsafe fn take(t: &'static Thread, l: Rwlock, c: Call, first: Try, f: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's: a rwlock.
    let r = unsafe { first(l) };
    if r == 0 {
        return holds::took_now(t, &c);
    }
    if r == libc::EBUSY {
        return wait(t, c, f);
    }
    holds::op(t, c, 0, 0, r);
    r
}

#[inline(never)]
fn wait(t: &'static Thread, c: Call, f: impl FnOnce() -> c_int) -> c_int {
    let (r, now, wait) = holds::waiting(t, &c, f);
    if r == 0 {
        holds::took_late(t, c, now, wait, r);
    } else {
        holds::op(t, c, wait, 0, r);
    }
    r
}

/// True if glibc, which first checks clock and time, would continue with the lock.
///
/// # Safety
/// `until` is a timespec.
pub unsafe fn is_plain(clock: Clock, until: Time) -> bool {
    // SAFETY: the caller's; the function that gets it reads it in any case.
    let ns = || unsafe { (*until).tv_nsec };
    matches!(clock, libc::CLOCK_REALTIME | libc::CLOCK_MONOTONIC) && (0..1_000_000_000).contains(&ns())
}

// As in [`super::mutex`]: the short path ends in jumps.
macro_rules! plain {
    ($($name:ident $recorded:ident $in_pause:ident $otherwise:ident: $op:ident, $try:ident, $real:ident;)*) => {$(
        unsafe extern "C" fn $name(l: Rwlock, site: usize) -> c_int {
            // SAFETY: the caller's.
            unsafe {
                if live() {
                    $recorded(l, site)
                } else if in_pause() && may_wait(l, op::$op == op::RWLOCK_RDLOCK) {
                    $in_pause(l, site)
                } else {
                    policy::rwlock::$name(l, site)
                }
            }
        }

        #[cold]
        #[inline(never)]
        unsafe extern "C" fn $in_pause(l: Rwlock, site: usize) -> c_int {
            // SAFETY: the caller's.
            unsafe { unrecorded(l, site, op::$op, move || policy::rwlock::$name(l, site)) }
        }

        #[inline(never)]
        unsafe extern "C" fn $recorded(l: Rwlock, site: usize) -> c_int {
            if known_caller(site).is_some() {
                // SAFETY: the caller's: a rwlock.
                let r = unsafe { real::known::$try(l) };
                if r == 0 {
                    if waits_only() {
                        // SAFETY: as above.
                        return holds::took_open(thread::here(), &unsafe { call(l, site, op::$op) });
                    }
                    // ORDERING: as for mutexes.
                    let tsc = sys::rdtsc();
                    // SAFETY: as above.
                    return holds::took(thread::here(), &unsafe { call(l, site, op::$op) }, tsc);
                }
            }
            // (Tried again: it may be free by now.)
            // SAFETY: the caller's.
            unsafe { $otherwise(l, site) }
        }

        /// For a lock that is not free, or is taken by a thread that is new here or new in this code.
        #[cold]
        #[inline(never)]
        unsafe extern "C" fn $otherwise(l: Rwlock, site: usize) -> c_int {
            let Some(t) = enter(site) else {
                // SAFETY: the caller's.
                return unsafe { policy::rwlock::$name(l, site) };
            };
            // SAFETY: the caller's: a rwlock.
            unsafe { take(t, l, call(l, site, op::$op), real::$try, move || real::$real(l)) }
        }
    )*};
}

plain! {
    rdlock recorded_rdlock rdlock_in_pause rdlock_otherwise: RWLOCK_RDLOCK, pthread_rwlock_tryrdlock, pthread_rwlock_rdlock;
    wrlock recorded_wrlock wrlock_in_pause wrlock_otherwise: RWLOCK_WRLOCK, pthread_rwlock_trywrlock, pthread_rwlock_wrlock;
}

macro_rules! tries {
    ($($name:ident: $op:ident, $real:ident;)*) => {$(
        unsafe extern "C" fn $name(l: Rwlock, site: usize) -> c_int {
            // SAFETY: the caller's.
            let Some(t) = enter(site) else { return unsafe { policy::rwlock::$name(l, site) } };
            // SAFETY: the caller's: a rwlock.
            let (c, r) = unsafe { (call(l, site, op::$op), real::$real(l)) };
            if r == 0 {
                holds::took_now(t, &c);
            } else {
                holds::op_without_wait(t, c, r);
            }
            r
        }
    )*};
}

tries! {
    tryrdlock: RWLOCK_TRYRDLOCK, pthread_rwlock_tryrdlock;
    trywrlock: RWLOCK_TRYWRLOCK, pthread_rwlock_trywrlock;
}

macro_rules! timed {
    ($($name:ident($($clock:ident)?): $op:ident, $try:ident, $real:ident;)*) => {$(
        unsafe extern "C" fn $name(l: Rwlock, $($clock: Clock,)? until: Time, site: usize) -> c_int {
            // SAFETY: the caller's.
            let f = move || unsafe { real::$real(l, $($clock,)? until) };
            let Some(t) = enter(site) else {
                // SAFETY: the caller's.
                return unsafe {
                    unrecorded(l, site, op::$op, move || policy::rwlock::$name(l, $($clock,)? until, site))
                };
            };
            let clock = libc::CLOCK_REALTIME;
            $( let clock = { let _ = clock; $clock }; )?
            // SAFETY: the caller's: a rwlock and a timespec.
            unsafe {
                let c = call(l, site, op::$op);
                if is_plain(clock, until) { take(t, l, c, real::$try, f) } else { wait(t, c, f) }
            }
        }
    )*};
}

timed! {
    timedrdlock(): RWLOCK_TIMEDRDLOCK, pthread_rwlock_tryrdlock, pthread_rwlock_timedrdlock;
    clockrdlock(k): RWLOCK_CLOCKRDLOCK, pthread_rwlock_tryrdlock, pthread_rwlock_clockrdlock;
    timedwrlock(): RWLOCK_TIMEDWRLOCK, pthread_rwlock_trywrlock, pthread_rwlock_timedwrlock;
    clockwrlock(k): RWLOCK_CLOCKWRLOCK, pthread_rwlock_trywrlock, pthread_rwlock_clockwrlock;
}

unsafe extern "C" fn unlock(l: Rwlock, site: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { if live() { recorded_unlock(l, site) } else { policy::rwlock::unlock(l, site) } }
}

#[inline(never)]
unsafe extern "C" fn recorded_unlock(l: Rwlock, site: usize) -> c_int {
    if known_caller(site).is_none() {
        // SAFETY: the caller's.
        return unsafe { unlock_otherwise(l, site) };
    }
    let tsc = holds::releases(thread::here(), l as usize);
    // SAFETY: the caller's: a rwlock. After the unlock another thread may destroy it.
    let r = unsafe { real::known::pthread_rwlock_unlock(l) };
    let c = Call::new(l as usize, site, op::RWLOCK_UNLOCK, 0);
    if r != 0 {
        return not_released(c.addr, site, c.flags, r);
    }
    holds::has_released(thread::here(), &c, tsc)
}

/// An unlock by a thread that is new here, or new in this code.
#[cold]
#[inline(never)]
unsafe extern "C" fn unlock_otherwise(l: Rwlock, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { policy::rwlock::unlock(l, site) };
    };
    let tsc = holds::releases(t, l as usize);
    // SAFETY: the caller's: a rwlock.
    let r = unsafe { real::pthread_rwlock_unlock(l) };
    let c = Call::new(l as usize, site, op::RWLOCK_UNLOCK, 0);
    if r == 0 {
        holds::has_released(t, &c, tsc);
    } else {
        holds::op(t, c, 0, 0, r);
    }
    r
}

unsafe extern "C" fn init(l: Rwlock, with: *const c_void, site: usize) -> c_int {
    // SAFETY: the caller's.
    let r = unsafe { policy::rwlock::init(l, with, site) };
    if let Some(t) = enter(site) {
        // SAFETY: made just now, if that worked.
        let attr = if r == 0 { unsafe { attributes(l) } } else { 0 };
        holds::op(t, Call::new(l as usize, site, op::RWLOCK_INIT, attr), 0, 0, r);
    }
    r
}

unsafe extern "C" fn destroy(l: Rwlock, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { real::pthread_rwlock_destroy(l) };
    };
    // SAFETY: the caller's: a rwlock until it is destroyed.
    let (c, r) = unsafe { (call(l, site, op::RWLOCK_DESTROY), real::pthread_rwlock_destroy(l)) };
    holds::op(t, c, 0, 0, r);
    r
}
