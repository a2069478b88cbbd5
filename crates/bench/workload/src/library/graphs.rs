//! A CUDA graph that libdoorbell's functions launch from C, or from Python; and that CUDA launches from Python, for comparison.

use super::python::{Prepared, Python};
use super::{Caller, Session, check, doorbell, is_done, wait};
use crate::{Error, Machine};
use ::doorbell::{doorbell_graph_free, doorbell_graph_instantiate, doorbell_graph_launch};
use cuda::{Graph, GraphExec, Stream};
use std::time::Duration;

/// What launches it.
pub(crate) struct Launched<'m> {
    by: By,
    /// What CUDA launches.
    _executable: Option<GraphExec<'m>>,
    _session: Option<Session>,
    pub(crate) about: String,
}

enum By {
    C { graph: u64, ticket: u64 },
    Python(Prepared),
}

impl<'m> Launched<'m> {
    /// Learns the graph, which CUDA launches a few times in `stream` for it. `told`: the word that its last kernel writes, and by how much it grows
    /// with each launch.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if it cannot be launched, or Python is not available here.
    pub(crate) fn new(
        machine: &'m Machine,
        caller: Caller,
        graph: &Graph<'m>,
        stream: &Stream<'_>,
        told: Option<(*mut u8, u32)>,
    ) -> Result<Launched<'m>, Error> {
        let (handle, in_stream) = (graph.handle(), stream.handle());
        let (word, step) = told.map_or((0, 0), |(at, step)| (at as usize, step));
        if caller == Caller::PythonByCuda {
            let (python, executable) = (Python::of_thread()?, graph.instantiate()?);
            let text =
                format!("graph_by_cuda({}, {}, {word}, {step})", executable.handle() as usize, in_stream as usize);
            let by = By::Python(Prepared::of(&python.tuple(&text)?)?);
            let end = if word == 0 { " and cuStreamSynchronize" } else { "" };
            let about = format!("cuGraphLaunch{end}, called by ctypes, from Python {}", python.version);
            return Ok(Launched { by, _executable: Some(executable), _session: None, about });
        }
        let session = Session::open(machine)?;
        let (by, about) = if caller == Caller::C {
            let mut number = 0;
            // SAFETY: handles that live; the kernels' module and memory outlive this.
            check(unsafe { doorbell_graph_instantiate(doorbell(), handle, in_stream, &mut number) })?;
            (By::C { graph: number, ticket: 0 }, "doorbell_graph_launch, from C".to_owned())
        } else {
            let python = Python::of_thread()?;
            let text = format!(
                "graph_by_doorbell({}, {}, {}, {word}, {step})",
                doorbell() as usize,
                handle as usize,
                in_stream as usize
            );
            let by = By::Python(Prepared::of(&python.tuple(&text)?)?);
            (by, format!("replay() of the package doorbell, from Python {}", python.version))
        };
        Ok(Launched { by, _executable: None, _session: Some(session), about })
    }

    #[inline]
    pub(crate) fn launch(&mut self) -> Result<(), Error> {
        match &mut self.by {
            By::C { graph, ticket } => {
                // SAFETY: writes a ticket.
                check(unsafe { doorbell_graph_launch(doorbell(), *graph, std::ptr::null(), ticket) })
            }
            By::Python(prepared) => prepared.fire.call(),
        }
    }

    pub(crate) fn is_python(&self) -> bool {
        matches!(self.by, By::Python(_))
    }

    pub(crate) fn is_done(&self) -> Result<bool, Error> {
        match &self.by {
            By::C { ticket, .. } => is_done(*ticket),
            By::Python(prepared) => prepared.wait.call().map(|()| true),
        }
    }

    #[inline]
    pub(crate) fn wait(&self, timeout: Duration) -> Result<(), Error> {
        match &self.by {
            By::C { ticket, .. } => wait(*ticket, timeout, 0),
            By::Python(prepared) => prepared.wait.call(),
        }
    }
}

impl Drop for Launched<'_> {
    fn drop(&mut self) {
        if let By::C { graph, .. } = self.by {
            doorbell_graph_free(doorbell(), graph);
        }
    }
}
