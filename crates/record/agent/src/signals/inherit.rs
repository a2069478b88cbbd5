//! Blocked and ignored signals that threads and programs inherit.

use super::actions::{installed, theirs};
use super::calls::kernel_action;
use super::entry::is_ours;
use super::masks::{self, OURS, bits_of, mask_of, word};
use crate::process::{real, sys};
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// A thread that is about to begin with signals blocked.
struct Birth {
    /// 0 free, 1 being filled, 2 in use.
    state: AtomicU8,
    blocked: AtomicU8,
    start: AtomicUsize,
    with: AtomicUsize,
}

/// Maximum number of threads that were made and have not begun. Any further thread begins with no signal blocked.
const BIRTHS: usize = 64;
static COMING: [Birth; BIRTHS] = [const {
    Birth { state: AtomicU8::new(0), blocked: AtomicU8::new(0), start: AtomicUsize::new(0), with: AtomicUsize::new(0) }
}; BIRTHS];

/// Makes a thread with `make`, which gets the thread's start function and argument.
///
/// # Safety
/// `attributes` is null or a thread's attributes; `start` and `with` belong to a new thread.
pub unsafe fn make_thread(
    attributes: *const c_void,
    start: *const c_void,
    with: *mut c_void,
    make: impl FnOnce(*const c_void, *mut c_void) -> c_int,
) -> c_int {
    if !installed() {
        return make(start, with);
    }
    let mut bits = masks::blocked();
    if !attributes.is_null() {
        // SAFETY: all zero is the empty set; the caller's attributes.
        unsafe {
            let mut own: libc::sigset_t = core::mem::zeroed();
            // (PTHREAD_ATTR_NO_SIGMASK_NP, -1, if it has no mask of its own.)
            if real::pthread_attr_getsigmask_np(attributes, &mut own) == 0 {
                bits = bits_of(word(&own));
            }
        }
    }
    let free = |b: &&Birth| b.state.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let Some(birth) = COMING.iter().filter(|_| bits != 0).find(free) else { return make(start, with) };
    birth.blocked.store(bits, Ordering::Relaxed);
    birth.start.store(start as usize, Ordering::Relaxed);
    birth.with.store(with as usize, Ordering::Relaxed);
    birth.state.store(2, Ordering::Release);
    let r = make(begins as *const c_void, core::ptr::from_ref(birth).cast_mut().cast());
    if r != 0 {
        birth.state.store(0, Ordering::Release);
    }
    r
}

/// A new thread's start function and argument.
#[repr(C)]
struct Start {
    start: usize,
    with: usize,
}

/// Start function of such a thread. It jumps to the real start function and leaves nothing on the stack.
#[unsafe(naked)]
unsafe extern "C" fn begins(birth: *mut c_void) -> *mut c_void {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "call {born}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "mov rdi, rdx",
        "jmp rax",
        ".cfi_endproc",
        born = sym born,
    )
}

extern "C" fn born(birth: &Birth) -> Start {
    let s = Start { start: birth.start.load(Ordering::Acquire), with: birth.with.load(Ordering::Relaxed) };
    // (Its attributes may have blocked them in the kernel.)
    let mask = sys::signal_mask(libc::SIG_UNBLOCK, masks::OUR_BITS);
    masks::set_by_calls(birth.blocked.load(Ordering::Relaxed), mask);
    birth.state.store(0, Ordering::Release);
    s
}

/// Starts another program with `f`, under the mask that the program would have without the agent.
pub fn over_spawn<R>(f: impl FnOnce() -> R) -> R {
    if !installed() {
        return f();
    }
    let kernels = sys::signal_mask(libc::SIG_BLOCK, 0);
    let more = mask_of(masks::blocked()) & !kernels;
    sys::signal_mask(libc::SIG_BLOCK, more);
    let r = f();
    sys::signal_mask(libc::SIG_UNBLOCK, more);
    r
}

/// Becomes another program with `f`, under the mask and ignored signals that the program would have without the agent.
/// `f` returns only if it fails.
pub fn over_exec<R>(f: impl FnOnce() -> R) -> R {
    if !installed() {
        return f();
    }
    over_spawn(|| {
        let mut ours = [None; 2];
        for (i, &signal) in OURS.iter().enumerate() {
            let now = kernel_action(signal, None);
            if theirs(i).sa_sigaction == libc::SIG_IGN && is_ours(now.handler) {
                let mut ignored = now;
                ignored.handler = libc::SIG_IGN;
                kernel_action(signal, Some(&ignored));
                ours[i] = Some(now);
            }
        }
        let r = f();
        for (&signal, now) in OURS.iter().zip(&ours) {
            if let Some(now) = now {
                kernel_action(signal, Some(now));
            }
        }
        r
    })
}
