//! SIGSEGV and SIGTRAP as the program sees them. The agent handles faults that one of its modules answers
//! ([`crate::fault`]). All others are the program's, which must not notice the agent.
//!
//! The kernel calls the agent's handler ([`entry`]) and never blocks these two signals: otherwise a thread that rings a
//! doorbell would be killed. The program's actions are kept in [`actions`] and run as the kernel would run them: on the
//! same stack, with the same mask, in the frame that the kernel made. Signals that a thread has blocked, and those sent
//! to it since, are kept for each thread ([`masks`]). [`calls`] and [`waits`] answer the program's calls; [`inherit`]
//! passes masks and ignored signals on to new threads and programs.
//!
//! The handlers are installed when the first doorbell page is mapped, or earlier, when the program blocks one of the
//! signals. A program that does neither keeps its own.
//!
//! Not seen: raw rt_sigaction system calls, raw rt_sigprocmask ones that block (one that unblocks is noticed later, by the
//! kernel's mask), masks given to ppoll, pselect and epoll_pwait, signalfd.

pub mod actions;
pub mod calls;
mod entry;
pub mod inherit;
pub mod masks;
pub mod stacks;
pub mod waits;

pub use entry::install;

use crate::process::sys;

/// Called by the constructor of every followed process: it may have been started with one of these signals blocked, and
/// threads that begin before it attaches inherit that.
pub fn begin() {
    if masks::bits_of(sys::signal_mask(libc::SIG_BLOCK, 0)) != 0 {
        install();
    }
}
