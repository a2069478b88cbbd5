//! CUDA graphs launched from doorbell's own channel.
//!
//! [`Graph::learn`] has the program launch an instantiated graph three times and reads the words that CUDA sent to its channels: the upload of the graph, and
//! two launches after it. These run on a stream that is kept busy if possible ([`OnStream`]), because CUDA omits waits that are already over. From these
//! words crate `cuda-graph` makes a separate graph: copies of its QMDs and constant banks in doorbell's memory, and a launch of a few words.
//! [`Graph::launch`] is then one segment and one doorbell, without libcuda: no lock, no allocation, no system call.
//!
//! A channel ([`channel`]) is a queue of launches, as a stream is: launches run in the order of the calls, whatever their graph. Only the program's own waits
//! order them against CUDA's streams. A kernel by itself is a graph with one node.
//!
//! **What must stay.** The copies name CUDA's memory: the kernels' code, the constant banks that all kernels of a module share, local memory, and the memory
//! that the kernels' parameters point to. So the module must stay loaded, the context must stay, and memory must stay allocated, as long as launches are
//! made. The executable graph itself may be destroyed or updated: the copy does not change.
//!
//! Changes that doorbell notices: when CUDA unmaps the code or a constant bank of a kernel, or frees memory that a copy or memset names (which is pinned),
//! launches are refused ([`gpu::Error::Stale`]). They are also refused when the context is destroyed ([`gpu::Error::NoContext`]). CUDA's functions that free
//! memory or unload a module wait for pending launches, for at most ten seconds. doorbell does not notice the unload of a module whose code is in a mapping
//! that CUDA keeps, or the free of memory that only a kernel's parameters point to. A launch whose kernel does not find its memory is a GPU fault, and a
//! fault ends CUDA's context, as for a kernel that CUDA launched. When the context's stack size changes (`cuCtxSetLimit`), which moves local memory, graphs
//! that were prepared before are refused ([`gpu::Error::LocalMemoryMoved`]).
//!
//! **Chains.** A [`Chain`] is copies and launches in one segment with one doorbell; the GPU orders the steps. [`ChainBeside`] has a separate channel for its
//! copies. The CPU may store the first bytes itself ([`Way::Stores`]).
//!
//! **Pageable memory.** A [`StagedGraph`] replaces pageable memory that memcpy nodes name by pinned memory; the CPU moves the bytes before and after a
//! launch.
//!
//! The invariant: unsupported graphs are refused with the reason before anything is submitted, and each word passes the validator of crate `gpu`.

mod beside;
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
pub use chain::{Chain, ChainOptions, INLINE_MOST, Step, Transfer, Way};
pub use error::Error;
pub use fills::{BACKGROUND, Memsets, WORDS};
pub use graph::{Graph, Set, Template};
pub use launches::{Launches, OnStream};
pub use node::{Kind, Node};
pub use staged::StagedGraph;
pub use stores::{STORES_MOST, Stored};
pub use stream::Order;

use gpu::{AddressSpace, Channel, ChannelOptions, Engine, Group};
use std::sync::Arc;

/// Opens a channel for launches: a graphics channel in CUDA's group, with a copy engine. `space` is CUDA's address space, entered with
/// [`gpu::Entry::CudasClient`].
///
/// # Errors
/// Errors of the driver, also if CUDA's group cannot be joined. [`Error::Machine`] on another chip than an H100 or H200, on a part of a GPU (MIG), under the
/// Multi-Process Service and under confidential computing: no word was submitted.
pub fn channel(space: &Arc<AddressSpace>) -> Result<Channel, Error> {
    machine::check(space)?;
    let options = ChannelOptions { group: Group::Cudas, copies: true, ..ChannelOptions::default() };
    Ok(Channel::new(space, Engine::Graphics, options)?)
}
