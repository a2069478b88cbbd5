//! CUDA graphs launched from a channel of our own.
//!
//! [`Graph::learn`] has the program launch an instantiated graph three times and reads what CUDA told its channels: the upload of the graph, and twice
//! the launch after it, behind a stream that is kept busy if that can be done ([`OnStream`]): CUDA leaves out waits for what is over. Of that crate `cuda-graph` makes a graph of our own: copies of its QMDs and constant banks in memory of ours, and a launch of a few
//! words. [`Graph::launch`] is then one segment and one doorbell, without libcuda: no lock, no allocation, no system call.
//!
//! A channel ([`channel`]) is a queue of launches, as a stream is: what is launched on it runs in the order of the calls, whatever graph it is of.
//! Nothing orders it against CUDA's streams but what the program itself waits for. A kernel by itself is a graph with one node.
//!
//! **What must stay.** Our copies name what is CUDA's: the kernels' code, the constant banks that all kernels of a module share, local memory, and what
//! the kernels' parameters point to. So the module stays loaded, the context stays, and memory stays allocated, for as long as launches are made. The
//! executable graph itself may be destroyed, or updated: the copy stays what it was.
//!
//! What is noticed: when CUDA unmaps the code or a constant bank of a kernel, or frees memory that a copy or memset names (which is pinned), launches
//! are refused ([`gpu::Error::Stale`]), as they are when the context is destroyed ([`gpu::Error::NoContext`]). CUDA's functions that free memory or unload
//! a module wait for launches that are under way, ten seconds at most. What is not noticed: a module whose code lay in a mapping that CUDA keeps, and
//! memory that only a kernel's parameters point to. A launch whose kernel does not find what it needs is a fault of the GPU, and a fault ends
//! CUDA's context, as that of a kernel that CUDA launched would. When the context's stack size changes (`cuCtxSetLimit`), which moves local memory, what was
//! prepared before is refused ([`gpu::Error::LocalMemoryMoved`]).
//!
//! **Chains.** A [`Chain`] is copies and launches as one: a segment, one doorbell, and the GPU orders the steps itself. [`ChainBeside`] has its copies on a
//! channel of their own, and the CPU may store the first bytes itself ([`Way::Stores`]).
//!
//! **Pageable memory.** A [`StagedGraph`] has pinned memory in the place of pageable memory that memcpy nodes name; the CPU moves the bytes before and after a launch.
//!
//! The invariant: what is not understood is refused by name before anything is submitted, and each word passes the validator of crate `gpu`.

mod beside;
mod branches;
mod chain;
mod error;
mod fills;
mod given;
mod graph;
mod launches;
mod learn;
mod machine;
mod memory;
mod node;
mod small_copies;
mod staged;
mod stores;
mod stream;

pub use beside::ChainBeside;
pub use branches::Branches;
pub use chain::{Chain, ChainOptions, INLINE_MOST, Step, Transfer, Way};
pub use error::Error;
pub use fills::{BACKGROUND, Memsets, WORDS};
pub use graph::{Graph, Set, Template};
pub use launches::{Launches, OnStream};
pub use learn::Learning;
pub use node::{Kind, Node};
pub use staged::StagedGraph;
pub use stores::{STORES_MOST, Stored};
pub use stream::Order;

use gpu::{AddressSpace, Channel, ChannelOptions, Engine, Group};
use std::sync::Arc;

/// A channel for launches: a graphics channel in CUDA's group, with a copy engine. `space` is CUDA's address space, entered with
/// [`gpu::Entry::CudasClient`].
///
/// # Errors
/// What the driver refuses, and where CUDA's group cannot be joined; [`Error::Machine`] on another chip than an H100 or H200, on a part of a GPU (MIG), under
/// the Multi-Process Service and under confidential computing: nothing was submitted.
pub fn channel(space: &Arc<AddressSpace>) -> Result<Channel, Error> {
    machine::check(space)?;
    let options = ChannelOptions { group: Group::Cudas, copies: true, ..ChannelOptions::default() };
    Ok(Channel::new(space, Engine::Graphics, options)?)
}
