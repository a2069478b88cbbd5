//! Policy and priority of threads: at a thread's first event, and when a call changes them.

use crate::policy;
use crate::process::real;
use crate::process::scheduling::ask;
use crate::process::sys::{Errno, syscall6};
use crate::process::thread::{self, Thread};
use crate::trace::arrival::enter;
use crate::trace::holds;
use core::ffi::{c_int, c_uint, c_void};
use tape::lock::{SchedBody, kind, sched_why};

tap! {
    pthread_setschedparam, "rcx" => pthread_param;
    pthread_setschedprio, "rdx" => pthread_priority;
    sched_setscheduler, "rcx" => scheduler;
    __sched_setscheduler, "rcx" => scheduler;
    sched_setparam, "rdx" => param;
    sched_setattr, "rcx" => set_attributes;
    sched_setaffinity, "rcx" => affinity;
    pthread_setaffinity_np, "rcx" => pthread_affinity;
}

/// A call has changed the thread with this id; 0 is the calling one.
#[cold]
fn changed(t: &Thread, tid: i32, why: u32) {
    let tid = if tid == 0 { t.id() } else { tid };
    let pthread = if tid == t.id() { me() } else { 0 };
    let mut body = SchedBody { pthread, tid, why, ..SchedBody::default() };
    ask(tid, &mut body);
    holds::put(t, kind::SCHED, 0, body);
}

/// As [`changed`], for a thread of which only the pthread_t is known: records the requested values.
#[cold]
fn changed_other(t: &Thread, pthread: u64, policy: c_int, priority: c_int, why: u32) {
    holds::put(t, kind::SCHED, 0, SchedBody { pthread, policy, priority, why, ..SchedBody::default() });
}

/// The calling thread's pthread_t.
fn me() -> u64 {
    thread::pointer() as u64
}

/// The kernel's number of a thread: 0 is the calling one, -1 unknown.
fn number(p: libc::pthread_t) -> i32 {
    if p == me() { 0 } else { thread::number_of(p).unwrap_or(-1) }
}

unsafe extern "C" fn pthread_param(
    p: libc::pthread_t,
    policy: c_int,
    with: *const libc::sched_param,
    site: usize,
) -> c_int {
    // SAFETY: the caller's.
    let r = unsafe { real::pthread_setschedparam(p, policy, with) };
    if r == 0 {
        policy::sched::was_set(number(p));
    }
    if r == 0
        && let Some(t) = enter(site)
    {
        if p == me() {
            changed(t, 0, sched_why::PTHREAD);
        } else {
            // SAFETY: the call has read it.
            changed_other(t, p, policy, unsafe { (*with).sched_priority }, sched_why::PTHREAD);
        }
    }
    r
}

unsafe extern "C" fn pthread_priority(p: libc::pthread_t, priority: c_int, site: usize) -> c_int {
    // SAFETY: the caller's.
    let r = unsafe { real::pthread_setschedprio(p, priority) };
    if r == 0 {
        policy::sched::was_set(number(p));
    }
    if r == 0
        && let Some(t) = enter(site)
    {
        if p == me() {
            changed(t, 0, sched_why::PTHREAD);
        } else {
            // The policy does not change.
            changed_other(t, p, -1, priority, sched_why::PTHREAD);
        }
    }
    r
}

/// After a call that changed the thread with this id.
fn after(r: c_int, tid: c_int, why: u32, site: usize) -> c_int {
    if r == 0 && why == sched_why::SCHED {
        policy::sched::was_set(tid);
    }
    if r == 0
        && let Some(t) = enter(site)
    {
        let _keep = Errno::keep();
        changed(t, tid, why);
    }
    r
}

unsafe extern "C" fn scheduler(tid: c_int, policy: c_int, with: *const libc::sched_param, site: usize) -> c_int {
    // SAFETY: the caller's.
    after(unsafe { real::sched_setscheduler(tid, policy, with) }, tid, sched_why::SCHED, site)
}

unsafe extern "C" fn param(tid: c_int, with: *const libc::sched_param, site: usize) -> c_int {
    // SAFETY: the caller's.
    after(unsafe { real::sched_setparam(tid, with) }, tid, sched_why::SCHED, site)
}

/// glibc has this function since 2.41. With an older libc a program finds the agent's, so it works there, too.
unsafe extern "C" fn set_attributes(tid: c_int, with: *const c_void, flags: c_uint, site: usize) -> c_int {
    // SAFETY: the caller's.
    let mut r = unsafe { real::sched_setattr(tid, with, flags) };
    if r == libc::ENOSYS {
        // SAFETY: the system call that the function stands for.
        r = match unsafe { syscall6(libc::SYS_sched_setattr, tid as usize, with as usize, flags as usize, 0, 0, 0) } {
            0 => 0,
            e => {
                Errno::set(-e as c_int);
                -1
            }
        };
    }
    after(r, tid, sched_why::SCHED, site)
}

unsafe extern "C" fn affinity(tid: c_int, n: usize, set: *const c_void, site: usize) -> c_int {
    // SAFETY: the caller's.
    after(unsafe { real::sched_setaffinity(tid, n, set) }, tid, sched_why::AFFINITY, site)
}

unsafe extern "C" fn pthread_affinity(p: libc::pthread_t, n: usize, set: *const c_void, site: usize) -> c_int {
    // SAFETY: the caller's.
    let r = unsafe { real::pthread_setaffinity_np(p, n, set) };
    if r == 0
        && p == me()
        && let Some(t) = enter(site)
    {
        changed(t, 0, sched_why::AFFINITY);
    }
    r
}
