//! A graph that is launched without CUDA.

use crate::error::Error;
use crate::fills::{self, Memsets};
use crate::launches::Launches;
use crate::learn::learn;
use crate::machine;
use crate::memory::{move_in, pin, regions, watch};
use crate::node::{Node, nodes};
use crate::stream::{Order, Stream};
use cuda_graph::{Own, Recipe, Refused};
use gpu::{
    ChainWords, Channel, Counter, Engine, Group, Launch, LaunchWords, NewParameters, Observer, Place, Region, Ticket,
    Watched,
};
use std::sync::Arc;

/// A graph on one channel.
#[derive(Debug)]
pub struct Graph {
    launch: Launch,
    nodes: Vec<Node>,
    /// In the order of the nodes.
    parameters: Vec<Parameters>,
    /// Indices of parameters that were changed and not sent yet.
    changed: Vec<usize>,
    /// The recipe of the graph; a chain has none.
    recipe: Option<Arc<Recipe>>,
}

/// The recipe and parameters for further copies of a graph.
#[derive(Debug, Clone)]
pub struct Template {
    recipe: Arc<Recipe>,
    /// By the kernel's number among the nodes.
    parameters: Vec<(usize, Vec<u8>)>,
}

impl Template {
    /// Prepares a copy on a channel of the graph's address space, with the parameters that the graph had. The copy does not watch memory that
    /// [`Graph::set_pointer`] named: set such pointers again.
    ///
    /// # Errors
    /// As [`Graph::of`].
    ///
    /// # Safety
    /// As [`Graph::of`].
    pub unsafe fn ready_on(&self, channel: &mut Channel) -> Result<Graph, Error> {
        // SAFETY: the caller's contract.
        let mut graph = unsafe { Graph::of(&self.recipe, channel) }?;
        self.parameters.iter().try_for_each(|(node, bytes)| graph.set_parameter(*node, 0, bytes))?;
        Ok(graph)
    }
}

/// New bytes for the parameters of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Set<'a> {
    /// The kernel's number among the nodes.
    pub node: usize,
    /// Bytes from the start of its parameters.
    pub offset: u32,
    pub bytes: &'a [u8],
}

/// The parameters of one kernel.
#[derive(Debug)]
pub(crate) struct Parameters {
    node: usize,
    address: u64,
    /// For the next launch.
    pub bytes: Vec<u8>,
    /// First and last byte, exclusive, that were changed and not sent yet.
    changed: Option<(usize, usize)>,
}

impl Graph {
    /// Learns an instantiated CUDA graph and prepares it on `channel`. `launches` has CUDA launch it three times, and more often if launches differ or are not
    /// understood; the graph runs each time. No other thread may have CUDA submit anything during this, and CUDA must have loaded everything. That is so if
    /// each of the graph's kernels has run before (modules are loaded when a kernel first runs). `watched` is the object that saw CUDA's calls
    /// ([`gpu::Libcuda::watched`]).
    ///
    /// # Errors
    /// [`Error::LaunchedBefore`] for a graph that was launched before. [`Error::Refused`], with the reason, for an unsupported graph. [`Error::Unfit`] for a
    /// kernel that the GPU would not accept. [`Error::Macro`] if it has small memsets and the argument order of CUDA's macro could not be measured. (For that,
    /// CUDA makes two memsets in its own memory in the current context, once for each GPU.) Otherwise the errors of reading and submitting. CUDA can still
    /// launch the graph then.
    ///
    /// # Safety
    /// doorbell does not check what the graph's kernels do at each launch. Module, context and memory must stay unchanged as long as the graph is launched. The
    /// head of this crate lists the changes that doorbell notices and those that it does not.
    pub unsafe fn learn(
        watched: &Watched,
        channel: &mut Channel,
        launches: &mut impl Launches,
    ) -> Result<Graph, Error> {
        fit(channel)?;
        let space = channel.space();
        let recipe = learn(watched, space, launches, || fills::by_libcuda(watched, space))?;
        // SAFETY: the caller's contract.
        unsafe { Graph::of(&recipe, channel) }
    }

    /// As [`Graph::learn`], but if the graph has small memsets, `memsets` has CUDA fill memory, not the process's libcuda in the current context.
    ///
    /// # Errors
    /// As [`Graph::learn`].
    ///
    /// # Safety
    /// As [`Graph::learn`].
    pub unsafe fn learn_with(
        watched: &Watched,
        channel: &mut Channel,
        launches: &mut impl Launches,
        memsets: &mut dyn Memsets,
    ) -> Result<Graph, Error> {
        fit(channel)?;
        let space = channel.space();
        let recipe = learn(watched, space, launches, || fills::measure(watched, space, memsets))?;
        // SAFETY: the caller's contract.
        unsafe { Graph::of(&recipe, channel) }
    }

    /// Prepares a learnt graph on a channel. A recipe may be used several times.
    ///
    /// # Errors
    /// As [`Graph::learn`].
    ///
    /// # Safety
    /// As [`Graph::learn`]; and the recipe is of a graph of the context whose address space the channel has.
    pub unsafe fn of(recipe: &Recipe, channel: &mut Channel) -> Result<Graph, Error> {
        fit(channel)?;
        let space = channel.space().clone();
        for (node, of) in recipe.nodes.iter().enumerate() {
            if let Some(kernel) = of.work.kernel() {
                kernel.qmd.check().map_err(|unfit| Error::Unfit { node, unfit })?;
            }
        }
        // The bytes are those from when the graph was learnt, but CUDA reads them again at each launch.
        let sent = recipe.nodes.iter().find_map(|node| match node.work {
            cuda_graph::Work::Write { address, bytes } => Some(Refused::Sent { address, bytes: bytes.into() }),
            _ => None,
        });
        if let Some(sent) = sent {
            return Err(sent.into());
        }
        let kept = Arc::new(recipe.clone());
        let (recipe, memory) = move_in(recipe, &space)?;
        let own = Own::of(&recipe, channel.tracker())?;
        let (pins, watches) = (pin(&own.touched, &recipe, &space)?, watch(&recipe, &space));
        let parameters: Vec<Parameters> = own.parameters.iter().map(|p| Parameters::of(p, &recipe, 0)).collect();
        let counts: Vec<(usize, u32)> = own.counts.iter().map(|count| (count.word, count.more)).collect();
        let words = LaunchWords {
            upload: &own.upload,
            launch: &own.launch,
            counts: &counts,
            adds: own.adds,
            qmds: &own.qmds,
            memory: &[memory],
            touched: &regions(&pins),
            needed: &regions(&watches),
            parameters: (parameters.iter().map(|p| p.bytes.len()).sum(), parameters.len()),
        };
        // SAFETY: the caller's contract. The upload only arms QMDs, and all their releases were moved to the tracker or to the counter.
        let mut launch = unsafe {
            // A single group waits only for the launch before.
            if own.counts.len() <= 1 { Launch::prepare(channel, words)? } else { of_groups(channel, &recipe, words)? }
        };
        launch.keep(pins.into_iter().chain(watches));
        Ok(Graph::assembled(launch, nodes(&recipe), parameters, Some(kept)))
    }

    pub(crate) fn assembled(
        launch: Launch,
        nodes: Vec<Node>,
        parameters: Vec<Parameters>,
        recipe: Option<Arc<Recipe>>,
    ) -> Graph {
        let changed = Vec::with_capacity(parameters.len());
        Graph { launch, nodes, parameters, changed, recipe }
    }

    /// The graph's recipe, for a chain that contains it.
    pub(crate) fn recipe(&self) -> Option<&Arc<Recipe>> {
        self.recipe.as_ref()
    }

    /// A template for further copies, on this channel or others.
    ///
    /// # Errors
    /// [`Error::NoTemplate`] for a chain, [`gpu::Error::LocalMemoryMoved`].
    pub fn template(&self) -> Result<Template, Error> {
        let recipe = self.recipe.clone().ok_or(Error::NoTemplate)?;
        if !self.local_memory_is_there() {
            return Err(gpu::Error::LocalMemoryMoved.into());
        }
        let parameters = self.parameters.iter().map(|p| (p.node, p.bytes.clone())).collect();
        Ok(Template { recipe, parameters })
    }

    /// Whether its kernels' local memory is still at the same address.
    pub(crate) fn local_memory_is_there(&self) -> bool {
        self.launch.local_memory_is_there()
    }

    /// The graph's nodes.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How many launches may be in flight at a time.
    pub fn slots(&self) -> usize {
        self.launch.slots()
    }

    /// Whether [`Graph::launch`] would find room now, for a caller that must do something before it.
    ///
    /// # Errors
    /// As [`Graph::launch`].
    pub fn ready(&self, channel: &mut Channel) -> Result<(), gpu::Error> {
        self.launch.ready(channel)
    }

    /// Launches the graph after all earlier launches on the channel. The ticket is done ([`Channel::done`], [`Channel::wait`]) when all its nodes are.
    ///
    /// # Errors
    /// [`gpu::Error::RingFull`] while a launch is pending in each slot, [`gpu::Error::Stale`] if memory of a copy or memset was freed,
    /// [`gpu::Error::OtherChannel`], [`gpu::Error::ChannelKilled`], [`gpu::Error::ChannelStopped`], [`gpu::Error::Forked`]: the graph was not launched then.
    #[inline]
    pub fn launch(&mut self, channel: &mut Channel) -> Result<Ticket, gpu::Error> {
        if self.changed.is_empty() { self.launch.submit(channel) } else { self.launch_changed(channel) }
    }

    /// As [`Graph::launch`], after a submission of any kind on another doorbell channel: the GPU waits for it. Later launches wait, too. One doorbell;
    /// there is no wait if the submission is already done.
    ///
    /// # Errors
    /// As [`Graph::launch`] and [`Channel::wait_for_other`].
    pub fn launch_behind(
        &mut self,
        channel: &mut Channel,
        other: &Observer,
        ticket: Ticket,
    ) -> Result<Ticket, gpu::Error> {
        self.ready(channel)?;
        channel.wait_for_other(other, ticket)?;
        self.launch(channel)
    }

    /// Changes kernel parameters and launches. The new values stay for later launches.
    ///
    /// # Errors
    /// As [`Graph::set_parameter`] and [`Graph::launch`]. Parameters that were set stay set.
    pub fn launch_with(&mut self, channel: &mut Channel, set: &[Set<'_>]) -> Result<Ticket, Error> {
        set.iter().try_for_each(|set| self.set_parameter(set.node, set.offset, set.bytes))?;
        Ok(self.launch(channel)?)
    }

    /// A kernel's parameters for the next launch.
    pub fn parameters(&self, node: usize) -> Option<&[u8]> {
        self.place(node).ok().and_then(|at| self.parameters.get(at)).map(|p| &p.bytes[..])
    }

    fn place(&self, node: usize) -> Result<usize, usize> {
        self.parameters.binary_search_by_key(&node, |p| p.node)
    }

    /// Changes a kernel's parameters from the next launch on; pending launches keep theirs. `offset` counts from the start of the parameters, which are laid
    /// out as in a C structure: each aligned to its size.
    ///
    /// # Errors
    /// [`Error::NoParameters`], [`Error::OutsideParameters`]: the parameters are unchanged then.
    pub fn set_parameter(&mut self, node: usize, offset: u32, bytes: &[u8]) -> Result<(), Error> {
        let (at, address) = self.parameter(node, offset, bytes.len())?;
        // (Also if the bytes stay the same: a caller that sets a number does not mean the memory that it pointed to.)
        self.launch.unpoint(address, bytes.len() as u64);
        self.put_parameter(at, offset as usize, bytes);
        Ok(())
    }

    /// The index of the kernel's parameters and the address of these bytes, if they are within the parameters.
    fn parameter(&self, node: usize, offset: u32, bytes: usize) -> Result<(usize, u64), Error> {
        let Ok(at) = self.place(node) else {
            let having: Vec<String> = self.parameters.iter().map(|p| p.node.to_string()).collect();
            let having = if having.is_empty() { "none".into() } else { having.join(", ") };
            return Err(Error::NoParameters { node, having });
        };
        let (parameters, from) = (&self.parameters[at], offset as usize);
        let size = parameters.bytes.len() as u32;
        if from.saturating_add(bytes) > parameters.bytes.len() {
            return Err(Error::OutsideParameters { node, offset, bytes, size });
        }
        Ok((at, parameters.address + u64::from(offset)))
    }

    /// Changes bytes that [`Graph::parameter`] has checked.
    fn put_parameter(&mut self, at: usize, from: usize, bytes: &[u8]) {
        let (parameters, to) = (&mut self.parameters[at], from + bytes.len());
        let place = &mut parameters.bytes[from..to];
        if place == bytes {
            return;
        }
        place.copy_from_slice(bytes);
        match &mut parameters.changed {
            Some((first, last)) => (*first, *last) = (from.min(*first), to.max(*last)),
            changed => {
                *changed = Some((from, to));
                // (The vector has room for all of them.)
                self.changed.push(at);
            }
        }
    }

    /// As [`Graph::set_parameter`], for a pointer to `address`, which must be in `region`. A free of that memory waits for pending launches. Later launches are
    /// refused ([`gpu::Error::Stale`]) until the pointer is set to something else.
    ///
    /// # Errors
    /// As [`Graph::set_parameter`]; [`gpu::Error::OutsideRegion`], and errors of the region.
    pub fn set_pointer(&mut self, node: usize, offset: u32, (region, address): (&Region, u64)) -> Result<(), Error> {
        if !region.holds(address, 1) {
            return Err(gpu::Error::OutsideRegion { va: address, length: 1 }.into());
        }
        let (at, parameter) = self.parameter(node, offset, 8)?;
        self.launch.point(parameter, region)?;
        self.put_parameter(at, offset as usize, &address.to_le_bytes());
        Ok(())
    }

    fn launch_changed(&mut self, channel: &mut Channel) -> Result<Ticket, gpu::Error> {
        let parameters = &self.parameters;
        let new = self.changed.iter().filter_map(|at| parameters.get(*at)?.to_send());
        let ticket = self.launch.submit_with(channel, new)?;
        self.sent();
        Ok(ticket)
    }

    /// Launches together with the part of a chain that has a separate copy channel. Returns that part's ticket.
    #[inline]
    pub(crate) fn launch_beside(
        &mut self,
        channel: &mut Channel,
        copies: (&mut Launch, &mut Channel),
    ) -> Result<Ticket, gpu::Error> {
        let parameters = &self.parameters;
        let new = self.changed.iter().filter_map(|at| parameters.get(*at)?.to_send());
        let [_, copied] = self.launch.submit_beside(channel, new, copies)?;
        self.sent();
        Ok(copied)
    }

    /// Whether there is room for both parts.
    pub(crate) fn ready_beside(
        &self,
        channel: &mut Channel,
        copies: (&Launch, &mut Channel),
    ) -> Result<(), gpu::Error> {
        self.launch.ready_beside(channel, copies)
    }

    /// All changes have been sent.
    fn sent(&mut self) {
        for at in self.changed.drain(..) {
            if let Some(parameters) = self.parameters.get_mut(at) {
                parameters.changed = None;
            }
        }
    }
}

/// Prepares a graph of several groups. They wait for each other by a counter in GPU memory: the tracker is in host memory, so each wait for it would use the
/// bus (ResNet-50 on an H200: 30 us of 850).
///
/// # Safety
/// As [`Graph::of`].
unsafe fn of_groups(channel: &mut Channel, recipe: &Recipe, words: LaunchWords<'_>) -> Result<Launch, Error> {
    let counter = Counter::new(channel.space(), Place::Video)?;
    let own = Own::of(recipe, counter.va())?;
    let mut stream = Stream::begin(channel.tracker(), None, counter.va(), Order::default())?;
    stream.launch(&own)?;
    stream.end()?;
    let part = &stream.launches;
    let words =
        LaunchWords { upload: &own.upload, launch: &part.words, counts: &part.tracker_counts, adds: 1, ..words };
    let chain =
        ChainWords { counter: Some(&counter), counts: &part.counts, adds: stream.adds, ..ChainWords::default() };
    // SAFETY: the caller's contract.
    Ok(unsafe { Launch::prepare_chain(channel, words, chain)? })
}

impl Parameters {
    /// `base`: number of nodes before those of the recipe.
    pub(crate) fn of(place: &cuda_graph::Parameters, recipe: &Recipe, base: usize) -> Parameters {
        let bank = recipe.nodes.get(place.node.0).and_then(|n| n.work.kernel()?.bank);
        let bytes = bank.and_then(|bank| recipe.banks.get(bank.0)?.parameter_bytes()).unwrap_or_default();
        Parameters { node: base + place.node.0, address: place.address, bytes: bytes.to_vec(), changed: None }
    }

    /// The changed bytes, in whole words.
    fn to_send(&self) -> Option<NewParameters<'_>> {
        let (first, last) = self.changed?;
        let (first, last) = (first & !3, last.next_multiple_of(4).min(self.bytes.len()));
        Some(NewParameters { address: self.address + first as u64, bytes: self.bytes.get(first..last)? })
    }
}

/// Checks that the channel can launch, and reserves it for launches.
pub(crate) fn fit(channel: &mut Channel) -> Result<(), Error> {
    machine::check(channel.space())?;
    if (channel.engine(), channel.group()) != (Engine::Graphics, Group::Cudas) {
        return Err(Error::Channel(
            "launches need a graphics channel in CUDA's group, where local memory and the kernels' environment are set up",
        ));
    }
    Ok(channel.begin_launches()?)
}
