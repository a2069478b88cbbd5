//! The recording. Layouts of events are in [`event`], with those of locks in [`lock`], of CUDA's calls in [`call`], of Python's frames in [`python`], of NVTX
//! in [`nvtx`], of the times of kernels in [`stamp`], of context switches in [`switch`], and of page faults in [`fault`]. Processes find their recorder through
//! the [`session`], and [`starts`] counts the programs that load the agent. Agents pass events through rings in shared memory ([`region`], [`rings`],
//! [`ring`]). The recorder writes them to a file of chunks ([`file`]).
//!
//! Invariant: bytes that were published in a ring are whole events. A file is a sequence of checked chunks of whole events, so everything before a truncation
//! can be read.
#![cfg_attr(not(feature = "file"), no_std)]

pub mod call;
pub mod event;
pub mod fault;
#[cfg(feature = "file")]
pub mod file;
pub mod lock;
pub mod nvtx;
pub mod policy;
pub mod python;
pub mod region;
pub mod ring;
pub mod rings;
pub mod session;
pub mod stamp;
pub mod starts;
pub mod switch;
