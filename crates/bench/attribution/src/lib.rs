//! Which commands of a recording each call of an experiment sent: the samples of a part and the tape of its process, joined by
//! time and thread.
//!
//! The invariant: a doorbell counts for a call only if the thread that measures rang it between the call and its return. Every
//! other doorbell of the tape is counted as what it is, so the sums are those of the tape.

pub mod borders;
mod calls;
pub mod delay;
mod locks;
mod parts;
mod windows;

pub use calls::{Joined, join};
pub use parts::read_tapes;
pub use windows::{At, Windows};

/// Why a tape and samples were not joined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Tape(#[from] decode::InsightError),
    #[error("the part does not say who measured")]
    NoCounter,
    #[error("process {0} is not on the tape")]
    NoProcess(i32),
    #[error("the clock of the samples stood still beside the time stamp counter")]
    Clock,
}
