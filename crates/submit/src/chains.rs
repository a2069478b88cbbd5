//! Chains: copies and launches of graphs as one, behind one doorbell, on the lane of launches.

use crate::buffers::Kept;
use crate::error::Error;
use crate::handle::{BUFFER, Buffer, GRAPH, Graph};
use crate::lane::{Inner, Place};
use crate::launching::{Keeps, Launching};
use crate::session::{LAUNCHES, Now, Session};
use gpu::{Channel, Memory, Pin, Region};
use launch::{Chain, ChainOptions, INLINE_MOST, Order, Step, Transfer, Way};
use rm::graph;
use std::sync::Arc;

/// Graphs and chains of a session.
const MOST: usize = 4096;

/// One step of a chain. Each begins when those before it are over.
#[derive(Clone, Copy, Debug)]
pub enum ChainStep {
    Copy {
        to: (Buffer, u64),
        from: (Buffer, u64),
        bytes: u64,
        /// `None`: in the command stream up to 16 KiB from host memory to the GPU's, else by the copy engine. No profile is asked: it was measured on channels
        /// of other kinds.
        by: Option<Way>,
    },
    /// A copy of this graph, with the parameters that it has now.
    Launch(Graph),
}

/// How a chain is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChainHow {
    pub order: Order,
    /// The parts of the chain wait for a word in host memory, not in the GPU's.
    pub host_counter: bool,
}

/// What the copies of a chain name, on the channel of launches.
#[derive(Default)]
struct Named {
    held: Vec<Arc<Memory>>,
    pins: Vec<Pin>,
}

impl Session {
    /// Makes a chain of copies and launches ready: [`Session::launch`] starts it with one doorbell, and what it answers is done when the last step is; what
    /// the steps have written to host memory is there then. It is a graph to all other calls: kernels count through all of its graphs, and
    /// [`Session::set_parameter`] changes the chain's own. The graphs themselves may be released. Buffers stay for the chain: memory of the session's own is
    /// kept, and when CUDA frees memory of its, launches answer [`Error::Freed`].
    ///
    /// # Errors
    /// [`Error::Graph`] for a step that cannot be, [`Error::Argument`], [`Error::Outside`], [`Error::Freed`], [`Error::Handle`], [`Error::Limit`] for more than
    /// 4,096 graphs and chains, [`Error::Closed`], [`Error::Forked`], and what the driver refuses.
    pub fn prepare_chain(&self, steps: &[ChainStep], how: ChainHow) -> Result<Graph, Error> {
        self.same_process()?;
        let now = self.now()?;
        let mut claim = self.still(self.lanes[LAUNCHES].claim_in_time(), now)?;
        let none = || Error::Argument("a chain launches a graph that was prepared: there is none yet");
        let Inner { graphs, channel, .. } = claim.as_mut().ok_or_else(none)?;
        let graph = |graph: Graph| {
            let (place, used) = GRAPH.decode(now.opening(), graph.0)?;
            Place::look(graphs, place, used).ok_or_else(|| GRAPH.wrong())
        };
        let (mut named, mut all) = (Named::default(), Vec::with_capacity(steps.len()));
        for step in steps {
            all.push(match *step {
                ChainStep::Copy { to, from, bytes, by } => {
                    Step::Copy(self.transfer(now, channel, &mut named, (to, from, bytes, by))?)
                }
                ChainStep::Launch(handle) => Step::Launch(&graph(handle)?.graph),
            });
        }
        let counter = if how.host_counter { gpu::Place::Host } else { gpu::Place::Video };
        let (held, pins) = (named.held, named.pins);
        let options = ChainOptions { order: how.order, counter, held, pins, ..ChainOptions::default() };
        // SAFETY: who prepared the graphs answers for them. What goes inline is host memory, which buffers know.
        let chain = unsafe { Chain::prepare(channel, &all, options) }?;
        let mut launching = Launching::new(chain.into_graph());
        // What parameters of the graphs point to.
        let mut before = 0;
        for step in steps {
            let ChainStep::Launch(handle) = *step else { continue };
            let of = graph(handle)?;
            for (kernel, offset, keeps) in &of.pointers {
                launching.keep_pointer(channel, (before + kernel, *offset), keeps)?;
            }
            before += of.kernels.len() as u32;
        }
        let (place, used) = Place::put(graphs, MOST, launching)?;
        Ok(Graph(GRAPH.encode(now.opening(), place, used)))
    }

    /// A copy as the channel of launches may be told of it. The caller has its lane.
    fn transfer(
        &self,
        now: Now,
        channel: &Channel,
        named: &mut Named,
        (to, from, bytes, by): ((Buffer, u64), (Buffer, u64), u64, Option<Way>),
    ) -> Result<Transfer, Error> {
        let mut region = |(buffer, at): (Buffer, u64)| -> Result<(Region, graph::Place), Error> {
            // SAFETY: the caller's claim outlives what is found.
            let entry = unsafe { self.buffers.find(BUFFER.decode(now.opening(), buffer.0)?) }?;
            if !entry.region.is_still_live() {
                return Err(Error::Freed);
            }
            let part = entry.region.part(at, bytes)?;
            let region = match &entry.kept {
                Kept::Ours(memory) => {
                    named.held.push(memory.clone());
                    part
                }
                Kept::Cudas(_) => {
                    let pin = channel.space().pin(part.va(), bytes)?;
                    let region = pin.region().clone();
                    named.pins.push(pin);
                    region
                }
            };
            Ok((region, entry.place))
        };
        let ((to, to_place), (from, from_place)) = (region(to)?, region(from)?);
        if by == Some(Way::Inline) && from_place != graph::Place::Host {
            return Err(Error::Argument("the CPU reads what goes inline: it lies in host memory"));
        }
        let small = bytes <= INLINE_MOST && from_place == graph::Place::Host && to_place == graph::Place::Video;
        let by = by.unwrap_or(if small { Way::Inline } else { Way::CopyEngine });
        Ok(Transfer { to, from, bytes, by: Some(by) })
    }
}

impl Launching {
    /// A parameter of the chain points where one of a graph of its does: what keeps that memory is kept for the chain, too.
    fn keep_pointer(&mut self, channel: &Channel, (kernel, offset): (u32, u32), keeps: &Keeps) -> Result<(), Error> {
        let keeps = match keeps {
            Keeps::Memory(memory) => Keeps::Memory(memory.clone()),
            Keeps::Pin(pin) => {
                let again = channel.space().pin(pin.va(), pin.length())?;
                let node = self.node(kernel, offset, 8)?;
                let at = self.graph.parameters(node).and_then(|bytes| bytes.get(offset as usize..)?.first_chunk::<8>());
                let address = u64::from_le_bytes(*at.ok_or_else(|| GRAPH.wrong())?);
                self.graph.set_pointer(channel, node, offset, (again.region(), address))?;
                Keeps::Pin(again)
            }
        };
        self.pointers.push((kernel, offset, keeps));
        Ok(())
    }
}
