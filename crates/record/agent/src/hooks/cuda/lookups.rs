//! dlsym and dlvsym: first looks for CUDA's libraries, then jumps to the real function with nothing changed.
//!
//! The real function sees its caller's return address, so RTLD_NEXT, RTLD_DEFAULT and versions mean the same as without
//! the agent. The look itself needs the loader's lock, so that no library is loaded, unloaded or bound during it. So it
//! runs in the resolver of an indirect function, which the real dlsym calls under that lock.

use super::find;
use crate::process::{symbol, sys};
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// 1: look first.
static ON: AtomicU32 = AtomicU32::new(0);
static DLSYM: AtomicUsize = AtomicUsize::new(0);
static DLVSYM: AtomicUsize = AtomicUsize::new(0);

const LOOK: &CStr = c"doorbell_look_for_cuda";

macro_rules! lookup {
    ($name:ident, $real:path, $resolve:path) => {
        /// As the C function of that name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "cmp dword ptr [rip + {on}], 0",
                "jne 3f",
                "2:",
                "mov rax, qword ptr [rip + {real}]",
                "test rax, rax",
                "je 4f",
                "jmp rax",
                "3:",
                "push rdi",
                "push rsi",
                "push rdx",
                ".cfi_adjust_cfa_offset 24",
                "call {look}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -24",
                "jmp 2b",
                "4:",
                "push rdi",
                "push rsi",
                "push rdx",
                ".cfi_adjust_cfa_offset 24",
                "call {resolve}",
                "pop rdx",
                "pop rsi",
                "pop rdi",
                ".cfi_adjust_cfa_offset -24",
                "jmp rax",
                ".cfi_endproc",
                on = sym ON,
                real = sym $real,
                look = sym look,
                resolve = sym $resolve,
            )
        }
    };
}

lookup!(dlsym, DLSYM, resolve_dlsym);
lookup!(dlvsym, DLVSYM, resolve_dlvsym);

extern "C" fn resolve_dlsym() -> usize {
    symbol::resolved(&DLSYM, c"dlsym")
}

extern "C" fn resolve_dlvsym() -> usize {
    symbol::resolved(&DLVSYM, c"dlvsym")
}

/// An indirect function: dlsym calls its resolver, under the loader's lock, to get its address.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_look_for_cuda() {
    naked_asm!(
        ".type doorbell_look_for_cuda, @gnu_indirect_function",
        "jmp {to}",
        to = sym under_the_loaders_lock,
    )
}

extern "C" fn under_the_loaders_lock() -> *const c_void {
    // SAFETY: no other thread loads or unloads a library: the caller's lock.
    unsafe { find::look() };
    // (Any address.)
    LOOK.as_ptr().cast()
}

/// From now on the program's lookups find entries. Called by the constructor.
pub fn begin() {
    resolve_dlsym();
    resolve_dlvsym();
    // (Once: a forked child that is recorded again inherits them.)
    if ON.load(Ordering::Relaxed) == 0 {
        find::begin();
    }
    look();
    // ORDERING: Release: the data that a lookup uses, before a lookup uses it.
    ON.store(1, Ordering::Release);
}

extern "C" fn look() {
    let at = match DLSYM.load(Ordering::Relaxed) {
        0 => resolve_dlsym(),
        at => at,
    };
    let _keep = sys::Errno::keep();
    // SAFETY: the symbol has this C type; the name ends with NUL.
    unsafe {
        let f: unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void = core::mem::transmute(at);
        f(libc::RTLD_DEFAULT, LOOK.as_ptr());
    }
}
