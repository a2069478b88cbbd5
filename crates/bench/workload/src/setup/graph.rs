//! Preparing graphs: one graph, instantiated again and again.

use super::{Measured, Take};
use crate::entry::{Call, Entry, Number, PLAIN, Result as Open};
use crate::launch::Launches;
use crate::{Checks, Error, Machine, Wrong};
use cuda::{Graph, GraphExec};

pub(crate) const INSTANTIATE: Entry = Entry {
    name: "instantiate",
    form: "instantiate(KERNELS)",
    about: "cuGraphInstantiate of a chain of kernels; destroyed before the next, untimed",
    number: Some(Number { of: "kernels", default: 2000, least: 1, most: 100_000 }),
    open,
    ..PLAIN
};

fn open<'m>(machine: &'m Machine, call: &Call, _: &crate::Wanted) -> Open<'m> {
    let launches = Launches::new(machine, call.number, false)?;
    let graph = launches.graph()?;
    let about = format!("cuGraphInstantiate of a chain of {} kernels; destroyed before the next, untimed", call.number);
    Ok(Box::new(Measured::taking(Instantiates { graph, launches }, about)))
}

struct Instantiates<'m> {
    // Before what its kernels name.
    graph: Graph<'m>,
    launches: Launches<'m>,
}

impl<'m> Take for Instantiates<'m> {
    type Held = GraphExec<'m>;
    const CHECKS: Checks = Checks::Bytes;

    #[inline]
    fn take(&mut self) -> Result<GraphExec<'m>, Error> {
        Ok(self.graph.instantiate()?)
    }

    /// Launches it once: every kernel counts.
    fn check(&mut self, exec: &GraphExec<'m>) -> Result<Option<Wrong>, Error> {
        self.launches.count_one(exec)
    }
}
