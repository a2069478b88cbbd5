//! Errors.

/// This machine does not have it, and the reason. A result, not a failure.
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
    Pin(#[from] PinError),
    #[error(transparent)]
    Gpu(#[from] gpu::Error),
    #[error(transparent)]
    Cuda(cuda::Error),
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
