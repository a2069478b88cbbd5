//! Experiments on locks: the delays of real-time threads by pthread locks, and the effects and costs of other protocols.
//!
//! Invariant: this crate never chooses the process's lock policy. One process runs under one policy, and the caller compares processes.

pub mod locks;
