//! The functions of signals.

use crate::process::real;
use crate::signals::{calls, stacks, waits};
use core::ffi::c_int;

/// A signal's handler, SIG_DFL, SIG_IGN or SIG_HOLD.
type Handler = usize;
type Set = *const libc::sigset_t;

macro_rules! names {
    ($($name:ident ($($a:ident: $t:ty),*) -> $r:ty => $to:expr;)*) => {$(
        /// # Safety
        /// As the C function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($a: $t),*) -> $r {
            // SAFETY: the caller's.
            unsafe { $to }
        }
    )*};
}

names! {
    sigaction(s: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int => calls::sigaction(s, new, old);
    __sigaction(s: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int => calls::sigaction(s, new, old);
    signal(s: c_int, h: Handler) -> Handler => calls::signal(s, h);
    bsd_signal(s: c_int, h: Handler) -> Handler => calls::signal(s, h);
    ssignal(s: c_int, h: Handler) -> Handler => calls::signal(s, h);
    __sysv_signal(s: c_int, h: Handler) -> Handler => calls::sysv_signal(s, h);
    sysv_signal(s: c_int, h: Handler) -> Handler => calls::sysv_signal(s, h);
    sigvec(s: c_int, new: *const calls::Sigvec, old: *mut calls::Sigvec) -> c_int => calls::sigvec(s, new, old);
    sigset(s: c_int, h: Handler) -> Handler => calls::sigset(s, h);
    sighold(s: c_int) -> c_int => calls::sighold(s);
    sigrelse(s: c_int) -> c_int => calls::sigrelse(s);
    sigignore(s: c_int) -> c_int => calls::sigignore(s);
    siginterrupt(s: c_int, interrupts: c_int) -> c_int => calls::siginterrupt(s, interrupts);
    sigaltstack(new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int => stacks::sigaltstack(new, old);
    pthread_sigmask(how: c_int, set: Set, old: *mut libc::sigset_t) -> c_int =>
        calls::mask(real::pthread_sigmask, how, set, old);
    sigprocmask(how: c_int, set: Set, old: *mut libc::sigset_t) -> c_int => calls::mask(real::sigprocmask, how, set, old);
    sigblock(low: c_int) -> c_int => calls::sigblock(low);
    sigsetmask(low: c_int) -> c_int => calls::sigsetmask(low);
    siggetmask() -> c_int => calls::sigblock(0);
    sigpending(set: *mut libc::sigset_t) -> c_int => waits::sigpending(set);
    sigwait(set: Set, signal: *mut c_int) -> c_int => waits::sigwait(set, signal);
    sigwaitinfo(set: Set, info: *mut libc::siginfo_t) -> c_int => waits::sigtimedwait(set, info, core::ptr::null());
    sigtimedwait(set: Set, info: *mut libc::siginfo_t, until: *const libc::timespec) -> c_int =>
        waits::sigtimedwait(set, info, until);
    sigsuspend(set: Set) -> c_int => waits::sigsuspend(set);
    __sigsuspend(set: Set) -> c_int => waits::sigsuspend(set);
    sigpause(low: c_int) -> c_int => waits::sigpause_mask(low);
    __xpg_sigpause(s: c_int) -> c_int => waits::sigpause_without(s);
    __sigpause(what: c_int, is_signal: c_int) -> c_int =>
        if is_signal != 0 { waits::sigpause_without(what) } else { waits::sigpause_mask(what) };
}
