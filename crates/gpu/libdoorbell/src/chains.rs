//! The functions that put copies and launches in order: chains, and what waits for another ticket.

use crate::calls::{SESSION, To, many, run};
use crate::types::*;
use submit::{Buffer, ChainHow, ChainStep, Copy, Error, Graph, Order, Piece, Transfer, Way};

/// Makes copies and launches of graphs ready as one chain, up to 256 steps: doorbell_launch() starts it with one doorbell, the
/// GPU orders the steps, and the ticket is done when the last one is: what was copied to host memory is there then. Each step
/// begins when those before it are over. The chain is a graph to all other calls: doorbell_launch(), doorbell_wait(),
/// doorbell_graph_set_param() (kernels count through all of its graphs), doorbell_graph_free(). Each graph in it is cloned once
/// more, with the parameters that it has now, and may be freed. The bytes that go inline are read from the buffer by
/// doorbell_launch(), before it returns; the others by the GPU, so leave them until the ticket is done.
/// Memory of CUDA's is pinned for the chain: when CUDA frees it, launches answer DOORBELL_FREED. Memory of
/// doorbell_allocate() stays until the chain is freed, also after doorbell_unpin().
/// `flags`: 0, or of DOORBELL_CHAIN_ENGINES, DOORBELL_CHAIN_HOST_COUNTER, DOORBELL_CHAIN_COUNTER and DOORBELL_CHAIN_BESIDE; not both the first
/// and the third. With DOORBELL_CHAIN_BESIDE the copies have a channel of their own, one for all chains of the session, which the first such
/// chain opens: doorbell_launch() rings two doorbells.
/// With DOORBELL_STEP_STORES doorbell_launch() stores the bytes into the GPU's memory itself, through BAR1. Only the first steps of a chain may be
/// stored. While the last launch of the chain is not over, doorbell_launch() answers DOORBELL_FULL, and nothing is stored or launched. Whatever
/// else reads or writes these bytes (other graphs, copies, CUDA's own kernels) must be over, too: nobody looks after that, and
/// doorbell_launch_after() and doorbell_launch_after_stream() store at once, before what they wait for.
/// Cost: milliseconds; it allocates, and asks the kernel driver for memory. Threads: any; it waits for the launches of others.
/// Errors: DOORBELL_ARGUMENT (no graph was prepared yet; an unknown kind or flag; inline or stored from the GPU's memory, stored into host
/// memory), DOORBELL_GRAPH for a step that cannot be (more than 64 KiB, stored behind another step, a chain in a chain), DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_LIMIT, DOORBELL_DRIVER, DOORBELL_CLOSED,
/// DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_chain_prepare(
    steps: *const doorbell_step_t,
    count: usize,
    flags: u32,
    chain: *mut doorbell_graph_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let (answer, steps) = unsafe { (To::new(chain)?, many(steps, count)?) };
        let order = match flags & !(DOORBELL_CHAIN_HOST_COUNTER | DOORBELL_CHAIN_BESIDE) {
            0 => Order::default(),
            DOORBELL_CHAIN_ENGINES => Order::Engines,
            DOORBELL_CHAIN_COUNTER => Order::Counter,
            _ => return Err(Error::Argument("flags of a chain that are not known, or not at the same time")),
        };
        let [host_counter, beside] = [DOORBELL_CHAIN_HOST_COUNTER, DOORBELL_CHAIN_BESIDE].map(|flag| flags & flag != 0);
        let how = ChainHow { order, host_counter, beside };
        let steps = steps.iter().map(step).collect::<Result<Vec<_>, _>>()?;
        answer.put(SESSION.prepare_chain(&steps, how)?.raw());
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

/// As doorbell_launch(), behind a copy (or any submission) of this session's: the GPU waits for its ticket, with nothing of CUDA's. All
/// that is launched later waits, too. If the ticket's lane dies before it is done, the lane of launches is stopped with it.
/// Cost: as doorbell_launch(), and some words more where `after` is not done. Threads, errors: as doorbell_launch();
/// DOORBELL_HANDLE also for a ticket that is none, DOORBELL_KILLED and DOORBELL_STOPPED also for its lane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_launch_after(
    graph: doorbell_graph_t,
    after: doorbell_ticket_t,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(ticket) }?;
        answer.put(SESSION.launch_behind(Graph::from_raw(graph), Copy::from_raw(after))?.raw());
        Ok(())
    })
}

/// As doorbell_submit(), behind a launch, or a copy of another lane: the GPU waits for its ticket. What is submitted on the
/// transfer's lane later waits, too, also where this is DOORBELL_FULL. A transfer that the CPU stores, loads or reads
/// (doorbell_explain()) goes by a copy engine instead, on a lane that is free. If the ticket's lane dies before it is done, this lane
/// is stopped with it: what waits answers DOORBELL_STOPPED and does not run.
/// Cost: as doorbell_submit(), and some words more where `after` is not done. Threads, errors: as doorbell_submit();
/// DOORBELL_HANDLE also for a ticket that is none, DOORBELL_KILLED and DOORBELL_STOPPED also for its lane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_submit_after(
    transfer: doorbell_transfer_t,
    after: doorbell_ticket_t,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(ticket) }?;
        answer.put(SESSION.submit_behind(Transfer::from_raw(transfer), Copy::from_raw(after))?.raw());
        Ok(())
    })
}

/// As doorbell_copy_batch(), behind a launch, or a copy of another lane, always by a copy engine. What goes by that lane later
/// waits, too, also where this is DOORBELL_FULL.
/// Cost, threads, errors: as doorbell_copy_batch() and doorbell_submit_after().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_copy_after(
    pieces: *const doorbell_piece_t,
    count: usize,
    after: doorbell_ticket_t,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's; a piece is laid out as submit's (asserted in `calls`), whose handles are numbers.
        let (answer, pieces) = unsafe { (To::new(ticket)?, many(pieces.cast::<Piece>(), count)?) };
        answer.put(SESSION.copy_behind(pieces, Copy::from_raw(after))?.raw());
        Ok(())
    })
}
