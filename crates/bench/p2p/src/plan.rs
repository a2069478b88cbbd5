//! The parts of the matrix to measure, and how often.

use crate::way::Way;
use std::time::Duration;

/// The plan.
#[derive(Clone, Debug)]
pub struct Plan {
    pub gpus: u32,
    pub ways: Vec<Way>,
    /// Bytes of a timed transfer.
    pub bytes: u64,
    /// In each of them every cell between two GPUs takes a turn.
    pub rounds: u32,
    /// Timed transfers of a turn, and samples of the latency.
    pub transfers: u32,
    pub samples: u32,
    pub latency_bytes: u64,
    /// Seed of data and orders.
    pub seed: u64,
    pub timeout: Duration,
}
