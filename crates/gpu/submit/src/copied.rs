//! Copies of graphs, on any launch lane.

use crate::error::Error;
use crate::graphs::{found, locate_graph, put_graph, without};
use crate::handle::Graph;
use crate::lane::Inner;
use crate::launching::{Form, Launching};
use crate::numbering::LAUNCHES;
use crate::session::Session;
use crate::staged;

const STAGED: &str = "it names pageable memory, which is moved for one graph alone: make it once more by a thread of the other launch lane";

impl Session {
    /// Prepares another copy of a graph, on launch lane `lane` or on this thread's. It starts with the graph's current parameters, and has its own from then
    /// on. CUDA launches no graph for this. The graph may be released: the copy is independent of it. Launches of the two may run at the same time if their
    /// lanes are different; doorbell does not check what their kernels do then.
    ///
    /// # Errors
    /// [`Error::Argument`] for a lane that the session does not have. [`Error::Graph`] for a chain, and for a graph that names pageable memory.
    /// [`Error::Freed`] if memory that a pointer was set to is freed. [`Error::Unavailable`], [`Error::Handle`], [`Error::Limit`], [`Error::Closed`],
    /// [`Error::Forked`], and errors of the driver.
    pub fn copy_graph(&self, graph: Graph, lane: Option<usize>) -> Result<Graph, Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        let machine = setup.machine.as_ref().ok_or_else(without)?;
        let lane = match lane {
            None => now.own_launches(),
            Some(lane) if lane < now.launch_lanes() => LAUNCHES + lane,
            Some(_) => return Err(Error::Argument("the session has no launch lane of this number; they count from 0")),
        };
        let at = locate_graph(now, graph)?;
        let _context = setup.enter()?;
        // The two lanes one after the other: no thread may wait for a lane while it has one.
        let mut claim = self.still(self.lanes[at.lane].claim_in_time(), now)?;
        let (launching, channel) = found(&mut claim, at)?;
        let template = match &launching.form {
            Form::One(graph) => graph.template()?,
            Form::Beside(_) => return Err(launch::Error::NoTemplate.into()),
            Form::Staged(_) => return Err(Error::Graph(STAGED.into())),
        };
        let pointers = launching.pointers.iter();
        let pointers = pointers.map(|(kernel, offset, keeps)| Ok(((*kernel, *offset), keeps.again(channel.space())?)));
        let pointers = pointers.collect::<Result<Vec<_>, Error>>()?;
        drop(claim);
        let mut claim = self.launches(&setup, machine, (now, lane))?;
        // The upload waits for pending launches.
        let _blind = self.lanes[lane].blind();
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        staged::give_back(inner);
        let Inner { graphs, channel, .. } = inner;
        // SAFETY: the caller that prepared the graph vouches for it.
        let mut copy = Launching::new(Form::One(unsafe { template.ready_on(channel) }?));
        for (at, keeps) in pointers {
            copy.keep_pointer(at, keeps)?;
        }
        put_graph(now, lane, graphs, copy)
    }
}
