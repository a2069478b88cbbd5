//! Copies and launches in one chain.

use crate::call::{To, run};
use crate::growing::{self, Growing};
use crate::session::of;
use crate::types::*;
use submit::{Buffer, ChainHow, ChainStep, Error, Graph, Order, Way};

/// doorbell_step_t.kind: bytes from one buffer to another.
pub const DOORBELL_STEP_COPY: u32 = 0;
/// doorbell_step_t.kind: a launch of a graph.
pub const DOORBELL_STEP_LAUNCH: u32 = 1;
/// doorbell_step_t.flags, of a copy: the bytes travel in the command stream, 64 KiB at most; the CPU reads them from host memory at each launch.
pub const DOORBELL_STEP_INLINE: u32 = 1;
/// doorbell_step_t.flags, of a copy: by the copy engine, whatever its size.
pub const DOORBELL_STEP_ENGINE: u32 = 2;
/// doorbell_step_t.flags, of a copy that is among the first steps of its chain: doorbell_graph_launch() reads the bytes from host memory and stores them into the
/// GPU's memory itself, in front of the doorbell, 64 KiB at most. The stores wait for nobody: see doorbell_chain_create().
pub const DOORBELL_STEP_STORES: u32 = 4;

/// doorbell_chain_create: launches behind copies of the copy engine wait for no counter, either. The GPU waits when a channel changes its engine, as
/// GA100's manual says; not seen on other GPUs yet.
pub const DOORBELL_CHAIN_ENGINES: u32 = 1;
/// doorbell_chain_create: the steps wait for a counter in host memory, not in the GPU's.
pub const DOORBELL_CHAIN_HOST_COUNTER: u32 = 2;
/// doorbell_chain_create: launches behind inline data wait for a counter, too. Without it they follow as CUDA's kernels follow their parameters.
pub const DOORBELL_CHAIN_COUNTER: u32 = 4;
/// doorbell_chain_create: the copies have a copy engine's channel of their own. Two doorbells, and no wait until CUDA's kernels are over.
pub const DOORBELL_CHAIN_BESIDE: u32 = 8;

/// One step of a chain: set all of it to 0, then what its kind needs.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_step_t {
    /// DOORBELL_STEP_COPY or DOORBELL_STEP_LAUNCH.
    pub kind: u32,
    /// 0, or of a copy DOORBELL_STEP_INLINE, DOORBELL_STEP_ENGINE or DOORBELL_STEP_STORES. 0 is inline up to 16 KiB from host memory to the GPU's, else the copy engine.
    pub flags: u32,
    /// Of a launch.
    pub graph: doorbell_graph_t,
    /// The others are of a copy.
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

/// Makes copies and launches of graphs ready as one chain, up to 256 steps: doorbell_graph_launch() starts it with one doorbell, the
/// GPU orders the steps, and the ticket is done when the last one is: what was copied to host memory is there then. Each step
/// begins when those before it are over. The chain is a graph to all other calls: doorbell_graph_launch(), doorbell_wait(),
/// doorbell_graph_set_param() (kernels count through all of its graphs), doorbell_graph_free(). Each graph in it is cloned once
/// more, with the parameters that it has now, and may be freed. The bytes that go inline are read from the buffer by
/// doorbell_graph_launch(), before it returns; the others by the GPU, so leave them until the ticket is done.
/// Memory of CUDA's is pinned for the chain: when CUDA frees it, launches answer DOORBELL_FREED. Memory of
/// doorbell_buffer_create() stays until the chain is freed, also after doorbell_buffer_free().
/// `flags`: 0, or of DOORBELL_CHAIN_ENGINES, DOORBELL_CHAIN_HOST_COUNTER, DOORBELL_CHAIN_COUNTER and DOORBELL_CHAIN_BESIDE; not both the first
/// and the third. With DOORBELL_CHAIN_BESIDE the copies have a channel of their own, one for all chains of a launch lane, which the first such
/// chain opens: doorbell_graph_launch() rings two doorbells.
/// All graphs of a chain are of one launch lane, and the chain belongs to that; one without graphs belongs to the lane of the thread.
/// With DOORBELL_STEP_STORES doorbell_graph_launch() stores the bytes into the GPU's memory itself, through BAR1. Only the first steps of a chain may be
/// stored. While the last launch of the chain is not over, doorbell_graph_launch() answers DOORBELL_FULL, and nothing is stored or launched. Whatever
/// else reads or writes these bytes (other graphs, copies, CUDA's own kernels) must be over, too: nobody looks after that, and
/// a launch with an order stores at once, before what they wait for.
/// Cost: milliseconds; it allocates, and asks the kernel driver for memory. Threads: any; it waits for the launches of others.
/// Errors: DOORBELL_ARGUMENT (no graph was prepared yet; an unknown kind or flag; inline or stored from the GPU's memory, stored into host
/// memory), DOORBELL_GRAPH for a step that cannot be (more than 64 KiB, stored behind another step, a chain in a chain, graphs of several launch lanes: doorbell_graph_create_copy()), DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_LIMIT, DOORBELL_DRIVER, DOORBELL_CLOSED,
/// DOORBELL_FORKED.
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
        // SAFETY: the caller's.
        let (answer, steps) = unsafe { (To::new(chain)?, growing::array(steps, count, step_size)?) };
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
