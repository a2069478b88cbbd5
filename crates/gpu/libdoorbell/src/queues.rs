//! Queues of submissions, for threads and event loops that wait for many.

use crate::call::{To, limit, put_if_wanted, run, wrong};
use crate::codes::code;
use crate::growing::Growing;
use crate::session::numbered;
use crate::table::Table;
use crate::types::*;
use std::sync::Arc;
use submit::{Copy, Done, Error, Queue, Session};

/// A submission that is done, or that can never end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_done_t {
    pub ticket: doorbell_ticket_t,
    /// The number that was given to doorbell_queue_add().
    pub user: u64,
    /// DOORBELL_OK, or if its lane ended before it: DOORBELL_KILLED, DOORBELL_STOPPED or DOORBELL_CLOSED.
    pub code: i32,
}

// SAFETY: numbers.
unsafe impl Growing for doorbell_done_t {
    const FIRST: usize = size_of::<doorbell_done_t>();
}

/// Number of entries that are taken at a time.
const CHUNK: usize = 64;
pub(crate) static QUEUES: Table<Queue<&'static Session>> = Table::new(8, "queue");

fn find(doorbell: *const doorbell_t, queue: doorbell_queue_t) -> Result<Arc<Queue<&'static Session>>, Error> {
    QUEUES.find(doorbell, queue)
}

/// Makes a queue for up to `size` submissions of the session at a time, 65,536 at most. Any number of threads may add, take and
/// wait.
/// Cost: some memory. Threads: any. Errors: DOORBELL_ARGUMENT, DOORBELL_LIMIT (4,096 queues in a process), DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_queue_create(
    doorbell: *mut doorbell_t,
    size: usize,
    queue: *mut doorbell_queue_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(queue) }?;
        let (pointer, session) = numbered(doorbell)?;
        answer.put(QUEUES.put(pointer, Queue::new(session, size)?)?);
        Ok(())
    })
}

/// Adds a submission, with a number that is returned with it.
/// Cost: the queue's lock. With a descriptor it may also wake a thread. Threads: any. Errors: DOORBELL_FULL, DOORBELL_HANDLE,
/// DOORBELL_UNAVAILABLE, DOORBELL_CLOSED, DOORBELL_FORKED. A dead lane is not an error here: the submission is returned with that
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_queue_add(
    doorbell: *mut doorbell_t,
    queue: doorbell_queue_t,
    ticket: doorbell_ticket_t,
    user: u64,
) -> i32 {
    run(|| find(doorbell, queue)?.add(Copy::from_raw(ticket), user))
}

/// Takes up to `room` submissions that are done, in the order in which they were added. `count` becomes their number, and
/// `done_size` is sizeof(doorbell_done_t). The call never waits.
/// Cost: the queue's lock, and a look at the pending submissions. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT,
/// DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_queue_poll(
    doorbell: *mut doorbell_t,
    queue: doorbell_queue_t,
    done: *mut doorbell_done_t,
    room: usize,
    done_size: usize,
    count: *mut usize,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(count) }?;
        if done_size < doorbell_done_t::FIRST || room > isize::MAX as usize / done_size {
            return Err(wrong("done_size is not the size of the struct, or room is too large"));
        }
        if room > 0 && (done.is_null() || !done.is_aligned()) {
            return Err(wrong("the array for the answers is null or not aligned"));
        }
        let queue = find(doorbell, queue)?;
        let mut taken = 0;
        while taken < room {
            let mut some: [Done; CHUNK] = std::array::from_fn(|_| Done::default());
            let most = CHUNK.min(room - taken);
            // Those of the rounds before were taken: the next call returns the error.
            let found = match queue.take(&mut some[..most]) {
                Err(_) if taken > 0 => break,
                found => found?,
            };
            for one in &some[..found] {
                let code = one.result.as_ref().err().map_or(crate::codes::DOORBELL_OK, code);
                let entry = doorbell_done_t { ticket: one.copy.raw(), user: one.user, code };
                // SAFETY: the caller has room for so many elements of this size.
                unsafe { done.cast::<u8>().add(taken * done_size).cast::<doorbell_done_t>().write_unaligned(entry) };
                taken += 1;
            }
            if found < most {
                break;
            }
        }
        answer.put(taken);
        Ok(())
    })
}

/// Waits until a submission can be taken. It sleeps between polls.
/// Cost: as doorbell_wait_sleeping(). Threads: any, several at a time. Errors: DOORBELL_TIMEOUT, DOORBELL_HANDLE,
/// DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_queue_wait(doorbell: *mut doorbell_t, queue: doorbell_queue_t, timeout_ns: u64) -> i32 {
    run(|| find(doorbell, queue)?.wait(limit(timeout_ns)))
}

/// Removes a submission that was not taken yet. `was_there` (may be null) reports whether the queue had it. The submission itself
/// continues: only the end of its lane can end it.
/// Cost: the queue's lock. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_queue_remove(
    doorbell: *mut doorbell_t,
    queue: doorbell_queue_t,
    ticket: doorbell_ticket_t,
    was_there: *mut bool,
) -> i32 {
    run(|| {
        let was = find(doorbell, queue)?.remove(Copy::from_raw(ticket))?;
        // SAFETY: the caller guarantees it.
        unsafe { put_if_wanted(was_there, was) };
        Ok(())
    })
}

/// Returns a descriptor for poll, epoll and asyncio. It becomes readable when a submission can be taken, and stays so until
/// doorbell_queue_poll() has taken all that are done. Do not read from it or close it: it ends with the queue. The first
/// descriptor of a session starts a thread that polls the submissions in such queues.
/// Cost: a system call. Threads: any. Errors: DOORBELL_UNAVAILABLE, DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_queue_descriptor(
    doorbell: *mut doorbell_t,
    queue: doorbell_queue_t,
    descriptor: *mut i32,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(descriptor) }?;
        let queue = find(doorbell, queue)?;
        answer.put(std::os::fd::AsRawFd::as_raw_fd(&queue.descriptor()?));
        Ok(())
    })
}

/// Ends a queue, and the waits of all threads on it. The submissions in it continue.
/// Cost: microseconds. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_queue_free(doorbell: *mut doorbell_t, queue: doorbell_queue_t) -> i32 {
    run(|| QUEUES.take(doorbell, queue)?.wake())
}
