//! Graphs whose memcpy nodes name pageable memory.
//!
//! What is learnt is a copy of the graph that names pinned memory ([`cuda::Staging`]). The CPU moves the bytes in front of each launch and behind it, as CUDA
//! does in the middle. So one launch is under way at a time.

use crate::error::Error;
use crate::graph::Graph;
use crate::launches::Launches;
use crate::node::Node;
use cuda::Staging;
use gpu::{Channel, Region, Ticket, Watched};

/// A graph, and the pinned memory in the place of pageable memory.
#[derive(Debug)]
pub struct StagedGraph {
    // Before the memory that its copies name.
    graph: Graph,
    staging: Staging,
    /// A launch whose results the program has not yet.
    owed: Option<Ticket>,
}

impl StagedGraph {
    /// As [`Graph::learn`], of a graph that names pinned memory; `launches` has CUDA launch that one. The program's memory is as if CUDA had launched its own.
    ///
    /// # Errors
    /// As [`Graph::learn`], and [`Error::Pageable`].
    ///
    /// # Safety
    /// As [`Graph::learn`]; the program's pageable memory stays allocated while this lives. Nobody writes what the graph reads of it during a launch, and
    /// nobody uses what it writes until [`StagedGraph::finish`] was true.
    pub unsafe fn learn(
        watched: &Watched,
        channel: &mut Channel,
        staging: Staging,
        launches: &mut impl Launches,
    ) -> Result<StagedGraph, Error> {
        if let Some(address) = staging.conflict() {
            return Err(Error::Pageable { address });
        }
        let mut launches = WithStaging { of: launches, staging: &staging, launched: false };
        // SAFETY: the caller's.
        let graph = unsafe { Graph::learn(watched, channel, &mut launches) }?;
        Ok(StagedGraph { graph, staging, owed: None })
    }

    /// Takes in what the graph reads of pageable memory, and launches it, as [`Graph::launch`]. The ticket is done when the GPU is; the results are there when
    /// [`StagedGraph::finish`] is true.
    ///
    /// # Errors
    /// As [`Graph::launch`]; [`gpu::Error::RingFull`] while its last launch is under way. Nothing was launched then.
    pub fn launch(&mut self, channel: &mut Channel) -> Result<Ticket, gpu::Error> {
        self.ready(channel)?;
        // SAFETY: the caller's of `learn`; no launch is under way.
        unsafe { self.staging.take_in() };
        let ticket = self.graph.launch(channel)?;
        self.owed = Some(ticket);
        Ok(ticket)
    }

    /// Whether [`StagedGraph::launch`] would find room now. Brings the results of the launch before, if they were not.
    ///
    /// # Errors
    /// As [`StagedGraph::launch`].
    pub fn ready(&mut self, channel: &mut Channel) -> Result<(), gpu::Error> {
        self.graph.ready(channel)?;
        if self.finish(channel) { Ok(()) } else { Err(gpu::Error::RingFull(1)) }
    }

    /// Moves what the last launch wrote to the program's memory, if it is over and that was not done yet. False while it is under way.
    pub fn finish(&mut self, channel: &Channel) -> bool {
        let Some(ticket) = self.owed else { return true };
        if !channel.done(ticket) {
            return false;
        }
        self.owed = None;
        // SAFETY: the caller's of `learn`; the launch is over.
        unsafe { self.staging.bring_out() };
        true
    }

    /// Bytes that the CPU moves before a launch, and behind it.
    pub fn pageable_bytes(&self) -> (usize, usize) {
        self.staging.bytes()
    }

    pub fn nodes(&self) -> &[Node] {
        self.graph.nodes()
    }

    /// As [`Graph::parameters`].
    pub fn parameters(&self, node: usize) -> Option<&[u8]> {
        self.graph.parameters(node)
    }

    /// As [`Graph::set_parameter`].
    ///
    /// # Errors
    /// As [`Graph::set_parameter`].
    pub fn set_parameter(&mut self, node: usize, offset: u32, bytes: &[u8]) -> Result<(), Error> {
        self.graph.set_parameter(node, offset, bytes)
    }

    /// As [`Graph::set_pointer`].
    ///
    /// # Errors
    /// As [`Graph::set_pointer`].
    pub fn set_pointer(&mut self, node: usize, offset: u32, to: (&Region, u64)) -> Result<(), Error> {
        self.graph.set_pointer(node, offset, to)
    }
}

/// Launches by CUDA, with the bytes moved around each.
struct WithStaging<'s, L> {
    of: &'s mut L,
    staging: &'s Staging,
    /// And not brought out.
    launched: bool,
}

impl<L: Launches> Launches for WithStaging<'_, L> {
    type Error = L::Error;

    fn hold(&mut self) -> bool {
        self.of.hold()
    }

    fn launch(&mut self) -> Result<(), L::Error> {
        // SAFETY: the caller's of `StagedGraph::learn`; the launch before was waited for.
        unsafe { self.staging.take_in() };
        self.of.launch()?;
        self.launched = true;
        Ok(())
    }

    fn finish(&mut self) -> Result<bool, L::Error> {
        let kept = self.of.finish()?;
        if std::mem::take(&mut self.launched) {
            // SAFETY: as above.
            unsafe { self.staging.bring_out() };
        }
        Ok(kept)
    }
}
