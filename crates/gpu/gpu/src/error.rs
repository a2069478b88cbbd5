//! The errors, by name.

use crate::validate::Invalid;
use rm::driver::RmError;
use std::io;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Driver(#[from] RmError),
    #[error("{path}: {cause}; is NVIDIA's driver loaded, and the node passed into this container?")]
    Open { path: String, cause: io::Error },
    #[error("mmap of {what}, {length:#x} bytes: {cause}")]
    Map { what: &'static str, length: u64, cause: io::Error },
    #[error("there is no GPU {index}; the driver counts {count}, from 0")]
    NoDevice { index: usize, count: usize },
    #[error(
        "GPU {index} is real hardware, and without CUDA doorbell uses only the software GPU: preload that, or use CUDA's GPU"
    )]
    RealHardware { index: usize },
    #[error(transparent)]
    UnknownDriver(#[from] rm::abi::UnknownDriver),
    #[error("driver {version} has other structs than branch {branch} for {parts}: no channel is made on it")]
    Structs { version: String, branch: u32, parts: String },
    #[error("the GPU has no class {0:#06x}")]
    NoClass(u32),
    #[error(
        "{0}: doorbell's own channels were seen to work on H100 and H200 alone, and are not tried elsewhere. `doorbell record` and `show` work on it"
    )]
    Architecture(String),
    #[error("no free range of {length:#x} bytes in the address space")]
    NoAddresses { length: u64 },
    #[error("a length of {0:#x} bytes is no length for memory")]
    Length(u64),
    #[error("a pushbuffer of {0} words: a GPFIFO entry counts up to 2^21 - 1; write several")]
    Words(usize),
    #[error("host memory has no place in BAR1: only GPU memory is mapped there")]
    NotVideo,
    #[error("{length:#x} bytes at {offset:#x} do not lie within {size:#x} bytes")]
    Outside { offset: u64, length: u64, size: u64 },
    #[error(
        "{size} bytes at offset {offset:#x}: their address is not a multiple of {size}, as one store or load needs"
    )]
    Misaligned { offset: u64, size: u64 },
    #[error("no room for another ring: {0} channels of this address space live")]
    TooManyChannels(usize),
    #[error("a ring of {0} entries: 2 to 1024 fit, a power of two")]
    Entries(u32),
    #[error(transparent)]
    Encode(#[from] pushbuf::encode::Error),
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error(
        "memory that the transfer names was freed, unmapped or unpinned since it was prepared: prepare it again with memory \
         that is there"
    )]
    Stale,
    #[error(
        "the stack size of CUDA's context was changed (cuCtxSetLimit) since this was prepared, which moves the local memory that its kernels use: prepare it \
         again, and set limits before"
    )]
    LocalMemoryMoved,
    #[error(
        "CUDA's context on this GPU was destroyed: what was prepared in it can be used no more; begin anew with the next context"
    )]
    NoContext,
    #[error(
        "the memory was freed and given out again since it was pinned: CUDA says that another allocation lies there now; pin \
         that one if it is meant"
    )]
    Reused,
    #[error("the memory at {va:#x} is of another address space than the channel: allocate or pin it in the channel's")]
    OtherSpace { va: u64 },
    #[error("the memory at {va:#x} is not mapped for the channel's GPU: use memory of that GPU, or enable peer access")]
    OtherGpu { va: u64 },
    #[error("the pushbuffer was validated for another channel: validate it for this one")]
    OtherChannel,
    #[error(
        "this channel is for {has}: launches count its tracker up and transfers set it; open another channel for what was asked"
    )]
    OtherUse { has: &'static str },
    #[error("what CUDA told {channel} cannot be read: {why}")]
    NotSeen { channel: String, why: &'static str },
    #[error("the other channel has given out no submission of number {0}: submit what is to be waited for first")]
    NotSubmitted(u64),
    #[error("the ring is full: {0} entries are in flight; wait for one of them first")]
    RingFull(u32),
    #[error("semaphore did not reach {wanted} within {after:?}; it holds {found}")]
    Timeout { wanted: u32, found: u32, after: Duration },
    #[error("CUDA's channel group: {0}")]
    Group(&'static str),
    #[error("this is a fork's child: the GPU's channels and memory are its parent's; open the device again here")]
    Forked,
    #[error("libcuda: {0}")]
    Libcuda(String),
    #[error("{length:#x} bytes at {va:#x}: {why}")]
    NotPinnable { va: u64, length: u64, why: &'static str },
    #[error("{va:#x}, {length:#x} bytes: not within the region that this transfer was prepared for")]
    OutsideRegion { va: u64, length: u64 },
    #[error(
        "the channel was stopped: memory was freed under a transfer that did not come to its end in time; it has to be made anew"
    )]
    ChannelStopped,
    #[error("the channel was killed by error {0} (Xid): the kernel log says why; it has to be made anew")]
    ChannelKilled(u32),
}
