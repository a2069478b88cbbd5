//! The commands in a recording that each call of an experiment sent: joins the samples of a part with the recording of its process, by time and
//! thread.
//!
//! The invariant: a doorbell counts for a call only if the measuring thread rang it between the call and its return. All other doorbells of the
//! recording are counted by kind, so the sums are those of the recording.

mod calls;
pub mod delay;
mod locks;
mod parts;
mod windows;

pub use calls::{Joined, join};
pub use parts::read_tapes;
pub use windows::{At, Windows};

/// Why a recording and samples were not joined.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Tape(#[from] decode::InsightError),
    #[error("the part does not say who measured")]
    NoCounter,
    #[error("process {0} is not in the recording")]
    NoProcess(i32),
    #[error("the clock of the samples did not advance while the time stamp counter did")]
    Clock,
}
