//! The process that the agent runs in, and what every other module of the agent stands on: its environment at the start
//! ([`environment`]), the recorder's session ([`session`]) and this process's region ([`region`]), fork ([`wiped`],
//! [`renewal`]), threads ([`thread`]), locks of the agent's own ([`own_lock`]), the functions behind the exported names
//! ([`real`]), system calls ([`sys`]), mappings ([`maps`]), core files ([`cores`]) and what the program forbids itself ([`restrictions`]).
//!
//! Invariant: nothing here knows a module above it. What those have to do when the process attaches or has forked is handed
//! in once, by the constructor, as [`renewal::Steps`].

pub mod children;
pub mod clock;
pub mod cores;
pub mod depths;
pub mod environment;
mod identity;
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
