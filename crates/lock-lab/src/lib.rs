//! Experiments on locks: what real-time threads suffer from pthread locks and from CUDA's use of them, and what other
//! protocols change.
//!
//! [`locks`] needs no GPU, [`contention`] times calls of CUDA's while other threads load its locks, [`calls`] are the calls
//! it times beside launches. Clocks, statistics, placement and background load come from crate `lab`.
//!
//! Invariant: nothing here chooses the process's lock policy. One process runs under one policy, and the caller compares
//! processes.

pub mod calls;
pub mod contention;
pub mod locks;
