//! Chains of copies and graph launches: one doorbell on a launch lane, or two if the copies have a separate lane.

use crate::buffers::Kept;
use crate::error::Error;
use crate::graphs::{GraphAt, locate_graph, put_graph};
use crate::handle::{BUFFER, Buffer, GRAPH, Graph};
use crate::lane::{Claim, Inner, Place};
use crate::launching::{Form, Keeps, Launching};
use crate::numbering;
use crate::open::{self, Setup};
use crate::session::{ENTRIES, Now, Session, equip};
use gpu::{AddressSpace, Channel, ChannelOptions, Memory, Pin, Region};
use launch::{Chain, ChainBeside, ChainOptions, INLINE_MOST, Order, Step, Stored, Transfer, Way};
use rm::graph;
use std::sync::Arc;

const STAGED: &str = "the CPU copies what this graph's memcpy nodes name of pageable memory, which it cannot do within a chain: pin that memory";
const OTHER: &str = "its graph belongs to another launch lane than the chain's first one: copy it to that lane (doorbell_graph_create_copy(), in Python Graph.copy())";
const PART: &str = "a chain cannot be part of another: pass its steps";

/// One step of a chain. Each begins when the steps before it have ended.
#[derive(Clone, Copy, Debug)]
pub enum ChainStep {
    Copy {
        to: (Buffer, u64),
        from: (Buffer, u64),
        bytes: u64,
        /// `None`: in the command stream up to 16 KiB from host memory to the GPU's, otherwise by the copy engine. The profile is not used: it was measured on
        /// channels of other kinds.
        by: Option<Way>,
    },
    /// A copy of this graph, with its current parameters.
    Launch(Graph),
}

/// How a chain is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChainHow {
    pub order: Order,
    /// The chain's counter is in host memory, not in the GPU's.
    pub host_counter: bool,
    /// The copies have a separate channel on a copy engine: two doorbells, and no wait for CUDA's kernels. One such channel serves all chains of a launch lane;
    /// the first of them opens it.
    pub beside: bool,
}

/// The memory that the chain's copies name, on the launch channel.
#[derive(Default)]
struct Named {
    held: Vec<Arc<Memory>>,
    pins: Vec<Pin>,
    stored: Vec<Stored>,
}

impl Session {
    /// Prepares a chain of copies and launches. [`Session::launch`] starts it with one doorbell. The submission that it returns is done when the last step is;
    /// host memory that the steps have written is visible then. For all other calls the chain is a graph: kernels count through all of its graphs, and
    /// [`Session::set_parameter`] changes the chain's own copies. The graphs themselves may be released. All must be of one launch lane, to which the chain
    /// belongs; a chain without graphs belongs to this thread's. The chain keeps the session's own memory. When CUDA frees memory that the chain names,
    /// launches return [`Error::Freed`].
    ///
    /// With [`Way::Stores`] the CPU itself stores the bytes of the first steps into GPU memory when the chain is launched. While its last launch is pending, a
    /// launch returns [`Error::Full`] and stores no byte. You must first wait for all other work that reads or writes these bytes: doorbell does not check
    /// this.
    ///
    /// # Errors
    /// [`Error::Graph`] for an impossible step, [`Error::Argument`], [`Error::Outside`], [`Error::Freed`], [`Error::Handle`], [`Error::Limit`] for more than
    /// 4,096 graphs and chains on a lane, [`Error::Closed`], [`Error::Forked`], and errors of the driver.
    pub fn prepare_chain(&self, steps: &[ChainStep], how: ChainHow) -> Result<Graph, Error> {
        Session::same_process()?;
        // Before the lanes, see `own_lane`.
        let setup = how.beside.then(|| self.setup()).transpose()?;
        let now = self.now()?;
        // The lane of its graphs.
        let lane = steps.iter().find_map(|step| match step {
            ChainStep::Launch(graph) => Some(locate_graph(now, *graph).map(|at| at.lane)),
            ChainStep::Copy { .. } => None,
        });
        let lane = lane.unwrap_or_else(|| Ok(now.own_launches()))?;
        let mut claim = self.still(self.lanes[lane].claim_in_time(), now)?;
        let none = || Error::Argument("a chain launches a graph that was prepared: there is none yet");
        let Inner { graphs, channel, .. } = claim.as_mut().ok_or_else(none)?;
        let graph = |graph: Graph| {
            let GraphAt { index, used, .. } = locate_graph(now, graph)?;
            Place::look(graphs, index, used).ok_or_else(|| GRAPH.wrong())
        };
        let (mut named, mut all) = (Named::default(), Vec::with_capacity(steps.len()));
        for step in steps {
            all.push(match *step {
                ChainStep::Copy { to, from, bytes, by } => {
                    Step::Copy(self.transfer(now, channel, &mut named, (to, from, bytes, by))?)
                }
                ChainStep::Launch(handle) if locate_graph(now, handle)?.lane != lane => {
                    return Err(launch::Error::Chain { step: all.len(), why: OTHER }.into());
                }
                ChainStep::Launch(handle) => match &graph(handle)?.form {
                    Form::One(graph) => Step::Launch(graph),
                    Form::Beside(_) => return Err(launch::Error::Chain { step: all.len(), why: PART }.into()),
                    Form::Staged(_) => return Err(launch::Error::Chain { step: all.len(), why: STAGED }.into()),
                },
            });
        }
        // The uploads wait for pending launches.
        let _blind = self.lanes[lane].blind();
        let counter = if how.host_counter { gpu::Place::Host } else { gpu::Place::Video };
        let Named { held, pins, stored } = named;
        let options = ChainOptions { order: how.order, counter, held, pins, stored };
        let form = match setup {
            // SAFETY: the callers that prepared the graphs vouch for them. Sources of inline and stored bytes are host memory, as the buffers record.
            None => Form::One(unsafe { Chain::prepare(channel, &all, options) }?.into_graph()),
            Some(setup) => {
                let mut beside = self.beside(&setup, channel.space(), (now, lane))?;
                let _blind = self.lanes[numbering::beside(lane)].blind();
                let copies = &mut beside.as_mut().ok_or(Error::Closed)?.channel;
                // SAFETY: as above.
                Form::Beside(Box::new(unsafe { ChainBeside::prepare(channel, copies, &all, options) }?))
            }
        };
        let mut launching = Launching::new(form);
        // Memory that parameters of the graphs point to.
        let mut before = 0;
        for step in steps {
            let ChainStep::Launch(handle) = *step else { continue };
            let of = graph(handle)?;
            for (kernel, offset, keeps) in &of.pointers {
                launching.keep_pointer((before + kernel, *offset), keeps.again(channel.space())?)?;
            }
            before += of.kernels.len() as u32;
        }
        put_graph(now, lane, graphs, launching)
    }

    /// The copy lane next to a launch lane. Waits for it; the caller has the launch lane. The first call opens its channel.
    fn beside(
        &self,
        setup: &Setup,
        space: &Arc<AddressSpace>,
        (now, launches): (Now, usize),
    ) -> Result<Claim<'_>, Error> {
        let lane = &self.lanes[numbering::beside(launches)];
        let mut claim = lane.claim_in_time();
        if claim.is_none() {
            // Mostly, results are copied back.
            let [_, engine] = setup.engines;
            self.wide.take();
            let options = ChannelOptions { entries: ENTRIES, ..ChannelOptions::default() };
            let channel = Channel::new(space, engine, options)?;
            setup.say(|| format!("opened a channel of {}, for copies beside launches", open::name(engine)));
            equip(lane, &mut claim, channel, None, setup.ways.clone());
        }
        self.still(claim, now)
    }

    /// A copy, in the form that the launch channel needs. The caller has its lane.
    fn transfer(
        &self,
        now: Now,
        channel: &Channel,
        named: &mut Named,
        (to, from, bytes, by): ((Buffer, u64), (Buffer, u64), u64, Option<Way>),
    ) -> Result<Transfer, Error> {
        let stores = by == Some(Way::Stores);
        let mut region = |(buffer, at): (Buffer, u64), stored: bool| -> Result<(Region, graph::Place), Error> {
            // SAFETY: the caller's claim outlives this entry.
            let entry = unsafe { self.buffers.find(BUFFER.decode(now.opening(), buffer.0)?) }?;
            if !entry.region.is_still_live() {
                return Err(Error::Freed);
            }
            let part = entry.region.part(at, bytes)?;
            let region = match &entry.kept {
                Kept::Ours(memory) if stored => {
                    named.stored.push(Stored::Memory(memory.clone()));
                    part
                }
                Kept::Ours(memory) => {
                    named.held.push(memory.clone());
                    part
                }
                Kept::Cudas(_) => {
                    let pin = channel.space().pin(part.va(), bytes)?;
                    let region = pin.region().clone();
                    if stored {
                        named.stored.push(Stored::Pin(Arc::new(pin)));
                    } else {
                        named.pins.push(pin);
                    }
                    region
                }
            };
            Ok((region, entry.place))
        };
        let ((to, to_place), (from, from_place)) = (region(to, stores)?, region(from, false)?);
        match by {
            Some(Way::Inline | Way::Stores) if from_place != graph::Place::Host => {
                return Err(Error::Argument("the CPU reads what goes inline or is stored: it lies in host memory"));
            }
            Some(Way::Stores) if to_place != graph::Place::Video => {
                return Err(Error::Argument("the CPU stores into the GPU's memory: leave it to the copy engine"));
            }
            _ => {}
        }
        let small = bytes <= INLINE_MOST && from_place == graph::Place::Host && to_place == graph::Place::Video;
        let by = by.unwrap_or(if small { Way::Inline } else { Way::CopyEngine });
        Ok(Transfer { to, from, bytes, by: Some(by) })
    }
}

impl Launching {
    /// A parameter points to the same memory as in the original graph: keep that memory for this copy, too.
    pub(crate) fn keep_pointer(&mut self, (kernel, offset): (u32, u32), keeps: Keeps) -> Result<(), Error> {
        if let Keeps::Pin(pin) = &keeps {
            let node = self.node(kernel, offset, 8)?;
            let at = self.form.parameters(node).and_then(|bytes| bytes.get(offset as usize..)?.first_chunk::<8>());
            let address = u64::from_le_bytes(*at.ok_or_else(|| GRAPH.wrong())?);
            self.form.set_pointer(node, offset, (pin.region(), address))?;
        }
        self.pointers.push((kernel, offset, keeps));
        Ok(())
    }
}

impl Keeps {
    pub(crate) fn again(&self, space: &Arc<AddressSpace>) -> Result<Keeps, Error> {
        Ok(match self {
            Keeps::Memory(memory) => Keeps::Memory(memory.clone()),
            Keeps::Pin(pin) => {
                let again = space.pin(pin.va(), pin.length())?;
                // (In this order: a free after the pin ends both pins. Without the check, the address might belong to another allocation by now.)
                if !pin.region().is_still_live() {
                    return Err(Error::Freed);
                }
                Keeps::Pin(again)
            }
        })
    }
}
