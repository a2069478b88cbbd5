//! A chain whose copies have a channel of their own: two doorbells, and no change of engine.
//!
//! The channel of launches and one of a copy engine are told their parts, and wait for each other by the chain's counter. Neither changes its engine, so
//! nobody waits until CUDA's kernels are over (see [`crate::Chain`]). What goes inline goes by the channel of launches, and what the CPU stores
//! ([`Way::Stores`]) by neither.

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
    /// Makes a chain ready on a channel of launches and one for its copies, of a copy engine in the same address space.
    ///
    /// # Errors
    /// As [`crate::Chain::prepare`]; [`Error::Channel`] for a channel of copies that is none, [`gpu::Error::OtherSpace`] for one of another address space.
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
        // SAFETY: the caller's.
        let Made { graph, copies, ways } = unsafe { make(launches, Some(copies), steps, options) }?;
        let copies = copies.ok_or(Error::Channel("a chain without its copies"))?;
        Ok(ChainBeside { graph, copies, ways })
    }

    /// Launches it once more, behind all that was launched on the channel of launches before; what is launched there later waits for all of it. The ticket is
    /// the channel of copies': done when the last step is. If the channel of launches is killed, it is never done: [`Channel::error`] says so of each.
    ///
    /// # Errors
    /// As [`Graph::launch`], of either channel; [`gpu::Error::RingFull`] also where bytes are stored ([`Way::Stores`]) and the last launch is not over. Nothing was
    /// launched or stored then.
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

    /// Whether [`ChainBeside::launch`] would find room now, and its last launch over where bytes are stored.
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

    /// How the bytes of each step go; `None` for a launch.
    pub fn ways(&self) -> &[Option<Way>] {
        &self.ways
    }
}
