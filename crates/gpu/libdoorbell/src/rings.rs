//! Frames that take turns.

use crate::call::{To, run, wrong};
use crate::growing::{self, Growing};
use crate::session::of;
use crate::types::*;
use std::ffi::c_void;
use submit::{Buffer, Ring};

/// A frame of a ring, for the producer to fill.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_frame_t {
    /// sizeof(doorbell_frame_t): set it before the call.
    pub size: usize,
    /// Where it is in the source buffer.
    pub offset: u64,
    /// Its address; null in CUDA's memory on the GPU, which the CPU does not see: kernels fill it.
    pub pointer: *mut c_void,
    /// Which of the ring's.
    pub index: u32,
}

// SAFETY: numbers and a pointer.
unsafe impl Growing for doorbell_frame_t {
    const FIRST: usize = size_of::<doorbell_frame_t>();
}

/// A ring of 2 to 1,024 frames of `bytes` each, one behind the other in both buffers from the offsets on: the producer fills the
/// next one while the copy of the one before is under way. It goes by the copy engine; up to 32 frames may be under way.
/// Cost: that of doorbell_transfer_create(). Threads: any may make it; one at a time uses it. Errors: as
/// doorbell_transfer_create().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_ring_create(
    doorbell: *mut doorbell_t,
    to: doorbell_buffer_t,
    to_offset: u64,
    from: doorbell_buffer_t,
    from_offset: u64,
    bytes: u64,
    frames: u32,
    ring: *mut doorbell_ring_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(ring) }?;
        let (to, from) = ((Buffer::from_raw(to), to_offset), (Buffer::from_raw(from), from_offset));
        answer.put(of(doorbell)?.ring(to, from, bytes, frames as usize)?.raw());
        Ok(())
    })
}

/// The next frame, for the producer to fill. Asked again before doorbell_ring_async() it is the same one.
/// Cost: a few loads and atomic instructions; no lock, no allocation, no system call. Threads: one at a time. Errors: DOORBELL_OVERRUN while its last copy is
/// under way, DOORBELL_BUSY, DOORBELL_HANDLE, DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED,
/// DOORBELL_STOPPED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_ring_next(
    doorbell: *mut doorbell_t,
    ring: doorbell_ring_t,
    frame: *mut doorbell_frame_t,
) -> i32 {
    run(|| {
        if frame.is_null() {
            return Err(wrong("the pointer for the answer is null"));
        }
        let found = of(doorbell)?.ring_next(Ring::from_raw(ring))?;
        let (index, pointer) = (found.index as u32, found.pointer as *mut c_void);
        // SAFETY: the caller's.
        unsafe { growing::answer(frame, doorbell_frame_t { size: 0, offset: found.offset, pointer, index }) }
    })
}

/// Submits the copy of the frame that doorbell_ring_next() gave, and goes on to the next. `order` may be null.
/// Cost: that of doorbell_transfer_async(). Threads: one at a time. Errors: DOORBELL_ARGUMENT without a frame, and as doorbell_transfer_async(); the
/// frame stays the next then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_ring_async(
    doorbell: *mut doorbell_t,
    ring: doorbell_ring_t,
    order: *const doorbell_order_t,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        let ring = Ring::from_raw(ring);
        // SAFETY: the caller's.
        unsafe { in_order(doorbell, order, ticket, |session, order| session.ring_submit_in(ring, order)) }
    })
}

/// Ends a ring. What of it is under way goes on.
/// Cost, threads, errors: as doorbell_transfer_free().
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_ring_free(doorbell: *mut doorbell_t, ring: doorbell_ring_t) -> i32 {
    run(|| of(doorbell)?.ring_release(Ring::from_raw(ring)))
}
