//! Graphs whose memcpy nodes name pageable memory.
//!
//! doorbell learns a copy of the graph that names pinned memory ([`cuda::Staging`]). The CPU moves the bytes before and after each launch, as CUDA does in the
//! middle. So only one launch may be pending.

use crate::error::Error;
use crate::graph::Graph;
use crate::launches::Launches;
use crate::node::Node;
use cuda::Staging;
use gpu::{Channel, Region, Ticket, Watched};

/// A graph, and the pinned memory that replaces pageable memory.
#[derive(Debug)]
pub struct StagedGraph {
    // Dropped before the memory that its copies name.
    graph: Graph,
    staging: Staging,
    /// A launch whose results the program does not have yet.
    owed: Option<Ticket>,
}

impl StagedGraph {
    /// As [`Graph::learn`], for a graph that names pinned memory; `launches` has CUDA launch that one. The program's memory changes as if CUDA had launched
    /// the original graph.
    ///
    /// # Errors
    /// As [`Graph::learn`], and [`Error::Pageable`].
    ///
    /// # Safety
    /// As [`Graph::learn`]; the program's pageable memory stays allocated while this lives. No thread may write the pageable memory that the graph reads
    /// during a launch, and no thread may use the memory that it writes until [`StagedGraph::finish`] has returned true.
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
        // SAFETY: the caller's contract.
        let graph = unsafe { Graph::learn(watched, channel, &mut launches) }?;
        Ok(StagedGraph { graph, staging, owed: None })
    }

    /// Copies the pageable memory that the graph reads, and launches it, as [`Graph::launch`]. The ticket is done when the GPU is; the results are there when
    /// [`StagedGraph::finish`] returns true.
    ///
    /// # Errors
    /// As [`Graph::launch`]; [`gpu::Error::RingFull`] while its last launch is pending. The graph was not launched then.
    pub fn launch(&mut self, channel: &mut Channel) -> Result<Ticket, gpu::Error> {
        self.ready(channel)?;
        // SAFETY: the contract of `learn`; no launch is pending.
        unsafe { self.staging.take_in() };
        let ticket = self.graph.launch(channel)?;
        self.owed = Some(ticket);
        Ok(ticket)
    }

    /// Whether [`StagedGraph::launch`] would find room now. First moves the results of the previous launch, if this was not done yet.
    ///
    /// # Errors
    /// As [`StagedGraph::launch`].
    pub fn ready(&mut self, channel: &mut Channel) -> Result<(), gpu::Error> {
        self.graph.ready(channel)?;
        if self.finish(channel) { Ok(()) } else { Err(gpu::Error::RingFull(1)) }
    }

    /// Moves the results of the last launch to the program's memory, if it has ended and this was not done yet. False while it is pending.
    pub fn finish(&mut self, channel: &Channel) -> bool {
        let Some(ticket) = self.owed else { return true };
        if !channel.done(ticket) {
            return false;
        }
        self.owed = None;
        // SAFETY: the contract of `learn`; the launch is over.
        unsafe { self.staging.bring_out() };
        true
    }

    /// Number of bytes that the CPU moves before a launch, and after it.
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

/// CUDA's launches, with the bytes moved before and after each.
struct WithStaging<'s, L> {
    of: &'s mut L,
    staging: &'s Staging,
    /// And results not moved yet.
    launched: bool,
}

impl<L: Launches> Launches for WithStaging<'_, L> {
    type Error = L::Error;

    fn hold(&mut self) -> bool {
        self.of.hold()
    }

    fn launch(&mut self) -> Result<(), L::Error> {
        // SAFETY: the contract of `StagedGraph::learn`; the launch before was waited for.
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
