//! Handles and structs that several parts use.

use crate::call::{To, many};
use crate::growing::{self, Growing};
use crate::session::of;
use std::ffi::c_void;
use submit::{Buffer, Copy, Error, Event, InOrder, Session, Stream};

/// A session: a GPU, doorbell's channels on it, and all handles that belong to it. A process may have several, on one GPU or on
/// many.
/// The pointer is a number that no other session of the process ever has, and no address: a freed or wrong one gives an error.
pub struct doorbell_t(());

/// Memory that copies may name. 0 is never a valid handle.
pub type doorbell_buffer_t = u64;
/// A prepared copy. 0 is never a valid handle.
pub type doorbell_transfer_t = u64;
/// A submission, to wait for. It needs no release. 0 is never a valid ticket.
pub type doorbell_ticket_t = u64;
/// A mailbox of a running kernel. 0 is never a valid handle.
pub type doorbell_message_t = u64;
/// A ring of frames, which are copied in turn. 0 is never a valid handle.
pub type doorbell_ring_t = u64;
/// A prepared CUDA graph, or a chain. 0 is never a valid handle.
pub type doorbell_graph_t = u64;
/// A queue of submissions, to wait for many of them together. 0 is never a valid handle.
pub type doorbell_queue_t = u64;
/// A thread that launches a chain for each frame. 0 is never a valid handle.
pub type doorbell_loop_t = u64;

/// A wait without a limit.
pub const DOORBELL_FOREVER: u64 = u64::MAX;

/// doorbell_order_t.flags: wait for all work that `stream` has queued now. Without this flag `stream` is ignored, because null is
/// the default stream.
pub const DOORBELL_ORDER_STREAM: u32 = 1;
/// doorbell_order_t.flags, with DOORBELL_ORDER_STREAM: all later work of `stream` also waits for the submission, as after
/// doorbell_stream_wait(). So the submission has this place in the stream. Set the ticket to 0 before the call. If the call
/// returns an error and the ticket is not 0, it was submitted, but the stream does not wait: wait for the ticket.
pub const DOORBELL_ORDER_STREAM_WAITS: u32 = 2;

/// What a submission waits for on the GPU. Every function that submits takes one, or null for no order. Set all of it to 0, then
/// `size`, then the fields that you need. Later submissions on the same lane also wait.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_order_t {
    /// sizeof(doorbell_order_t).
    pub size: usize,
    /// 0, DOORBELL_ORDER_STREAM, or that and DOORBELL_ORDER_STREAM_WAITS.
    pub flags: u32,
    /// Number of tickets, up to 64.
    pub ticket_count: u32,
    /// Submissions of the same session. If the lane of one dies before it is done, the waiting submission never runs: its ticket
    /// gives DOORBELL_STOPPED.
    pub tickets: *const doorbell_ticket_t,
    /// A CUDA stream (CUstream, cudaStream_t). The call has CUDA write a word in the stream, which takes CUDA's locks. There is
    /// no wait for an idle stream: then the call only queries it.
    pub stream: *mut c_void,
    /// A CUDA event (CUevent, cudaEvent_t), or null. It costs two CUDA calls. Waits for events run one after the other.
    pub event: *mut c_void,
    /// Only for doorbell_copy_batch_async() and doorbell_pages_async(): the buffer with a word of 32 bits, or 0. The copies begin when the word has reached
    /// `wait_value`, counting up and wrapping.
    pub wait_buffer: doorbell_buffer_t,
    /// A multiple of 4.
    pub wait_offset: u64,
    /// Only for doorbell_copy_batch_async() and doorbell_pages_async(): the buffer with a word of 32 bits, or 0. The GPU writes `signal_value` there when
    /// all copies are done.
    pub signal_buffer: doorbell_buffer_t,
    /// A multiple of 4.
    pub signal_offset: u64,
    pub wait_value: u32,
    pub signal_value: u32,
}

// SAFETY: numbers and pointers.
unsafe impl Growing for doorbell_order_t {
    const FIRST: usize = size_of::<doorbell_order_t>();
}

/// Maximum number of tickets that one submission may wait for.
const TICKETS: usize = 64;

/// Submits in the order that the program gives, and returns the ticket.
///
/// # Safety
/// `order` is null, or a struct that begins with its size and has valid pointers; `ticket` is null or may be written.
#[inline]
pub(crate) unsafe fn in_order(
    doorbell: *const doorbell_t,
    order: *const doorbell_order_t,
    ticket: *mut doorbell_ticket_t,
    submit: impl FnOnce(&'static Session, &InOrder<'_>) -> Result<Copy, Error>,
) -> Result<(), Error> {
    // SAFETY: the caller guarantees it.
    let answer = unsafe { To::new(ticket) }?;
    let session = of(doorbell)?;
    if order.is_null() {
        answer.put(submit(session, &InOrder::default())?.raw());
        return Ok(());
    }
    // SAFETY: the caller guarantees it.
    unsafe { given(session, order, answer, submit) }
}

/// # Safety
/// As [`in_order`].
#[inline(never)]
unsafe fn given(
    session: &'static Session,
    order: *const doorbell_order_t,
    answer: To<doorbell_ticket_t>,
    submit: impl FnOnce(&'static Session, &InOrder<'_>) -> Result<Copy, Error>,
) -> Result<(), Error> {
    const KNOWN: u32 = DOORBELL_ORDER_STREAM | DOORBELL_ORDER_STREAM_WAITS;
    // SAFETY: the caller guarantees it, and it is not null.
    let order = unsafe { growing::one(order) }?.ok_or(Error::Argument("there is no order"))?;
    if order.flags & !KNOWN != 0 || order.flags == DOORBELL_ORDER_STREAM_WAITS {
        return Err(Error::Argument(
            "order.flags has a flag that this version does not know, or STREAM_WAITS without STREAM",
        ));
    }
    let count = order.ticket_count as usize;
    if count > TICKETS {
        return Err(Error::Limit(TICKETS));
    }
    let mut after = [Copy::from_raw(0); TICKETS];
    // SAFETY: the caller guarantees it.
    for (copy, ticket) in after.iter_mut().zip(unsafe { many(order.tickets, count) }?) {
        *copy = Copy::from_raw(*ticket);
    }
    let word = |buffer: doorbell_buffer_t, at, value| (buffer != 0).then(|| (Buffer::from_raw(buffer), at, value));
    // SAFETY: the caller guarantees it.
    let stream = (order.flags & DOORBELL_ORDER_STREAM != 0).then(|| unsafe { Stream::from_raw(order.stream) });
    let copy = submit(
        session,
        &InOrder {
            after: &after[..count],
            stream,
            // SAFETY: the caller guarantees it.
            event: (!order.event.is_null()).then(|| unsafe { Event::from_raw(order.event) }),
            word: word(order.wait_buffer, order.wait_offset, order.wait_value),
            signal: word(order.signal_buffer, order.signal_offset, order.signal_value),
        },
    )?;
    answer.put(copy.raw());
    match stream {
        Some(stream) if order.flags & DOORBELL_ORDER_STREAM_WAITS != 0 => session.stream_wait(stream, copy),
        _ => Ok(()),
    }
}
