//! How full the link gets: T threads drive D devices with Q queues of N I/Os under way each, and every I/O is submitted and reaped
//! by itself; meanwhile the GPU counts what crosses its link.
//!
//! A [`queue::Queue`] takes I/Os, a [`source::Source`] opens queues: copy engines in the place of devices, drives, a file ([`sources`]). [`cell`]
//! measures one cell, [`link`] says what a link can carry.
//!
//! The invariant: in the loop that submits and reaps no lock is taken, nothing is allocated and no system call is made (but those that read a
//! file), and every byte that it moved is compared afterwards (of slots of a file: the last that they hold).
//!
//! It measures on x86-64 alone. Elsewhere it has what was measured, to be read.
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
