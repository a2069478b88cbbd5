//! A graph that is launched without CUDA.

use crate::error::Error;
use crate::fills::{self, Memsets};
use crate::launches::Launches;
use crate::learn::{Learning, learn};
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
    /// Which of them were changed and not sent yet.
    changed: Vec<usize>,
    /// What it was made of; a chain has none.
    recipe: Option<Arc<Recipe>>,
}

/// What further copies of a graph are made of.
#[derive(Debug, Clone)]
pub struct Template {
    recipe: Arc<Recipe>,
    /// By the kernel's number among the nodes.
    parameters: Vec<(usize, Vec<u8>)>,
}

impl Template {
    /// Makes a copy ready on a channel of the same address space as the graph's, with the parameters that the graph had. Memory that [`Graph::set_pointer`] has
    /// named is not watched for it: set such pointers anew.
    ///
    /// # Errors
    /// As [`Graph::of`].
    ///
    /// # Safety
    /// As [`Graph::of`].
    pub unsafe fn ready_on(&self, channel: &mut Channel) -> Result<Graph, Error> {
        // SAFETY: the caller's.
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
    /// As the next launch is to have them.
    pub bytes: Vec<u8>,
    /// First and last byte, exclusive, that were changed and not sent yet.
    changed: Option<(usize, usize)>,
}

impl Graph {
    /// Learns an instantiated graph of CUDA's and makes it ready on `channel`. `launches` has CUDA launch it, three times, and more often where launches
    /// differ or are not understood, so the graph runs as often. No other thread may have CUDA submit anything
    /// meanwhile, and CUDA has nothing else to load: each of the graph's kernels has run before (modules are loaded when a kernel first runs). `watched` is
    /// what saw CUDA's calls ([`gpu::Libcuda::watched`]).
    ///
    /// # Errors
    /// [`Error::LaunchedBefore`] for a graph that was launched before, [`Error::Refused`] for one that is not understood, by name, [`Error::Unfit`] for a
    /// kernel that the GPU would not take, [`Error::Macro`] where it has small memsets and it could not be measured what CUDA's macro for them says (CUDA
    /// makes two memsets of memory of its own for that, in the current context, once for each GPU), and what cannot be read or submitted. The graph can still be launched by CUDA then.
    ///
    /// # Safety
    /// What the graph's kernels do, they do at each launch, with nothing that checks it: module, context and memory stay what they are for as long as the
    /// graph is launched. The head of this crate says what is noticed and what is not.
    pub unsafe fn learn(
        watched: &Watched,
        channel: &mut Channel,
        launches: &mut impl Launches,
    ) -> Result<Graph, Error> {
        fit(channel)?;
        let space = channel.space();
        let recipe = learn(watched, space, launches, || fills::by_libcuda(watched, space))?;
        // SAFETY: the caller's.
        unsafe { Graph::of(&recipe, channel) }
    }

    /// One launch by CUDA of a graph that is being learnt; the graph, when there were launches enough. For the rest as [`Graph::learn`]: whoever waits for it decides when the
    /// next launch is.
    ///
    /// # Errors
    /// As [`Graph::learn`]: it is not learnt then, and further launches teach nothing.
    ///
    /// # Safety
    /// As [`Graph::learn`].
    pub unsafe fn learn_on(
        learning: &mut Learning,
        watched: &Watched,
        channel: &mut Channel,
        launches: &mut impl Launches,
    ) -> Result<Option<Graph>, Error> {
        fit(channel)?;
        let space = channel.space();
        let recipe = learning.step(watched, space, launches, || fills::by_libcuda(watched, space))?;
        // SAFETY: the caller's.
        recipe.map(|recipe| unsafe { Graph::of(&recipe, channel) }).transpose()
    }

    /// As [`Graph::learn`], where it is this one that has CUDA fill memory if the graph has small memsets, and not the process's libcuda in the current
    /// context.
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
        // SAFETY: the caller's.
        unsafe { Graph::of(&recipe, channel) }
    }

    /// Makes a graph that was learnt ready on a channel. A recipe may be used several times.
    ///
    /// # Errors
    /// As [`Graph::learn`].
    ///
    /// # Safety
    /// As [`Graph::learn`]; and the recipe is of a graph of the context in whose address space the channel is.
    pub unsafe fn of(recipe: &Recipe, channel: &mut Channel) -> Result<Graph, Error> {
        fit(channel)?;
        let space = channel.space().clone();
        for (node, of) in recipe.nodes.iter().enumerate() {
            if let Some(kernel) = of.work.kernel() {
                kernel.qmd.check().map_err(|unfit| Error::Unfit { node, unfit })?;
            }
        }
        // They are as they were when the graph was learnt: CUDA reads them anew each time.
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
        // SAFETY: the caller's. The upload only arms, and all that QMDs release was moved to the tracker, or to the counter.
        let mut launch = unsafe {
            // One group waits for nothing but the launch before.
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

    /// What it was made of, for a chain that it is to be part of.
    pub(crate) fn recipe(&self) -> Option<&Arc<Recipe>> {
        self.recipe.as_ref()
    }

    /// For further copies of it, on this channel or others.
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

    /// Whether its kernels' local memory is where it was.
    pub(crate) fn local_memory_is_there(&self) -> bool {
        self.launch.local_memory_is_there()
    }

    /// What it is made of.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How many launches may be in flight at once.
    pub fn slots(&self) -> usize {
        self.launch.slots()
    }

    /// Whether [`Graph::launch`] would find room now: for whoever has to do something else in front.
    ///
    /// # Errors
    /// As [`Graph::launch`].
    pub fn ready(&self, channel: &mut Channel) -> Result<(), gpu::Error> {
        self.launch.ready(channel)
    }

    /// Launches it once more, behind all that was launched on the channel before. The ticket is done ([`Channel::done`], [`Channel::wait`]) when all its
    /// nodes are.
    ///
    /// # Errors
    /// [`gpu::Error::RingFull`] while as many launches as there are slots are under way, [`gpu::Error::Stale`] where memory of a copy or memset was freed,
    /// [`gpu::Error::OtherChannel`], [`gpu::Error::ChannelKilled`], [`gpu::Error::ChannelStopped`], [`gpu::Error::Forked`]: nothing was launched then.
    #[inline]
    pub fn launch(&mut self, channel: &mut Channel) -> Result<Ticket, gpu::Error> {
        if self.changed.is_empty() { self.launch.submit(channel) } else { self.launch_changed(channel) }
    }

    /// As [`Graph::launch`], behind a submission of another channel of ours, of whatever kind: the GPU waits for it. What is launched later waits, too. One
    /// doorbell; nothing is waited for where the submission is done.
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

    /// Changes parameters of kernels, and launches. They stay so for the launches after it.
    ///
    /// # Errors
    /// As [`Graph::set_parameter`] and [`Graph::launch`]. What was set stays set.
    pub fn launch_with(&mut self, channel: &mut Channel, set: &[Set<'_>]) -> Result<Ticket, Error> {
        set.iter().try_for_each(|set| self.set_parameter(set.node, set.offset, set.bytes))?;
        Ok(self.launch(channel)?)
    }

    /// The parameters of a kernel as the next launch will have them.
    pub fn parameters(&self, node: usize) -> Option<&[u8]> {
        self.place(node).ok().and_then(|at| self.parameters.get(at)).map(|p| &p.bytes[..])
    }

    fn place(&self, node: usize) -> Result<usize, usize> {
        self.parameters.binary_search_by_key(&node, |p| p.node)
    }

    /// Changes a kernel's parameters from the next launch on; those that are under way keep theirs. `offset` counts from the start of the parameters, which lie
    /// as in a C structure: each aligned to its size.
    ///
    /// # Errors
    /// [`Error::NoParameters`], [`Error::OutsideParameters`]: nothing was changed then.
    pub fn set_parameter(&mut self, node: usize, offset: u32, bytes: &[u8]) -> Result<(), Error> {
        let (at, address) = self.parameter(node, offset, bytes.len())?;
        // (Also where the bytes stay what they are: whoever sets a number does not mean the memory that it pointed to.)
        self.launch.unpoint(address, bytes.len() as u64);
        self.put_parameter(at, offset as usize, bytes);
        Ok(())
    }

    /// Which of the parameters they are, and their address, if so many bytes lie there.
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

    /// Changes bytes of which [`Graph::parameter`] has answered.
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
                // (Room for all of them was made.)
                self.changed.push(at);
            }
        }
    }

    /// As [`Graph::set_parameter`], of a pointer: it points to `address`, which must lie in `region`. When that memory is freed, launches that are under way
    /// are waited for, and others refused ([`gpu::Error::Stale`]), until the pointer is set to something else.
    ///
    /// # Errors
    /// As [`Graph::set_parameter`]; [`gpu::Error::OutsideRegion`], and what is wrong with the region.
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

    /// With the part of a chain that copies on a channel of its own; the ticket of that.
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

    /// Nothing is changed that was not sent.
    fn sent(&mut self) {
        for at in self.changed.drain(..) {
            if let Some(parameters) = self.parameters.get_mut(at) {
                parameters.changed = None;
            }
        }
    }
}

/// A graph of several groups. They wait for each other by a counter in video memory: the tracker lies in host memory, and each wait would go over the bus
/// (ResNet-50 on an H200: 30 us of 850).
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
    // SAFETY: the caller's.
    Ok(unsafe { Launch::prepare_chain(channel, words, chain)? })
}

impl Parameters {
    /// `base`: how many nodes go before those of the recipe.
    pub(crate) fn of(place: &cuda_graph::Parameters, recipe: &Recipe, base: usize) -> Parameters {
        let bank = recipe.nodes.get(place.node.0).and_then(|n| n.work.kernel()?.bank);
        let bytes = bank.and_then(|bank| recipe.banks.get(bank.0)?.parameter_bytes()).unwrap_or_default();
        Parameters { node: base + place.node.0, address: place.address, bytes: bytes.to_vec(), changed: None }
    }

    /// What of it was changed, in whole words.
    fn to_send(&self) -> Option<NewParameters<'_>> {
        let (first, last) = self.changed?;
        let (first, last) = (first & !3, last.next_multiple_of(4).min(self.bytes.len()));
        Some(NewParameters { address: self.address + first as u64, bytes: self.bytes.get(first..last)? })
    }
}

/// Whether launches can be made on the channel; it is for launches then.
pub(crate) fn fit(channel: &mut Channel) -> Result<(), Error> {
    machine::check(channel.space())?;
    if (channel.engine(), channel.group()) != (Engine::Graphics, Group::Cudas) {
        return Err(Error::Channel(
            "launches need a graphics channel in CUDA's group, where local memory and the kernels' environment are set up: open one with launch::channel",
        ));
    }
    Ok(channel.begin_launches()?)
}
