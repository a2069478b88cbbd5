//! Waits for signals, and pending signals.

use super::actions::installed;
use super::masks::{self, OURS, Sent, bits_of, mask_of, word};
use crate::process::{real, sys, thread};
use core::ffi::c_int;

/// sigpending as the program calls it.
///
/// # Safety
/// As sigpending.
pub unsafe fn sigpending(set: *mut libc::sigset_t) -> c_int {
    // SAFETY: the caller's.
    let r = unsafe { real::sigpending(set) };
    if r == 0 && installed() {
        masks::place();
        // SAFETY: written by the call.
        unsafe { masks::change(&mut *set, |m| m | mask_of(masks::pending() & masks::blocked())) };
    }
    r
}

/// Waits with `f` for signals of a set that contains some of the agent's. A kept signal is delivered first, through
/// `kept`.
fn wait<R>(set: &libc::sigset_t, kept: impl FnOnce(c_int, &Sent) -> R, f: impl FnOnce() -> R) -> R {
    let bits = if installed() { bits_of(word(set)) } else { 0 };
    if bits == 0 {
        return f();
    }
    masks::place();
    // This thread rings no doorbell while it waits. So the kernel may block these signals, and then wakes it.
    sys::signal_mask(libc::SIG_BLOCK, mask_of(bits));
    masks::begin_wait(bits);
    // (The kernel takes the lowest number first.)
    let first = (0..OURS.len()).rev().filter(|i| bits >> i & 1 != 0).find_map(|i| Some((OURS[i], masks::take(i)?)));
    let r = match &first {
        Some((signal, sent)) => kept(*signal, sent),
        None => f(),
    };
    masks::end_wait(bits);
    let _errno = sys::Errno::keep();
    sys::signal_mask(libc::SIG_UNBLOCK, mask_of(bits));
    r
}

/// sigtimedwait and sigwaitinfo (`until` null).
///
/// # Safety
/// As sigtimedwait.
pub unsafe fn sigtimedwait(
    set: *const libc::sigset_t,
    info: *mut libc::siginfo_t,
    until: *const libc::timespec,
) -> c_int {
    // SAFETY: the caller's, here and below.
    let f =
        || unsafe { if until.is_null() { real::sigwaitinfo(set, info) } else { real::sigtimedwait(set, info, until) } };
    let kept = |signal: c_int, sent: &Sent| {
        if !info.is_null() {
            // SAFETY: room for a siginfo.
            unsafe { info.cast::<Sent>().write(*sent) };
        }
        signal
    };
    // SAFETY: the caller's.
    wait(unsafe { &*set }, kept, f)
}

/// sigwait as the program calls it.
///
/// # Safety
/// As sigwait.
pub unsafe fn sigwait(set: *const libc::sigset_t, signal: *mut c_int) -> c_int {
    let kept = |which: c_int, _: &Sent| {
        // SAFETY: the caller's.
        unsafe { *signal = which };
        0
    };
    // SAFETY: the caller's.
    unsafe { wait(&*set, kept, || real::sigwait(set, signal)) }
}

/// sigsuspend as the program calls it.
///
/// # Safety
/// As sigsuspend.
pub unsafe fn sigsuspend(set: *const libc::sigset_t) -> c_int {
    if !installed() {
        // SAFETY: the caller's.
        return unsafe { real::sigsuspend(set) };
    }
    masks::place();
    // SAFETY: the caller's.
    let mut given = unsafe { *set };
    let meanwhile = bits_of(word(&given));
    masks::change(&mut given, |m| m & !masks::OUR_BITS);
    let t = thread::here();
    let before = (t.blocked.get(), t.under.get());
    masks::set_by_calls(meanwhile, word(&given));
    let due = masks::pending() & !meanwhile != 0;
    let r = if due {
        masks::deliver();
        sys::Errno::set(libc::EINTR);
        -1
    } else {
        // SAFETY: a set.
        unsafe { real::sigsuspend(&given) }
    };
    masks::set_by_calls(before.0, before.1);
    r
}

/// The variant of 4.3BSD, with a mask of 32 signals.
///
/// # Safety
/// As sigpause.
pub unsafe fn sigpause_mask(low: c_int) -> c_int {
    // SAFETY: all zero is the empty set.
    let mut set: libc::sigset_t = unsafe { core::mem::zeroed() };
    masks::change(&mut set, |_| u64::from(low as u32));
    // SAFETY: a set.
    unsafe { sigsuspend(&set) }
}

/// The variant of X/Open: the present mask without one signal.
///
/// # Safety
/// As sigpause.
pub unsafe fn sigpause_without(signal: c_int) -> c_int {
    // SAFETY: plain sets.
    unsafe {
        let mut set: libc::sigset_t = core::mem::zeroed();
        super::calls::mask(real::sigprocmask, libc::SIG_BLOCK, core::ptr::null(), &mut set);
        if libc::sigdelset(&mut set, signal) < 0 {
            return -1;
        }
        sigsuspend(&set)
    }
}
