//! All events of a recording, one after the other.

use decode::ahead::read_ahead;
use decode::merge::Step;
use decode::{InsightError, Recording, Source};

/// Goes over all events.
pub fn each(r: &Recording, mut f: impl FnMut(Source, &tape::event::Event<'_>)) -> Result<(), InsightError> {
    read_ahead(r, |steps| {
        loop {
            let submission = match steps.next_step()? {
                None => return Ok(()),
                Some(Step::Event(source, e)) => {
                    f(source, &e);
                    continue;
                }
                Some(Step::Submission(s)) => s,
            };
            steps.recycle(submission);
        }
    })
}
