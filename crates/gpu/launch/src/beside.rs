//! A chain whose copies have a separate channel: two doorbells, and no change of engine.
//!
//! The launch channel and a copy-engine channel each get their part of the chain, and wait for each other by the chain's counter. Neither changes its engine,
//! so neither waits until CUDA's kernels have ended (see [`crate::Chain`]). Inline bytes are sent on the launch channel. Bytes that the CPU stores
//! ([`Way::Stores`]) use neither channel.

use crate::chain::{ChainOptions, Made, Step, Way, make};
use crate::error::Error;
use crate::graph::Graph;
use crate::node::Node;
use gpu::{Channel, Engine, Launch, Region, Ticket};
use std::sync::Arc;

/// A chain on two channels.
#[derive(Debug)]
pub struct ChainBeside {
    graph: Graph,
    copies: Launch,
    ways: Vec<Option<Way>>,
}

impl ChainBeside {
    /// Prepares a chain on a launch channel and a copy-engine channel of the same address space.
    ///
    /// # Errors
    /// As [`crate::Chain::prepare`]; [`Error::Channel`] if `copies` is not a copy-engine channel, [`gpu::Error::OtherSpace`] if it has another address space.
    ///
    /// # Safety
    /// As [`crate::Chain::prepare`].
    pub unsafe fn prepare(
        launches: &mut Channel,
        copies: &mut Channel,
        steps: &[Step<'_>],
        options: ChainOptions,
    ) -> Result<ChainBeside, Error> {
        if !matches!(copies.engine(), Engine::Copy(_)) {
            return Err(Error::Channel("copies beside a chain need a channel of a copy engine"));
        }
        if !Arc::ptr_eq(launches.space(), copies.space()) {
            return Err(gpu::Error::OtherSpace { va: copies.tracker() }.into());
        }
        // SAFETY: the caller's contract.
        let Made { graph, copies, ways } = unsafe { make(launches, Some(copies), steps, options) }?;
        let copies = copies.ok_or(Error::Channel("a chain without its copies"))?;
        Ok(ChainBeside { graph, copies, ways })
    }

    /// Launches the chain after all earlier launches on the launch channel; later launches there wait for all of it. The ticket belongs to the copy channel
    /// and is done when the last step is. If the launch channel is killed, the ticket is never done: check [`Channel::error`] of each channel.
    ///
    /// # Errors
    /// As [`Graph::launch`], for either channel. [`gpu::Error::RingFull`] also if the CPU stores bytes ([`Way::Stores`]) and the last launch has not ended.
    /// On an error, the chain is not launched and no byte is stored.
    #[inline]
    pub fn launch(&mut self, launches: &mut Channel, copies: &mut Channel) -> Result<Ticket, gpu::Error> {
        self.graph.launch_beside(launches, (&mut self.copies, copies))
    }

    /// As [`Graph::set_parameter`]: nodes are numbered through all graphs.
    ///
    /// # Errors
    /// As [`Graph::set_parameter`].
    pub fn set_parameter(&mut self, node: usize, offset: u32, bytes: &[u8]) -> Result<(), Error> {
        self.graph.set_parameter(node, offset, bytes)
    }

    /// Whether [`ChainBeside::launch`] would find room now. If the CPU stores bytes, the last launch must also have ended.
    ///
    /// # Errors
    /// As [`ChainBeside::launch`].
    pub fn ready(&self, launches: &mut Channel, copies: &mut Channel) -> Result<(), gpu::Error> {
        self.graph.ready_beside(launches, (&self.copies, copies))
    }

    /// As [`Graph::set_pointer`].
    ///
    /// # Errors
    /// As [`Graph::set_pointer`].
    pub fn set_pointer(&mut self, node: usize, offset: u32, to: (&Region, u64)) -> Result<(), Error> {
        self.graph.set_pointer(node, offset, to)
    }

    /// As [`Graph::parameters`].
    pub fn parameters(&self, node: usize) -> Option<&[u8]> {
        self.graph.parameters(node)
    }

    pub fn nodes(&self) -> &[Node] {
        self.graph.nodes()
    }

    /// How the bytes of each step are moved; `None` for a launch.
    pub fn ways(&self) -> &[Option<Way>] {
        &self.ways
    }
}
