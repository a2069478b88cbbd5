//! CUDA graphs that any thread may launch, without CUDA.
//!
//! Each graph belongs to one launch lane: a graphics channel in CUDA's own group, which is opened when the first graph is prepared there. Launches on a lane
//! run in the order of the calls; the GPU waits, and no thread does. Lanes are not ordered.

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
use cuda::{Context, Staged};
use gpu::{Channel, Libcuda, Watched};
use launch::OnStream;
use machine::Machine;
use std::ffi::c_void;
use std::time::Duration;

/// Maximum number of graphs and chains of one lane.
const MOST: usize = 4096;
/// How long to wait for pending launches before memory that they may use is released.
const IDLE: Duration = Duration::from_secs(10);

impl Session {
    /// Prepares an instantiated CUDA graph for launches without CUDA. CUDA launches it in `stream` a few times, and each launch does the graph's work; the
    /// call waits for them. doorbell reads the words of these launches and clones the graph's QMDs and constant banks. A graph that was launched before is
    /// refused, because doorbell did not see its upload. No other thread may have CUDA submit anything during this call.
    ///
    /// # Errors
    /// [`Error::Graph`], with the reason, for an unsupported graph. [`Error::Unavailable`] without CUDA or if its channels were not seen. [`Error::Cuda`],
    /// [`Error::Limit`] for more than 4,096 on a lane, [`Error::Closed`], [`Error::Forked`], and errors of the driver.
    ///
    /// # Safety
    /// `exec` and `stream` are handles of this GPU (`CUgraphExec`, `CUstream`; null: the default stream). doorbell does not check what kernels do. From now on
    /// until [`Session::graph_release`], their modules and all memory that they use must stay. The executable graph may be destroyed or updated.
    pub unsafe fn prepare_graph(&self, exec: *mut c_void, stream: *mut c_void) -> Result<Graph, Error> {
        // SAFETY: the caller's contract.
        unsafe { self.prepare_exec(&*self.setup()?, exec, stream) }
    }

    /// As [`Session::prepare_graph`], for a caller that has the set-up.
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
            learnt.map(Form::One).map_err(|error| because(error, by_cuda))
        })
    }

    /// Prepares a `CUgraph`, which is not instantiated. doorbell instantiates it, so the program may have instantiated or launched it before. Otherwise as
    /// [`Session::prepare_graph`], but memcpy nodes may name pageable memory: the CPU makes their copies. It reads that memory in [`Session::launch`], and
    /// writes it in the first [`Session::wait`], [`Session::poll`] or [`Session::query`], of any launch, that finds the launch done. So only one launch may be
    /// pending ([`Error::Full`]), and a CUDA stream that waits for the launch waits only for the GPU's part.
    ///
    /// # Errors
    /// As [`Session::prepare_graph`]; [`Error::Graph`] also if a memcpy node writes pageable memory that another one uses.
    ///
    /// # Safety
    /// As [`Session::prepare_graph`], for a `CUgraph`. The pageable memory of its memcpy nodes is memory that it uses. From a launch until its end, no thread
    /// may touch the memory that they write.
    pub unsafe fn instantiate_graph(&self, graph: *mut c_void, stream: *mut c_void) -> Result<Graph, Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        self.learn(&setup, (now, now.own_launches()), |context, watched, channel| {
            // SAFETY: the caller's contract.
            let Some(Staged { graph, staging }) = unsafe { context.staged(graph) }? else {
                // SAFETY: the caller's contract.
                let exec = unsafe { context.instantiate_by_handle(graph) }?;
                // SAFETY: the caller's contract; the executable graph lives until it is cloned.
                let mut by_cuda = unsafe { OnStream::new(context, exec.handle(), stream) };
                // SAFETY: the caller's contract.
                let learnt = unsafe { launch::Graph::learn(watched, channel, &mut by_cuda) };
                return learnt.map(Form::One).map_err(|error| because(error, by_cuda));
            };
            let exec = graph.instantiate()?;
            // SAFETY: as above.
            let mut by_cuda = unsafe { OnStream::new(context, exec.handle(), stream) };
            // SAFETY: the caller's contract.
            let learnt = unsafe { launch::StagedGraph::learn(watched, channel, staging, &mut by_cuda) };
            learnt.map(|graph| Form::Staged(Box::new(graph))).map_err(|error| because(error, by_cuda))
        })
    }

    /// Prepares a graph on a launch lane, in CUDA's context.
    fn learn(
        &self,
        setup: &Setup,
        (now, lane): (Now, usize),
        make: impl FnOnce(&Context, &'static Watched, &mut Channel) -> Result<Form, Error>,
    ) -> Result<Graph, Error> {
        let machine = setup.machine.as_ref().ok_or_else(without)?;
        // Before the lane, which other threads may need during this.
        let _alone = poison::ignore(self.learning.lock());
        let _context = setup.enter()?;
        let context = machine.context().map_err(|why| Error::Unavailable(why.reason))?;
        let watched = Libcuda::open()?.watched();
        let mut claim = self.launches(setup, machine, (now, lane))?;
        // CUDA may take seconds.
        let _blind = self.lanes[lane].blind();
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        staged::give_back(inner);
        let Inner { graphs, channel, .. } = inner;
        let form = make(context, watched, channel)?;
        put_graph(now, lane, graphs, Launching::new(form))
    }

    /// Prepares a kernel for launches without CUDA: a graph of one kernel, captured from `stream` and prepared as by [`Session::prepare_graph`]. So CUDA
    /// launches it a few times. (Attributes of the launch are left out.)
    ///
    /// # Errors
    /// As [`Session::prepare_graph`]; [`Error::Argument`] for the default stream, which cannot be captured.
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
        // SAFETY: the caller's contract; the executable graph lives until it is cloned.
        unsafe { self.prepare_exec(&setup, exec.handle(), stream) }
    }

    /// Waits for a launch lane; the first call opens its channel.
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

    /// Parameter bytes of each of its kernels, in the order in which a launch starts them.
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

    /// Changes bytes of a kernel's parameters from the next launch on; pending launches keep theirs. `kernel` counts kernels from 0, `offset` bytes from the
    /// first parameter. No lock, no allocation, no system call.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread uses the graph's lane; [`Error::Argument`] for a kernel that it does not have, [`Error::Outside`],
    /// [`Error::Handle`], [`Error::Closed`], [`Error::Forked`]. The parameters are unchanged then.
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

    /// As [`Session::set_parameter`], for a pointer to `at` in a buffer, from the next launch on. CUDA's memory is pinned for the graph. When CUDA frees it,
    /// launches return [`Error::Freed`] until the pointer is set again. The session's own memory stays until then, even after an unpin. If the parameter was
    /// such a pointer before, the call waits for pending launches.
    ///
    /// # Errors
    /// As [`Session::set_parameter`] without [`Error::Busy`]; [`Error::Freed`], [`Error::Timeout`].
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
        // SAFETY: the claim outlives this entry.
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
        // Kernels may still use the memory that it pointed to before.
        let _blind = self.lanes[graph.lane].blind();
        let ended = channel.idle(IDLE);
        if matches!(ended, Err(gpu::Error::Timeout { .. })) {
            launching.pointers.push(before);
        }
        Ok(ended?)
    }

    /// Launches the graph after all earlier launches on its lane, of any graph. Pass the result to [`Session::wait`], [`Session::poll`] or [`Session::query`].
    /// The launch is not ordered against other lanes, copies and CUDA's streams: for that use [`Session::launch_in`] and [`Session::stream_wait`]. No lock, no
    /// allocation, no system call.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread uses the graph's lane. [`Error::Full`] while 32 launches of it are pending, or one launch of a chain whose bytes
    /// the CPU stores or of a graph that names pageable memory. After both errors try again. [`Error::Freed`] if memory that it copies or fills was freed,
    /// [`Error::Handle`], [`Error::Closed`], [`Error::Forked`], [`Error::Killed`], [`Error::Stopped`]. The graph was not launched.
    #[inline]
    pub fn launch(&self, graph: Graph) -> Result<Copy, Error> {
        let now = self.now()?;
        let at = locate_graph(now, graph)?;
        let mut claim = self.claim(at.lane, now)?;
        let (launching, channel) = found(&mut claim, at)?;
        self.start((now, at.lane), &mut launching.form, channel)
    }

    /// Ends a graph. Its pending launches still run. If parameters point into buffers, or memcpy nodes name pageable memory, the call waits for them, up to
    /// ten seconds.
    ///
    /// # Errors
    /// [`Error::Timeout`] if they take longer. The graph has ended all the same; its memory is released when a graph is prepared or ended after they are done,
    /// or when the session is closed. [`Error::Handle`], [`Error::Closed`], [`Error::Forked`].
    pub fn graph_release(&self, graph: Graph) -> Result<(), Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        let GraphAt { lane, index, used } = locate_graph(now, graph)?;
        let mut claim = self.still(self.lanes[lane].claim_in_time(), now)?;
        // It may wait for pending launches.
        let _blind = self.lanes[lane].blind();
        let inner = claim.as_mut().ok_or_else(|| GRAPH.wrong())?;
        // A graph's CUDA objects are freed in CUDA's context.
        let _context = setup.enter()?;
        staged::give_back(inner);
        let mut launching = Place::take(&mut inner.graphs, index, used).ok_or_else(|| GRAPH.wrong())?;
        let is_staged = matches!(launching.form, Form::Staged(_));
        // Kernels may still use memory that its parameters point to, and copies may use the pinned memory.
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

/// The location of a graph: its launch lane, its place there, and how often that place was used.
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

/// Puts a graph into a launch lane, which the caller has.
pub(crate) fn put_graph(
    now: Now,
    lane: usize,
    graphs: &mut Vec<Place<Launching>>,
    launching: Launching,
) -> Result<Graph, Error> {
    let (index, used) = Place::put(graphs, MOST, launching)?;
    Ok(Graph(GRAPH.encode(now.opening(), name(lane - LAUNCHES, index), used)))
}

/// Finds the graph and the channel. The claim is that of its lane.
#[inline]
pub(crate) fn found<'c>(
    claim: &'c mut Claim<'_>,
    GraphAt { index, used, .. }: GraphAt,
) -> Result<(&'c mut Launching, &'c mut gpu::Channel), Error> {
    let Inner { graphs, channel, .. } = claim.as_mut().ok_or_else(|| GRAPH.wrong())?;
    let launching = Place::find(graphs, index, used).ok_or_else(|| GRAPH.wrong())?;
    Ok((launching, channel))
}

/// Why a graph was not learnt: CUDA's error, if CUDA refused to launch it.
fn because(error: launch::Error, by_cuda: OnStream<'_>) -> Error {
    by_cuda.refused().map_or_else(|| error.into(), Error::from)
}

pub(crate) fn without() -> Error {
    Error::Unavailable("the session is without CUDA: it has no graphs".into())
}

/// Why there is no channel for launches.
fn no_channel(error: launch::Error) -> Error {
    let late = Libcuda::open().is_ok_and(|libcuda| libcuda.watched().is_late());
    let hint = if late {
        "; CUDA was initialised before doorbell: call doorbell_init() (in Python `import doorbell`) before the first CUDA call"
    } else {
        ""
    };
    Error::Unavailable(format!("no channel in CUDA's group, which launches need: {error}{hint}"))
}
