//! The functions that launch CUDA graphs.

use crate::call::{To, many, run};
use crate::session::of;
use crate::types::*;
use std::ffi::c_void;
use submit::{Buffer, Graph, Learner, Stream};

/// Makes an instantiated CUDA graph (CUgraphExec, cudaGraphExec_t) ready to be launched past CUDA. CUDA launches it in
/// `stream` a few times (it does its work then), the words of these launches are read, and what the graph has on the
/// GPU is cloned. Call doorbell_init() before CUDA is initialised, and this before the graph is launched for the first
/// time: that launch uploads it. No other thread may submit to the GPU by CUDA meanwhile. What kernels do is not looked
/// at: to launch a graph is to trust it. Until doorbell_graph_free(), the graph's modules and all memory that it uses
/// must stay, and the stack limit must not be changed. The executable graph itself may be destroyed or updated: the
/// clone stays what it was. A kernel that faults ends CUDA's context, as it would if CUDA launched it.
/// Cost: three launches by CUDA, or a few more, and milliseconds (the stream is held while CUDA writes them, 20 ms at
/// most each time); it allocates, takes CUDA's locks, and asks the kernel driver for
/// memory; the first graph of a launch lane opens its channel. Threads: any; it waits for the launches of others on its lane. Errors: DOORBELL_GRAPH
/// where the graph has something that doorbell does not launch, with its name; DOORBELL_UNAVAILABLE without CUDA, or
/// where its channels were not seen (doorbell_init() came too late); DOORBELL_CUDA, DOORBELL_LIMIT (4,096 at a time on a lane),
/// DOORBELL_DRIVER, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_graph_create(
    doorbell: *mut doorbell_t,
    exec: *mut c_void,
    stream: *mut c_void,
    graph: *mut doorbell_graph_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(graph) }?;
        // SAFETY: the caller's, as documented.
        answer.put(unsafe { of(doorbell)?.prepare_graph(exec, stream) }?.raw());
        Ok(())
    })
}

/// Makes a graph (CUgraph, cudaGraph_t) ready to be launched past CUDA: doorbell instantiates it, so it does not matter
/// whether the program has, or has launched that. The graph itself may be changed or destroyed: the clone stays what it was.
/// For the rest as doorbell_graph_create(), but memcpy nodes may name pageable memory: the CPU copies in their place, out
/// of it in doorbell_graph_launch(), and into it in the first doorbell_wait(), doorbell_poll() or doorbell_pending() of any
/// launch's ticket that finds it over. So one launch of such a graph may be under way (DOORBELL_FULL), and what a stream
/// is held for (doorbell_stream_wait()) is the GPU's part. Leave what memcpy nodes write alone until the ticket is done.
/// Cost, threads: as doorbell_graph_create(); for pageable memory CUDA pins as many bytes. Errors: the same;
/// DOORBELL_GRAPH also where a memcpy node writes pageable memory that another one uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_graph_instantiate(
    doorbell: *mut doorbell_t,
    cuda_graph: *mut c_void,
    stream: *mut c_void,
    graph: *mut doorbell_graph_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(graph) }?;
        // SAFETY: the caller's, as documented.
        answer.put(unsafe { of(doorbell)?.instantiate_graph(cuda_graph, stream) }?.raw());
        Ok(())
    })
}

/// Begins to learn an instantiated CUDA graph (CUgraphExec, cudaGraphExec_t) from launches that the program wants anyway: with doorbell_learner_launch() in the place of
/// cudaGraphLaunch(). Each launch does the graph's work once, so this is the way for graphs whose work must not be done more often than the program asks for.
/// Nothing is launched here. The executable graph lives until doorbell_learner_free(), and is launched by the learner alone until then. For the rest as doorbell_graph_create().
/// The graph will belong to the launch lane of the thread that makes the learner.
/// Cost: microseconds. Threads: any. Errors: DOORBELL_LIMIT, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_learner_create(
    doorbell: *mut doorbell_t,
    exec: *mut c_void,
    learner: *mut doorbell_learner_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(learner) }?;
        // SAFETY: the caller's, as documented.
        answer.put(unsafe { of(doorbell)?.learner(exec) }?.raw());
        Ok(())
    })
}

/// Has CUDA launch the graph once in `stream` (null: the default stream), behind what is queued there, and waits for it. `launched`: whether the graph's work was done; where it was not, launch the graph by CUDA.
/// `graph`: 0 until the graph is learnt, after three launches or a few more; then the graph for doorbell_graph_launch(). After an error more launches teach nothing: let CUDA launch the graph from then on.
/// No other thread may submit to the GPU by CUDA meanwhile: such a launch teaches nothing, and one more is needed.
/// Cost: a launch by CUDA, and milliseconds; the first graph opens a channel. Threads: any; it waits for the launches of others. Errors: those of doorbell_graph_create().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_learner_launch(
    doorbell: *mut doorbell_t,
    learner: doorbell_learner_t,
    stream: *mut c_void,
    launched: *mut bool,
    graph: *mut doorbell_graph_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let (was_launched, answer) = unsafe { (To::new(launched)?, To::new(graph)?) };
        // SAFETY: the caller's, as documented.
        let taught = unsafe { of(doorbell)?.learner_launch(Learner::from_raw(learner), Stream::from_raw(stream)) };
        was_launched.put(taught.launched);
        answer.put(taught.graph?.map_or(0, |graph| graph.raw()));
        Ok(())
    })
}

/// Ends a learner. The graph that it has learnt stays.
/// Cost: microseconds. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_learner_free(doorbell: *mut doorbell_t, learner: doorbell_learner_t) -> i32 {
    run(|| of(doorbell)?.learner_release(Learner::from_raw(learner)))
}

/// Makes a kernel (CUfunction) ready to be launched past CUDA: a graph of it alone is captured from `stream`, which is not
/// the default one, and prepared as doorbell_graph_create() does. `grid` and `block` are three numbers each, `shared_bytes`
/// is dynamic shared memory, `arguments` has a pointer to each argument, as cuLaunchKernel() takes them; they are read
/// before this returns. CUDA launches the kernel a few times, and it does its work then.
/// Cost, threads: as doorbell_graph_create(). Errors: the same; DOORBELL_ARGUMENT for the default stream or no function.
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
        // SAFETY: the caller's.
        let answer = unsafe { To::new(graph) }?;
        // SAFETY: the caller's: three numbers each.
        let (grid, block) = unsafe { (many(grid, 3)?, many(block, 3)?) };
        let (Ok(grid), Ok(block)) = (grid.try_into(), block.try_into()) else {
            return Err(submit::Error::Argument("a grid and a block are three numbers each"));
        };
        // SAFETY: the caller's, as documented.
        answer.put(
            unsafe { of(doorbell)?.prepare_kernel(function, grid, block, shared_bytes, arguments, stream) }?.raw(),
        );
        Ok(())
    })
}

/// doorbell_graph_create_copy(): the launch lane of the thread that calls.
pub const DOORBELL_OWN_LAUNCH_LANE: u32 = 0xffff_ffff;

/// Makes another copy of a graph on a launch lane: a number from 0 to options.launch_lanes - 1, or DOORBELL_OWN_LAUNCH_LANE. It has the parameters that the
/// graph has now, and its own from then on; CUDA launches nothing. So a thread makes a graph once and then a copy for each thread that is to launch it.
/// Launches of copies on different lanes may run at the same time: what the graph's kernels write must allow that. The graph may be freed; for its modules
/// and memory doorbell_graph_create() says what must stay.
/// Cost: milliseconds; it allocates, and asks the kernel driver for memory; the first graph of a lane opens its channel. Threads: any; it waits for the
/// launches of others. Errors: DOORBELL_ARGUMENT for a lane that the session has not, DOORBELL_GRAPH for a chain and for a graph that names pageable memory,
/// DOORBELL_HANDLE, DOORBELL_LIMIT, DOORBELL_FREED, DOORBELL_UNAVAILABLE, DOORBELL_DRIVER, DOORBELL_CUDA, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_graph_create_copy(
    doorbell: *mut doorbell_t,
    graph: doorbell_graph_t,
    launch_lane: u32,
    copy: *mut doorbell_graph_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(copy) }?;
        let lane = (launch_lane != DOORBELL_OWN_LAUNCH_LANE).then_some(launch_lane as usize);
        answer.put(of(doorbell)?.copy_graph(Graph::from_raw(graph), lane)?.raw());
        Ok(())
    })
}

/// How many kernels a graph has, and how many bytes of parameters each: those of the first `room` kernels are written.
/// `parameter_bytes` may be null with a room of 0. Kernels are counted from 0 in the order in which a launch starts
/// them.
/// Cost: microseconds. Threads: any; it waits for the launches of others. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT,
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
        // SAFETY: the caller's.
        let answer = unsafe { To::new(count) }?;
        // SAFETY: the caller's; checked here, written below.
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

/// Changes bytes of a kernel's parameters, from the next launch on: `offset` counts from the first one, laid out as a C
/// compiler lays out a struct of them. The bytes are read before this returns; they go to the GPU with the next
/// doorbell_graph_launch(), ahead of the kernels and behind the launches before it. What is a pointer is not looked at.
/// Cost: a copy of the bytes; no lock, no allocation, no system call. Threads: any; DOORBELL_BUSY while another
/// launches. Errors: DOORBELL_BUSY, after which it may be tried again; DOORBELL_HANDLE, DOORBELL_OUTSIDE,
/// DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED.
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
        // SAFETY: the caller's.
        let bytes = unsafe { many(bytes.cast::<u8>(), length) }?;
        of(doorbell)?.set_parameter(Graph::from_raw(graph), kernel, offset, bytes)
    })
}

/// As doorbell_graph_set_param(), of a pointer of 8 bytes: it points to `buffer_offset` in a buffer from the next launch on.
/// Memory of CUDA's is pinned for the graph: when CUDA frees it, launches answer DOORBELL_FREED until the pointer is set
/// anew. Memory of doorbell_buffer_create() stays until then, also after doorbell_buffer_free(). What the kernel touches from there on is not
/// looked at.
/// Cost: microseconds; where the parameter was such a pointer before, it waits for launches that are under way. Threads:
/// any; it waits for the launches of others on the lane. Errors: as doorbell_graph_set_param() but DOORBELL_BUSY; DOORBELL_FREED,
/// DOORBELL_TIMEOUT after ten seconds: the pointer was set.
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

/// Launches a graph. Launches on one launch lane run one after the other, in the order of these calls: the GPU waits, and
/// this call never. Launches on different launch lanes are not ordered, and may run at the same time. doorbell_wait(), doorbell_poll() and doorbell_pending() take the ticket. Nothing orders a launch
/// against copies and launches on other lanes but orders and chains (doorbell_chain_create()); an order and
/// doorbell_stream_wait() order it against streams of CUDA's.
/// Cost: one doorbell; no lock, no allocation, no system call, unless memory was unmapped since. Threads: any;
/// DOORBELL_BUSY while another uses the graph's launch lane. Errors: DOORBELL_BUSY and DOORBELL_FULL (32 launches of a graph may be under
/// way, and one of a chain with DOORBELL_STEP_STORES or of a graph that names pageable memory), after which it may be tried again; DOORBELL_FREED where memory that the graph copies or fills was freed;
/// DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED. Nothing was launched then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_graph_launch(
    doorbell: *mut doorbell_t,
    graph: doorbell_graph_t,
    order: *const doorbell_order_t,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        let graph = Graph::from_raw(graph);
        // SAFETY: the caller's.
        unsafe { in_order(doorbell, order, ticket, |session, order| session.launch_in(graph, order)) }
    })
}

/// Ends a graph. Launches of it that are under way go on; where parameters point into buffers, they are waited for, up to ten
/// seconds. After that the call is DOORBELL_TIMEOUT: the graph has ended, and its memory is freed when a graph is prepared or freed
/// after those launches, or when the session is closed.
/// Cost: microseconds; it frees memory. Threads: any; it waits for the launches of others. Errors: DOORBELL_TIMEOUT,
/// DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_graph_free(doorbell: *mut doorbell_t, graph: doorbell_graph_t) -> i32 {
    run(|| of(doorbell)?.graph_release(Graph::from_raw(graph)))
}
