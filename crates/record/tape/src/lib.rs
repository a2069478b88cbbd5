//! The recording. Layouts of events are in [`event`]. Some kinds have a separate module: locks in [`lock`], CUDA calls in [`call`], Python frames
//! in [`python`], NVTX in [`nvtx`], kernel times in [`stamp`], context switches in [`switch`], and page faults in [`fault`]. Processes find their recorder
//! through the [`session`], and [`starts`] counts the programs that load the agent. Agents pass events through rings in shared memory ([`region`], [`rings`],
//! [`ring`]). The recorder writes them to a file of chunks ([`file`]). When kernels ran follows from stamps and from
//! the GPU's clock (`kernel_clock`).
//!
//! Invariant: bytes that were published in a ring are whole events. A file is a sequence of checked chunks of whole events, so everything before a truncation
//! can be read.
#![cfg_attr(not(feature = "file"), no_std)]

pub mod call;
pub mod compile;
pub mod event;
pub mod fault;
#[cfg(feature = "file")]
pub mod file;
pub mod fix;
#[cfg(feature = "file")]
pub mod kernel_clock;
#[cfg(feature = "file")]
pub mod live;
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
