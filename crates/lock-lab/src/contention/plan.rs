//! How cells are run.

use std::time::Duration;

/// How long, where and at which priority.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of the measurement in one cell.
    pub duration: Duration,
    /// The measuring thread's CPU, and those of everything else.
    pub cpu: Option<usize>,
    pub others: Vec<usize>,
    /// Of SCHED_FIFO, where it is given.
    pub priority: i32,
    pub seed: u64,
    /// A transfer of our own that takes longer ends its series.
    pub timeout: Duration,
    /// Hears what has been done on the way to the measurement, and after it.
    pub tell: fn(&str),
}
