//! Errors.

use crate::spec::SyntaxError;
use machine::{PinError, Unavailable};
use std::time::Duration;

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
    Cuda(cuda::Error),
    /// A device on the bus: its driver's error.
    #[error(transparent)]
    Card(Box<dyn std::error::Error + Send + Sync>),
    #[error("{bytes} bytes do not fit into buffers of {capacity}; open the route with a larger capacity")]
    Capacity { bytes: u64, capacity: u64 },
    #[error("{bytes} bytes of pageable memory cannot be had from the system")]
    Memory { bytes: u64 },
    #[error("the transfer was not submitted; submit it before waiting for it")]
    Idle,
    #[error("the device's handle was unpinned; pin the memory again")]
    Unpinned,
    #[error("frame {frame} was lost or torn: {wrong} of its {pages} pages do not carry its number")]
    Frame { frame: u64, wrong: u64, pages: u64 },
    #[error("{bytes} bytes are not there within {after:?}")]
    Late { bytes: u64, after: Duration },
    #[error("{what}: {cause}")]
    System { what: String, cause: std::io::Error },
    /// What a library, an interpreter, another process or a device's queue reported.
    #[error("{0}")]
    Told(String),
}

impl Error {
    /// An error of a device's driver.
    pub fn card(error: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Card(Box::new(error))
    }
}

/// Where the machine's topology or permissions prevent the transfer or the use of a device, that is [`Unavailable`].
/// Other errors are failures.
impl From<pcie::Error> for Error {
    fn from(error: pcie::Error) -> Error {
        match error {
            pcie::Error::Unreachable { .. } | pcie::Error::Refused { .. } => Unavailable::new(error.to_string()).into(),
            other => Error::card(other),
        }
    }
}

impl From<machine::Error> for Error {
    fn from(error: machine::Error) -> Error {
        match error {
            machine::Error::Unavailable(why) => Error::Unavailable(why),
            machine::Error::Pin(error) => Error::Pin(error),
            machine::Error::Gpu(error) => Error::Gpu(error),
            machine::Error::Cuda(error) => Error::Cuda(error),
        }
    }
}

impl From<cuda::Error> for Error {
    fn from(error: cuda::Error) -> Error {
        machine::Error::from(error).into()
    }
}
