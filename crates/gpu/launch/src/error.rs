//! Why a graph cannot be launched, and what to do.

use cuda_graph::Refused;
use pushbuf::qmd::Unfit;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    #[error(transparent)]
    Gpu(#[from] gpu::Error),
    #[error("{0}")]
    Channel(&'static str),
    #[error("{what}, where launches were not seen yet: {hint}. Go on with cudaGraphLaunch")]
    Machine { what: String, hint: &'static str },
    #[error(
        "this graph was launched before it was prepared, so nobody saw how CUDA uploads it (the first launch was given {segments} pushbuffers without it): \
         prepare a graph after cudaGraphInstantiate and before its first launch, or instantiate it once more"
    )]
    LaunchedBefore { segments: usize },
    #[error(
        "CUDA submitted nothing while the graph was launched: the function that is passed must launch it once and wait until it is done"
    )]
    NothingSubmitted,
    #[error("this graph cannot be launched without CUDA yet: {0}. Go on launching it with cudaGraphLaunch")]
    Refused(#[from] Refused),
    #[error(
        "this graph cannot be launched without CUDA yet: {refused} ({why}). Go on launching it with cudaGraphLaunch"
    )]
    Macro { refused: Refused, why: String },
    #[error(
        "CUDA launched the graph in different ways ({0}): another thread may have had CUDA submit something meanwhile. Instantiate the graph once more and \
         prepare it while no other thread uses CUDA"
    )]
    Disturbed(Refused),
    #[error("node {node}, a kernel, is not one that the GPU would take: {unfit}")]
    Unfit { node: usize, unfit: Unfit },
    #[error(
        "node {node}, a {what}, names memory at {address:#x} ({bytes} bytes) that cannot be pinned: {cause}. Allocate it with cudaMalloc or cudaHostAlloc, \
         and keep it for as long as the graph is launched"
    )]
    NotPinned { node: usize, what: &'static str, address: u64, bytes: u64, cause: gpu::Error },
    #[error(
        "memory at {address:#x} that a memcpy node writes is also read or written by another, and it is pageable: the CPU would move its bytes before and \
         behind a launch, never within. Allocate it with cudaHostAlloc"
    )]
    Pageable { address: u64 },
    #[error("a chain cannot be copied: make it of its steps once more")]
    NoTemplate,
    #[error("step {step} of the chain: {why}")]
    Chain { step: usize, why: &'static str },
    #[error("the program's own launch failed while the graph was learnt: {0}")]
    Launching(String),
    #[error("node {node} is no kernel with parameters: the nodes that have some are {having}")]
    NoParameters { node: usize, having: String },
    #[error(
        "{bytes} bytes at offset {offset} do not lie within the parameters of node {node}, which are {size} bytes: offsets are those of the kernel's \
         parameters one after another, each aligned to its size"
    )]
    OutsideParameters { node: usize, offset: u32, bytes: usize, size: u32 },
}
