//! A CUDA graph that doorbell launches.

use crate::{Error, Machine, Unavailable};
use cuda::{Graph, Stream};
use gpu::{Channel, Libcuda, Ticket};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Only one graph is learnt at a time: all commands that CUDA's channels get at that time are taken for the graph's.
static LEARNING: Mutex<()> = Mutex::new(());

/// No other graph is learnt until this is dropped.
pub(super) fn learning() -> MutexGuard<'static, ()> {
    poison::ignore(LEARNING.lock())
}

pub(super) struct Ours {
    // Declared before the channel, which waits for its submissions.
    graph: launch::Graph,
    channel: Channel,
    last: Option<Ticket>,
}

impl Ours {
    /// Learns a graph, which CUDA launches three times for it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if there is no channel in CUDA's channel group, or the graph is not understood.
    pub fn learn(machine: &Machine, graph: &Graph<'_>, stream: &Stream<'_>) -> Result<Ours, Error> {
        let (graph, channel) = learnt(machine, graph, stream)?;
        Ok(Ours { graph, channel, last: None })
    }

    #[inline]
    pub fn launch(&mut self) -> Result<(), Error> {
        self.last = Some(self.graph.launch(&mut self.channel)?);
        Ok(())
    }

    /// Whether the last launch is complete.
    #[inline]
    pub fn done(&self) -> bool {
        self.last.is_none_or(|ticket| self.channel.done(ticket))
    }

    #[inline]
    pub fn wait(&self, timeout: Duration) -> Result<(), Error> {
        Ok(self.last.map_or(Ok(()), |ticket| self.channel.wait(ticket, timeout))?)
    }
}

/// Learns a graph on a separate channel.
///
/// # Errors
/// As [`Ours::learn`].
pub(crate) fn learnt(
    machine: &Machine,
    graph: &Graph<'_>,
    stream: &Stream<'_>,
) -> Result<(launch::Graph, Channel), Error> {
    let space = machine.group_space()?;
    let watched = Libcuda::open()?.watched();
    let _alone = learning();
    let exec = graph.instantiate()?;
    let mut channel = launch::channel(space).map_err(refused)?;
    // SAFETY: its kernels name memory that outlives the stream, as `exec` and `stream` outlive this.
    let mut by_cuda = unsafe { launch::OnStream::new(stream.context(), exec.handle(), stream.handle()) };
    // SAFETY: `Launches` owns the kernels' module and memory and drops this first.
    let graph = unsafe { launch::Graph::learn(watched, &mut channel, &mut by_cuda) }.map_err(refused)?;
    Ok((graph, channel))
}

pub(crate) fn refused(error: launch::Error) -> Error {
    match error {
        launch::Error::Gpu(error) => error.into(),
        other => Unavailable::new(other.to_string()).into(),
    }
}
