//! All events of a recording, one after the other.

use insight::merge::{Merge, Step};
use insight::{InsightError, Recording};

/// Goes over all events.
pub fn each(r: &Recording, mut f: impl FnMut(i32, &tape::event::Event<'_>)) -> Result<(), InsightError> {
    let mut merge = Merge::new(r);
    loop {
        let submission = match merge.next_step()? {
            None => return Ok(()),
            Some(Step::Event(tid, e)) => {
                f(tid, &e);
                continue;
            }
            Some(Step::Submission(s)) => s,
        };
        merge.recycle(submission);
    }
}
