//! Counts of durations by their logarithm, which can be added up over several recordings.

use serde::Serialize;

/// Durations from `from_ns` up to the next step. Bounds are the same in every recording, 16 to the power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Step {
    /// Shortest time of the step; it ends where the next one begins.
    pub from_ns: u64,
    pub count: u64,
}
