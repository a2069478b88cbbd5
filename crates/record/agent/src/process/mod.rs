//! The process that the agent runs in. Every other module of the agent uses this one.
//!
//! - At the start: the environment ([`environment`]), the recorder's session ([`session`]) and this process's region
//!   ([`region`]).
//! - Later: fork ([`wiped`], [`renewal`]), threads ([`thread`]) and the agent's own locks ([`own_lock`]).
//! - Below: the functions behind the exported names ([`real`]), system calls ([`sys`]), mappings ([`maps`]) and core
//!   files ([`cores`]).
//! - What the program forbids itself ([`restrictions`]).
//!
//! Invariant: nothing here depends on a module above it. The constructor passes in once, as [`renewal::Steps`], what
//! those modules must do when the process attaches or has forked.

pub mod children;
pub mod clock;
pub mod cores;
pub mod depths;
pub mod environment;
pub mod identity;
pub mod key;
pub mod locked;
pub mod maps;
mod memory;
pub mod own_lock;
pub mod place;
pub mod real;
pub mod region;
pub mod renewal;
pub mod restrictions;
pub mod scheduling;
pub mod session;
pub mod symbol;
pub mod sys;
pub mod thread;
pub mod wiped;
