//! What can go wrong, by name.

use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Gpu(#[from] gpu::Error),
    /// It does not exist here, and the reason.
    #[error("{0}")]
    Unavailable(String),
    #[error("queue {queue}: {under_way} of {depth} I/Os in flight, and none completed for {after:?}")]
    Late { queue: usize, under_way: usize, depth: usize, after: Duration },
    #[error("queue {queue}: slot {slot} completed, but nothing is in flight there")]
    NotUnderWay { queue: usize, slot: u32 },
    #[error("{0} I/Os ended with an error status")]
    Refused(u64),
    #[error("a thread that submits has panicked")]
    Panicked,
    /// An error of a device or its driver.
    #[error("{0}")]
    Device(String),
}
