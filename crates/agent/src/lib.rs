//! The library that doorbell preloads into a program.
//!
//! *Hot zone* ([`tap`], what a rewritten doorbell site calls): no allocation, no lock, no system call. *Cold zone*
//! ([`cold`], driver calls): fixed tables, one spin lock, the real functions by RTLD_NEXT. It never changes what the
//! program computes, its signals, its errno or its exit status; where something is in doubt it passes the call through
//! and says why on the tape.
//!
//! CUDA's calls ([`calls`]) are tapped without a name of theirs being exported.
//!
//! Locks may be made to follow another protocol ([`policy`]), without a recorder.
//!
//! Invariant: without a recorder's region or a board of policies in the environment it does nothing at all; a forked
//! child records nothing.

pub mod calls;
mod channel;
mod cold;
mod exec;
pub mod exports;
mod files;
mod lock;
pub mod locks;
mod lookup;
mod page;
mod patch;
mod policy;
mod real;
mod record;
mod shadow;
mod signals;
mod start;
mod sys;
mod tap;
mod thread;
