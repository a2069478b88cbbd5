//! What the library needs to do without std, as it is preloaded. (For tests it has std, and none of this.)
//!
//! std needs libgcc_s for the backtraces of panics. To load that takes as long as to load the agent itself, in every program.

use crate::process::sys;
use core::fmt::{self, Write};
use core::panic::PanicInfo;

// What std would link. (Before glibc 2.34 threads were a library of their own.)
#[link(name = "pthread")]
#[link(name = "dl")]
#[link(name = "c")]
unsafe extern "C" {}

// Functions of core name it as what unwinds them for a panic. Here a panic ends the process, and a thread that is cancelled passes them.
// (8 is _URC_CONTINUE_UNWIND. Hidden: a program may have a function of this name.)
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

/// A mistake of the agent's: it is said on standard error, and the process aborts.
#[panic_handler]
fn panicked(info: &PanicInfo) -> ! {
    let _ = writeln!(StandardError, "doorbell's agent: {info}");
    // SAFETY: no arguments.
    unsafe { libc::abort() }
}
