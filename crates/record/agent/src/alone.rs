//! What the preloaded library needs in place of std. (In tests it has std, and none of this.)
//!
//! std needs libgcc_s for the backtraces of panics. In every program, loading that takes as long as loading the agent
//! itself.

use crate::process::sys;
use core::fmt::{self, Write};
use core::panic::PanicInfo;

// The libraries that std would link. (Before glibc 2.34, threads were in a separate library.)
#[link(name = "pthread")]
#[link(name = "dl")]
#[link(name = "c")]
unsafe extern "C" {}

// Functions of core name this as their unwinder for panics. Here a panic ends the process, and the unwinding of a
// cancelled thread passes these functions. (8 is _URC_CONTINUE_UNWIND. Hidden: a program may have a function of this
// name.)
core::arch::global_asm!(
    ".hidden rust_eh_personality",
    ".globl rust_eh_personality",
    ".type rust_eh_personality, @function",
    "rust_eh_personality:",
    "mov eax, 8",
    "ret",
    ".size rust_eh_personality, . - rust_eh_personality",
);

struct StandardError;

impl Write for StandardError {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        // SAFETY: bytes with their length.
        unsafe { sys::syscall6(libc::SYS_write, 2, s.as_ptr() as usize, s.len(), 0, 0, 0) };
        Ok(())
    }
}

/// A bug in the agent: it is printed on standard error, and the process aborts.
#[panic_handler]
fn panicked(info: &PanicInfo) -> ! {
    let _ = writeln!(StandardError, "doorbell's agent: {info}");
    // SAFETY: no arguments.
    unsafe { libc::abort() }
}
