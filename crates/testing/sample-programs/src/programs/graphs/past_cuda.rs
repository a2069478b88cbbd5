//! The same shapes, launched by doorbell: CUDA launches each graph three times, from which it is learnt, and a doorbell channel makes the other
//! launches. The results of each launch are compared as usual.

use super::{Done, Made, Play, Shape, make};
use crate::programs::graphs::capture::{Maker, Part};
use crate::{Error, Result};
use cuda::{Context, GraphExec, Stream};
use gpu::{Channel, Entry, Libcuda, Watched};
use launch::{Graph, OnStream, Set, StagedGraph};
use std::time::Duration;

/// Launches by CUDA before those of doorbell.
const LEARNT: u64 = 3;
/// No graph here runs longer.
const LIMIT: Duration = Duration::from_secs(10);

/// A learnt graph. If it names pageable memory, it is copied, with pinned memory in its place.
enum Learnt {
    Plain(Graph),
    Staged(StagedGraph),
}

impl Learnt {
    fn launch(&mut self, channel: &mut Channel) -> std::result::Result<gpu::Ticket, gpu::Error> {
        match self {
            Learnt::Plain(graph) => graph.launch(channel),
            Learnt::Staged(graph) => graph.launch(channel),
        }
    }
}

/// A channel for launches next to CUDA.
pub(crate) struct PastCuda {
    watched: &'static Watched,
    channel: Channel,
}

impl PastCuda {
    /// libcuda has to be watched since before it was initialised.
    pub fn open(context: &Context) -> Result<PastCuda> {
        let libcuda = Libcuda::open()?;
        let space = libcuda.address_space(context.device().uuid()?, Entry::CudasClient)?;
        Ok(PastCuda { watched: libcuda.watched(), channel: launch::channel(&space)? })
    }

    /// Whether the channel can go on after an error.
    pub fn is_alive(&self) -> bool {
        self.channel.error().is_none() && !self.channel.observer().is_stopped()
    }

    /// Learns a graph that CUDA launches.
    ///
    /// # Safety
    /// As [`Graph::learn`].
    pub unsafe fn learn(&mut self, mut by_cuda: impl FnMut() -> Result<()>) -> Result<Graph> {
        // SAFETY: the caller's.
        Ok(unsafe { Graph::learn(self.watched, &mut self.channel, &mut by_cuda) }?)
    }

    /// As [`PastCuda::learn`], by launches on a stream.
    ///
    /// # Safety
    /// As [`Graph::learn`].
    pub unsafe fn learn_on(&mut self, by_cuda: &mut OnStream<'_>) -> Result<Graph> {
        // SAFETY: the caller's.
        Ok(unsafe { Graph::learn(self.watched, &mut self.channel, by_cuda) }?)
    }

    pub fn launch_and_wait(&mut self, graph: &mut Graph) -> Result<()> {
        let ticket = graph.launch(&mut self.channel)?;
        Ok(self.channel.wait(ticket, LIMIT)?)
    }

    /// Once more, with new parameters, and waits.
    pub fn launch_with(&mut self, graph: &mut Graph, new: &[Set<'_>]) -> Result<()> {
        let ticket = graph.launch_with(&mut self.channel, new)?;
        Ok(self.channel.wait(ticket, LIMIT)?)
    }

    pub(super) fn one(&mut self, maker: &Maker<'_>, number: u32, shape: &Shape, seed: u64, times: u64) -> Result<Done> {
        let (mut made, mut model) = make(maker, number, shape, seed)?;
        possible(&made)?;
        let stream = maker.stream(0)?;
        let what = |time: u64| move || format!("shape {}, launch {}", shape.name, time + 1);
        let mut done = Done { launches: 0, kernels: 0, found: Default::default() };
        let mut graphs = Vec::new();
        for part in &mut made.parts {
            // Only launches: comparing would copy through CUDA, and those copies would be taken for a part of the graph.
            let (graph, time) = self.learnt(stream, part)?;
            graphs.push(graph);
            (0..time).for_each(|_| part.acts.iter_mut().for_each(|act| act(&mut model)));
            done.found = maker.memory.check(&model, || format!("shape {}, launches by CUDA", shape.name))?;
            (done.launches, done.kernels) = (done.launches + time, done.kernels + time * part.kernels);
        }
        for time in LEARNT..times {
            for (part, graph) in made.parts.iter_mut().zip(&mut graphs) {
                if matches!(made.play, Play::Waited) {
                    maker.renew(part, &mut model);
                }
                let ticket = self.launch(graph)?;
                part.acts.iter_mut().for_each(|act| act(&mut model));
                (done.launches, done.kernels) = (done.launches + 1, done.kernels + part.kernels);
                if time + 1 < times && matches!(made.play, Play::Queued) {
                    continue;
                }
                self.channel.wait(ticket, LIMIT)?;
                if let Learnt::Staged(graph) = graph {
                    graph.finish(&self.channel);
                }
                done.found = maker.memory.check(&model, what(time))?;
            }
        }
        Ok(done)
    }

    /// Learns the graph of a shape, and how often CUDA launched it for that.
    fn learnt(&mut self, stream: &Stream<'_>, part: &Part<'_>) -> Result<(Learnt, u64)> {
        let context = stream.context();
        // SAFETY: the maker's memory lives until after the stream has been synchronised, as the graph and the stream do.
        let on = |exec: &GraphExec<'_>| unsafe { OnStream::new(context, exec.handle(), stream.handle()) };
        // SAFETY: the shape's graph lives.
        let Some(staged) = unsafe { context.staged(part.graph.handle()) }? else {
            let mut by_cuda = on(&part.exec);
            // SAFETY: module, memory and context outlive the launches: all of them are waited for.
            let graph = unsafe { Graph::learn(self.watched, &mut self.channel, &mut by_cuda) }?;
            return Ok((Learnt::Plain(graph), by_cuda.launched()));
        };
        let exec = staged.graph.instantiate()?;
        let mut by_cuda = on(&exec);
        // SAFETY: as above.
        let graph = unsafe { StagedGraph::learn(self.watched, &mut self.channel, staged.staging, &mut by_cuda) }?;
        Ok((Learnt::Staged(graph), by_cuda.launched()))
    }

    /// Once more; waits for room among the graph's slots.
    fn launch(&mut self, graph: &mut Learnt) -> Result<gpu::Ticket> {
        match graph.launch(&mut self.channel) {
            Err(gpu::Error::RingFull(_)) => {
                self.channel.idle(LIMIT)?;
                Ok(graph.launch(&mut self.channel)?)
            }
            launched => Ok(launched?),
        }
    }
}

/// Shapes that need CUDA's own calls between launches are not possible.
fn possible(made: &Made<'_>) -> Result<()> {
    let reason = match made.play {
        Play::Waited | Play::Queued => return Ok(()),
        Play::Streams => "a launch by doorbell is on no stream",
        Play::Uploaded => "it is uploaded before its first launch, which is not watched",
        Play::Recorded(_) => {
            "its event is recorded by a CUDA stream, and nothing orders a launch by doorbell relative to that"
        }
        Play::Updated { .. } => "its executable graph is updated, and doorbell's copy of it is not",
    };
    Err(Error::Unavailable { reason: reason.into() })
}
