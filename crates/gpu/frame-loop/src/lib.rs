//! A thread that launches a chain for each frame, by time or as frames come: the hot path of a server or a control loop, where no interpreter's lock and no
//! call of CUDA's delays it.
//!
//! [`Loop::start`] takes a chain of [`submit::Session::prepare_chain`]: copies in, launches, copies out. A [`Producer`] fills slots; the thread copies each
//! into the host memory where the chain reads, launches, waits, and copies what the chain wrote into the next slot of the results, with its times. An
//! eventfd is signalled then. All slots, counts and histograms are one plain memory ([`layout`]), so that C and numpy use it as it is.
//!
//! One launch is under way at a time. A slot is copied into the chain's own input because that is cheap next to a launch (see `docs/how-it-works/frame-loop.md`), and
//! because one chain per slot would make each launch read other words.
//!
//! The invariant: a frame allocates nothing, takes no lock, logs nothing, and makes no system call but its sleep and the write to the eventfd; and whatever
//! happens to the session, the chain or its memory, the thread ends with a [`Reason`] and touches no memory that has gone.
//!
//! # A fork's child
//! It has no loop: the memory is empty there, each call says [`Reason::Forked`], and nothing waits.

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
