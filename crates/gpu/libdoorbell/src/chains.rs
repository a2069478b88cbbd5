//! Chains of copies and launches.

use crate::call::{To, run};
use crate::growing::{self, Growing};
use crate::session::of;
use crate::types::*;
use submit::{Buffer, ChainHow, ChainStep, Error, Graph, Order, Way};

/// doorbell_step_t.kind: a copy from one buffer to another.
pub const DOORBELL_STEP_COPY: u32 = 0;
/// doorbell_step_t.kind: a launch of a graph.
pub const DOORBELL_STEP_LAUNCH: u32 = 1;
/// doorbell_step_t.flags, for a copy: the bytes are part of the command stream, 64 KiB at most. The CPU reads them from host
/// memory at each launch.
pub const DOORBELL_STEP_INLINE: u32 = 1;
/// doorbell_step_t.flags, for a copy: a copy engine makes the copy, whatever its size.
pub const DOORBELL_STEP_ENGINE: u32 = 2;
/// doorbell_step_t.flags, for a copy among the first steps of its chain: doorbell_graph_launch() itself reads the bytes from host
/// memory and stores them into GPU memory, 64 KiB at most. It does this before it writes the doorbell. The stores are not ordered
/// after earlier GPU work: see doorbell_chain_create().
pub const DOORBELL_STEP_STORES: u32 = 4;

/// doorbell_chain_create: launches after copies of the copy engine do not wait for a counter, either. According to NVIDIA's
/// manual of the GA100, the GPU waits when a channel changes its engine. This was not observed on other GPUs yet.
pub const DOORBELL_CHAIN_ENGINES: u32 = 1;
/// doorbell_chain_create: the steps wait for a counter in host memory instead of GPU memory.
pub const DOORBELL_CHAIN_HOST_COUNTER: u32 = 2;
/// doorbell_chain_create: launches after inline data also wait for a counter. Without it they follow the data as CUDA's kernels
/// follow their parameters.
pub const DOORBELL_CHAIN_COUNTER: u32 = 4;
/// doorbell_chain_create: the copies have a separate channel on a copy engine. A launch then writes two doorbells, and the copies
/// do not wait until CUDA's kernels are over.
pub const DOORBELL_CHAIN_BESIDE: u32 = 8;

/// Maximum number of steps of a chain.
const STEPS: usize = 256;

/// One step of a chain. Set all of it to 0, then the fields that its kind needs.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_step_t {
    /// DOORBELL_STEP_COPY or DOORBELL_STEP_LAUNCH.
    pub kind: u32,
    /// 0, or for a copy DOORBELL_STEP_INLINE, DOORBELL_STEP_ENGINE or DOORBELL_STEP_STORES. 0 means inline for up to 16 KiB from
    /// host memory to GPU memory, otherwise the copy engine.
    pub flags: u32,
    /// For a launch.
    pub graph: doorbell_graph_t,
    /// For a copy, as are all fields that follow.
    pub to: doorbell_buffer_t,
    pub to_offset: u64,
    pub from: doorbell_buffer_t,
    pub from_offset: u64,
    pub bytes: u64,
}

// SAFETY: numbers.
unsafe impl Growing for doorbell_step_t {
    const FIRST: usize = size_of::<doorbell_step_t>();
}

/// Prepares copies and launches of graphs as one chain, up to 256 steps. doorbell_graph_launch() starts it with one doorbell
/// write, and the GPU orders the steps: each begins when the steps before it are over. The ticket is done when the last step is.
/// Data that was copied to host memory is then visible. For all other calls the chain is a graph: doorbell_graph_launch(),
/// doorbell_wait(), doorbell_graph_set_param() (kernels count through all of its graphs), doorbell_graph_free(). The chain has
/// its own copy of each graph, with its current parameters, so the graphs may be freed. doorbell_graph_launch() reads inline
/// bytes from the buffer before it returns. The GPU reads all others, so do not change them until the ticket is done.
/// CUDA's memory is pinned for the chain: when CUDA frees it, launches return DOORBELL_FREED. Memory from
/// doorbell_buffer_create() stays until the chain is freed, even after doorbell_buffer_free().
/// `flags` is 0 or a combination of DOORBELL_CHAIN_ENGINES, DOORBELL_CHAIN_HOST_COUNTER, DOORBELL_CHAIN_COUNTER and
/// DOORBELL_CHAIN_BESIDE, but not both the first and the third. With DOORBELL_CHAIN_BESIDE the copies have a separate channel,
/// and doorbell_graph_launch() writes two doorbells. All chains of a launch lane share this channel, which the first of them
/// opens.
/// All graphs of a chain must be of one launch lane, to which the chain then belongs. A chain without graphs belongs to the
/// thread's lane.
/// With DOORBELL_STEP_STORES, doorbell_graph_launch() itself stores the bytes into GPU memory, through BAR1. Only the first steps
/// of a chain may be stored. While the chain's last launch is pending, doorbell_graph_launch() returns DOORBELL_FULL and has no
/// effect. You must first wait for all other work that reads or writes these bytes (other graphs, copies, CUDA's own kernels),
/// because doorbell does not check this. A launch with an order stores immediately, before the work that the order waits for.
/// Cost: milliseconds. It allocates, and requests memory from the kernel driver. It checks registered memory with CUDA, as
/// doorbell_transfer_create() does. Threads: any. It waits for other threads' launches, and for pending ones on the lane:
/// DOORBELL_TIMEOUT after ten seconds.
/// Errors: DOORBELL_ARGUMENT for an unknown kind or flag, or if no graph was prepared yet. DOORBELL_ARGUMENT also for an inline or
/// stored copy from GPU memory, and for a stored copy into host memory. DOORBELL_LIMIT for more than 256 steps. DOORBELL_GRAPH for an impossible step: more than 64 KiB,
/// stored after another step, a chain in a chain, graphs of several launch lanes (see doorbell_graph_create_copy()).
/// DOORBELL_TIMEOUT, DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_LIMIT, DOORBELL_DRIVER, DOORBELL_CLOSED,
/// DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_chain_create(
    doorbell: *mut doorbell_t,
    steps: *const doorbell_step_t,
    count: usize,
    step_size: usize,
    flags: u32,
    chain: *mut doorbell_graph_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let (answer, steps) = unsafe { (To::new(chain)?, growing::array(steps, count, STEPS, step_size)?) };
        let order = match flags & !(DOORBELL_CHAIN_HOST_COUNTER | DOORBELL_CHAIN_BESIDE) {
            0 => Order::default(),
            DOORBELL_CHAIN_ENGINES => Order::Engines,
            DOORBELL_CHAIN_COUNTER => Order::Counter,
            _ => return Err(Error::Argument("flags of a chain that are not known, or not at the same time")),
        };
        let [host_counter, beside] = [DOORBELL_CHAIN_HOST_COUNTER, DOORBELL_CHAIN_BESIDE].map(|flag| flags & flag != 0);
        let how = ChainHow { order, host_counter, beside };
        let steps = steps.iter().map(step).collect::<Result<Vec<_>, _>>()?;
        answer.put(of(doorbell)?.prepare_chain(&steps, how)?.raw());
        Ok(())
    })
}

fn step(step: &doorbell_step_t) -> Result<ChainStep, Error> {
    let by = match (step.kind, step.flags) {
        (DOORBELL_STEP_LAUNCH, 0) => return Ok(ChainStep::Launch(Graph::from_raw(step.graph))),
        (DOORBELL_STEP_COPY, 0) => None,
        (DOORBELL_STEP_COPY, DOORBELL_STEP_INLINE) => Some(Way::Inline),
        (DOORBELL_STEP_COPY, DOORBELL_STEP_ENGINE) => Some(Way::CopyEngine),
        (DOORBELL_STEP_COPY, DOORBELL_STEP_STORES) => Some(Way::Stores),
        _ => return Err(Error::Argument("a step of a chain has a kind or flags that are not known")),
    };
    Ok(ChainStep::Copy {
        to: (Buffer::from_raw(step.to), step.to_offset),
        from: (Buffer::from_raw(step.from), step.from_offset),
        bytes: step.bytes,
        by,
    })
}
