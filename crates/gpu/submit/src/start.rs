//! Starts a prepared graph or chain on its launch lane and, for some chains, on the copy lane next to it; and finishes the CPU's
//! part.

use crate::error::Error;
use crate::handle::Copy;
use crate::lane::Lane;
use crate::launching::Form;
use crate::numbering::beside;
use crate::session::{Now, Session};
use crate::staged;
use gpu::Channel;
use launch::StagedGraph;
use std::sync::atomic::Ordering;

impl Session {
    /// Launches an object of the launch lane, which the caller has.
    #[inline]
    pub(crate) fn start(
        &self,
        (now, lane): (Now, usize),
        form: &mut Form,
        channel: &mut Channel,
    ) -> Result<Copy, Error> {
        match form {
            Form::One(graph) => Ok(self.submitted(now, lane, graph.launch(channel)?)),
            Form::Beside(chain) => {
                let mut claim = self.claim(beside(lane), now)?;
                let copies = &mut claim.as_mut().ok_or(Error::Closed)?.channel;
                Ok(self.submitted(now, beside(lane), chain.launch(channel, copies)?))
            }
            Form::Staged(graph) => self.start_staged((now, lane), graph, channel),
        }
    }

    /// As [`Session::start`], but first checks for room and puts waits into the launch channel.
    #[inline]
    pub(crate) fn start_behind(
        &self,
        (now, lane): (Now, usize),
        form: &mut Form,
        channel: &mut Channel,
        wait: impl FnOnce(&mut Channel) -> Result<(), Error>,
    ) -> Result<Copy, Error> {
        match form {
            Form::One(graph) => {
                graph.ready(channel)?;
                wait(channel)?;
                Ok(self.submitted(now, lane, graph.launch(channel)?))
            }
            Form::Beside(chain) => {
                let mut claim = self.claim(beside(lane), now)?;
                let copies = &mut claim.as_mut().ok_or(Error::Closed)?.channel;
                chain.ready(channel, copies)?;
                wait(channel)?;
                Ok(self.submitted(now, beside(lane), chain.launch(channel, copies)?))
            }
            Form::Staged(graph) => {
                graph.ready(channel)?;
                wait(channel)?;
                self.start_staged((now, lane), graph, channel)
            }
        }
    }

    /// Whether there is room for a launch now.
    pub(crate) fn has_room_for(
        &self,
        (now, lane): (Now, usize),
        form: &mut Form,
        channel: &mut Channel,
    ) -> Result<(), Error> {
        Ok(match form {
            Form::One(graph) => graph.ready(channel),
            Form::Beside(chain) => {
                let mut claim = self.claim(beside(lane), now)?;
                chain.ready(channel, &mut claim.as_mut().ok_or(Error::Closed)?.channel)
            }
            Form::Staged(graph) => graph.ready(channel),
        }?)
    }

    /// Launches a graph with pageable memory on the launch lane, which the caller has.
    fn start_staged(
        &self,
        (now, lane): (Now, usize),
        graph: &mut StagedGraph,
        channel: &mut Channel,
    ) -> Result<Copy, Error> {
        let ticket = graph.launch(channel)?;
        if graph.pageable_bytes().1 > 0 {
            // ORDERING: before any thread gets the ticket: a thread that finds it done sees this store, too.
            self.lanes[lane].owes.store(true, Ordering::Release);
        }
        Ok(self.submitted(now, lane, ticket))
    }

    /// Moves the results of all launches of a lane that have ended. False if another thread has the lane; that thread may be
    /// moving them.
    #[cold]
    pub(crate) fn bring(lane: &Lane) -> bool {
        let Some(mut claim) = lane.claim() else { return false };
        if let Some(inner) = claim.as_mut() {
            lane.owes.store(!staged::bring(inner), Ordering::Release);
        }
        true
    }
}
