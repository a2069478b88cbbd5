//! SIGSEGV and SIGTRAP as the program sees them. Faults that somebody answers ([`crate::fault`]) are ours; everything else is
//! the program's, which must not notice us.
//!
//! The kernel knows our handler ([`entry`]) and never blocks these two signals, or a thread that rings a doorbell would be
//! killed. What the program installs is kept in [`actions`] and run as the kernel would run it: on the same stack, with the
//! same mask, in the frame that the kernel made. What it blocks, and what was sent meanwhile, is kept for each thread
//! ([`masks`]). [`calls`] and [`waits`] answer its questions; [`inherit`] hands masks and ignored signals to new threads and
//! programs.
//!
//! The handlers are installed when the first doorbell page is mapped, or when the program blocks one of the signals before:
//! a program that does neither keeps its own.
//!
//! Not seen: raw rt_sigaction and rt_sigprocmask system calls (Go), masks given to ppoll, pselect and epoll_pwait, signalfd.

pub mod actions;
pub mod calls;
mod entry;
pub mod inherit;
pub mod masks;
pub mod stacks;
pub mod waits;

pub use entry::install;

use crate::process::sys;

/// From the constructor of every followed process: it may have been started with one of our signals blocked, and threads that
/// begin before it attaches inherit that.
pub fn begin() {
    if masks::bits_of(sys::signal_mask(libc::SIG_BLOCK, 0)) != 0 {
        install();
    }
}
