//! The library that doorbell preloads into a program.
//!
//! *Hot zone* ([`tap`], what a rewritten doorbell site calls): no allocation, no lock, no system call. *Cold zone*
//! ([`cold`], driver calls): fixed tables, one spin lock, the real functions by RTLD_NEXT. It never changes what the
//! program computes, its signals, its errno or its exit status; where something is in doubt it passes the call through
//! and says why on the tape.
//!
//! Invariant: without a recorder's region in the environment, and in every forked child, it does nothing at all.

mod channel;
mod cold;
pub mod exports;
mod files;
mod lock;
pub mod locks;
mod lookup;
mod page;
mod patch;
mod real;
mod record;
mod shadow;
mod signals;
mod start;
mod sys;
mod tap;
mod thread;
