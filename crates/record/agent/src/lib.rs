//! The library that doorbell preloads into a program.
//!
//! From the top: [`start`] (the constructor), [`hooks`] and [`exec`] (the names that the program finds), their back ends [`driver`] (what the
//! program asks of the driver), [`trace`] (locks and calls of CUDA on the tape) and [`policy`] (other protocols for locks);
//! below them [`tap`] (doorbells), [`signals`], [`fault`], [`record`] (rings) and [`process`]. A module uses those below it
//! only.
//!
//! *Hot zone* ([`tap`], what a rewritten doorbell site calls): no allocation, no lock, no system call. *Cold zone*
//! ([`driver`]): fixed tables, locks with priority inheritance, the real functions by link order. The agent never changes what the program
//! computes, its signals, its errno or its exit status; where something is in doubt it passes the call through and says why
//! on the tape.
//!
//! Invariant: without a recorder's region or a board of policies in the environment it does nothing at all; a forked
//! child records nothing.

// As it is preloaded it has nothing of std's: half of the time of its loading went into libgcc_s, which std's backtraces need.
#![cfg_attr(panic = "abort", no_std)]

#[cfg(panic = "abort")]
mod alone;
mod driver;
mod exec;
mod fault;
pub mod hooks;
mod policy;
mod process;
mod record;
mod signals;
mod start;
mod tap;
mod trace;
