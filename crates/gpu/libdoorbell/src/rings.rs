//! Rings of frames, which are filled and copied in turn.

use crate::call::{To, run};
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
    /// Its offset in the source buffer.
    pub offset: u64,
    /// Its address. Null for CUDA's memory on the GPU, which the CPU does not see: there kernels fill it.
    pub pointer: *mut c_void,
    /// Its number in the ring.
    pub index: u32,
}

// SAFETY: numbers and a pointer.
unsafe impl Growing for doorbell_frame_t {
    const FIRST: usize = size_of::<doorbell_frame_t>();
}

/// Makes a ring of 2 to 1,024 frames of `bytes` each. The frames are consecutive in both buffers, from the offsets on. The
/// producer fills the next frame while the one before is being copied. A copy engine makes the copies, and up to 32 may be
/// pending.
/// Cost: that of doorbell_transfer_create(). Threads: any may make it. One at a time may use it. Errors: as
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
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(ring) }?;
        let (to, from) = ((Buffer::from_raw(to), to_offset), (Buffer::from_raw(from), from_offset));
        answer.put(of(doorbell)?.ring(to, from, bytes, frames as usize)?.raw());
        Ok(())
    })
}

/// Returns the next frame, for the producer to fill. Another call before doorbell_ring_async() returns the same one.
/// Cost: a few loads and atomic instructions. No lock, no allocation, no system call. Threads: one at a time. Errors:
/// DOORBELL_OVERRUN while the frame's last copy is pending. DOORBELL_BUSY, DOORBELL_HANDLE, DOORBELL_ARGUMENT, DOORBELL_CLOSED,
/// DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_ring_next(
    doorbell: *mut doorbell_t,
    ring: doorbell_ring_t,
    frame: *mut doorbell_frame_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { growing::room(frame) }?;
        let found = of(doorbell)?.ring_next(Ring::from_raw(ring))?;
        let (index, pointer) = (found.index as u32, found.pointer as *mut c_void);
        answer.put(doorbell_frame_t { size: 0, offset: found.offset, pointer, index });
        Ok(())
    })
}

/// Submits the copy of the frame that doorbell_ring_next() returned, and moves on to the next frame. `order` may be null.
/// Cost: that of doorbell_transfer_async(). Threads: one at a time. Errors: DOORBELL_ARGUMENT without a frame, and as
/// doorbell_transfer_async(). After an error, the frame is still the next one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_ring_async(
    doorbell: *mut doorbell_t,
    ring: doorbell_ring_t,
    order: *const doorbell_order_t,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        let ring = Ring::from_raw(ring);
        // SAFETY: the caller guarantees it.
        unsafe { in_order(doorbell, order, ticket, |session, order| session.ring_submit_in(ring, order)) }
    })
}

/// Ends a ring. Its pending copies continue.
/// Cost, threads, errors: as doorbell_transfer_free().
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_ring_free(doorbell: *mut doorbell_t, ring: doorbell_ring_t) -> i32 {
    run(|| of(doorbell)?.ring_release(Ring::from_raw(ring)))
}
