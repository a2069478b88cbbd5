//! The kernel's side of a fault: trapped doorbell pages first, then whoever registered a handler.
//!
//! The handler here is registered with the kernel for SIGSEGV. It handles an access to a doorbell page that the program's own protection
//! allows: no program can detect that it was trapped. Every other fault is passed to the handler that was registered through [`sigaction`],
//! exactly as without the software GPU. That handler may ring a doorbell itself: the nested fault is handled like any other, so SIGSEGV is
//! never blocked here.
//!
//! Deliberately without SA_ONSTACK: a nested fault needs two signal frames, and the 8 KiB alternate stacks of language runtimes hold only one if
//! frames carry AVX-512 state.

use crate::doorbell;
use crate::sys;
use std::ffi::c_void;
use std::mem::{MaybeUninit, transmute};
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use trap::ucontext::Context;
use trap::{Kind, Registers, advance, decode, load_into, store_value};

type Sigaction = unsafe extern "C" fn(i32, *const libc::sigaction, *mut libc::sigaction) -> i32;

/// The handler of the layer above, as it registered it.
static HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static FLAGS: AtomicI32 = AtomicI32::new(0);
static MASK: AtomicU64 = AtomicU64::new(0);
static RESTORER: AtomicUsize = AtomicUsize::new(0);
/// Which handler the kernel has: see [`install`].
static STATE: AtomicU32 = AtomicU32::new(NOT_YET);
const NOT_YET: u32 = 0;
const BEGUN: u32 = 1;
const INSTALLED: u32 = 2;
/// Calls of [`sigaction`] for SIGSEGV that go on to libc.
static PASSING: AtomicU32 = AtomicU32::new(0);

/// libc's own `sigaction`. (Looked up in libc itself: a program that has its own dlsym gets RTLD_NEXT wrong for others.)
fn real() -> Option<Sigaction> {
    static REAL: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
    let mut at = REAL.load(Ordering::Acquire);
    if at.is_null() {
        // SAFETY: C strings; libc is loaded already, and stays.
        at = unsafe {
            let libc = libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD);
            if libc.is_null() { libc } else { libc::dlsym(libc, c"sigaction".as_ptr()) }
        };
        REAL.store(at, Ordering::Release);
    }
    if at.is_null() {
        return None;
    }
    // SAFETY: the symbol is libc's sigaction, of this type.
    Some(unsafe { transmute::<*mut c_void, Sigaction>(at) })
}

/// Async signals are blocked while a fault is handled: a handler that rings at that time must not find half-changed state.
fn full_mask() -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset initialises the set; the others change it.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
            libc::sigdelset(set.as_mut_ptr(), signal);
        }
        set.assume_init()
    }
}

fn mask_bits(set: &libc::sigset_t) -> u64 {
    // SAFETY: sigset_t is at least 8 bytes of plain bits.
    unsafe { ptr::from_ref(set).cast::<u64>().read() }
}

fn remember(action: &libc::sigaction) {
    MASK.store(mask_bits(&action.sa_mask), Ordering::Relaxed);
    FLAGS.store(action.sa_flags, Ordering::Relaxed);
    RESTORER.store(action.sa_restorer.map_or(0, |f| f as usize), Ordering::Relaxed);
    // ORDERING: the handler last, so that a fault in between finds the old one or all of the new one.
    HANDLER.store(action.sa_sigaction, Ordering::Release);
}

fn remembered() -> libc::sigaction {
    // SAFETY: all zeros is a sigaction: SIG_DFL, no flags, empty mask.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = HANDLER.load(Ordering::Acquire);
    action.sa_flags = FLAGS.load(Ordering::Relaxed);
    // SAFETY: sigset_t is at least 8 bytes of plain bits.
    unsafe { ptr::from_mut(&mut action.sa_mask).cast::<u64>().write(MASK.load(Ordering::Relaxed)) };
    action
}

/// Registers the handler here with the kernel, and the earlier one as the layer above. When this returns it is registered, whichever thread did it:
/// several threads may map the first doorbell page of a process at once.
pub fn install() {
    if STATE.load(Ordering::Acquire) == INSTALLED {
        return;
    }
    let Some(real) = real() else { return };
    // A signal handler that interrupts this thread here would deadlock: it waits for the installation.
    let before = sys::signal_mask(mask_bits(&full_mask()));
    // ORDERING: sequentially consistent with `sigaction`: it sees that this has begun, or this thread sees that call in progress.
    match STATE.compare_exchange(NOT_YET, BEGUN, Ordering::SeqCst, Ordering::SeqCst) {
        Ok(_) => {
            while PASSING.load(Ordering::SeqCst) != 0 {
                std::thread::yield_now();
            }
            put_in_place(real);
            STATE.store(INSTALLED, Ordering::Release);
        }
        Err(_) => wait_for_installed(),
    }
    sys::signal_mask(before);
}

fn wait_for_installed() {
    while STATE.load(Ordering::Acquire) != INSTALLED {
        std::thread::yield_now();
    }
}

fn put_in_place(real: Sigaction) {
    // SAFETY: as in `remembered`.
    let mut ours: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    ours.sa_sigaction = handler as *const () as usize;
    ours.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
    ours.sa_mask = full_mask();
    let mut old = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: both are valid actions; `old` is written if the call succeeds and is zero (SIG_DFL) otherwise.
    unsafe {
        real(libc::SIGSEGV, ptr::null(), old.as_mut_ptr());
        // Before the new handler is registered: another thread may fault at once.
        remember(old.assume_init_ref());
        real(libc::SIGSEGV, &raw const ours, ptr::null_mut());
    }
}

/// `sigaction` for the layer above: SIGSEGV is remembered, everything else is passed to libc.
///
/// # Safety
/// As `sigaction(2)`.
pub unsafe fn sigaction(signal: i32, new: *const libc::sigaction, old: *mut libc::sigaction) -> i32 {
    let Some(real) = real() else {
        sys::set_errno(libc::ENOSYS);
        return -1;
    };
    if signal != libc::SIGSEGV {
        // SAFETY: the caller's contract.
        return unsafe { real(signal, new, old) };
    }
    if STATE.load(Ordering::Acquire) != INSTALLED {
        // ORDERING: see `install`.
        PASSING.fetch_add(1, Ordering::SeqCst);
        if STATE.load(Ordering::SeqCst) == NOT_YET {
            // SAFETY: the caller's contract.
            let r = unsafe { real(signal, new, old) };
            PASSING.fetch_sub(1, Ordering::Release);
            return r;
        }
        PASSING.fetch_sub(1, Ordering::Release);
        wait_for_installed();
    }
    let before = remembered();
    // SAFETY: the caller promises that each is null or valid.
    unsafe {
        if let Some(new) = new.as_ref() {
            remember(new);
        }
        if let Some(old) = old.as_mut() {
            *old = before;
        }
    }
    0
}

/// The kernel's SIGSEGV handler. Async-signal-safe and re-entrant.
extern "C" fn handler(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let saved = sys::errno();
    // SAFETY: the kernel's arguments of a running handler.
    let ours = unsafe { (*info).si_code > 0 && doorbell_access((*info).si_addr() as u64, context) };
    if !ours {
        forward(signal, info, context);
    }
    sys::set_errno(saved);
}

/// Carries out an access to a doorbell page. `false`: not one, or not one that the program may make.
fn doorbell_access(address: u64, context: *mut c_void) -> bool {
    let Some(page) = doorbell::find_settled(address) else { return false };
    // SAFETY: `context` is the third argument of the running handler, and no other code uses it during the call.
    let Some(mut registers) = (unsafe { Context::from_handler(context) }) else { return false };
    let mut code = [0u8; trap::MAX_INSTRUCTION];
    let len = sys::read_self(registers.rip(), &mut code);
    let Some(access) = decode(&code[..len]) else { return false };
    match access.kind {
        Kind::Store => {
            if page.prot & libc::PROT_WRITE == 0 {
                return false;
            }
            let Some(value) = store_value(&access, &registers) else { return false };
            if page.offset == doorbell::DOORBELL {
                page.bell.ring(value as u32);
            }
        }
        Kind::Load => {
            // Writable pages are readable on x86, whatever was asked for.
            if page.prot & (libc::PROT_READ | libc::PROT_WRITE) == 0 {
                return false;
            }
            if load_into(&access, &mut registers, doorbell::register_bytes(page.offset)).is_none() {
                return false;
            }
        }
    }
    advance(&access, &mut registers);
    true
}

/// Does what the kernel would have done without this handler.
fn forward(signal: i32, info: *mut libc::siginfo_t, context: *mut c_void) {
    let handler = HANDLER.load(Ordering::Acquire);
    let flags = FLAGS.load(Ordering::Relaxed);
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // A fault that is ignored still kills: it is repeated without this handler.
        if let Some(real) = real() {
            // SAFETY: all zeros is SIG_DFL.
            unsafe {
                let default: libc::sigaction = MaybeUninit::zeroed().assume_init();
                real(signal, &raw const default, ptr::null_mut());
                // A signal that was sent does not repeat itself; it is delivered when this handler returns.
                if (*info).si_code <= 0 {
                    libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::syscall(libc::SYS_gettid), signal);
                }
            }
        }
        return;
    }
    if flags & libc::SA_RESETHAND != 0 {
        HANDLER.store(libc::SIG_DFL, Ordering::Release);
    }
    // The mask that the handler would have: the interrupted thread's and its own, never SIGSEGV.
    let segv = 1u64 << (libc::SIGSEGV - 1);
    // SAFETY: the kernel's context of the running handler; sigset_t is at least 8 bytes of plain bits.
    let previous = unsafe {
        let interrupted = mask_bits(&(*context.cast::<libc::ucontext_t>()).uc_sigmask);
        sys::signal_mask((interrupted | MASK.load(Ordering::Relaxed)) & !segv)
    };
    // SAFETY: a handler that was registered with these flags, called with the kernel's arguments.
    unsafe {
        if flags & libc::SA_SIGINFO != 0 {
            transmute::<usize, extern "C" fn(i32, *mut libc::siginfo_t, *mut c_void)>(handler)(signal, info, context);
        } else {
            transmute::<usize, extern "C" fn(i32)>(handler)(signal);
        }
    }
    sys::signal_mask(previous);
}
