//! What is submitted, and when it is done.

use crate::call::{To, limit, many, run};
use crate::session::of;
use crate::types::*;
use std::ffi::c_void;
use submit::{Copy, Stream, Wait};

/// C's tickets have the layout of submit's.
const _: () = assert!(size_of::<Copy>() == size_of::<doorbell_ticket_t>());

/// Waits until a submission is done: what it wrote is there then, for the CPU and for the GPU. DOORBELL_FOREVER waits without
/// limit.
/// Cost: it spins for some 100 us, then yields between polls. Threads: any, several at a time. Errors: DOORBELL_TIMEOUT,
/// DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_wait(doorbell: *mut doorbell_t, ticket: doorbell_ticket_t, timeout_ns: u64) -> i32 {
    run(|| of(doorbell)?.wait(Copy::from_raw(ticket), limit(timeout_ns)))
}

/// As doorbell_wait(), and sleeps after `spin_ns`: for waits of milliseconds, which would use up a CPU. DOORBELL_FOREVER never sleeps, 0 sleeps at once.
/// Cost: a thread that sleeps wakes up to look, at most 50 us or an eighth of the wait late. Threads, errors: as doorbell_wait().
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

/// Waits until one of several submissions is done, whichever lanes they are on; `index` says which. Of several that are done it is the first.
/// Cost: as doorbell_wait(), and a look at each. Threads: any. Errors: as doorbell_wait(), where none is done and one never will be; DOORBELL_ARGUMENT for none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_wait_any(
    doorbell: *mut doorbell_t,
    tickets: *const doorbell_ticket_t,
    count: usize,
    timeout_ns: u64,
    index: *mut usize,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let (answer, copies) = unsafe { (To::new(index)?, many(tickets.cast::<Copy>(), count)?) };
        answer.put(of(doorbell)?.wait_any(copies, limit(timeout_ns))?);
        Ok(())
    })
}

/// Waits until all of several submissions are done, whichever lanes they are on.
/// Cost, threads: as doorbell_wait_any(). Errors: as doorbell_wait(), as soon as one of them never will be done: doorbell_poll() says of which.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_wait_all(
    doorbell: *mut doorbell_t,
    tickets: *const doorbell_ticket_t,
    count: usize,
    timeout_ns: u64,
) -> i32 {
    // SAFETY: the caller's.
    run(|| of(doorbell)?.wait_all(unsafe { many(tickets.cast::<Copy>(), count) }?, limit(timeout_ns)))
}

/// Whether a submission is done.
/// Cost: a load, and two atomic instructions; no lock, no allocation, no system call. Threads: any. Errors: as doorbell_wait() but DOORBELL_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_poll(doorbell: *mut doorbell_t, ticket: doorbell_ticket_t, done: *mut bool) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(done) }?;
        answer.put(of(doorbell)?.poll(Copy::from_raw(ticket))?);
        Ok(())
    })
}

/// How many submissions of the ticket's lane, up to this one, are not done: 0 when it is done.
/// Cost, threads, errors: as doorbell_poll().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_pending(doorbell: *mut doorbell_t, ticket: doorbell_ticket_t, left: *mut u64) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(left) }?;
        answer.put(of(doorbell)?.query(Copy::from_raw(ticket))?);
        Ok(())
    })
}

/// What is put into the CUDA stream (CUstream, cudaStream_t; null: the default stream) from now on waits for a submission: the lane writes a word behind it, and a wait for that goes
/// into the stream. Of a copy by stores or loads nothing goes into the stream: it is over. If the lane dies before it has written
/// the word, a thread of doorbell's writes it within a tenth of a second: the stream goes on, and the ticket answers the error.
/// Cost: a submission, and a call of cuStreamWaitValue32 with CUDA's locks. Threads: any. Errors: those of doorbell_copy_async() for streams, and
/// DOORBELL_BUSY while another thread submits on the lane.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_stream_wait(
    doorbell: *mut doorbell_t,
    stream: *mut c_void,
    ticket: doorbell_ticket_t,
) -> i32 {
    // SAFETY: the caller's.
    run(|| of(doorbell)?.stream_wait(unsafe { Stream::from_raw(stream) }, Copy::from_raw(ticket)))
}
