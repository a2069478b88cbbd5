//! Errors.

use crate::spec::SyntaxError;
use std::time::Duration;

/// This route does not exist here, and the reason. A result, not a failure.
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

/// Why a range cannot be pinned, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    #[error("a null pointer cannot be pinned; pass what cudaMalloc or cudaHostAlloc returned")]
    Null,
    #[error("0 bytes at {pointer:#x} cannot be pinned; pass the number of bytes that will be moved")]
    Empty { pointer: u64 },
    #[error(
        "nothing is allocated at {pointer:#x}: it was freed, or never allocated; pin what cudaMalloc or cudaHostAlloc \
         returned, and unpin it before it is freed"
    )]
    Freed { pointer: u64 },
    #[error(
        "{length} bytes at {pointer:#x} go past the end of the allocation, which has {left} bytes from there; pin \
         {left} bytes at most, or allocate more"
    )]
    PastEnd { pointer: u64, length: u64, left: u64 },
    #[error(
        "{pointer:#x} is managed memory (cudaMallocManaged), which moves between host and GPU; copy from or to memory of \
         cudaMalloc or cudaHostAlloc"
    )]
    Managed { pointer: u64 },
    /// CUDA has it, and no call was seen that mapped it for this GPU.
    #[error("{length} bytes at {pointer:#x}: {why}")]
    NotMapped { pointer: u64, length: u64, why: &'static str },
    #[error("{pointer:#x} is memory of GPU {found}; open the machine with that GPU, or allocate on GPU {wanted}")]
    OtherGpu { pointer: u64, found: i32, wanted: i32 },
    #[error(
        "{pointer:#x} is pageable host memory, which may be anywhere by the time the GPU reads it; register it \
         (cudaHostRegister) or allocate it with cudaHostAlloc"
    )]
    Pageable { pointer: u64 },
    #[error("{pointer:#x} is of CUDA's memory type {memory}, which is neither host nor GPU memory; use cudaMalloc")]
    Unknown { pointer: u64, memory: u32 },
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
    /// A transfer was accepted that should have been refused.
    #[error("memory that {why} was submitted to")]
    Gone { why: &'static str },
    #[error("{bytes} bytes are not there within {after:?}")]
    Late { bytes: u64, after: Duration },
    #[error("{what}: {cause}")]
    System { what: String, cause: std::io::Error },
    /// An error of a library or an interpreter that was called.
    #[error("{0}")]
    Library(String),
    /// Another process that produces a load.
    #[error("{0}")]
    Process(String),
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

/// `CUDA_ERROR_NOT_SUPPORTED`.
const NOT_SUPPORTED: i32 = 801;
/// `CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED`.
const NOT_IN_A_GRAPH: i32 = 900;

/// A function that this driver does not have, or that CUDA does not support here, is [`Unavailable`].
impl From<cuda::Error> for Error {
    fn from(error: cuda::Error) -> Error {
        match error {
            cuda::Error::Missing { .. } | cuda::Error::Call { code: NOT_SUPPORTED | NOT_IN_A_GRAPH, .. } => {
                Unavailable::new(error.to_string()).into()
            }
            other => Error::Cuda(other),
        }
    }
}
