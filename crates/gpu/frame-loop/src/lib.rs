//! A thread that launches a chain for each frame, by time or as frames come: the hot path of a server or a control loop. No interpreter lock and no CUDA
//! call delays it.
//!
//! [`Loop::start`] takes a chain of [`submit::Session::prepare_chain`]: copies in, launches, copies out. A [`Producer`] fills slots. The thread copies each
//! slot into the host memory that the chain reads, launches, and waits. It then copies the chain's output into the next slot of the results, with its
//! times, and signals an eventfd. All slots, counts and histograms are in one plain memory ([`layout`]), which C and numpy can use directly.
//!
//! Only one launch is pending at a time. A slot is copied into the chain's own input because that is cheap compared with a launch (see
//! `docs/how-it-works/frame-loop.md`), and because with one chain per slot each launch would read other words.
//!
//! The invariant: a frame allocates no memory, takes no lock, writes no log, and makes no system call except its sleep and the write to the eventfd.
//! Whatever happens to the session, the chain or its memory, the thread ends with a [`Reason`] and touches no freed memory.
//!
//! # A fork's child
//! It has no loop: the memory is empty there, each call returns [`Reason::Forked`], and no call waits.

#[cfg(test)]
extern crate self as frame_loop;

mod error;
mod histogram;
pub mod layout;
mod memory;
mod options;
mod pace;
#[cfg(test)]
mod quiet;
mod scheduling;
mod sink;
mod source;
mod start;
mod statistics;
mod sys;
mod turn;
mod wait;

pub use error::{Error, Reason, State, Status};
pub use histogram::{BUCKETS, Buckets, Distribution};
pub use options::{Class, Full, Late, LoopOptions, Pace, Part, Scheduling, Take, Waiting};
pub use sink::{Outcome, Results};
pub use source::{Producer, Stamp};
pub use start::Loop;
pub use statistics::Statistics;
pub use sys::now;
