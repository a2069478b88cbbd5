//! How full the link gets. T threads drive D devices with Q queues of N I/Os in flight each, and every I/O is submitted and reaped separately. At
//! the same time the GPU counts the traffic on its link.
//!
//! A [`queue::Queue`] takes I/Os, a [`source::Source`] opens queues: copy engines in place of devices, drives, a file ([`sources`]). [`cell`]
//! measures one cell, [`link`] computes what a link can carry.
//!
//! The invariant: the loop that submits and reaps takes no lock, allocates no memory and makes no system call (except to read a file). Every byte
//! that it moved is compared afterwards (for slots of a file: the last contents).
//!
//! Measuring is only supported on x86-64. Elsewhere, existing measurements can be read.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]

pub mod account;
mod error;
pub mod folder;
pub mod knee;
pub mod link;
#[cfg(target_arch = "x86_64")]
#[path = "."]
mod measuring {
    pub mod cell;
    pub(crate) mod cycles;
    pub mod lane;
    pub mod run;
    pub mod sources;
    pub mod worker;
}
pub mod plan;
pub mod queue;
pub mod source;
pub mod sum_up;
pub mod walk;
pub mod way;
pub mod wire;

pub use error::Error;
#[cfg(target_arch = "x86_64")]
pub use measuring::*;
