//! Messages to a running kernel.

use crate::call::{To, limit, many, put_if_wanted, run};
use crate::session::of;
use crate::types::*;
use std::ffi::c_void;
use submit::{Buffer, Message, Session};

/// Maximum number of bytes of a message, and of its answer.
pub const DOORBELL_MESSAGE_BYTES: usize = 56;

const _: () = assert!(Session::MESSAGE == DOORBELL_MESSAGE_BYTES);

/// Makes a mailbox for messages to a running kernel: 64 bytes of GPU memory, and 64 bytes of host memory for the kernel's
/// answers, both at multiples of 64. Both are set to 0. Launch the kernel after this call. A message is one line, written as a
/// whole: 56 bytes (missing ones are 0), a number, and a sum. Word w[15] is the sum, modulo 2^32, of w[i] * (2 * i + 1) *
/// 0x9e3779b1 over the words w[0] to w[14] (bytes and number). A kernel reads the line (four loads of 16 bytes, ld.relaxed.sys).
/// It takes the message if the number is not the last one and the sum is right. It answers with a line of the same form and
/// number (st.relaxed.sys). Only the newest message counts: one that the kernel has not taken is overwritten. A message is not a
/// copy, and no copy is ordered after it.
/// Cost: that of doorbell_transfer_create(), one descriptor, a write to the GPU's memory and a load from it. Threads: any. It
/// waits for the thread's lane. Errors: DOORBELL_ARGUMENT for other memory or another place. DOORBELL_DRIVER if the mailbox
/// cannot be mapped. DOORBELL_LIMIT (256 for each lane), DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_HANDLE, DOORBELL_CLOSED,
/// DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED.
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
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(message) }?;
        let (to, from) = ((Buffer::from_raw(mailbox), mailbox_offset), (Buffer::from_raw(answers), answers_offset));
        answer.put(of(doorbell)?.message(to, from)?.raw());
        Ok(())
    })
}

/// Sends up to 56 bytes. Messages are numbered 1, 2 and so on. `number` may be null.
/// Cost: one store of 64 bytes to the GPU. No lock, no allocation, no system call. Threads: any. DOORBELL_BUSY while another
/// thread submits on the lane. Errors: DOORBELL_BUSY and DOORBELL_FULL: try again. DOORBELL_ARGUMENT, DOORBELL_FREED,
/// DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED. After an error, the message was not sent.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_message_send(
    doorbell: *mut doorbell_t,
    message: doorbell_message_t,
    data: *const c_void,
    bytes: usize,
    number: *mut u32,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let data = unsafe { many(data.cast::<u8>(), bytes) }?;
        let sent = of(doorbell)?.send(Message::from_raw(message), data)?;
        // SAFETY: the caller guarantees it.
        unsafe { put_if_wanted(number, sent) };
        Ok(())
    })
}

/// Waits until the kernel has answered the message of this number or a later one, and returns the answer's 56 bytes. `answer` may
/// be null. A timeout of 0 looks once.
/// Cost: it reads host memory, spins for some 100 us, then yields. No lock, no allocation. Threads: any. Errors:
/// DOORBELL_TIMEOUT, DOORBELL_FREED, DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
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

/// Ends a mailbox. The kernel gets no message: first send the one that ends it.
/// Cost, threads, errors: as doorbell_transfer_free().
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_message_free(doorbell: *mut doorbell_t, message: doorbell_message_t) -> i32 {
    run(|| of(doorbell)?.message_release(Message::from_raw(message)))
}
