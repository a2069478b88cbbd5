//! SIGSEGV and SIGTRAP as the program sees them. Faults that somebody answers ([`crate::fault`]) are ours; everything else is
//! the program's, which must not notice us. Its handlers are kept here and called as the kernel would call them; what it asks
//! about them (sigaction, signal, sigprocmask) is answered from here.
//!
//! The handlers are installed when the first doorbell page is mapped, so a program that uses no GPU keeps its own.

use crate::fault;
use crate::process::own_lock::OwnLock;
use crate::process::wiped::word;
use crate::process::{real, region, sys};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use trap::ucontext::Context;

/// SIGSEGV and SIGTRAP.
pub const OURS: [c_int; 2] = [libc::SIGSEGV, libc::SIGTRAP];

/// True once our handlers are in place.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// The program's own actions. `sigaction` of libc is larger than what we need, but it is what it asks back.
struct Theirs {
    action: [libc::sigaction; 2],
}

// SAFETY: all zero is SIG_DFL with no flags and an empty mask.
static THEIRS: OwnLock<Theirs, { word::SIGNALS }> = OwnLock::new(Theirs { action: unsafe { core::mem::zeroed() } });
/// Changes with every change of `THEIRS`; odd while it is being changed. Handlers read without the lock.
static THEIRS_SEQ: AtomicU32 = AtomicU32::new(0);

std::thread_local! {
    /// Which of our signals the program believes to be blocked in this thread (bit 0 SIGSEGV, bit 1 SIGTRAP).
    static BLOCKED: core::cell::Cell<u8> = const { core::cell::Cell::new(0) };
    /// What was sent while the program believed so: it gets them when it unblocks them. Bits as above, and the signals.
    static PENDING: core::cell::Cell<u8> = const { core::cell::Cell::new(0) };
    static SENT: core::cell::UnsafeCell<[Sent; 2]> = const { core::cell::UnsafeCell::new([[0; 16]; 2]) };
}

/// A `siginfo_t` as words: 128 bytes.
type Sent = [u64; 16];
const _: () = assert!(size_of::<libc::siginfo_t>() == size_of::<Sent>());

/// Keeps a signal that came while it is blocked. As the kernel does, only the first of several.
unsafe fn keep(i: usize, info: *const libc::siginfo_t) {
    let bit = 1 << i;
    PENDING.with(|p| {
        if p.get() & bit == 0 {
            // SAFETY: this thread's own; `info` is the kernel's.
            SENT.with(|s| unsafe { (s.get() as *mut Sent).add(i).write(info.cast::<Sent>().read()) });
            p.set(p.get() | bit);
        }
    });
}

/// Sends this thread again what it has unblocked.
fn deliver() {
    let due = PENDING.with(|p| {
        let due = p.get() & !BLOCKED.with(core::cell::Cell::get);
        p.set(p.get() & !due);
        due
    });
    for (i, &signal) in OURS.iter().enumerate() {
        if due >> i & 1 != 0 {
            // SAFETY: this thread's own copy of a siginfo; a process may send itself any.
            SENT.with(|s| unsafe {
                let info = (s.get() as *mut Sent).add(i);
                let (pid, tid) = (sys::getpid() as usize, sys::gettid() as usize);
                sys::syscall6(libc::SYS_rt_tgsigqueueinfo, pid, tid, signal as usize, info as usize, 0, 0);
            });
        }
    }
}

fn index(signal: c_int) -> Option<usize> {
    OURS.iter().position(|&s| s == signal)
}

/// Puts our handlers in place. Cold zone only; false if the kernel refuses.
pub fn install() -> bool {
    if INSTALLED.load(Ordering::Acquire) {
        return true;
    }
    let Some(mut theirs) = THEIRS.lock() else { return false };
    for (i, &signal) in OURS.iter().enumerate() {
        // SAFETY: plain structs for sigaction; the handler has the SA_SIGINFO signature.
        unsafe {
            let mut ours: libc::sigaction = core::mem::zeroed();
            ours.sa_sigaction = on_signal as *const () as usize;
            // NODEFER: our own store may fault again one layer below; ONSTACK: programs with small stacks bring their own.
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK | libc::SA_RESTART;
            if real::sigaction(signal, &ours, &mut theirs.action[i]) != 0 {
                return false;
            }
        }
    }
    INSTALLED.store(true, Ordering::Release);
    true
}

unsafe extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let _errno = sys::Errno::keep();
    // SAFETY: the kernel passes a ucontext_t to an SA_SIGINFO handler, ours while it runs.
    let Some(mut c) = (unsafe { Context::from_handler(context) }) else { return };
    // SAFETY: the kernel's siginfo; si_code > 0 means that it, not a kill(), made the signal.
    let forced = unsafe { (*info).si_code } > 0;
    if !fault::answered(signal, forced, &mut c) {
        // SAFETY: what the kernel gave us, handed on.
        unsafe { hand_on(signal, info, context) };
    }
}

fn theirs(i: usize) -> libc::sigaction {
    loop {
        let before = THEIRS_SEQ.load(Ordering::Acquire);
        if before & 1 == 0 {
            // SAFETY: plain words; a torn read is thrown away by the check below.
            let a = unsafe { (THEIRS.peek() as *const libc::sigaction).add(i).read_volatile() };
            core::sync::atomic::fence(Ordering::Acquire);
            if THEIRS_SEQ.load(Ordering::Relaxed) == before {
                return a;
            }
        }
        core::hint::spin_loop();
    }
}

fn set_theirs(i: usize, a: &libc::sigaction) -> Option<libc::sigaction> {
    let mut t = THEIRS.lock()?;
    let old = *t.action.get(i)?;
    THEIRS_SEQ.fetch_add(1, Ordering::AcqRel);
    t.action[i] = *a;
    THEIRS_SEQ.fetch_add(1, Ordering::Release);
    Some(old)
}

/// Does what the kernel would have done with this signal had we not been there.
unsafe fn hand_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(i) = index(signal) else { return };
    let a = theirs(i);
    // SAFETY: the kernel's siginfo.
    let forced = unsafe { (*info).si_code > 0 };
    let blocked = BLOCKED.with(|b| b.get() >> i & 1 != 0);
    if a.sa_sigaction == libc::SIG_IGN && !forced {
        return;
    }
    if blocked && !forced {
        // SAFETY: the kernel's siginfo.
        unsafe { keep(i, info) };
        return;
    }
    if a.sa_sigaction == libc::SIG_DFL || a.sa_sigaction == libc::SIG_IGN || (blocked && forced) {
        // A fault that is ignored, blocked or has no handler kills: put the default back and let it happen again. One
        // that was sent does not happen again by itself.
        // SAFETY: plain structs.
        unsafe {
            let mut d: libc::sigaction = core::mem::zeroed();
            d.sa_sigaction = libc::SIG_DFL;
            real::sigaction(signal, &d, core::ptr::null_mut());
            if !forced || signal == libc::SIGTRAP {
                let (pid, tid) = (sys::getpid() as usize, sys::gettid() as usize);
                sys::syscall6(libc::SYS_tgkill, pid, tid, signal as usize, 0, 0, 0);
            }
        }
        return;
    }
    if a.sa_flags & libc::SA_RESETHAND != 0 {
        // SAFETY: all zero is the default action.
        let d: libc::sigaction = unsafe { core::mem::zeroed() };
        set_theirs(i, &d);
    }
    // The mask that the kernel would have set: the interrupted one, the action's, and the signal itself.
    // SAFETY: masks are read and written by plain system calls; sigreturn restores the interrupted mask afterwards.
    unsafe {
        let mut mask = a.sa_mask;
        for s in OURS {
            libc::sigdelset(&mut mask, s);
        }
        real::pthread_sigmask(libc::SIG_BLOCK, &mask, core::ptr::null_mut());
        if a.sa_flags & libc::SA_SIGINFO != 0 {
            let f: unsafe extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                core::mem::transmute(a.sa_sigaction);
            f(signal, info, context);
        } else {
            let f: unsafe extern "C" fn(c_int) = core::mem::transmute(a.sa_sigaction);
            f(signal);
        }
    }
}

/// sigaction as the program calls it.
///
/// # Safety
/// As sigaction.
pub unsafe fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let Some(i) = index(signal).filter(|_| INSTALLED.load(Ordering::Acquire)) else {
        // SAFETY: the caller's.
        return unsafe { real::sigaction(signal, new, old) };
    };
    // SAFETY: the caller passes null or valid structs, as for sigaction.
    unsafe {
        let was = if new.is_null() { theirs(i) } else { set_theirs(i, &*new).unwrap_or_else(|| theirs(i)) };
        if !old.is_null() {
            *old = was;
        }
    }
    0
}

/// signal as the program calls it.
///
/// # Safety
/// As signal.
pub unsafe fn signal(signal: c_int, handler: usize) -> usize {
    let Some(i) = index(signal).filter(|_| INSTALLED.load(Ordering::Acquire)) else {
        // SAFETY: the caller's.
        return unsafe { real::signal(signal, handler) };
    };
    // SAFETY: zero is a valid sigaction.
    let mut a: libc::sigaction = unsafe { core::mem::zeroed() };
    a.sa_sigaction = handler;
    // BSD semantics, as glibc's signal.
    a.sa_flags = libc::SA_RESTART;
    set_theirs(i, &a).map_or(libc::SIG_ERR, |old| old.sa_sigaction)
}

type Mask = unsafe fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;

/// sigprocmask and pthread_sigmask as the program calls them: a thread that blocked our signals would be killed at its
/// next doorbell, so they are left out, and the program is told what it asked for.
///
/// # Safety
/// As sigprocmask.
pub unsafe fn mask(f: Mask, how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int {
    if !region::active() {
        // SAFETY: the caller's.
        return unsafe { f(how, set, old) };
    }
    let before = BLOCKED.with(core::cell::Cell::get);
    // SAFETY: the caller passes null or valid sets.
    unsafe {
        let r = if set.is_null() {
            f(how, set, old)
        } else {
            let mut s = *set;
            let mut asked = 0u8;
            for (i, &signal) in OURS.iter().enumerate() {
                if libc::sigismember(set, signal) == 1 {
                    asked |= 1 << i;
                    if how != libc::SIG_UNBLOCK {
                        libc::sigdelset(&mut s, signal);
                    }
                }
            }
            let r = f(how, &s, old);
            if r == 0 {
                let now = match how {
                    libc::SIG_BLOCK => before | asked,
                    libc::SIG_UNBLOCK => before & !asked,
                    _ => asked,
                };
                BLOCKED.with(|b| b.set(now));
                deliver();
            }
            r
        };
        if r == 0 && !old.is_null() {
            for (i, &signal) in OURS.iter().enumerate() {
                if before >> i & 1 != 0 {
                    libc::sigaddset(old, signal);
                }
            }
        }
        r
    }
}
