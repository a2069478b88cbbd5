//! Python's stacks in a recording.

use crate::events;
use crate::python_frames::{Frame, Stacks, is_of_a_library};
use crate::recording::{InsightError, Recording};
use schema::python::{FrameRow, MainLine};
use std::cmp::Reverse;
use std::collections::HashMap;

/// The stacks that calls and doorbells refer to by number. Reads the tape if Python's frames were
/// requested.
///
/// # Errors
/// The recording cannot be read.
pub fn stacks(r: &Recording) -> Result<Stacks, InsightError> {
    let mut all = Stacks::default();
    if !r.header().python {
        return Ok(all);
    }
    events::each(r, |source, e| all.event(source.process, e))?;
    all.finish();
    Ok(all)
}

/// A frame in the form for rows.
pub fn frame(f: &Frame) -> FrameRow {
    FrameRow { file: f.code.file.clone(), line: f.line, function: f.code.function.clone() }
}

/// The line with the largest count.
pub fn main_line(lines: HashMap<FrameRow, u64>) -> Option<MainLine> {
    let others = (lines.len() as u64).saturating_sub(1);
    let first = |f: &FrameRow| (f.file.clone(), f.line, f.function.clone());
    // Of two equal lines the first by name, so that the result is reproducible.
    let (at, times) = lines.into_iter().max_by_key(|(at, times)| (*times, Reverse(first(at))))?;
    Some(MainLine { at, times, others })
}

/// The innermost frame of the user's code, or the innermost of all if every frame is a library's.
pub fn user(frames: &[FrameRow]) -> Option<&FrameRow> {
    frames.iter().find(|f| !is_of_a_library(&f.file)).or(frames.first())
}
