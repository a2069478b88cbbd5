//! SIGSEGV and SIGTRAP: ours for doorbell pages, guarded USERD pages and sites being rewritten; everything else is the
//! program's, which must not notice us. Its handlers are kept here and called as the kernel would call them; what it asks
//! about them (sigaction, signal, sigprocmask) is answered from here.
//!
//! The handlers are installed when the first doorbell page is mapped, so a program that uses no GPU keeps its own.

use crate::lock::Cold;
use crate::{channel, page, patch, real, record, shadow, sys, tap};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use tape::region::trouble;
use trap::ucontext::Context;
use trap::{Kind, Registers};

/// SIGSEGV and SIGTRAP.
pub const OURS: [c_int; 2] = [libc::SIGSEGV, libc::SIGTRAP];

/// True once our handlers are in place.
static INSTALLED: AtomicBool = AtomicBool::new(false);

/// The program's own actions. `sigaction` of libc is larger than what we need, but it is what it asks back.
struct Theirs {
    action: [libc::sigaction; 2],
}

// SAFETY: all zero is SIG_DFL with no flags and an empty mask.
static THEIRS: Cold<Theirs> = Cold::new(Theirs { action: unsafe { core::mem::zeroed() } });
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
    let ours = match signal {
        libc::SIGTRAP => patch::breakpoint(&mut c),
        _ => {
            // SAFETY: the kernel's siginfo; si_code > 0 means that it, not a kill(), made the signal.
            let forced = unsafe { (*info).si_code } > 0;
            forced && fault(&mut c)
        }
    };
    if !ours {
        // SAFETY: what the kernel gave us, handed on.
        unsafe { hand_on(signal, info, context) };
    }
}

/// Answers a fault in a page of ours. False: not ours.
fn fault(c: &mut Context) -> bool {
    let addr = c.fault_address();
    if let Some((p, offset)) = page::find(addr) {
        return doorbell(c, p, offset);
    }
    if let Some(slot) = shadow::userd_of(addr) {
        return userd(c, slot, addr);
    }
    false
}

fn code_at(rip: u64) -> [u8; 64] {
    let mut code = [0u8; 64];
    // The page of the instruction is mapped (it was just executed); the next may not be.
    let whole = (4096 - (rip & 4095)) as usize;
    let n = whole.min(64);
    // SAFETY: bytes of the page being executed. Code is readable wherever it can be executed on x86-64 without
    // protection keys.
    unsafe { core::ptr::copy_nonoverlapping(rip as *const u8, code.as_mut_ptr(), n) };
    if n < 15 {
        // An instruction that crosses into the next page is being executed, so that page is mapped too if it does.
        if let Some(a) = trap::decode(&code[..n])
            && usize::from(a.length) <= n
        {
            return code;
        }
        // SAFETY: the instruction did not fit into this page, so its rest lies in the next, executable, page.
        unsafe { core::ptr::copy_nonoverlapping((rip as usize + n) as *const u8, code.as_mut_ptr().add(n), 15 - n) };
    }
    code
}

fn doorbell(c: &mut Context, p: usize, offset: u64) -> bool {
    let rip = c.rip();
    let code = code_at(rip);
    // ORDERING: Acquire: a stub is made known before the first byte of its site changes. If there is none now, what was
    // read is the program's code; else another thread is rewriting this very site, and the stub makes the store.
    core::sync::atomic::fence(Ordering::Acquire);
    if let Some(stub) = patch::stub_of(rip) {
        c.set_rip(stub);
        return true;
    }
    let Some(real) = page::real(p) else { return false };
    let Some(access) = trap::decode(&code) else {
        return give_up(p);
    };
    let at = real + offset;
    match access.kind {
        Kind::Store => {
            let Some(value) = trap::store_value(&access, c) else {
                return give_up(p);
            };
            if access.width == 4 {
                tap::store(p, offset, value as u32, true);
            } else {
                // SAFETY: inside the doorbell page; the store that the program made, at the width it made it.
                unsafe { store(at, value, access.width) };
            }
            trap::advance(&access, c);
            patch::learn(&access, rip, &code, offset);
        }
        Kind::Load => {
            // SAFETY: inside the doorbell page; the load that the program made.
            let v = unsafe { load(at, access.width) };
            if trap::load_into(&access, c, v).is_none() {
                return give_up(p);
            }
            trap::advance(&access, c);
        }
    }
    true
}

/// An instruction that we do not understand. Never stop the program for it: its rings and its page are its own again, and
/// the tape says that submissions go by unseen from now on.
#[cold]
fn give_up(p: usize) -> bool {
    record::trouble(trouble::UNDECODED);
    tap::give_rings_back();
    page::open(p)
}

/// An access to the shadow of a USERD page: it is guarded, or was when the access was made.
fn userd(c: &mut Context, slot: usize, addr: u64) -> bool {
    if !channel::claim(slot) {
        return false;
    }
    // The guard may have been lifted before we came here: then the access simply goes again.
    // SAFETY: we hold the claim.
    if let Some(ch) = unsafe { channel::get(slot) }.filter(|ch| ch.guarded && shadow::userd_of(addr) == Some(slot)) {
        let access = trap::decode(&code_at(c.rip()));
        let load = access.as_ref().is_some_and(|a| a.kind == Kind::Load);
        let at = shadow::answer(ch, addr, load);
        let done = match access {
            Some(a) if load => {
                // SAFETY: the second mapping of the same page, at the same offset.
                let v = unsafe { self::load(at, a.width) };
                trap::load_into(&a, c, v).map(|()| trap::advance(&a, c)).is_some()
            }
            Some(a) => match trap::store_value(&a, c) {
                Some(v) => {
                    // SAFETY: as above.
                    unsafe { store(at, v, a.width) };
                    trap::advance(&a, c);
                    true
                }
                None => false,
            },
            None => false,
        };
        if !done {
            // Let the instruction run on the page itself, with GP_GET as fresh as it just became.
            shadow::unguard(ch);
        }
    }
    tap::settle(slot);
    true
}

/// Stores the low `width` bytes of `value`.
///
/// # Safety
/// `at` may be written.
pub unsafe fn store(at: u64, value: u64, width: u8) {
    // SAFETY: the caller's.
    unsafe {
        match width {
            1 => (at as *mut u8).write_volatile(value as u8),
            2 => (at as *mut u16).write_volatile(value as u16),
            4 => (at as *mut u32).write_volatile(value as u32),
            _ => (at as *mut u64).write_volatile(value),
        }
    }
}

unsafe fn load(at: u64, width: u8) -> u128 {
    // SAFETY: the caller's. Wider loads are made of eight bytes at a time.
    unsafe {
        match width {
            1 => u128::from((at as *const u8).read_volatile()),
            2 => u128::from((at as *const u16).read_volatile()),
            4 => u128::from((at as *const u32).read_volatile()),
            8 => u128::from((at as *const u64).read_volatile()),
            _ => {
                let lo = (at as *const u64).read_volatile();
                let hi = ((at + 8) as *const u64).read_volatile();
                u128::from(hi) << 64 | u128::from(lo)
            }
        }
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
    if !record::active() {
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
