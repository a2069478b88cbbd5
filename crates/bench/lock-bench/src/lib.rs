//! Experiments on locks: what real-time threads suffer from pthread locks, and what other protocols change and cost.
//!
//! Invariant: nothing here chooses the process's lock policy. One process runs under one policy, and the caller compares
//! processes.

pub mod locks;
