//! Copies that are made ready once and submitted often.

use crate::call::{To, many, run};
use crate::session::of;
use crate::types::*;
use std::ffi::c_void;
use submit::{Buffer, Transfer};

/// Makes a copy ready, to be submitted often: it is checked here, once, and goes the way that doorbell_copy_explain() says. It belongs to the lane of the thread that makes it.
/// Cost: some hundred microseconds; it allocates, and asks the kernel driver for memory. Threads: any; it waits for the thread's
/// lane. Errors: DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_ARGUMENT (no bytes, or more than 1 GiB),
/// DOORBELL_LIMIT (4,096 for each lane), DOORBELL_DRIVER, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_transfer_create(
    doorbell: *mut doorbell_t,
    to: doorbell_buffer_t,
    to_offset: u64,
    from: doorbell_buffer_t,
    from_offset: u64,
    bytes: u64,
    transfer: *mut doorbell_transfer_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(transfer) }?;
        let (to, from) = ((Buffer::from_raw(to), to_offset), (Buffer::from_raw(from), from_offset));
        answer.put(of(doorbell)?.prepare(to, from, bytes)?.raw());
        Ok(())
    })
}

/// Makes a copy of up to 64 KiB ready whose bytes are given at each submission: they travel in the command stream, and need no
/// buffer. Good for parameters of a running kernel. All of these share one lane, on the graphics engine.
/// Cost, threads, errors: as doorbell_transfer_create().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_transfer_create_bytes(
    doorbell: *mut doorbell_t,
    to: doorbell_buffer_t,
    to_offset: u64,
    bytes: u64,
    transfer: *mut doorbell_transfer_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(transfer) }?;
        answer.put(of(doorbell)?.prepare_bytes((Buffer::from_raw(to), to_offset), bytes)?.raw());
        Ok(())
    })
}

/// Submits what doorbell_transfer_create() made ready. Up to 32 submissions of a transfer may be under way. `order` may be null. With an order, a transfer that the
/// CPU stores, loads or reads (doorbell_copy_explain()) goes by a copy engine instead, on a lane that is free; where this is DOORBELL_FULL, later submissions
/// of the lane may wait all the same.
/// Cost: some 60 ns (H100 and H200) and some words for each ticket of an order, by stores or loads the whole copy; no lock, no allocation, no system call, unless an order names
/// a stream or an event. Threads: any; two that submit on the same lane at the same instant
/// do not wait for each other: the second gets DOORBELL_BUSY. Errors: DOORBELL_BUSY and DOORBELL_FULL, after which it may be tried
/// again; DOORBELL_HANDLE, DOORBELL_FREED, DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED; of an order those of
/// doorbell_copy_async(). Nothing was submitted then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_transfer_async(
    doorbell: *mut doorbell_t,
    transfer: doorbell_transfer_t,
    order: *const doorbell_order_t,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        let transfer = Transfer::from_raw(transfer);
        // SAFETY: the caller's.
        unsafe { in_order(doorbell, order, ticket, |session, order| session.submit_in(transfer, None, order)) }
    })
}

/// As doorbell_transfer_async(), with the bytes of what doorbell_transfer_create_bytes() made ready: as many as were prepared. They are read before
/// this returns.
/// Cost: that of doorbell_transfer_async(), and the storing of the bytes. Threads, errors: as doorbell_transfer_async().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_transfer_bytes_async(
    doorbell: *mut doorbell_t,
    transfer: doorbell_transfer_t,
    data: *const c_void,
    bytes: usize,
    order: *const doorbell_order_t,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let data = unsafe { many(data.cast::<u8>(), bytes) }?;
        let transfer = Transfer::from_raw(transfer);
        // SAFETY: the caller's.
        unsafe { in_order(doorbell, order, ticket, |session, order| session.submit_in(transfer, Some(data), order)) }
    })
}

/// Ends a transfer. What of it is under way goes on.
/// Cost: microseconds; it frees memory. Threads: any; it waits for the transfer's lane. Errors: DOORBELL_HANDLE, DOORBELL_CLOSED,
/// DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_transfer_free(doorbell: *mut doorbell_t, transfer: doorbell_transfer_t) -> i32 {
    run(|| of(doorbell)?.release(Transfer::from_raw(transfer)))
}
