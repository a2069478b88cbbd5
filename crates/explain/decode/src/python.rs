//! Python's stacks of a recording.

use crate::ahead::read_ahead;
use crate::merge::Step;
use crate::recording::{InsightError, Recording};
use python_frames::{Frame, Stacks, is_of_a_library};
use schema::python::FrameRow;

/// The stacks that calls and doorbells name by numbers. Reads the tape, if Python's frames were asked for.
///
/// # Errors
/// The recording cannot be read.
pub fn stacks(r: &Recording) -> Result<Stacks, InsightError> {
    let mut all = Stacks::default();
    if !r.header().python {
        return Ok(all);
    }
    read_ahead(r, |steps| {
        loop {
            let submission = match steps.next_step()? {
                None => return Ok::<(), InsightError>(()),
                Some(Step::Event(source, e)) => {
                    all.event(source.process, &e);
                    continue;
                }
                Some(Step::Submission(s)) => s,
            };
            steps.recycle(submission);
        }
    })?;
    all.finish();
    Ok(all)
}

/// A frame as rows have it.
pub fn frame(f: &Frame) -> FrameRow {
    FrameRow { file: f.code.file.clone(), line: f.line, function: f.code.function.clone() }
}

/// The innermost frame of the user's code, or the innermost at all where every frame is a library's.
pub fn user(frames: &[FrameRow]) -> Option<&FrameRow> {
    frames.iter().find(|f| !is_of_a_library(&f.file)).or(frames.first())
}
