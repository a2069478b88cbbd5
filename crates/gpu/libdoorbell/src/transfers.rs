//! Prepared copies, which are submitted often.

use crate::call::{To, many, run};
use crate::session::of;
use crate::types::*;
use std::ffi::c_void;
use submit::{Buffer, Transfer};

/// Prepares a copy, to submit it often. It is checked here, once, and made in the way that doorbell_copy_explain() reports. It
/// belongs to this thread's lane.
/// Cost: some hundred microseconds. It allocates, and requests memory from the kernel driver. For memory from
/// doorbell_buffer_register() it also checks with CUDA that it is still the same allocation: it waits if another thread is in a
/// long CUDA call. Threads: any. It waits for the thread's lane. Errors: DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED,
/// DOORBELL_ARGUMENT (a length of 0, or more than 1 GiB), DOORBELL_LIMIT (4,096 for each lane), DOORBELL_DRIVER,
/// DOORBELL_CLOSED, DOORBELL_FORKED.
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
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(transfer) }?;
        let (to, from) = ((Buffer::from_raw(to), to_offset), (Buffer::from_raw(from), from_offset));
        answer.put(of(doorbell)?.prepare(to, from, bytes)?.raw());
        Ok(())
    })
}

/// Prepares a copy of up to 64 KiB whose bytes are given at each submission. They are part of the command stream and need no
/// buffer, for example for parameters of a running kernel. All such copies share one lane, on the graphics engine.
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
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(transfer) }?;
        answer.put(of(doorbell)?.prepare_bytes((Buffer::from_raw(to), to_offset), bytes)?.raw());
        Ok(())
    })
}

/// Submits a copy that doorbell_transfer_create() has prepared. Up to 32 submissions of a transfer may be pending. `order` may be
/// null. With an order, a transfer that the CPU stores, loads or reads (doorbell_copy_explain()) uses a copy engine instead, on
/// any free lane. If that returns DOORBELL_FULL, later submissions on the lane may wait for the order all the same.
/// Cost: 0.069 to 0.095 us on an H100 (the 95 % interval of p50, on a bare channel), and some words for each ticket of an order.
/// For stores and loads, the whole copy. No lock, no allocation, no system call, unless an order names a stream or an event.
/// Threads: any. If two threads submit on the same lane at the same instant, the second does not wait but gets DOORBELL_BUSY.
/// Errors: DOORBELL_BUSY and DOORBELL_FULL: try again. DOORBELL_HANDLE, DOORBELL_FREED, DOORBELL_ARGUMENT, DOORBELL_CLOSED,
/// DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED. For an order also those of doorbell_copy_async(). After an error, the copy was
/// not submitted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_transfer_async(
    doorbell: *mut doorbell_t,
    transfer: doorbell_transfer_t,
    order: *const doorbell_order_t,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        let transfer = Transfer::from_raw(transfer);
        // SAFETY: the caller guarantees it.
        unsafe { in_order(doorbell, order, ticket, |session, order| session.submit_in(transfer, None, order)) }
    })
}

/// Submits a copy that doorbell_transfer_create_bytes() has prepared, with the bytes at `data`, as many as were prepared. They
/// are read before this returns. Otherwise as doorbell_transfer_async().
/// Cost: that of doorbell_transfer_async(), and storing the bytes. Threads, errors: as doorbell_transfer_async().
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
        // SAFETY: the caller guarantees it.
        let data = unsafe { many(data.cast::<u8>(), bytes) }?;
        let transfer = Transfer::from_raw(transfer);
        // SAFETY: the caller guarantees it.
        unsafe { in_order(doorbell, order, ticket, |session, order| session.submit_in(transfer, Some(data), order)) }
    })
}

/// Ends a transfer. Its pending submissions continue.
/// Cost: microseconds. It frees memory. Threads: any. It waits for the transfer's lane. Errors: DOORBELL_HANDLE, DOORBELL_CLOSED,
/// DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_transfer_free(doorbell: *mut doorbell_t, transfer: doorbell_transfer_t) -> i32 {
    run(|| of(doorbell)?.release(Transfer::from_raw(transfer)))
}
