//! The recording: what an event looks like ([`event`], those of locks in [`lock`], of CUDA's calls in [`call`], of
//! Python's frames in [`python`], of NVTX in [`nvtx`], of when kernels ended in [`stamp`], of context switches in [`switch`], of page faults in [`fault`]), how processes find their recorder ([`session`]), which started programs load the agent ([`starts`]), the rings in shared memory through which their
//! agents hand it events ([`region`], [`rings`], [`ring`]), and the file of chunks ([`file`]).
//!
//! Invariant: bytes that were published in a ring are whole events; a file is a sequence of checked chunks of whole
//! events, so everything before a truncation can be read.
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
