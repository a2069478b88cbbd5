//! Launches of graphs that name pageable memory: the CPU moves their results when they are over.

use crate::error::Error;
use crate::handle::Copy;
use crate::lane::Inner;
use crate::launching::{Form, Launching};
use crate::session::{LAUNCHES, Now, Session};
use gpu::Channel;
use launch::StagedGraph;
use std::sync::atomic::Ordering;

impl Session {
    /// Launches one on the lane of launches, which the caller has.
    pub(crate) fn start_staged(&self, now: Now, graph: &mut StagedGraph, channel: &mut Channel) -> Result<Copy, Error> {
        let ticket = graph.launch(channel)?;
        if graph.pageable_bytes().1 > 0 {
            // ORDERING: before the ticket is anybody's: whoever finds it done finds this, too.
            self.lanes[LAUNCHES].owes.store(true, Ordering::Release);
        }
        Ok(self.submitted(now, LAUNCHES, ticket))
    }

    /// Moves the results of all launches that are over. False where another thread has the lane, which may be doing so.
    #[cold]
    pub(crate) fn bring(&self) -> bool {
        let lane = &self.lanes[LAUNCHES];
        let Some(mut claim) = lane.claim() else { return false };
        if let Some(inner) = claim.as_mut() {
            lane.owes.store(!bring(inner), Ordering::Release);
        }
        true
    }
}

/// Whether the program has the results of all launches now.
fn bring(Inner { graphs, channel, .. }: &mut Inner) -> bool {
    let mut all = true;
    for place in graphs {
        if let Some(Form::Staged(graph)) = place.item.as_mut().map(|launching| &mut launching.form) {
            all &= graph.finish(channel);
        }
    }
    all
}

/// Before a lane is emptied. Pinned memory that a launch may still use stays for ever.
pub(crate) fn end(inner: &mut Inner, is_idle: bool) {
    bring(inner);
    let is_staged = |launching: &mut Launching| matches!(launching.form, Form::Staged(_));
    let places = inner.graphs.iter_mut().filter(|_| !is_idle);
    places.filter_map(|place| place.item.take_if(is_staged)).for_each(std::mem::forget);
}
