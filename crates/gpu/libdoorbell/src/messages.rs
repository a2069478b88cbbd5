//! Messages to a running kernel.

use crate::call::{To, limit, many, put_if_wanted, run};
use crate::session::of;
use crate::types::*;
use std::ffi::c_void;
use submit::{Buffer, Message, Session};

/// Most bytes of a message, and of its answer.
pub const DOORBELL_MESSAGE_BYTES: usize = 56;

const _: () = assert!(Session::MESSAGE == DOORBELL_MESSAGE_BYTES);

/// A mailbox for messages to a running kernel: 64 bytes of video memory, and 64 bytes of host memory for its answers, both at multiples of 64.
/// Both are set to 0; launch the kernel then. A message is one line, written as a whole: 56 bytes (those that are not given are 0), a number, and a
/// sum. The words w[0] to w[14] (bytes and number) are summed up, modulo 2^32, as w[i] * (2 * i + 1) * 0x9e3779b1; w[15] is that sum. A kernel looks at the
/// line (four loads of 16 bytes, ld.relaxed.sys), takes it when the number is not the last one and the sum is right, and answers with a
/// line of the same form and number (st.relaxed.sys). The newest message counts: one that was not taken is written over. A message
/// is no copy, and no copy is ordered behind it.
/// Cost: that of doorbell_transfer_create(), and one descriptor; a write to the GPU's memory and a load from it. Threads: any; it waits for the thread's
/// lane. Errors: DOORBELL_ARGUMENT for other memory or another place, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_LIMIT (256 for each lane),
/// DOORBELL_DRIVER where the mailbox cannot be mapped, DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_message_create(
    doorbell: *mut doorbell_t,
    mailbox: doorbell_buffer_t,
    mailbox_offset: u64,
    answers: doorbell_buffer_t,
    answers_offset: u64,
    message: *mut doorbell_message_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let answer = unsafe { To::new(message) }?;
        let (to, from) = ((Buffer::from_raw(mailbox), mailbox_offset), (Buffer::from_raw(answers), answers_offset));
        answer.put(of(doorbell)?.message(to, from)?.raw());
        Ok(())
    })
}

/// Sends up to 56 bytes. Messages are numbered 1, 2, ..; `number` may be null.
/// Cost: one store of 64 bytes to the GPU; no lock, no allocation, no system call. Threads: any; DOORBELL_BUSY while another submits on the lane.
/// Errors: DOORBELL_BUSY and DOORBELL_FULL, after which it may be tried again; DOORBELL_ARGUMENT, DOORBELL_FREED, DOORBELL_HANDLE,
/// DOORBELL_CLOSED, DOORBELL_FORKED. Nothing was sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_message_send(
    doorbell: *mut doorbell_t,
    message: doorbell_message_t,
    data: *const c_void,
    bytes: usize,
    number: *mut u32,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let data = unsafe { many(data.cast::<u8>(), bytes) }?;
        let sent = of(doorbell)?.send(Message::from_raw(message), data)?;
        // SAFETY: the caller's.
        unsafe { put_if_wanted(number, sent) };
        Ok(())
    })
}

/// Waits until the kernel has answered the message of this number or a later one, and gives the answer's 56 bytes; `answer` may be null. A
/// timeout of 0 looks once.
/// Cost: it reads host memory, spins for some 100 us, then yields; no lock, no allocation. Threads: any. Errors: DOORBELL_TIMEOUT,
/// DOORBELL_FREED, DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_message_wait(
    doorbell: *mut doorbell_t,
    message: doorbell_message_t,
    number: u32,
    answer: *mut c_void,
    timeout_ns: u64,
) -> i32 {
    run(|| {
        let bytes = of(doorbell)?.answered(Message::from_raw(message), number, limit(timeout_ns))?;
        if !answer.is_null() {
            // SAFETY: the caller has room for 56 bytes.
            unsafe { answer.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        Ok(())
    })
}

/// Ends a mailbox. The kernel is told nothing: send it what it ends by first.
/// Cost, threads, errors: as doorbell_transfer_free().
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_message_free(doorbell: *mut doorbell_t, message: doorbell_message_t) -> i32 {
    run(|| of(doorbell)?.message_release(Message::from_raw(message)))
}
