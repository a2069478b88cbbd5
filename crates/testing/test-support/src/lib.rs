//! What the workspace's tests share: skipping with a reason, running other programs with a time limit, random bytes, and
//! measuring again what a busy machine has spoilt.
//!
//! A test that this machine cannot run must say so where it is counted: [`skip!`] prints the reason and, if [`SKIPS`] names a
//! file, appends a line to it. `.ci/run` prints that file and its length at the end. No test may return early without it.

pub mod counting;
mod measured;
mod noise;
mod program;
mod skip;

pub use measured::measured;
pub use noise::noise;
pub use program::{
    Source, children, finished, finished_within, installed, kill_tree, link_softcuda, private_folder, program_with_cuda,
};
pub use skip::{SKIPS, known_defect, note, skipped};
