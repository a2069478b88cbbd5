//! CUDA graphs, launched without CUDA.

use crate::call::{To, many, run};
use crate::session::of;
use crate::types::*;
use std::ffi::c_void;
use submit::{Buffer, Graph};

/// Prepares an instantiated CUDA graph (CUgraphExec, cudaGraphExec_t) for launches without CUDA. CUDA launches it in `stream` a
/// few times, and each launch does the graph's work. doorbell reads the command words of these launches and clones the QMDs and
/// constant banks of the graph's kernels. Call doorbell_init() before CUDA is initialised. Call this before the graph's first
/// launch, because that launch uploads the graph. No other thread may submit to the GPU with CUDA during the call. doorbell does
/// not check what the kernels do. Until doorbell_graph_free(), the graph's modules and all memory that it uses must stay, and the
/// stack limit must not change. The executable graph itself may be destroyed or updated: the clone does not change. A kernel that
/// faults ends CUDA's context, as it would if CUDA launched it.
/// Cost: three launches by CUDA, or a few more, and milliseconds. The stream is held while CUDA writes them, each time for 20 ms
/// at most. It allocates, takes CUDA's locks, and requests memory from the kernel driver. The first graph of a launch lane opens
/// its channel. Threads: any. It waits for other threads' launches on its lane. Errors: DOORBELL_GRAPH for an unsupported graph,
/// with the reason. DOORBELL_UNAVAILABLE without CUDA, or if CUDA's channels were not observed (doorbell_init() was called too
/// late). DOORBELL_TIMEOUT if launches on the lane are still pending after ten seconds. DOORBELL_CUDA, DOORBELL_LIMIT (4,096 at a
/// time on a lane), DOORBELL_DRIVER, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_graph_create(
    doorbell: *mut doorbell_t,
    exec: *mut c_void,
    stream: *mut c_void,
    graph: *mut doorbell_graph_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(graph) }?;
        // SAFETY: the caller guarantees it, as documented.
        answer.put(unsafe { of(doorbell)?.prepare_graph(exec, stream) }?.raw());
        Ok(())
    })
}

/// Prepares a graph (CUgraph, cudaGraph_t) for launches without CUDA. doorbell instantiates it, so the program may have
/// instantiated or launched it before. The graph itself may be changed or destroyed: the clone does not change. Otherwise as
/// doorbell_graph_create(), but memcpy nodes may name pageable memory: the CPU makes their copies. It reads that memory in
/// doorbell_graph_launch(), and writes it in the first doorbell_wait(), doorbell_poll() or doorbell_pending(), of any launch,
/// that finds the launch done. So only one launch of such a graph may be pending (DOORBELL_FULL), and a stream that waits for it
/// (doorbell_stream_wait()) waits only for the GPU's part. Do not touch memory that memcpy nodes write until the ticket is done.
/// Cost, threads: as doorbell_graph_create(). For pageable memory, CUDA pins as many bytes. Errors: as doorbell_graph_create(),
/// and DOORBELL_GRAPH also if a memcpy node writes pageable memory that another one uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_graph_instantiate(
    doorbell: *mut doorbell_t,
    cuda_graph: *mut c_void,
    stream: *mut c_void,
    graph: *mut doorbell_graph_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(graph) }?;
        // SAFETY: the caller guarantees it, as documented.
        answer.put(unsafe { of(doorbell)?.instantiate_graph(cuda_graph, stream) }?.raw());
        Ok(())
    })
}

/// Prepares a kernel (CUfunction) for launches without CUDA: a graph of one kernel, captured from `stream` and prepared as by
/// doorbell_graph_create(). `stream` must not be the default stream. `grid` and `block` are three numbers each, and
/// `shared_bytes` is the dynamic shared memory. `arguments` has a pointer to each argument, as cuLaunchKernel() takes them. They
/// are read before this returns. CUDA launches the kernel a few times, and each launch does its work.
/// Cost, threads: as doorbell_graph_create(). Errors: as doorbell_graph_create(), and DOORBELL_ARGUMENT for the default stream or
/// no function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_graph_create_kernel(
    doorbell: *mut doorbell_t,
    function: *mut c_void,
    grid: *const u32,
    block: *const u32,
    shared_bytes: u32,
    arguments: *mut *mut c_void,
    stream: *mut c_void,
    graph: *mut doorbell_graph_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(graph) }?;
        // SAFETY: the caller passes three numbers each.
        let (grid, block) = unsafe { (many(grid, 3)?, many(block, 3)?) };
        let (Ok(grid), Ok(block)) = (grid.try_into(), block.try_into()) else {
            return Err(submit::Error::Argument("a grid and a block are three numbers each"));
        };
        // SAFETY: the caller guarantees it, as documented.
        answer.put(
            unsafe { of(doorbell)?.prepare_kernel(function, grid, block, shared_bytes, arguments, stream) }?.raw(),
        );
        Ok(())
    })
}

/// doorbell_graph_create_copy(): the launch lane of the calling thread.
pub const DOORBELL_OWN_LAUNCH_LANE: u32 = 0xffff_ffff;

/// Makes another copy of a graph on a launch lane: a number from 0 to options.launch_lanes - 1, or DOORBELL_OWN_LAUNCH_LANE. It
/// starts with the graph's current parameters and has its own from then on. CUDA launches no graph for this. So one thread can
/// prepare a graph, and then make a copy for each thread that launches it. Launches of copies on different lanes may run at the
/// same time, so the memory that the kernels write must allow this. The graph may be freed. Its modules and memory must stay, as
/// for doorbell_graph_create().
/// Cost: milliseconds. It allocates, and requests memory from the kernel driver. The first graph of a lane opens its channel.
/// Threads: any. It waits for other threads' launches, and for pending ones on the lane: DOORBELL_TIMEOUT after ten seconds.
/// Errors: DOORBELL_ARGUMENT for a lane that the session does not have. DOORBELL_GRAPH for a chain, and for a graph that names
/// pageable memory. DOORBELL_TIMEOUT, DOORBELL_HANDLE, DOORBELL_LIMIT, DOORBELL_FREED, DOORBELL_UNAVAILABLE, DOORBELL_DRIVER,
/// DOORBELL_CUDA, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_graph_create_copy(
    doorbell: *mut doorbell_t,
    graph: doorbell_graph_t,
    launch_lane: u32,
    copy: *mut doorbell_graph_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(copy) }?;
        let lane = (launch_lane != DOORBELL_OWN_LAUNCH_LANE).then_some(launch_lane as usize);
        answer.put(of(doorbell)?.copy_graph(Graph::from_raw(graph), lane)?.raw());
        Ok(())
    })
}

/// Returns the number of a graph's kernels, and writes the bytes of parameters of the first `room` kernels. `parameter_bytes` may
/// be null if `room` is 0. Kernels are counted from 0 in the order in which a launch starts them.
/// Cost: microseconds. Threads: any. It waits for other threads' launches. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT,
/// DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_graph_kernels(
    doorbell: *mut doorbell_t,
    graph: doorbell_graph_t,
    parameter_bytes: *mut u32,
    room: usize,
    count: *mut usize,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(count) }?;
        // SAFETY: the caller guarantees it. It is checked here and written below.
        unsafe { many(parameter_bytes.cast_const(), room) }?;
        let kernels = of(doorbell)?.graph_kernels(Graph::from_raw(graph))?;
        for (n, bytes) in kernels.iter().take(room).enumerate() {
            // SAFETY: within the caller's room.
            unsafe { parameter_bytes.add(n).write(*bytes) };
        }
        answer.put(kernels.len());
        Ok(())
    })
}

/// Changes bytes of a kernel's parameters from the next launch on. `offset` counts bytes from the first parameter, laid out as a
/// C compiler lays out a struct of them. The bytes are read before this returns. The next doorbell_graph_launch() sends them to
/// the GPU, before its kernels and after all earlier launches. doorbell does not check pointers in them.
/// Cost: a copy of the bytes. No lock, no allocation, no system call. Threads: any. DOORBELL_BUSY while another thread launches.
/// Errors: DOORBELL_BUSY: try again. DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_graph_set_param(
    doorbell: *mut doorbell_t,
    graph: doorbell_graph_t,
    kernel: u32,
    offset: u32,
    bytes: *const c_void,
    length: usize,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let bytes = unsafe { many(bytes.cast::<u8>(), length) }?;
        of(doorbell)?.set_parameter(Graph::from_raw(graph), kernel, offset, bytes)
    })
}

/// Sets a pointer of 8 bytes in a kernel's parameters to `buffer_offset` in a buffer, from the next launch on, as
/// doorbell_graph_set_param() does for bytes. CUDA's memory is pinned for the graph. When CUDA frees it, launches return
/// DOORBELL_FREED until the pointer is set again. Memory from doorbell_buffer_create() stays until then, even after
/// doorbell_buffer_free(). doorbell does not check which bytes the kernel touches from there on.
/// Cost: microseconds, and a check with CUDA as in doorbell_transfer_create(). If the parameter was such a pointer before, it
/// waits for pending launches. Threads: any. It waits for other threads' launches on the lane. Errors: as
/// doorbell_graph_set_param() except DOORBELL_BUSY, and DOORBELL_FREED. DOORBELL_TIMEOUT after ten seconds, although the pointer
/// was set.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_graph_set_pointer(
    doorbell: *mut doorbell_t,
    graph: doorbell_graph_t,
    kernel: u32,
    offset: u32,
    buffer: doorbell_buffer_t,
    buffer_offset: u64,
) -> i32 {
    run(|| of(doorbell)?.set_pointer(Graph::from_raw(graph), kernel, offset, (Buffer::from_raw(buffer), buffer_offset)))
}

/// Launches a graph. Launches on one launch lane run one after the other, in the order of these calls. The GPU waits for the
/// earlier launch, and the call does not. Launches on different launch lanes are not ordered and may run at the same time. Pass
/// the ticket to doorbell_wait(), doorbell_poll() or doorbell_pending(). Only an order or a chain (doorbell_chain_create())
/// orders a launch against copies and against launches on other lanes. An order or doorbell_stream_wait() orders it against
/// CUDA's streams.
/// Cost: one doorbell write. No lock, no allocation, no system call, unless memory was unmapped since the last launch. Threads:
/// any. DOORBELL_BUSY while another thread uses the graph's launch lane. Errors: DOORBELL_BUSY and DOORBELL_FULL: try again. Up
/// to 32 launches of a graph may be pending, but only one of a chain with DOORBELL_STEP_STORES or of a graph that names pageable
/// memory. DOORBELL_FREED if memory that the graph copies or fills was freed. DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED,
/// DOORBELL_KILLED, DOORBELL_STOPPED. For an order also those of doorbell_copy_async(). After an error, the graph was not
/// launched.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_graph_launch(
    doorbell: *mut doorbell_t,
    graph: doorbell_graph_t,
    order: *const doorbell_order_t,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        let graph = Graph::from_raw(graph);
        // SAFETY: the caller guarantees it.
        unsafe { in_order(doorbell, order, ticket, |session, order| session.launch_in(graph, order)) }
    })
}

/// Ends a graph. Its pending launches continue. If parameters point into buffers, or memcpy nodes name pageable memory, the call
/// waits for them, up to ten seconds, and then returns DOORBELL_TIMEOUT. In that case, too, the graph has ended. Its memory is
/// freed when a graph is prepared or freed after those launches, or when the session is closed.
/// Cost: microseconds. It frees memory. Threads: any. It waits for other threads' launches. Errors: DOORBELL_TIMEOUT,
/// DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_graph_free(doorbell: *mut doorbell_t, graph: doorbell_graph_t) -> i32 {
    run(|| of(doorbell)?.graph_release(Graph::from_raw(graph)))
}
