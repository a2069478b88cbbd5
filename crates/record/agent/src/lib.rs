//! The library that doorbell preloads into a program.
//!
//! From top to bottom:
//!
//! - [`start`], the constructor.
//! - [`hooks`] and [`exec`], the functions that the program calls.
//! - Their back ends: [`driver`] (driver calls), [`trace`] (locks and CUDA calls on the tape), [`policy`] (other lock
//!   protocols) and [`fix`] (CUDA calls answered in another way).
//! - [`tap`] (doorbells), [`signals`], [`fault`], [`record`] (rings) and [`process`].
//!
//! A module uses only modules below it.
//!
//! *Hot zone* ([`tap`], and the code that a rewritten doorbell site calls): no allocation, no lock, no system call. *Cold
//! zone* ([`driver`]): fixed tables, locks with priority inheritance, the real functions by link order. The agent never
//! changes the program's results, signals, errno or exit status. In doubt it passes the call through and records the
//! reason on the tape.
//!
//! Invariant: without a recorder's region or a policy board in the environment the agent does nothing at all. A forked
//! child records nothing until it attaches itself.

// The preloaded library does without std: half of its loading time went into libgcc_s, which std's backtraces need.
#![cfg_attr(panic = "abort", no_std)]

#[cfg(panic = "abort")]
mod alone;
mod driver;
mod exec;
mod fault;
mod fix;
pub mod hooks;
mod policy;
mod process;
mod record;
mod signals;
mod start;
mod tap;
mod trace;
