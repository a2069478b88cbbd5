//! What can go wrong, by name.

use std::time::Duration;

/// This way does not exist here, and why. A result, not a failure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct Unavailable {
    pub reason: String,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    #[error(transparent)]
    Gpu(#[from] gpu::Error),
    #[error(transparent)]
    Cuda(#[from] cuda::Error),
    #[error("{bytes} bytes are not there within {after:?}")]
    Late { bytes: u64, after: Duration },
}
