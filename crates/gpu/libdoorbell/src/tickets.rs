//! Tickets: waiting until submissions are done.

use crate::call::{To, few, limit, run};
use crate::session::of;
use crate::types::*;
use std::ffi::c_void;
use submit::{Copy, Stream, Wait};

/// Maximum number of tickets of one wait.
const TICKETS: usize = 65_536;

/// C's tickets have the same layout as `submit::Copy`.
const _: () = assert!(size_of::<Copy>() == size_of::<doorbell_ticket_t>());

/// Waits until a submission is done. Its results are then visible to the CPU and to the GPU. DOORBELL_FOREVER waits without a
/// limit.
/// Cost: it spins for some 100 us, then yields between polls. Threads: any, several at a time. Errors: DOORBELL_TIMEOUT,
/// DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_wait(doorbell: *mut doorbell_t, ticket: doorbell_ticket_t, timeout_ns: u64) -> i32 {
    run(|| of(doorbell)?.wait(Copy::from_raw(ticket), limit(timeout_ns)))
}

/// Waits as doorbell_wait() does, but sleeps between polls after `spin_ns`. It is for waits of milliseconds, which would use up a
/// CPU. DOORBELL_FOREVER never sleeps, 0 sleeps immediately.
/// Cost: a wake-up for each poll. The wait ends at most 50 us, or an eighth of its length, late. Threads, errors: as
/// doorbell_wait().
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_wait_sleeping(
    doorbell: *mut doorbell_t,
    ticket: doorbell_ticket_t,
    spin_ns: u64,
    timeout_ns: u64,
) -> i32 {
    let how = if spin_ns == DOORBELL_FOREVER { Wait::Spin } else { Wait::Sleep { spin: limit(spin_ns) } };
    run(|| of(doorbell)?.wait_by(how, Copy::from_raw(ticket), limit(timeout_ns)))
}

/// Waits until one of up to 65,536 submissions is done, on any lanes. `index` becomes its position, the first one if several are done.
/// Cost: as doorbell_wait(), and a look at each. Threads: any. Errors: as doorbell_wait(), if none is done and one can never end.
/// DOORBELL_ARGUMENT for an empty array, DOORBELL_LIMIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_wait_any(
    doorbell: *mut doorbell_t,
    tickets: *const doorbell_ticket_t,
    count: usize,
    timeout_ns: u64,
    index: *mut usize,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let (answer, copies) = unsafe { (To::new(index)?, few(tickets.cast::<Copy>(), count, TICKETS)?) };
        answer.put(of(doorbell)?.wait_any(copies, limit(timeout_ns))?);
        Ok(())
    })
}

/// Waits until all of up to 65,536 submissions are done, on any lanes.
/// Cost, threads: as doorbell_wait_any(). Errors: DOORBELL_LIMIT, and as doorbell_wait(), as soon as one of them can never end:
/// doorbell_poll() finds which one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_wait_all(
    doorbell: *mut doorbell_t,
    tickets: *const doorbell_ticket_t,
    count: usize,
    timeout_ns: u64,
) -> i32 {
    // SAFETY: the caller guarantees it.
    run(|| of(doorbell)?.wait_all(unsafe { few(tickets.cast::<Copy>(), count, TICKETS) }?, limit(timeout_ns)))
}

/// Reports whether a submission is done.
/// Cost: a load, and two atomic instructions. No lock, no allocation, no system call. Threads: any. Errors: as doorbell_wait()
/// except DOORBELL_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_poll(doorbell: *mut doorbell_t, ticket: doorbell_ticket_t, done: *mut bool) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(done) }?;
        answer.put(of(doorbell)?.poll(Copy::from_raw(ticket))?);
        Ok(())
    })
}

/// Returns how many submissions of the ticket's lane, up to this one, are not done. 0 means that this one is done.
/// Cost, threads, errors: as doorbell_poll().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_pending(doorbell: *mut doorbell_t, ticket: doorbell_ticket_t, left: *mut u64) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(left) }?;
        answer.put(of(doorbell)?.query(Copy::from_raw(ticket))?);
        Ok(())
    })
}

/// Makes all later work of a CUDA stream (CUstream, cudaStream_t, or null for the default stream) wait for a submission. The lane
/// writes a word after the submission, and the stream gets a wait for that word. A copy by stores or loads is already done, so
/// the stream gets no wait for it. If the lane dies before it has written the word, a doorbell thread writes it within a tenth of
/// a second. Then the stream continues, and the ticket gives the error.
/// Cost: a submission, and a call of cuStreamWaitValue32 with CUDA's locks. Threads: any. Errors: those of doorbell_copy_async()
/// for streams, and DOORBELL_BUSY while another thread submits on the lane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_stream_wait(
    doorbell: *mut doorbell_t,
    stream: *mut c_void,
    ticket: doorbell_ticket_t,
) -> i32 {
    // SAFETY: the caller guarantees it.
    run(|| of(doorbell)?.stream_wait(unsafe { Stream::from_raw(stream) }, Copy::from_raw(ticket)))
}
