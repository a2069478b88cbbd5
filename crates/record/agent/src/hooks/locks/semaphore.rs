//! Semaphores. They have no holder: each operation is a separate event.

use super::rwlock::is_plain;
use crate::process::real::{self, Clock, Sem, Time};
use crate::process::sys::Errno;
use crate::process::thread::Thread;
use crate::trace::arrival::enter;
use crate::trace::holds::{self, Call};
use core::ffi::{c_int, c_uint};
use tape::lock::{attr, op};

tap! {
    sem_wait, "rsi" => wait;
    sem_trywait, "rsi" => trywait;
    sem_timedwait, "rdx" => timedwait;
    sem_clockwait, "rcx" => clockwait;
    sem_post, "rsi" => post;
    sem_init, "rcx" => init;
    sem_destroy, "rsi" => destroy;
}

unsafe extern "C" {
    fn pthread_testcancel();
}

/// `struct new_sem` of glibc, x86-64: `private` at +8, 0 if processes share it.
unsafe fn call(s: Sem, site: usize, op: u8) -> Call {
    // SAFETY: the caller's: a semaphore.
    let shared = unsafe { s.cast::<u32>().add(2).read_volatile() } != 0;
    Call::new(s as usize, site, op, if shared { attr::SHARED } else { 0 })
}

/// Records a result that has an errno, and keeps both.
fn record_result(t: &Thread, c: Call, wait: u64, r: c_int) -> c_int {
    let errno = Errno::keep();
    holds::op(t, c, wait, 0, if r == 0 { 0 } else { errno.kept() });
    r
}

/// Tries, and waits with `f` if the count is 0.
unsafe fn take(t: &Thread, s: Sem, c: Call, f: impl FnOnce() -> c_int) -> c_int {
    let e = Errno::get();
    // A wait is a cancellation point, whether it would wait or not.
    // SAFETY: no destructor is between here and the program.
    unsafe { pthread_testcancel() };
    // SAFETY: the caller's: a semaphore.
    if unsafe { real::sem_trywait(s) } == 0 {
        holds::op_without_wait(t, c, 0);
        return 0;
    }
    Errno::set(e);
    let (r, _, wait) = holds::waiting(t, &c, f);
    record_result(t, c, wait, r)
}

unsafe extern "C" fn wait(s: Sem, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { real::sem_wait(s) };
    };
    // SAFETY: the caller's: a semaphore.
    unsafe { take(t, s, call(s, site, op::SEM_WAIT), move || real::sem_wait(s)) }
}

unsafe extern "C" fn trywait(s: Sem, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { real::sem_trywait(s) };
    };
    // SAFETY: the caller's: a semaphore.
    let (c, r) = unsafe { (call(s, site, op::SEM_TRYWAIT), real::sem_trywait(s)) };
    let errno = Errno::keep();
    holds::op_without_wait(t, c, if r == 0 { 0 } else { errno.kept() });
    r
}

unsafe fn until_then(s: Sem, clock: Clock, until: Time, site: usize, op: u8, f: impl FnOnce() -> c_int) -> c_int {
    let Some(t) = enter(site) else { return f() };
    // SAFETY: the caller's: a semaphore and a timespec.
    unsafe {
        let c = call(s, site, op);
        if is_plain(clock, until) {
            return take(t, s, c, f);
        }
        let (r, _, wait) = holds::waiting(t, &c, f);
        record_result(t, c, wait, r)
    }
}

unsafe extern "C" fn timedwait(s: Sem, until: Time, site: usize) -> c_int {
    let f = move || {
        // SAFETY: the caller's.
        unsafe { real::sem_timedwait(s, until) }
    };
    // SAFETY: the caller's.
    unsafe { until_then(s, libc::CLOCK_REALTIME, until, site, op::SEM_TIMEDWAIT, f) }
}

unsafe extern "C" fn clockwait(s: Sem, clock: Clock, until: Time, site: usize) -> c_int {
    let f = move || {
        // SAFETY: the caller's.
        unsafe { real::sem_clockwait(s, clock, until) }
    };
    // SAFETY: the caller's.
    unsafe { until_then(s, clock, until, site, op::SEM_CLOCKWAIT, f) }
}

unsafe extern "C" fn post(s: Sem, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { real::sem_post(s) };
    };
    // After the post another thread may destroy it.
    // SAFETY: the caller's: a semaphore.
    let (c, wakes, r) = unsafe { (call(s, site, op::SEM_POST), holds::wakes(s as usize), real::sem_post(s)) };
    if wakes || r != 0 || holds::wakes(s as usize) { record_result(t, c, 0, r) } else { r }
}

unsafe extern "C" fn init(s: Sem, shared: c_int, value: c_uint, site: usize) -> c_int {
    // SAFETY: the caller's.
    let r = unsafe { real::sem_init(s, shared, value) };
    let errno = Errno::keep();
    if let Some(t) = enter(site) {
        let attr = if shared != 0 { attr::SHARED } else { 0 };
        holds::op(t, Call::new(s as usize, site, op::SEM_INIT, attr), 0, 0, if r == 0 { 0 } else { errno.kept() });
    }
    r
}

unsafe extern "C" fn destroy(s: Sem, site: usize) -> c_int {
    let Some(t) = enter(site) else {
        // SAFETY: the caller's.
        return unsafe { real::sem_destroy(s) };
    };
    // SAFETY: the caller's: a semaphore until it is destroyed.
    let (c, r) = unsafe { (call(s, site, op::SEM_DESTROY), real::sem_destroy(s)) };
    record_result(t, c, 0, r)
}
