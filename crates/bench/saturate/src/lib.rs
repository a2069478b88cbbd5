//! How full the link gets: T threads drive D devices with Q queues of N I/Os under way each, and every I/O is submitted and reaped
//! by itself; meanwhile the GPU counts what crosses its link.
//!
//! A [`queue::Queue`] takes I/Os, a [`source::Source`] opens queues: copy engines in the place of devices, drives, a file ([`sources`]). [`cell`]
//! measures one cell, [`link`] says what a link can carry.
//!
//! The invariant: in the loop that submits and reaps no lock is taken, nothing is allocated and no system call is made (but those that read a
//! file), and every byte that it moved is compared afterwards (of slots of a file: the last that they hold).

pub mod account;
pub mod cell;
mod cycles;
mod error;
pub mod folder;
pub mod knee;
pub mod lane;
pub mod link;
pub mod plan;
pub mod queue;
pub mod run;
pub mod source;
pub mod sources;
pub mod sum_up;
pub mod walk;
pub mod way;
pub mod wire;
pub mod worker;

pub use error::Error;
