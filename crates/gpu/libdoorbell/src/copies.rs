//! Copies that are written when they are submitted.

use crate::call::{limit, put_if_wanted, put_text, run};
use crate::growing::{self, Growing};
use crate::session::of;
use crate::types::*;
use std::ffi::c_char;
use submit::{Buffer, Executor, Piece};

/// doorbell_copy_explain: by a copy engine.
pub const DOORBELL_BY_ENGINE: u32 = 0;
/// doorbell_copy_explain: the bytes travel in the command stream.
pub const DOORBELL_BY_INLINE: u32 = 1;
/// doorbell_copy_explain: by stores of the CPU, which are there when the submission returns.
pub const DOORBELL_BY_STORES: u32 = 2;
/// doorbell_copy_explain: by loads of the CPU, which are there when the submission returns.
pub const DOORBELL_BY_LOADS: u32 = 3;

/// One piece of a batch.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_piece_t {
    pub to: doorbell_buffer_t,
    pub to_offset: u64,
    pub from: doorbell_buffer_t,
    pub from_offset: u64,
    pub bytes: u64,
}

// SAFETY: numbers.
unsafe impl Growing for doorbell_piece_t {
    const FIRST: usize = size_of::<doorbell_piece_t>();
}

/// C's pieces have the layout of submit's.
const _: () = assert!(
    size_of::<Piece>() == size_of::<doorbell_piece_t>() && align_of::<Piece>() == align_of::<doorbell_piece_t>()
);

/// Copies bytes from one buffer to another and waits until they are there; for a lane, and for room on it, too.
/// Cost: that of doorbell_copy_async() and the copy. It spins for some 100 us, then yields. Threads: any. Errors: those of
/// doorbell_copy_async() but DOORBELL_BUSY and DOORBELL_FULL, and DOORBELL_TIMEOUT: it may be under way then, and nobody has a ticket for it; its memory is free
/// when doorbell_buffer_free() has returned. Who wants to go on waiting takes doorbell_copy_async().
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_copy(
    doorbell: *mut doorbell_t,
    to: doorbell_buffer_t,
    to_offset: u64,
    from: doorbell_buffer_t,
    from_offset: u64,
    bytes: u64,
    timeout_ns: u64,
) -> i32 {
    run(|| {
        let (to, from) = ((Buffer::from_raw(to), to_offset), (Buffer::from_raw(from), from_offset));
        of(doorbell)?.copy(to, from, bytes, limit(timeout_ns))
    })
}

/// Submits a copy from one buffer to another. With a profile, sizes for which it names stores or loads of the CPU go by these, and are there when this returns:
/// see doorbell_copy_explain(). All else goes to the thread's lane, or to any other where another thread submits on that
/// one now; so copies end in any order, unless the program waits for the one before, or `order` says so. `order` may be null.
/// Cost: a submission, whose words are written and checked: more than doorbell_transfer_async(); no lock, no allocation, no system call, unless memory was unmapped since
/// or `order` names a stream or an event. (A thread's very first call may
/// allocate: the loader makes room for its variables.) Threads: any. Errors: DOORBELL_BUSY and DOORBELL_FULL, after which it may be
/// tried again; DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED,
/// DOORBELL_KILLED, DOORBELL_STOPPED; of a stream or event DOORBELL_UNAVAILABLE without CUDA, DOORBELL_CUDA, and DOORBELL_FULL while 1,024 orders of streams are
/// under way. Nothing was submitted then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_copy_async(
    doorbell: *mut doorbell_t,
    to: doorbell_buffer_t,
    to_offset: u64,
    from: doorbell_buffer_t,
    from_offset: u64,
    bytes: u64,
    order: *const doorbell_order_t,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        let piece = Piece {
            to: Buffer::from_raw(to),
            to_at: to_offset,
            from: Buffer::from_raw(from),
            from_at: from_offset,
            bytes,
        };
        // SAFETY: the caller's.
        unsafe { in_order(doorbell, order, ticket, |session, order| session.copy_in(&[piece], order)) }
    })
}

/// Submits up to 4,096 copies behind one doorbell, with one ticket for all. `piece_size` is sizeof(doorbell_piece_t). They may overtake one another: none may
/// need what another writes. The first says to the GPU or from it; others may go the other way, on the same copy engine. With an `order` there may be no
/// pieces: the submission only waits, and signals.
/// Cost: that of doorbell_copy_async(), and the words of each piece. Threads: any.
/// Errors: as doorbell_copy_async(), and DOORBELL_LIMIT. None of the pieces was submitted then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_copy_batch_async(
    doorbell: *mut doorbell_t,
    pieces: *const doorbell_piece_t,
    count: usize,
    piece_size: usize,
    order: *const doorbell_order_t,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller's.
        let pieces = unsafe { growing::array(pieces, count, piece_size) }?;
        // SAFETY: a piece has the layout of submit's (asserted above), whose handles are numbers.
        let pieces = unsafe { std::slice::from_raw_parts(pieces.as_ptr().cast::<Piece>(), pieces.len()) };
        // SAFETY: the caller's.
        unsafe { in_order(doorbell, order, ticket, |session, order| session.copy_in(pieces, order)) }
    })
}

/// Which way a copy from one buffer to another goes, `prepared` (doorbell_transfer_create) or not (doorbell_copy, doorbell_copy_async), and why. `way`:
/// DOORBELL_BY_ENGINE, DOORBELL_BY_INLINE, DOORBELL_BY_STORES or DOORBELL_BY_LOADS. `text` gets at most `room` bytes of English, which end with a zero.
/// Either may be null. Batches of several pieces, rings and what is in an order always go by copy engines.
/// Cost: microseconds; it allocates. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT (no bytes), DOORBELL_CLOSED,
/// DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_copy_explain(
    doorbell: *mut doorbell_t,
    to: doorbell_buffer_t,
    from: doorbell_buffer_t,
    bytes: u64,
    prepared: bool,
    way: *mut u32,
    text: *mut c_char,
    room: usize,
) -> i32 {
    run(|| {
        let choice = of(doorbell)?.explain(Buffer::from_raw(to), Buffer::from_raw(from), bytes, prepared)?;
        let number = match choice.executor {
            Executor::CopyEngine => DOORBELL_BY_ENGINE,
            Executor::Inline => DOORBELL_BY_INLINE,
            Executor::Stores => DOORBELL_BY_STORES,
            Executor::Loads => DOORBELL_BY_LOADS,
        };
        // SAFETY: the caller's.
        unsafe { put_if_wanted(way, number) };
        // SAFETY: the caller's.
        unsafe { put_text(text, room, &choice.why) };
        Ok(())
    })
}
