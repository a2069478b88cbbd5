//! All events of a recording, one after the other.

use insight::merge::{Merge, Step};
use insight::{InsightError, Recording, Source};

/// Goes over all events.
pub fn each(r: &Recording, mut f: impl FnMut(Source, &tape::event::Event<'_>)) -> Result<(), InsightError> {
    let mut merge = Merge::new(r);
    loop {
        let submission = match merge.next_step()? {
            None => return Ok(()),
            Some(Step::Event(source, e)) => {
                f(source, &e);
                continue;
            }
            Some(Step::Submission(s)) => s,
        };
        merge.recycle(submission);
    }
}
