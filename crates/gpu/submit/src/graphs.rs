//! CUDA graphs that any thread may launch, past CUDA.
//!
//! Each goes by one lane of launches: a graphics channel in CUDA's own group, which is opened when the first graph is prepared there. What
//! is launched on a lane runs in the order of the calls; the GPU waits, and no thread does. Lanes are not ordered.

use crate::buffers::Kept;
use crate::error::Error;
use crate::handle::{BUFFER, Buffer, Copy, GRAPH, Graph};
use crate::lane::{Claim, Inner, Place};
use crate::launching::{Form, Keeps, Launching};
use crate::numbering::{LAUNCH_LANES, LAUNCHES};
use crate::open::Setup;
use crate::session::{Now, Session, equip};
use crate::staged;
use crate::transfers::{locate, name};
use copy::Machine;
use cuda::{Context, Staged};
use gpu::{Channel, Libcuda, Watched};
use launch::OnStream;
use std::ffi::c_void;
use std::sync::PoisonError;
use std::time::Duration;

/// Graphs and chains of one lane.
const MOST: usize = 4096;
/// Never: what is learnt at once has a graph.
const NONE: &str = "the graph was not learnt";
/// How long launches that are under way are waited for before memory that they may use is let go.
const IDLE: Duration = Duration::from_secs(10);

impl Session {
    /// Makes an instantiated CUDA graph ready to be launched past CUDA. CUDA launches it in `stream` a few times (it
    /// does its work then), and waits; the words of these launches are read, and what the graph has on the GPU is
    /// cloned. A graph that was launched before is refused: its upload was not seen. No other thread may have CUDA
    /// submit anything meanwhile.
    ///
    /// # Errors
    /// [`Error::Graph`] for what doorbell does not launch, by name, [`Error::Unavailable`] without CUDA or where its
    /// channels were not seen, [`Error::Cuda`], [`Error::Limit`] for more than 4,096 on a lane, [`Error::Closed`],
    /// [`Error::Forked`], and what the driver refuses.
    ///
    /// # Safety
    /// `exec` and `stream` are handles of this GPU's (`CUgraphExec`, `CUstream`; a null stream: the default one). What
    /// kernels do is not looked at: from now on until [`Session::graph_release`] their modules, and all memory that
    /// they use, stay. The executable graph may be destroyed or updated.
    pub unsafe fn prepare_graph(&self, exec: *mut c_void, stream: *mut c_void) -> Result<Graph, Error> {
        // SAFETY: the caller's contract.
        unsafe { self.prepare_exec(&*self.setup()?, exec, stream) }
    }

    /// As [`Session::prepare_graph`], by who has the set-up.
    ///
    /// # Safety
    /// As there.
    unsafe fn prepare_exec(&self, setup: &Setup, exec: *mut c_void, stream: *mut c_void) -> Result<Graph, Error> {
        let now = self.now()?;
        self.learn(setup, (now, now.own_launches()), |context, watched, channel| {
            // SAFETY: the caller's contract.
            let mut by_cuda = unsafe { OnStream::new(context, exec, stream) };
            // SAFETY: the caller's contract.
            let learnt = unsafe { launch::Graph::learn(watched, channel, &mut by_cuda) };
            learnt.map(|graph| Some(Form::One(graph))).map_err(|error| because(error, by_cuda))
        })?
        .ok_or(Error::Argument(NONE))
    }

    /// Makes a graph ready to be launched that is not instantiated: a `CUgraph`. doorbell instantiates it, so it does not matter whether the program has, or
    /// has launched that. For the rest as [`Session::prepare_graph`]. Unlike there, memcpy nodes may name pageable memory: the CPU copies in their place,
    /// out of it in [`Session::launch`], and into it in the first [`Session::wait`], [`Session::poll`] or [`Session::query`] of any launch's that finds it over.
    /// So one launch is under way at a time ([`Error::Full`]), and what a CUDA stream is made to wait for is the GPU's part.
    ///
    /// # Errors
    /// As [`Session::prepare_graph`]; [`Error::Graph`] also where a memcpy node writes pageable memory that another one uses.
    ///
    /// # Safety
    /// As [`Session::prepare_graph`], of a `CUgraph`; pageable memory of its memcpy nodes is memory that it uses, and nobody else touches what they write
    /// from a launch until it is over.
    pub unsafe fn instantiate_graph(&self, graph: *mut c_void, stream: *mut c_void) -> Result<Graph, Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        self.learn(&setup, (now, now.own_launches()), |context, watched, channel| {
            // SAFETY: the caller's contract.
            let Some(Staged { graph, staging }) = unsafe { context.staged(graph) }? else {
                // SAFETY: the caller's contract.
                let exec = unsafe { context.instantiate_by_handle(graph) }?;
                // SAFETY: the caller's; the executable graph lives until it is cloned.
                let mut by_cuda = unsafe { OnStream::new(context, exec.handle(), stream) };
                // SAFETY: the caller's contract.
                let learnt = unsafe { launch::Graph::learn(watched, channel, &mut by_cuda) };
                return learnt.map(|graph| Some(Form::One(graph))).map_err(|error| because(error, by_cuda));
            };
            let exec = graph.instantiate()?;
            // SAFETY: as above.
            let mut by_cuda = unsafe { OnStream::new(context, exec.handle(), stream) };
            // SAFETY: the caller's contract.
            let learnt = unsafe { launch::StagedGraph::learn(watched, channel, staging, &mut by_cuda) };
            let form = learnt.map(|graph| Form::Staged(Box::new(graph)));
            form.map(Some).map_err(|error| because(error, by_cuda))
        })?
        .ok_or(Error::Argument(NONE))
    }

    /// A graph that is made ready on a lane of launches, in CUDA's context; `None` where `make` has none yet.
    pub(crate) fn learn(
        &self,
        setup: &Setup,
        (now, lane): (Now, usize),
        make: impl FnOnce(&Context, &'static Watched, &mut Channel) -> Result<Option<Form>, Error>,
    ) -> Result<Option<Graph>, Error> {
        let machine = setup.machine.as_ref().ok_or_else(without)?;
        // Before the lane, which others may want meanwhile.
        let _alone = self.learning.lock().unwrap_or_else(PoisonError::into_inner);
        let _context = setup.enter()?;
        let context = machine.context().map_err(|why| Error::Unavailable(why.reason))?;
        let watched = Libcuda::open()?.watched();
        let mut claim = self.launches(setup, machine, (now, lane))?;
        // CUDA may take seconds.
        let _blind = self.lanes[lane].blind(&claim);
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        staged::give_back(inner);
        let Inner { graphs, channel, .. } = inner;
        let Some(form) = make(context, watched, channel)? else { return Ok(None) };
        put_graph(now, lane, graphs, Launching::new(form)).map(Some)
    }

    /// Makes a kernel ready to be launched past CUDA: a graph of one kernel, which is captured from `stream` and prepared as
    /// [`Session::prepare_graph`] does; so CUDA launches it a few times. (Attributes of the launch are left out.)
    ///
    /// # Errors
    /// As [`Session::prepare_graph`]; [`Error::Argument`] for the default stream, from which nothing can be captured.
    ///
    /// # Safety
    /// As [`Session::prepare_graph`]; `function` is a `CUfunction`, and `arguments` has a pointer to each of its arguments, as
    /// `cuLaunchKernel` takes them.
    pub unsafe fn prepare_kernel(
        &self,
        function: *mut c_void,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        arguments: *mut *mut c_void,
        stream: *mut c_void,
    ) -> Result<Graph, Error> {
        if function.is_null() || stream.is_null() {
            return Err(Error::Argument(
                "a kernel is captured: pass a CUfunction and a stream that is not the default one",
            ));
        }
        let launch = cuda::Launch { shared_bytes, ..cuda::Launch::new(grid, block) };
        let setup = self.setup()?;
        let machine = setup.machine.as_ref().ok_or_else(without)?;
        let _context = setup.enter()?;
        let context = machine.context().map_err(|why| Error::Unavailable(why.reason))?;
        // SAFETY: the caller's contract.
        let exec = unsafe { context.graph_of_kernel(stream, function, &launch, arguments) }?;
        // SAFETY: the caller's; the executable graph lives until it is cloned.
        unsafe { self.prepare_exec(&setup, exec.handle(), stream) }
    }

    /// A lane of launches, waited for; the first call opens its channel.
    pub(crate) fn launches(
        &self,
        setup: &Setup,
        machine: &Machine,
        (now, at): (Now, usize),
    ) -> Result<Claim<'_>, Error> {
        let lane = &self.lanes[at];
        let mut claim = lane.claim_in_time();
        if claim.is_none() {
            let space = machine.group_space().map_err(|why| Error::Unavailable(why.reason))?;
            let channel = launch::channel(space).map_err(no_channel)?;
            setup.say(|| match now.launch_lanes() {
                1 => "opened a channel in CUDA's group, for launches".into(),
                all => format!("opened a channel in CUDA's group, for launch lane {} of {all}", at - LAUNCHES),
            });
            equip(lane, &mut claim, channel, None, setup.ways.clone());
        }
        self.still(claim, now)
    }

    /// Bytes of parameters of each of its kernels, in the order in which a launch starts them.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Closed`], [`Error::Forked`].
    pub fn graph_kernels(&self, graph: Graph) -> Result<Vec<u32>, Error> {
        Session::same_process()?;
        let now = self.now()?;
        let at = locate_graph(now, graph)?;
        let mut claim = self.still(self.lanes[at.lane].claim_in_time(), now)?;
        Ok(found(&mut claim, at)?.0.kernels.iter().map(|(_, bytes)| *bytes).collect())
    }

    /// Changes bytes of a kernel's parameters, from the next launch on; those that are under way keep theirs. `kernel`
    /// counts kernels from 0, `offset` bytes from the first parameter. No lock, no allocation, no system call.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread uses the graph's lane; [`Error::Argument`] for a kernel that it has not,
    /// [`Error::Outside`], [`Error::Handle`], [`Error::Closed`], [`Error::Forked`]. Nothing was changed then.
    #[inline]
    pub fn set_parameter(&self, graph: Graph, kernel: u32, offset: u32, bytes: &[u8]) -> Result<(), Error> {
        let now = self.now()?;
        let at = locate_graph(now, graph)?;
        let mut claim = self.claim(at.lane, now)?;
        let (launching, channel) = found(&mut claim, at)?;
        if channel.space().device().forked() {
            return Err(Error::Forked);
        }
        let node = launching.node(kernel, offset, bytes.len() as u64)?;
        launching.form.set_parameter(node, offset, bytes)
    }

    /// As [`Session::set_parameter`], of a pointer: it points to `at` in a buffer from the next launch on. Memory of CUDA's is pinned for
    /// the graph, and when CUDA frees it, launches answer [`Error::Freed`] until the pointer is set anew; memory of
    /// the session's own stays until then, also when it is unpinned. Waits for launches that are under way where the parameter was such a
    /// pointer before.
    ///
    /// # Errors
    /// As [`Session::set_parameter`] but [`Error::Busy`]; [`Error::Freed`], [`Error::Timeout`].
    pub fn set_pointer(
        &self,
        graph: Graph,
        kernel: u32,
        offset: u32,
        (buffer, at): (Buffer, u64),
    ) -> Result<(), Error> {
        Session::same_process()?;
        let now = self.now()?;
        let place = BUFFER.decode(now.opening(), buffer.0)?;
        let graph = locate_graph(now, graph)?;
        let mut claim = self.still(self.lanes[graph.lane].claim_in_time(), now)?;
        let (launching, channel) = found(&mut claim, graph)?;
        let node = launching.node(kernel, offset, 8)?;
        // SAFETY: the claim outlives what is found.
        let entry = unsafe { self.buffers.find(place) }?;
        if !entry.region.is_still_live() {
            return Err(Error::Freed);
        }
        let address = entry.region.part(at, 1)?.va();
        let keeps = match &entry.kept {
            Kept::Cudas(_) => {
                let pin = channel.space().pin(entry.region.va(), entry.region.length())?;
                launching.form.set_pointer(node, offset, (pin.region(), address))?;
                Keeps::Pin(pin)
            }
            Kept::Ours(memory) => {
                launching.form.set_parameter(node, offset, &address.to_le_bytes())?;
                Keeps::Memory(memory.clone())
            }
        };
        let before = launching.pointers.iter().position(|(k, o, _)| (*k, *o) == (kernel, offset));
        let before = before.map(|at| launching.pointers.swap_remove(at));
        launching.pointers.push((kernel, offset, keeps));
        let Some(before) = before else { return Ok(()) };
        // Kernels may still use what it pointed to.
        let ended = channel.idle(IDLE);
        if matches!(ended, Err(gpu::Error::Timeout { .. })) {
            launching.pointers.push(before);
        }
        Ok(ended?)
    }

    /// Launches it once more, behind all that was launched on its lane before, of whatever graph. [`Session::wait`],
    /// [`Session::poll`] and [`Session::query`] take what it answers. Nothing orders it against launches on other lanes, copies and CUDA's
    /// streams ([`Session::launch_in`] and [`Session::stream_wait`] do). No lock, no allocation, no system call.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread uses the graph's lane, [`Error::Full`] while 32 launches of it are under way, or one of a chain whose bytes the CPU stores or of a
    /// graph that names pageable memory; after both it may be tried again. [`Error::Freed`] where memory that it copies or fills was freed, [`Error::Handle`],
    /// [`Error::Closed`], [`Error::Forked`], [`Error::Killed`], [`Error::Stopped`]. Nothing was launched.
    #[inline]
    pub fn launch(&self, graph: Graph) -> Result<Copy, Error> {
        let now = self.now()?;
        let at = locate_graph(now, graph)?;
        let mut claim = self.claim(at.lane, now)?;
        let (launching, channel) = found(&mut claim, at)?;
        self.start((now, at.lane), &mut launching.form, channel)
    }

    /// Ends a graph. Launches of it that are under way go on; where parameters point into buffers, or memcpy nodes name pageable memory, they are waited for, up to
    /// ten seconds.
    ///
    /// # Errors
    /// [`Error::Timeout`] where they take longer: the graph has ended all the same, and what it keeps is given back when a graph is prepared or ended after they are
    /// done, or the session is closed. [`Error::Handle`], [`Error::Closed`], [`Error::Forked`].
    pub fn graph_release(&self, graph: Graph) -> Result<(), Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        let GraphAt { lane, index, used } = locate_graph(now, graph)?;
        let mut claim = self.still(self.lanes[lane].claim_in_time(), now)?;
        let inner = claim.as_mut().ok_or_else(|| GRAPH.wrong())?;
        // What a graph has of CUDA's is freed in CUDA's context.
        let _context = setup.enter()?;
        staged::give_back(inner);
        let mut launching = Place::take(&mut inner.graphs, index, used).ok_or_else(|| GRAPH.wrong())?;
        let is_staged = matches!(launching.form, Form::Staged(_));
        // Kernels may still use what its parameters point to, and copies the pinned memory.
        let waits = is_staged || !launching.pointers.is_empty();
        if waits && let Err(gpu::Error::Timeout { after, .. }) = inner.channel.idle(IDLE) {
            inner.leaving.push(launching);
            return Err(Error::Timeout(after));
        }
        staged::end(&mut launching, &inner.channel);
        drop(launching);
        Ok(())
    }
}

/// Where a graph is: its lane of launches, its place there, and how often that was used.
#[derive(Clone, Copy)]
pub(crate) struct GraphAt {
    pub lane: usize,
    pub index: u32,
    pub used: u32,
}

#[inline]
pub(crate) fn locate_graph(now: Now, graph: Graph) -> Result<GraphAt, Error> {
    let (place, used) = GRAPH.decode(now.opening(), graph.0)?;
    let (lane, index) = locate(place);
    if lane < LAUNCH_LANES { Ok(GraphAt { lane: LAUNCHES + lane, index, used }) } else { Err(GRAPH.wrong()) }
}

/// Puts a graph into a lane of launches, which the caller has.
pub(crate) fn put_graph(
    now: Now,
    lane: usize,
    graphs: &mut Vec<Place<Launching>>,
    launching: Launching,
) -> Result<Graph, Error> {
    let (index, used) = Place::put(graphs, MOST, launching)?;
    Ok(Graph(GRAPH.encode(now.opening(), name(lane - LAUNCHES, index), used)))
}

/// What is there, and the channel. The claim is that of its lane.
#[inline]
pub(crate) fn found<'c>(
    claim: &'c mut Claim<'_>,
    GraphAt { index, used, .. }: GraphAt,
) -> Result<(&'c mut Launching, &'c mut gpu::Channel), Error> {
    let Inner { graphs, channel, .. } = claim.as_mut().ok_or_else(|| GRAPH.wrong())?;
    let launching = Place::find(graphs, index, used).ok_or_else(|| GRAPH.wrong())?;
    Ok((launching, channel))
}

/// Why a graph was not learnt: what CUDA says, if it refused to launch it.
pub(crate) fn because(error: launch::Error, by_cuda: OnStream<'_>) -> Error {
    by_cuda.refused().map_or_else(|| error.into(), Error::from)
}

pub(crate) fn without() -> Error {
    Error::Unavailable("the session is without CUDA: it has no graphs".into())
}

/// Why there is no channel for launches.
fn no_channel(error: launch::Error) -> Error {
    let late = Libcuda::open().is_ok_and(|libcuda| libcuda.watched().is_late());
    let hint = if late {
        "; CUDA was initialised before doorbell: call doorbell_init (Session::watch, or import the Python package) before the first CUDA call"
    } else {
        ""
    };
    Error::Unavailable(format!("no channel in CUDA's group, which launches need: {error}{hint}"))
}
