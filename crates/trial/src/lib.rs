//! What the workspace's tests share: skipping with a reason, and running other programs with a time limit.
//!
//! A test that this machine cannot run must say so where it is counted: [`skip!`] prints the reason and, if [`SKIPS`] names a
//! file, appends a line to it. `.ci/run` prints that file and its length at the end. No test may return early without it.

mod program;
mod skip;

pub use program::{Source, children, finished, finished_within, installed, kill_tree};
pub use skip::{SKIPS, known_defect, note, skipped};
