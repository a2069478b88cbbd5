//! What can go wrong, by name.

use crate::pin::PinError;
use crate::spec::SyntaxError;
use std::time::Duration;

/// This way does not exist here, and why. A result, not a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    pub reason: String,
}

impl Unavailable {
    pub fn new(reason: impl Into<String>) -> Unavailable {
        Unavailable { reason: reason.into() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    #[error(transparent)]
    Pin(#[from] PinError),
    #[error(transparent)]
    Gpu(#[from] gpu::Error),
    #[error(transparent)]
    Cuda(#[from] cuda::Error),
    #[error("{bytes} bytes do not fit into buffers of {capacity}; open the route with a larger capacity")]
    Capacity { bytes: u64, capacity: u64 },
    #[error("{bytes} bytes of pageable memory cannot be had from the system")]
    Memory { bytes: u64 },
    #[error("the transfer was not submitted; submit it before waiting for it")]
    Idle,
    #[error("{bytes} bytes are not there within {after:?}")]
    Late { bytes: u64, after: Duration },
}
