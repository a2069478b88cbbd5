//! The signal handler that the kernel calls.
//!
//! An unanswered signal is handed to the program's handler by a jump, in the frame that the kernel made. That handler
//! returns to where the kernel would make it return, and none of the agent's data is left on the stack. If the handler
//! did not ask for the alternate stack, where the agent runs, its frame is moved to the interrupted stack.

use super::actions::{self, theirs};
use super::masks::{self, bit, in_handler, index, standing_for};
use crate::fault;
use crate::process::{real, sys};
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use trap::Registers;
use trap::ucontext::Context;

/// Puts the agent's handlers in place. False if the kernel refuses.
pub fn install() -> bool {
    actions::install(on_signal as *const () as usize)
}

/// Where the handler continues.
#[repr(C)]
struct Next {
    /// The program's handler; 0: return.
    handler: usize,
    /// The distance by which its frame was moved.
    moved: usize,
}

/// Entered by the kernel with the signal, siginfo and ucontext, and the return address on the stack.
#[unsafe(naked)]
unsafe extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        "push rsi",
        "push rdx",
        ".cfi_adjust_cfa_offset 24",
        "lea rcx, [rsp + 24]",
        "call {decide}",
        "mov r11, rax",
        "mov r10, rdx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -24",
        "test r11, r11",
        "jz 2f",
        "add rsi, r10",
        "add rdx, r10",
        "add rsp, r10",
        "xor eax, eax",
        "jmp r11",
        "2:",
        "ret",
        ".cfi_endproc",
        decide = sym decide,
    )
}

const RETURN: Next = Next { handler: 0, moved: 0 };

unsafe extern "C" fn decide(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, frame: usize) -> Next {
    let _errno = sys::Errno::keep();
    // SAFETY: the kernel passes a ucontext_t to an SA_SIGINFO handler, valid while it runs.
    let Some(mut c) = (unsafe { Context::from_handler(context) }) else { return RETURN };
    // SAFETY: the kernel's siginfo; si_code > 0 means that it, not a kill(), made the signal.
    let forced = unsafe { (*info).si_code } > 0;
    if fault::answered(signal, forced, &mut c) {
        return RETURN;
    }
    // SAFETY: the kernel's arguments, passed on.
    unsafe { hand_on(signal, info, context.cast(), frame, forced) }
}

/// Does what the kernel would do with this signal without the agent.
unsafe fn hand_on(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::ucontext_t,
    frame: usize,
    forced: bool,
) -> Next {
    let Some(i) = index(signal) else { return RETURN };
    // SAFETY: the kernel's ucontext, whose mask only this handler uses.
    let mask = unsafe { &mut (*context).uc_sigmask };
    let kernels = masks::word(mask);
    let inside = in_handler(kernels) >> i & 1 != 0;
    let blocked = inside || masks::by_calls(kernels) >> i & 1 != 0;
    let a = theirs(i);
    if !forced {
        if inside {
            masks::postpone(i, mask, info);
            return RETURN;
        }
        if blocked {
            // SAFETY: the kernel's siginfo.
            unsafe { masks::keep(i, info) };
            return RETURN;
        }
        if a.sa_sigaction == libc::SIG_IGN {
            return RETURN;
        }
    }
    if a.sa_sigaction == libc::SIG_DFL || a.sa_sigaction == libc::SIG_IGN || blocked {
        die(signal, forced);
        return RETURN;
    }
    let mut moved = 0;
    if a.sa_flags & libc::SA_ONSTACK == 0 {
        // SAFETY: the kernel's frame.
        match unsafe { interrupted_stack(context, info, frame) } {
            Ok(by) => moved = by,
            // As the kernel does if it cannot write the frame.
            Err(()) => {
                die(libc::SIGSEGV, forced);
                return RETURN;
            }
        }
    }
    if a.sa_flags & libc::SA_RESETHAND != 0 {
        // SAFETY: all zero is the default action.
        actions::set_theirs(i, &unsafe { core::mem::zeroed() });
    }
    // What the kernel would block: the action's mask, and the signal itself.
    let mut asked = masks::word(&a.sa_mask);
    if a.sa_flags & libc::SA_NODEFER == 0 {
        asked |= bit(signal);
    }
    sys::signal_mask(libc::SIG_BLOCK, asked & !masks::OUR_BITS | standing_for(masks::bits_of(asked)));
    Next { handler: a.sa_sigaction, moved }
}

/// Ends the process as the signal would by default. A fault happens again when the handler returns. A signal that was
/// sent, or whose cause is over, is sent again.
#[cold]
fn die(signal: c_int, forced: bool) {
    // SAFETY: plain structs; a signal to the calling thread.
    unsafe {
        let mut d: libc::sigaction = core::mem::zeroed();
        d.sa_sigaction = libc::SIG_DFL;
        real::sigaction(signal, &d, core::ptr::null_mut());
        if !forced || signal == libc::SIGTRAP {
            sys::signal_mask(libc::SIG_UNBLOCK, bit(signal));
            let (pid, tid) = (sys::getpid() as usize, sys::gettid() as usize);
            sys::syscall6(libc::SYS_tgkill, pid, tid, signal as usize, 0, 0, 0);
        }
    }
}

/// True if the address is on the alternate stack that the kernel stored in the frame.
fn on_alternate(stack: &libc::stack_t, at: usize) -> bool {
    stack.ss_flags & libc::SS_DISABLE == 0 && at.wrapping_sub(stack.ss_sp as usize) <= stack.ss_size
}

/// Offset in `fpregs` of a signal frame. There, in FXSAVE's space for software, the kernel stores the size of the whole
/// state (asm/sigcontext.h, struct _fpx_sw_bytes).
const SOFTWARE: usize = 464;
const MAGIC: u32 = 0x4650_5853;
const FXSAVE: usize = 512;

/// Copies the kernel's frame from the alternate stack to the interrupted stack. Returns the distance, 0 if no move is
/// needed; an error if that stack cannot be written.
unsafe fn interrupted_stack(
    context: *mut libc::ucontext_t,
    info: *const libc::siginfo_t,
    frame: usize,
) -> Result<usize, ()> {
    // SAFETY: the kernel's frame.
    let (c, sp) = unsafe { (&*context, Context::from_handler(context.cast()).map_or(0, |c| c.gpr(4)) as usize) };
    // (A layer between the kernel and the agent has its own frame.)
    let is_the_kernels = context as usize == frame + 8;
    if !is_the_kernels || !on_alternate(&c.uc_stack, frame) || on_alternate(&c.uc_stack, sp) {
        return Ok(0);
    }
    let state = c.uc_mcontext.fpregs as usize;
    let mut end = info as usize + size_of::<libc::siginfo_t>();
    if state != 0 {
        // SAFETY: the state that the kernel has saved in this frame.
        let (magic, size) = unsafe {
            let software = (state + SOFTWARE) as *const u32;
            (software.read(), software.add(1).read() as usize)
        };
        end = end.max(state + if magic == MAGIC { size } else { FXSAVE });
    }
    let size = end - frame;
    // Below the red zone, with the kernel frame's offset in a cache line.
    let to = (sp.wrapping_sub(128 + size + 64) & !63) + (frame & 63);
    let mut page = to;
    while page < to + size {
        if !sys::is_writable(page & !7) {
            return Err(());
        }
        page = (page & !4095) + 4096;
    }
    // SAFETY: both ranges were written, or can be, for `size` bytes. They are on two stacks, so they do not overlap.
    unsafe {
        core::ptr::copy_nonoverlapping(frame as *const u8, to as *mut u8, size);
        let moved = to.wrapping_sub(frame);
        let c = &mut *((context as usize).wrapping_add(moved) as *mut libc::ucontext_t);
        if state != 0 {
            c.uc_mcontext.fpregs = state.wrapping_add(moved) as *mut _;
        }
        Ok(moved)
    }
}

/// True if this is the agent's handler.
pub fn is_ours(handler: usize) -> bool {
    handler == on_signal as *const () as usize
}
