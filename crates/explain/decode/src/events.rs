//! All events of a recording, one after the other.

use crate::ahead::read_ahead;
use crate::merge::{Step, Submission};
use crate::recording::{InsightError, Recording, Source};
use tape::event::Event;

/// Calls `f` with all events.
pub fn each(r: &Recording, mut f: impl FnMut(Source, &Event<'_>)) -> Result<(), InsightError> {
    each_step(r, |what| {
        if let What::Event(source, e) = what {
            f(source, e);
        }
    })
}

pub enum What<'a> {
    Event(Source, &'a Event<'a>),
    /// A doorbell, with its entries.
    Submission(&'a Submission),
}

/// Calls `f` with all events and submissions.
pub fn each_step(r: &Recording, mut f: impl FnMut(What<'_>)) -> Result<(), InsightError> {
    read_ahead(r, |steps| {
        loop {
            let submission = match steps.next_step()? {
                None => return Ok(()),
                Some(Step::Event(source, e, _)) => {
                    f(What::Event(source, &e));
                    continue;
                }
                Some(Step::Submission(s)) => s,
            };
            f(What::Submission(&submission));
            steps.recycle(submission);
        }
    })
}
