//! Copies and launches as one prepared chain with a single doorbell.
//!
//! A chain is a list of [`Step`]s on a launch channel: bytes into GPU memory, a graph, its results back. It is one segment. A submission stores two or more
//! payloads (and the bytes that are sent in the words) and rings once. The GPU orders the steps. When the ticket is done, the whole chain is: the engine of the
//! last step releases the channel's tracker after a flush, so bytes that a copy wrote to host memory are visible before the number is.
//!
//! **How bytes are moved.** [`Way::CopyEngine`] needs 9 words for any size, and the engine reads host memory over the bus. With [`Way::Inline`] the bytes are
//! part of the words, which the CPU stores into GPU memory. The GPU then reads no byte over the bus, and the CPU pays for the stores. For small sizes inline is
//! cheaper ([`INLINE_MOST`]). Bytes to host memory use the copy engine by default. With [`Way::Stores`], which is only used on request, the CPU stores the
//! bytes to their destination before the doorbell. [`Transfer::by`] overrides the choice, and [`Chain::ways`] returns it.
//!
//! **The cost of a change of engine.** A chain uses the graphics channel's copy engine. GA100's manual (`dev_ram`, subchannels) says: when a channel changes
//! from compute to copy or back, the host waits until the first engine is idle and a barrier to system memory has passed. On a channel in CUDA's group this
//! includes CUDA's context: the chain waits for a long kernel that CUDA runs at that moment, and forever for one that never ends. Copies on a copy engine's own
//! channel have no such wait. [`crate::ChainBeside`] puts them there, with two doorbells; [`Graph::launch_behind`] and [`gpu::Channel::wait_for_other`] order
//! launches and copies of any channels, with a doorbell each. Copies on a separate channel ended 0.9 us earlier on an H200 (`doorbell bench chain`).

use crate::error::Error;
use crate::graph::{Graph, Parameters, fit};
use crate::memory::{move_in, pin, regions, watch};
use crate::node::nodes;
use crate::stores::{Stored, prepared, why_not};
use crate::stream::{Order, Stream};
use cuda_graph::Own;
use gpu::{ChainWords, Channel, Counter, Launch, LaunchWords, Memory, Owner, Pin, Place, Region, Stores};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Maximum number of bytes from host memory that go inline by default: an H200's compute engine needs 1.1 us for them, a copy engine 1.9 us for a quarter.
pub const INLINE_MOST: u64 = 16 << 10;
/// Maximum number of bytes that may go inline on request.
const INLINE_LIMIT: u64 = 64 << 10;
/// Maximum number of steps of a chain.
const MOST: usize = 256;

/// One step of a chain. Each begins when the steps before it have ended.
#[derive(Clone, Debug)]
pub enum Step<'a> {
    Copy(Transfer),
    /// A learnt graph, with its current parameters. The chain has its own copy: from then on the chain changes the parameters, and the graph may be dropped.
    /// The chain does not watch memory that [`Graph::set_pointer`] named: set such pointers again.
    Launch(&'a Graph),
}

/// Bytes from the start of one region to the start of another.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub to: Region,
    pub from: Region,
    pub bytes: u64,
    /// `None`: the cheapest way on the wire.
    pub by: Option<Way>,
}

/// How the bytes of a step are moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    CopyEngine,
    /// In the command stream: the CPU reads `from`, which is host memory, at each submission.
    Inline,
    /// At each submission, before the doorbell, the CPU reads `from`, which is host memory, and stores the bytes through BAR1 into `to`, which is GPU memory.
    /// Only for the first steps of a chain, up to [`crate::STORES_MOST`] bytes each; `to` is part of [`ChainOptions::stored`].
    ///
    /// The CPU's stores are not ordered after earlier GPU work. So the chain's last launch must have ended; otherwise a launch is refused
    /// ([`gpu::Error::RingFull`]), with no byte stored. You must also wait first for all other work that reads or writes these bytes (other graphs, copies,
    /// CUDA's kernels): doorbell does not check this.
    Stores,
}

/// How a chain is made.
#[derive(Debug)]
pub struct ChainOptions {
    pub order: Order,
    /// Where the counter is. In GPU memory, the GPU's waits do not use the bus.
    pub counter: Place,
    /// Memory that transfers may name although it belongs to another address space of the same CUDA. The chain keeps it.
    pub held: Vec<Arc<Memory>>,
    /// Pins of memory that transfers name. The chain keeps them until its last launch is done.
    pub pins: Vec<Pin>,
    /// Memory that steps by [`Way::Stores`] write. The chain keeps its mappings of it until its last launch is done.
    pub stored: Vec<Stored>,
}

impl Default for ChainOptions {
    fn default() -> ChainOptions {
        let (held, pins, stored) = (Vec::new(), Vec::new(), Vec::new());
        ChainOptions { order: Order::default(), counter: Place::Video, held, pins, stored }
    }
}

/// A chain on one channel. It is launched, and its parameters are changed, as a [`Graph`]: nodes are numbered through all of its graphs.
#[derive(Debug)]
pub struct Chain {
    graph: Graph,
    ways: Vec<Option<Way>>,
}

/// The upload, QMDs and memory of all graphs of a chain.
#[derive(Default)]
struct Gathered {
    upload: Vec<u32>,
    qmds: Vec<u64>,
    memory: Vec<Arc<Memory>>,
    pins: Vec<Pin>,
    watches: Vec<Pin>,
    nodes: Vec<crate::Node>,
    parameters: Vec<Parameters>,
    /// The current parameters of each kernel in its graph.
    now: Vec<(usize, Vec<u8>)>,
}

impl Chain {
    /// Prepares a chain on a launch channel. All graphs are cloned again.
    ///
    /// # Errors
    /// [`Error::Chain`] for an impossible step, [`gpu::Error::Stale`] and [`gpu::Error::OtherSpace`] for regions, and as [`Graph::of`].
    ///
    /// # Safety
    /// As [`Graph::learn`], for each graph. The CPU must be able to read the sources of inline and stored bytes at their GPU addresses.
    pub unsafe fn prepare(channel: &mut Channel, steps: &[Step<'_>], options: ChainOptions) -> Result<Chain, Error> {
        // SAFETY: the caller's contract.
        let Made { graph, ways, .. } = unsafe { make(channel, None, steps, options) }?;
        Ok(Chain { graph, ways })
    }

    /// How the bytes of each step are moved; `None` for a launch.
    pub fn ways(&self) -> &[Option<Way>] {
        &self.ways
    }

    /// The chain as a graph.
    pub fn into_graph(self) -> Graph {
        self.graph
    }
}

/// A chain's parts.
pub(crate) struct Made {
    pub graph: Graph,
    pub copies: Option<Launch>,
    pub ways: Vec<Option<Way>>,
}

/// Prepares the part of the launch channel, and the part of the copy channel if there is one.
///
/// # Safety
/// As [`Chain::prepare`].
pub(crate) unsafe fn make(
    channel: &mut Channel,
    copies: Option<&mut Channel>,
    steps: &[Step<'_>],
    options: ChainOptions,
) -> Result<Made, Error> {
    fit(channel)?;
    if steps.is_empty() || steps.len() > MOST {
        return Err(Error::Chain { step: steps.len(), why: "a chain has 1 to 256 steps" });
    }
    let counter = Counter::new(channel.space(), options.counter)?;
    let of_copies = copies.as_ref().map(|copies| copies.tracker());
    let mut stream = Stream::begin(channel.tracker(), of_copies, counter.va(), options.order)?;
    let (mut gathered, mut touched, mut ways) = (Gathered::default(), Vec::new(), Vec::new());
    let mut stores: Vec<Stores> = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        ways.push(match step {
            Step::Copy(transfer) if transfer.by == Some(Way::Stores) => {
                if stores.len() < number {
                    let why = "the CPU stores in front of the launch: steps that are stored come before all others";
                    return Err(Error::Chain { step: number, why });
                }
                transfer.way(number)?;
                let ends = (transfer.to.part(0, transfer.bytes)?, transfer.from.part(0, transfer.bytes)?);
                let (one, pinned) = prepared(number, ends, &options.stored, channel.space())?;
                touched.extend(pinned.into_iter().chain((!holds(&options.held, &one.from)).then(|| one.from.clone())));
                stores.push(one);
                transfer.by
            }
            Step::Copy(transfer) => Some(transfer.say(number, &mut stream, &options.held, &mut touched)?),
            Step::Launch(graph) => {
                let own = gathered.add(number, graph, channel, counter.va())?;
                stream.launch(&own)?;
                None
            }
        });
    }
    if stores.len() == steps.len() {
        return Err(Error::Chain {
            step: 0,
            why: "bytes that are stored need a step behind them: store them yourself",
        });
    }
    stream.end()?;
    let Gathered { upload, mut qmds, memory, pins, watches, nodes, parameters, now } = gathered;
    qmds.sort_unstable();
    touched.extend(regions(&pins));
    let needed = regions(&watches);
    let words = LaunchWords {
        upload: &upload,
        launch: &stream.launches.words,
        counts: &stream.launches.tracker_counts,
        adds: 1,
        qmds: &qmds,
        memory: &memory,
        touched: &touched,
        needed: &needed,
        parameters: (parameters.iter().map(|p| p.bytes.len()).sum(), parameters.len()),
    };
    let chain = ChainWords {
        counter: Some(&counter),
        counts: &stream.launches.counts,
        adds: stream.adds,
        sources: &stream.launches.sources,
        held: &options.held,
    };
    // SAFETY: the caller's contract. The upload only arms QMDs, and all releases by QMDs were moved to the counter.
    let mut launch = unsafe { Launch::prepare_chain(channel, words, chain)? };
    let beside = match (copies, &stream.copies) {
        (Some(channel), Some(part)) => {
            let words = LaunchWords {
                upload: &[],
                launch: &part.words,
                counts: &part.tracker_counts,
                qmds: &[],
                memory: &[],
                parameters: (0, 0),
                ..words
            };
            let chain = ChainWords { counts: &part.counts, sources: &[], ..chain };
            // SAFETY: it starts no kernel and has no sources that the CPU reads.
            let mut copies = unsafe { Launch::prepare_chain(channel, words, chain)? };
            launch.takes_beside(&mut copies);
            Some(copies)
        }
        _ => None,
    };
    launch.keep(pins.into_iter().chain(watches).chain(options.pins));
    // SAFETY: the caller's contract.
    unsafe { launch.store_first(stores)? };
    let mut graph = Graph::assembled(launch, nodes, parameters, None);
    for (node, bytes) in now {
        graph.set_parameter(node, 0, &bytes)?;
    }
    Ok(Made { graph, copies: beside, ways })
}

impl Deref for Chain {
    type Target = Graph;

    fn deref(&self) -> &Graph {
        &self.graph
    }
}

impl DerefMut for Chain {
    fn deref_mut(&mut self) -> &mut Graph {
        &mut self.graph
    }
}

impl Transfer {
    /// How this step's bytes are moved.
    fn way(&self, step: usize) -> Result<Way, Error> {
        let refuse = |why| Err(Error::Chain { step, why });
        let (from, to) = (self.from.owner(), self.to.owner());
        match self.by {
            Some(Way::Inline) if from == Owner::Video => {
                refuse("the CPU reads what goes inline: it lies in host memory")
            }
            Some(Way::Inline) if self.bytes > INLINE_LIMIT => {
                refuse("64 KiB go inline at most: leave it to the copy engine")
            }
            Some(Way::Stores) => why_not(&self.to, &self.from, self.bytes).map_or(Ok(Way::Stores), refuse),
            Some(way) => Ok(way),
            // (Whether memory of CUDA is host memory is unknown here.)
            None if from == Owner::Host && to != Owner::Host && self.bytes <= INLINE_MOST => Ok(Way::Inline),
            None => Ok(Way::CopyEngine),
        }
    }

    fn say(
        &self,
        step: usize,
        stream: &mut Stream,
        held: &[Arc<Memory>],
        touched: &mut Vec<Region>,
    ) -> Result<Way, Error> {
        let way = self.way(step)?;
        let (to, from) = (self.to.part(0, self.bytes)?, self.from.part(0, self.bytes)?);
        match way {
            Way::CopyEngine => {
                let bytes = u32::try_from(self.bytes).ok();
                let bytes = bytes.ok_or(Error::Chain { step, why: "a copy of a chain has less than 4 GiB" })?;
                stream.copy(to.va(), from.va(), bytes)?;
            }
            Way::Inline => stream.inline(to.va(), from.clone())?,
            // (The stores need no words.)
            Way::Stores => {}
        }
        touched.extend([to, from].into_iter().filter(|region| !holds(held, region)));
        Ok(way)
    }
}

/// Whether one of these memories has the region.
fn holds(held: &[Arc<Memory>], region: &Region) -> bool {
    held.iter().any(|memory| memory.region().holds(region.va(), region.length()))
}

impl Gathered {
    /// Adds another copy of a graph, whose QMDs add to `counter`.
    fn add(&mut self, step: usize, graph: &Graph, channel: &Channel, counter: u64) -> Result<Own, Error> {
        let space = channel.space();
        let recipe =
            graph.recipe().ok_or(Error::Chain { step, why: "a chain cannot be part of another: pass its steps" })?;
        if !graph.local_memory_is_there() {
            return Err(gpu::Error::LocalMemoryMoved.into());
        }
        let (recipe, memory) = move_in(recipe, space)?;
        let own = Own::of(&recipe, counter)?;
        self.pins.extend(pin(&own.touched, &recipe, space)?);
        self.watches.extend(watch(&recipe, space));
        self.upload.extend_from_slice(&own.upload);
        self.qmds.extend_from_slice(&own.qmds);
        self.memory.push(memory);
        let base = self.nodes.len();
        for mut node in nodes(&recipe) {
            let bytes = graph.parameters(node.number).map(<[u8]>::to_vec);
            node.number += base;
            node.after.iter_mut().for_each(|after| *after += base);
            self.now.extend(bytes.map(|bytes| (node.number, bytes)));
            self.nodes.push(node);
        }
        self.parameters.extend(own.parameters.iter().map(|place| Parameters::of(place, &recipe, base)));
        Ok(own)
    }
}
