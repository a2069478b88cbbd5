//! The calls that read and change signal actions and masks, answered as if the kernel had the program's.

use super::actions::{installed, set_theirs, tell, theirs};
use super::entry::{install, is_ours};
use super::masks::{self, OURS, bit, bits_of, index, told, word};
use crate::process::region;
use crate::process::wiped::Place;
use crate::process::{real, sys};
use core::ffi::{c_int, c_uint};
use core::sync::atomic::{AtomicU8, Ordering};

const SIG_HOLD: usize = 2;
/// SA_INTERRUPT, a flag of old systems, which Linux accepts and ignores.
const INTERRUPT: c_int = 0x2000_0000;

/// Signals (bits as in [`masks`]) whose handlers interrupt system calls: set by siginterrupt.
static INTERRUPTS: AtomicU8 = AtomicU8::new(0);

/// The index of one of the agent's signals, if its handlers are in place.
fn ours(signal: c_int) -> Option<usize> {
    index(signal).filter(|_| installed())
}

/// sigaction as the program calls it.
///
/// # Safety
/// As sigaction.
pub unsafe fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    let Some(i) = ours(signal) else {
        // SAFETY: the caller's.
        return unsafe { real::sigaction(signal, new, old) };
    };
    // SAFETY: the caller passes null or valid structs, as for sigaction.
    unsafe {
        // (Read before anything is written: both pointers may be the same.)
        let new = new.as_ref().copied();
        let was = match new {
            _ if masks::place() == Place::VforkChild => in_child(i, new.as_ref()),
            None => theirs(i),
            Some(new) => set_theirs(i, &new).unwrap_or_else(|| theirs(i)),
        };
        if !old.is_null() {
            tell(old, &was);
        }
    }
    0
}

/// The kernel's sigaction (asm/signal.h).
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct KernelAction {
    pub handler: usize,
    pub flags: u64,
    pub restorer: usize,
    pub mask: u64,
}

/// sigaction by a system call: the kernel's action for the calling process.
pub fn kernel_action(signal: c_int, new: Option<&KernelAction>) -> KernelAction {
    let mut old = KernelAction::default();
    let new = new.map_or(0, |n| core::ptr::from_ref(n) as usize);
    // SAFETY: null or an action, and room for one.
    unsafe { sys::syscall6(libc::SYS_rt_sigaction, signal as usize, new, &raw mut old as usize, 8, 0, 0) };
    old
}

/// A vfork child has its parent's memory, but its own actions, so the kernel keeps them. The agent's handler, which the
/// child has inherited, stands for the parent's action.
fn in_child(i: usize, new: Option<&libc::sigaction>) -> libc::sigaction {
    let restorer = theirs(i).sa_restorer.map_or(0, |f| f as *const () as usize);
    let new = new.map(|n| KernelAction {
        handler: n.sa_sigaction,
        flags: n.sa_flags as u32 as u64 | 0x0400_0000,
        restorer: if restorer == 0 { kernel_action(OURS[i], None).restorer } else { restorer },
        mask: word(&n.sa_mask),
    });
    let old = kernel_action(OURS[i], new.as_ref());
    if is_ours(old.handler) {
        return theirs(i);
    }
    let mut a = theirs(i);
    (a.sa_sigaction, a.sa_flags) = (old.handler, old.flags as c_int);
    masks::change(&mut a.sa_mask, |_| old.mask);
    a
}

/// Installs a handler. Returns the old one, or SIG_ERR.
fn act(signal: c_int, handler: usize, flags: c_int, mask: u64) -> usize {
    // SAFETY: zero is a valid sigaction.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { core::mem::zeroed() };
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    masks::change(&mut new.sa_mask, |_| mask);
    // SAFETY: plain structs.
    if unsafe { sigaction(signal, &new, &mut old) } == 0 { old.sa_sigaction } else { libc::SIG_ERR }
}

/// signal as the program calls it, with the semantics of BSD like glibc's.
///
/// # Safety
/// As signal.
pub unsafe fn signal(signal: c_int, handler: usize) -> usize {
    let Some(i) = ours(signal).filter(|_| handler != libc::SIG_ERR) else {
        // SAFETY: the caller's.
        return unsafe { real::signal(signal, handler) };
    };
    let restarts = INTERRUPTS.load(Ordering::Relaxed) >> i & 1 == 0;
    act(signal, handler, if restarts { libc::SA_RESTART } else { 0 }, bit(signal))
}

/// signal with the semantics of System V, as glibc's under `-std=c11`.
///
/// # Safety
/// As signal.
pub unsafe fn sysv_signal(signal: c_int, handler: usize) -> usize {
    if ours(signal).is_none() || handler == libc::SIG_ERR {
        // SAFETY: the caller's.
        return unsafe { real::sysv_signal(signal, handler) };
    }
    act(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER | INTERRUPT, 0)
}

/// siginterrupt as the program calls it.
///
/// # Safety
/// As siginterrupt.
pub unsafe fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int {
    let Some(i) = ours(signal) else {
        if let Some(i) = index(signal) {
            remember_interrupts(i, interrupts != 0);
        }
        // SAFETY: the caller's.
        return unsafe { real::siginterrupt(signal, interrupts) };
    };
    remember_interrupts(i, interrupts != 0);
    let mut a = theirs(i);
    a.sa_flags = if interrupts != 0 { a.sa_flags & !libc::SA_RESTART } else { a.sa_flags | libc::SA_RESTART };
    // SAFETY: plain structs.
    unsafe { sigaction(signal, &a, core::ptr::null_mut()) }
}

fn remember_interrupts(i: usize, interrupts: bool) {
    if interrupts {
        INTERRUPTS.fetch_or(1 << i, Ordering::Relaxed);
    } else {
        INTERRUPTS.fetch_and(!(1 << i), Ordering::Relaxed);
    }
}

/// A set with only this signal.
fn only(signal: c_int) -> libc::sigset_t {
    // SAFETY: all zero is the empty set.
    let mut set: libc::sigset_t = unsafe { core::mem::zeroed() };
    masks::change(&mut set, |_| bit(signal));
    set
}

/// Blocks or unblocks one signal. Returns whether it was blocked.
fn one(how: c_int, signal: c_int) -> bool {
    // SAFETY: plain sets.
    unsafe {
        let mut old: libc::sigset_t = core::mem::zeroed();
        mask(real::sigprocmask, how, &only(signal), &mut old);
        word(&old) & bit(signal) != 0
    }
}

/// sigset as the program calls it.
///
/// # Safety
/// As sigset.
pub unsafe fn sigset(signal: c_int, disposition: usize) -> usize {
    if index(signal).is_none() || disposition == libc::SIG_ERR {
        // SAFETY: the caller's.
        return unsafe { real::sigset(signal, disposition) };
    }
    if disposition == SIG_HOLD {
        if one(libc::SIG_BLOCK, signal) {
            return SIG_HOLD;
        }
        // SAFETY: zero is a valid sigaction.
        let mut now: libc::sigaction = unsafe { core::mem::zeroed() };
        // SAFETY: plain structs.
        unsafe { sigaction(signal, core::ptr::null(), &mut now) };
        return now.sa_sigaction;
    }
    let old = act(signal, disposition, 0, 0);
    if one(libc::SIG_UNBLOCK, signal) { SIG_HOLD } else { old }
}

/// sighold as the program calls it.
///
/// # Safety
/// As sighold.
pub unsafe fn sighold(signal: c_int) -> c_int {
    if index(signal).is_none() {
        // SAFETY: the caller's.
        return unsafe { real::sighold(signal) };
    }
    one(libc::SIG_BLOCK, signal);
    0
}

/// sigrelse as the program calls it.
///
/// # Safety
/// As sigrelse.
pub unsafe fn sigrelse(signal: c_int) -> c_int {
    if index(signal).is_none() {
        // SAFETY: the caller's.
        return unsafe { real::sigrelse(signal) };
    }
    one(libc::SIG_UNBLOCK, signal);
    0
}

/// sigignore as the program calls it.
///
/// # Safety
/// As sigignore.
pub unsafe fn sigignore(signal: c_int) -> c_int {
    if index(signal).is_none() {
        // SAFETY: the caller's.
        return unsafe { real::sigignore(signal) };
    }
    act(signal, libc::SIG_IGN, 0, 0);
    0
}

/// sigvec as an old program calls it: handler, mask of 32 signals, flags.
#[repr(C)]
pub struct Sigvec {
    handler: usize,
    mask: c_int,
    flags: c_int,
}

/// # Safety
/// As sigvec.
pub unsafe fn sigvec(signal: c_int, new: *const Sigvec, old: *mut Sigvec) -> c_int {
    const FLAGS: [(c_int, c_int); 2] = [(1, libc::SA_ONSTACK), (4, libc::SA_RESETHAND)];
    const SV_INTERRUPT: c_int = 2;
    // SAFETY: zero is a valid sigaction; the caller passes null or valid structs.
    unsafe {
        let (mut a, mut was): (libc::sigaction, libc::sigaction) = core::mem::zeroed();
        if let Some(new) = new.as_ref() {
            a.sa_sigaction = new.handler;
            a.sa_flags = if new.flags & SV_INTERRUPT == 0 { libc::SA_RESTART } else { 0 };
            a.sa_flags |= FLAGS.iter().filter(|f| new.flags & f.0 != 0).map(|f| f.1).sum::<c_int>();
            masks::change(&mut a.sa_mask, |_| u64::from(new.mask as c_uint));
        }
        let new = if new.is_null() { core::ptr::null() } else { &raw const a };
        if sigaction(signal, new, &mut was) != 0 {
            return -1;
        }
        if let Some(old) = old.as_mut() {
            old.handler = was.sa_sigaction;
            old.mask = word(&was.sa_mask) as c_int;
            old.flags = if was.sa_flags & libc::SA_RESTART == 0 { SV_INTERRUPT } else { 0 };
            old.flags |= FLAGS.iter().filter(|f| was.sa_flags & f.1 != 0).map(|f| f.0).sum::<c_int>();
        }
    }
    0
}

type Mask = unsafe fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;

/// sigprocmask and pthread_sigmask as the program calls them. A thread that blocked the agent's signals would be killed
/// at its next doorbell. So these signals are left out, and the program reads back the mask that it set.
///
/// # Safety
/// As sigprocmask.
pub unsafe fn mask(f: Mask, how: c_int, set: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int {
    // SAFETY: the caller passes null or valid sets. (Read before anything is written: both may be the same.)
    let set = unsafe { set.as_ref().copied() };
    let asked = set.as_ref().map_or(0, |s| bits_of(word(s)));
    // Before the first doorbell, only threads that block the agent's signals matter.
    let matters = installed() || (asked != 0 && how != libc::SIG_UNBLOCK && region::active_here() && install());
    let given = set.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    if !matters {
        // SAFETY: the caller's.
        return unsafe { f(how, given, old) };
    }
    let place = masks::place();
    let kernels = sys::signal_mask(libc::SIG_BLOCK, 0);
    let before = masks::blocked();
    let tell = |r: c_int| {
        // SAFETY: the caller passes null or a set that may be written.
        if let Some(old) = unsafe { old.as_mut() }.filter(|_| r == 0) {
            masks::change(old, |m| told(m, before));
        }
        r
    };
    let Some(mut s) = set else {
        // SAFETY: the caller's.
        return tell(unsafe { f(how, given, old) });
    };
    if place == Place::VforkChild {
        masks::hand_over();
        // SAFETY: the caller's.
        return tell(unsafe { f(how, &s, old) });
    }
    if how != libc::SIG_UNBLOCK {
        masks::change(&mut s, |m| m & !masks::OUR_BITS);
    }
    // SAFETY: the caller's.
    let r = unsafe { f(how, &s, old) };
    tell(r);
    if r == 0 {
        masks::set(kernels, masks::after(how, before, asked));
    }
    r
}

/// The low half of a mask, for the calls of 4.3BSD.
fn old_mask(how: c_int, low: c_int) -> c_int {
    // SAFETY: plain sets.
    unsafe {
        let (mut new, mut old): (libc::sigset_t, libc::sigset_t) = core::mem::zeroed();
        masks::change(&mut new, |_| u64::from(low as c_uint));
        mask(real::sigprocmask, how, &new, &mut old);
        word(&old) as c_int
    }
}

/// sigblock as the program calls it.
///
/// # Safety
/// As sigblock.
pub unsafe fn sigblock(low: c_int) -> c_int {
    old_mask(libc::SIG_BLOCK, low)
}

/// sigsetmask as the program calls it.
///
/// # Safety
/// As sigsetmask.
pub unsafe fn sigsetmask(low: c_int) -> c_int {
    old_mask(libc::SIG_SETMASK, low)
}
