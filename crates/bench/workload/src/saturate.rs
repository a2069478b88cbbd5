//! Many I/Os in progress at once: T threads drive D devices with Q queues of N I/Os each, and every I/O is submitted and reaped separately.
//!
//! A [`queue::Queue`] takes I/Os, a [`source::Source`] opens queues: copy engines in place of devices, drives ([`sources`]). A [`Burst`] is a number
//! of I/Os through all of them. An experiment measures bursts as the call `ios` (crate `workload`).
//!
//! The invariant: the loop that submits and reaps takes no lock, allocates no memory and makes no system call. Every byte that it moved can be
//! compared afterwards.

mod burst;
pub mod lane;
pub mod queue;
pub mod source;
pub mod sources;
pub mod walk;
pub mod way;

pub use burst::Burst;
