//! The pthread locks that each call took: a walk over the lock events of a recording.

use crate::attribution::windows::{At, Windows};
use decode::{InsightError, Recording};
use lock_analysis::each_use;
use run_folder::commands::{Call, Counter};

/// Adds to each call the operations that ended in it.
pub fn count(
    recording: &Recording,
    counter: &Counter,
    windows: &Windows,
    calls: &mut [Vec<Call>],
) -> Result<(), InsightError> {
    each_use(recording, |used| {
        let is_ours = used.pid == counter.pid && used.tid == counter.tid;
        // A lock that is still held at the end has no end in a call.
        if is_ours
            && used.ended != Some("at_the_end")
            && let At::Call(cell, index) = windows.at(used.tsc)
            && let Some(call) = calls.get_mut(cell).and_then(|of_cell| of_cell.get_mut(index))
        {
            call.locks += 1;
            call.lock_wait_ns += used.wait_ns;
        }
        Ok(())
    })
    .map(drop)
}
