//! Copies and launches as one prepared chain behind one doorbell.
//!
//! A chain is a list of [`Step`]s on a channel of launches: bytes into the GPU's memory, a graph, its results back. It is one segment; a submission stores
//! two or more payloads (and bytes, where they travel in the words) and rings once. The GPU orders the steps. When the ticket is done, all of it is: the last
//! step releases the channel's tracker by its own engine, behind a flush, so what a copy wrote to host memory is there before the number is.
//!
//! **How bytes go.** [`Way::CopyEngine`]: 9 words whatever the size, and the engine reads host memory over the bus. [`Way::Inline`]: the bytes travel in the
//! words, which the CPU stores into video memory, so the GPU reads nothing over the bus; the CPU pays for the stores. Below some size inline is the cheaper
//! ([`INLINE_MOST`]); back to host memory only the copy engine goes. [`Way::Stores`], only where it is asked for: the CPU stores the bytes where they are
//! wanted, in front of the doorbell. [`Transfer::by`] overrides it, [`Chain::ways`] says what was chosen.
//!
//! **What a change of engine costs.** The copy engine is that of the graphics channel. GA100's manual (`dev_ram`, subchannels) says that the host, when a
//! channel goes from compute to copy or back, waits until the first engine is idle and a barrier to system memory is through. On a channel in CUDA's group
//! that is CUDA's context: a long kernel that CUDA runs at that moment is waited for, and one that never ends for ever. Copies on a
//! copy engine's own channel have no such wait: [`crate::ChainBeside`] puts them there, by two doorbells; [`Graph::launch_behind`] and
//! [`gpu::Channel::wait_for_other`] order launches and copies of any channels, by a doorbell each. Copies on a channel of their own
//! ended 0.9 us earlier on an H200 (`doorbell bench chain`).

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

/// Up to so many bytes from host memory go inline where nothing else is said: an H200's engine needs 1.1 us for them, a copy engine 1.9 us for a quarter.
pub const INLINE_MOST: u64 = 16 << 10;
/// Bytes that may go inline where that is asked for.
const INLINE_LIMIT: u64 = 64 << 10;
/// Steps of a chain.
const MOST: usize = 256;

/// One step of a chain. Each begins when those before it are over.
#[derive(Clone, Debug)]
pub enum Step<'a> {
    Copy(Transfer),
    /// A graph that was learnt, with the parameters that it has now. The chain has its own copy of it: parameters are changed by the chain from then on, and
    /// the graph may be dropped. Memory that [`Graph::set_pointer`] has named is not watched for the chain: set such pointers anew.
    Launch(&'a Graph),
}

/// Bytes from the start of one region to the start of another.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub to: Region,
    pub from: Region,
    pub bytes: u64,
    /// `None`: what is cheapest on the wire.
    pub by: Option<Way>,
}

/// How the bytes of a step go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    CopyEngine,
    /// In the command stream: the CPU reads `from`, which is host memory, at each submission.
    Inline,
    /// The CPU reads `from`, which is host memory, and stores the bytes through BAR1 into `to`, the GPU's memory, at each submission, in front of the doorbell.
    /// For the first steps of a chain, up to [`crate::STORES_MOST`] bytes each, and `to` is of [`ChainOptions::stored`].
    ///
    /// The CPU's stores wait for nobody. So the chain's last launch must be over: else a launch is refused ([`gpu::Error::RingFull`]), and nothing is stored
    /// or launched. Whatever else reads or writes these bytes (other graphs, copies, CUDA's kernels) must be over, too: nobody looks after that.
    Stores,
}

/// How a chain is made.
#[derive(Debug)]
pub struct ChainOptions {
    pub order: Order,
    /// Where the counter lies: in video memory the GPU's waits do not go over the bus.
    pub counter: Place,
    /// Memory that transfers may name although it is of another address space beside the same CUDA: it stays as long as the chain.
    pub held: Vec<Arc<Memory>>,
    /// Pins of what transfers name, which the chain keeps until its last launch is done.
    pub pins: Vec<Pin>,
    /// Where steps by [`Way::Stores`] store: the chain keeps what it maps of them until its last launch is done.
    pub stored: Vec<Stored>,
}

impl Default for ChainOptions {
    fn default() -> ChainOptions {
        let (held, pins, stored) = (Vec::new(), Vec::new(), Vec::new());
        ChainOptions { order: Order::default(), counter: Place::Video, held, pins, stored }
    }
}

/// A chain on one channel. It is launched, and its parameters are changed, as those of a [`Graph`]: nodes are numbered through all of its graphs.
#[derive(Debug)]
pub struct Chain {
    graph: Graph,
    ways: Vec<Option<Way>>,
}

/// What the graphs of a chain bring.
#[derive(Default)]
struct Gathered {
    upload: Vec<u32>,
    qmds: Vec<u64>,
    memory: Vec<Arc<Memory>>,
    pins: Vec<Pin>,
    watches: Vec<Pin>,
    nodes: Vec<crate::Node>,
    parameters: Vec<Parameters>,
    /// Of each kernel, as its graph has them now.
    now: Vec<(usize, Vec<u8>)>,
}

impl Chain {
    /// Makes a chain ready on a channel of launches. All graphs are cloned once more.
    ///
    /// # Errors
    /// [`Error::Chain`] for a step that cannot be, [`gpu::Error::Stale`] and [`gpu::Error::OtherSpace`] for regions, and as [`Graph::of`].
    ///
    /// # Safety
    /// As [`Graph::learn`], for each graph; and what goes inline or is stored lies in memory that the CPU can read at the GPU's address.
    pub unsafe fn prepare(channel: &mut Channel, steps: &[Step<'_>], options: ChainOptions) -> Result<Chain, Error> {
        // SAFETY: the caller's.
        let Made { graph, ways, .. } = unsafe { make(channel, None, steps, options) }?;
        Ok(Chain { graph, ways })
    }

    /// How the bytes of each step go; `None` for a launch.
    pub fn ways(&self) -> &[Option<Way>] {
        &self.ways
    }

    /// The same, as a graph.
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

/// Makes the part of the channel of launches, and that of a channel for copies where there is one.
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
    // SAFETY: the caller's. The upload only arms, and all that QMDs release was moved to the counter.
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
            // SAFETY: it starts no kernel and reads nothing.
            let mut copies = unsafe { Launch::prepare_chain(channel, words, chain)? };
            launch.takes_beside(&mut copies);
            Some(copies)
        }
        _ => None,
    };
    launch.keep(pins.into_iter().chain(watches).chain(options.pins));
    // SAFETY: the caller's.
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
    /// How its bytes go.
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
            // (Whether CUDA's memory is host memory its owner knows.)
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
            // (The words do not tell of it.)
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
    /// Another copy of a graph, whose QMDs add to `counter`.
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
