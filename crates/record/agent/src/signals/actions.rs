//! The program's actions for the agent's signals.

use super::masks::{self, OURS};
use crate::process::own_lock::OwnLock;
use crate::process::wiped::word;
use crate::process::{real, sys};
use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering, fence};

/// libc passes a function that returns from handlers (asm/signal.h).
const RESTORER: c_int = 0x0400_0000;
/// The flags that Linux keeps (asm-generic/signal-defs.h, UAPI_SA_FLAGS).
const KEPT_FLAGS: c_int = 1
    | 2
    | libc::SA_SIGINFO
    | libc::SA_ONSTACK
    | libc::SA_RESTART
    | libc::SA_NODEFER
    | libc::SA_RESETHAND
    | 0x800
    | RESTORER;

/// True when the agent's handlers are in place.
static INSTALLED: AtomicBool = AtomicBool::new(false);
/// The return function that libc passes, as programs get to see it.
static RETURNS: AtomicUsize = AtomicUsize::new(0);

type Both = [libc::sigaction; 2];
// SAFETY: all zero is SIG_DFL with no flags and an empty mask.
static THEIRS: OwnLock<Both, { word::SIGNALS }> = OwnLock::new(unsafe { core::mem::zeroed() });
/// Changes with every change of `THEIRS`; odd during a change. Handlers read without the lock.
static SEQ: AtomicU32 = AtomicU32::new(0);

#[inline]
pub fn installed() -> bool {
    INSTALLED.load(Ordering::Acquire)
}

/// Replaces the program's handlers by the agent's and keeps the program's. False if the kernel refuses.
pub fn install(handler: usize) -> bool {
    if installed() {
        return true;
    }
    let Some(mut theirs) = THEIRS.lock() else { return false };
    if installed() {
        return true;
    }
    for (i, &signal) in OURS.iter().enumerate() {
        // SAFETY: plain structs for sigaction; the handler has the SA_SIGINFO signature.
        unsafe {
            let mut ours: libc::sigaction = core::mem::zeroed();
            ours.sa_sigaction = handler;
            // NODEFER: the agent's own store may fault again one layer below; ONSTACK: programs with small stacks bring
            // their own.
            ours.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK | libc::SA_RESTART;
            if real::sigaction(signal, &ours, &mut theirs[i]) != 0 {
                return false;
            }
            let mut now = MaybeUninit::<libc::sigaction>::zeroed();
            real::sigaction(signal, core::ptr::null(), now.as_mut_ptr());
            let returns = now.assume_init().sa_restorer.map_or(0, |f| f as *const () as usize);
            RETURNS.store(returns, Ordering::Relaxed);
        }
    }
    INSTALLED.store(true, Ordering::Release);
    drop(theirs);
    masks::take_over();
    true
}

/// The program's action.
pub fn theirs(i: usize) -> libc::sigaction {
    loop {
        let before = SEQ.load(Ordering::Acquire);
        if before & 1 == 0 {
            // SAFETY: plain words; a torn read is discarded by the check below.
            let a = unsafe { (THEIRS.peek() as *const libc::sigaction).add(i).read_volatile() };
            // ORDERING: the words above are read before the count is read again.
            fence(Ordering::Acquire);
            if SEQ.load(Ordering::Relaxed) == before {
                return a;
            }
        }
        core::hint::spin_loop();
    }
}

/// Changes the program's action and returns the old one. `None` from a handler that interrupted a change.
pub fn set_theirs(i: usize, new: &libc::sigaction) -> Option<libc::sigaction> {
    let mut kept = *new;
    kept.sa_flags = kept.sa_flags & KEPT_FLAGS | RESTORER;
    // SAFETY: 0 or the function that libc passed: an Option of a function.
    kept.sa_restorer =
        unsafe { core::mem::transmute::<usize, Option<extern "C" fn()>>(RETURNS.load(Ordering::Relaxed)) };
    masks::change(&mut kept.sa_mask, |m| m & !masks::UNBLOCKABLE);
    // A handler of the program that interrupts the change would ask for an action, and wait for this thread forever.
    let mask = sys::signal_mask(libc::SIG_BLOCK, u64::MAX);
    let old = change(i, &kept);
    sys::signal_mask(libc::SIG_SETMASK, mask);
    let old = old?;
    if kept.sa_sigaction == libc::SIG_IGN {
        masks::drop_kept(i);
    }
    Some(old)
}

fn change(i: usize, kept: &libc::sigaction) -> Option<libc::sigaction> {
    let mut t = THEIRS.lock()?;
    let old = *t.get(i)?;
    SEQ.fetch_add(1, Ordering::AcqRel);
    t[i] = *kept;
    SEQ.fetch_add(1, Ordering::Release);
    Some(old)
}

/// Writes an action as libc does: eight bytes of its mask.
///
/// # Safety
/// `to` is an action that may be written.
pub unsafe fn tell(to: *mut libc::sigaction, a: &libc::sigaction) {
    // SAFETY: the caller's.
    unsafe {
        (*to).sa_sigaction = a.sa_sigaction;
        (*to).sa_flags = a.sa_flags;
        (*to).sa_restorer = a.sa_restorer;
        masks::change(&mut (*to).sa_mask, |_| masks::word(&a.sa_mask));
    }
}
