//! Copies that are written when they are submitted.

use crate::call::{limit, many, put_if_wanted, put_text, run, wrong};
use crate::growing::{self, Growing};
use crate::session::of;
use crate::types::*;
use std::ffi::{c_char, c_void};
use submit::{Buffer, Error, Executor, Index, Pages, Part, Piece};

/// doorbell_copy_explain: a copy engine makes the copy.
pub const DOORBELL_BY_ENGINE: u32 = 0;
/// doorbell_copy_explain: the bytes are part of the command stream.
pub const DOORBELL_BY_INLINE: u32 = 1;
/// doorbell_copy_explain: the CPU stores the bytes. The copy is done when the submission returns.
pub const DOORBELL_BY_STORES: u32 = 2;
/// doorbell_copy_explain: the CPU loads the bytes. The copy is done when the submission returns.
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

/// Maximum number of pieces of a batch. (A count that was never set is mostly larger, and nothing is read then.)
const PIECES: usize = 1 << 24;

/// C's pieces have the same layout as `submit::Piece`.
const _: () = assert!(
    size_of::<Piece>() == size_of::<doorbell_piece_t>() && align_of::<Piece>() == align_of::<doorbell_piece_t>()
);

/// Copies bytes from one buffer to another and waits until the copy is done. It also waits for a lane and for room on it.
/// Cost: that of doorbell_copy_async() and the copy. It spins for some 100 us, then yields. Threads: any. Errors: those of
/// doorbell_copy_async() except DOORBELL_BUSY and DOORBELL_FULL, and also DOORBELL_TIMEOUT. After DOORBELL_TIMEOUT the copy may
/// still be pending, without a ticket, or was not submitted. Its memory is free when doorbell_buffer_free() has returned. To be
/// able to wait again, use doorbell_copy_async().
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

/// Submits a copy from one buffer to another. If the profile names stores or loads of the CPU for this size, the CPU makes the
/// copy and it is done when the call returns: see doorbell_copy_explain(). All other copies use the thread's lane, or any free
/// lane if another thread is submitting on that one. So copies may end in any order. If the order matters, wait for the earlier
/// copy or use `order`, which may be null.
/// Cost: a submission whose command words are written and checked, more than doorbell_transfer_async(). No lock, no allocation,
/// no system call, unless memory was unmapped since the last submission or `order` names a stream or an event. (A thread's very
/// first call may allocate, because the loader makes room for its variables.) Threads: any. Errors: DOORBELL_BUSY and
/// DOORBELL_FULL: try again. DOORBELL_HANDLE, DOORBELL_OUTSIDE, DOORBELL_FREED, DOORBELL_ARGUMENT, DOORBELL_CLOSED,
/// DOORBELL_FORKED, DOORBELL_KILLED, DOORBELL_STOPPED. DOORBELL_LIMIT for more than 64 tickets. For a stream or event also
/// DOORBELL_CUDA, DOORBELL_UNAVAILABLE without CUDA, and DOORBELL_FULL while 1,024 orders of streams are pending. After an error,
/// the copy was not submitted.
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
        // SAFETY: the caller guarantees it.
        unsafe { in_order(doorbell, order, ticket, |session, order| session.copy_in(&[piece], order)) }
    })
}

/// Submits many copies with one ticket. `piece_size` is sizeof(doorbell_piece_t). The copies may overtake one another, so no copy
/// may need another's result. The first one's direction, to the GPU or from it, selects the copy engine. Copies in the other
/// direction may follow on the same engine. 128 or more to the GPU use the engine with the most physical engines, if no copy from
/// the GPU is pending or prepared. With an `order`, `count` may be 0: the submission then only waits and signals.
/// Cost: that of doorbell_copy_async(), and the words of each piece. A list of more than 256 pieces is submitted in parts. If there
/// is no room for one, the call waits until the GPU has copied earlier ones: with an idle lane from some 7,000 pieces on. Threads: any.
/// Errors: as doorbell_copy_async(), and DOORBELL_LIMIT for more than 16,777,216 pieces, or more than 4,096 that wait for a word. After
/// an error, no piece was submitted. But if memory is freed, or the session closed, or the channel dies during the call, the first
/// parts may have been copied. They have ended when the call returns.
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
        // SAFETY: the caller guarantees it.
        let pieces = unsafe { growing::array(pieces, count, PIECES, piece_size) }?;
        // SAFETY: a piece has the same layout as `submit::Piece` (asserted above), whose handles are numbers.
        let pieces = unsafe { std::slice::from_raw_parts(pieces.as_ptr().cast::<Piece>(), pieces.len()) };
        // SAFETY: the caller guarantees it.
        unsafe { in_order(doorbell, order, ticket, |session, order| session.copy_in(pieces, order)) }
    })
}

/// Two buffers between which pages are copied, and where in each the page with the number 0 begins: a layer, or its keys or its
/// values.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_part_t {
    pub to: doorbell_buffer_t,
    pub to_offset: u64,
    pub from: doorbell_buffer_t,
    pub from_offset: u64,
}

// SAFETY: numbers.
unsafe impl Growing for doorbell_part_t {
    const FIRST: usize = size_of::<doorbell_part_t>();
}

/// C's parts have the same layout as `submit::Part`.
const _: () =
    assert!(size_of::<Part>() == size_of::<doorbell_part_t>() && align_of::<Part>() == align_of::<doorbell_part_t>());

/// doorbell_pages_t.flags: a number that is in `to_index` twice is an error, before anything is copied, and so are parts whose
/// pages overlap in one buffer. The check allocates up to 8 bytes for each number.
pub const DOORBELL_PAGES_DISTINCT: u32 = 1;

/// Which pages are copied, in each part: the one with the number `from_index[n]` becomes the one with the number `to_index[n]`. Set
/// all of it to 0, then `size`, then the fields that you need.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct doorbell_pages_t {
    /// sizeof(doorbell_pages_t).
    pub size: usize,
    /// Bytes of a page, up to 1 GiB.
    pub bytes: u64,
    /// Bytes from a page's begin to that of the next number. 0: `bytes`.
    pub to_stride: u64,
    pub from_stride: u64,
    /// `count` numbers of 4 or 8 bytes, as `index_size` says, at a multiple of that. Null: 0, 1, 2 and so on.
    pub to_index: *const c_void,
    pub from_index: *const c_void,
    pub count: usize,
    pub index_size: u32,
    /// 0 or DOORBELL_PAGES_DISTINCT.
    pub flags: u32,
}

// SAFETY: numbers and pointers.
unsafe impl Growing for doorbell_pages_t {
    const FIRST: usize = size_of::<doorbell_pages_t>();
}

/// # Safety
/// Null, or `count` numbers of `size` bytes.
unsafe fn index<'a>(at: *const c_void, count: usize, size: u32) -> Result<Index<'a>, Error> {
    // SAFETY: the caller guarantees it.
    unsafe {
        match size {
            _ if at.is_null() => Ok(Index::Whole),
            4 => many(at.cast(), count).map(Index::U32),
            8 => many(at.cast(), count).map(Index::U64),
            _ => Err(wrong("pages.index_size is 4 or 8")),
        }
    }
}

/// Copies pages by their numbers, the same ones in each of `part_count` parts, with one ticket. `part_size` is
/// sizeof(doorbell_part_t). Pages may overtake one another, so no two may have the same destination. Neighbours in both buffers are
/// copied as one. The first part's direction selects the copy engine. All parts together have up to 16,777,216 pages.
/// Cost: less than that of doorbell_copy_batch_async() with as many pieces, and it waits as that does. Threads: any.
/// Errors: as doorbell_copy_batch_async(). A number that is no page of its buffer is DOORBELL_OUTSIDE, before anything is copied.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_pages_async(
    doorbell: *mut doorbell_t,
    parts: *const doorbell_part_t,
    part_count: usize,
    part_size: usize,
    pages: *const doorbell_pages_t,
    order: *const doorbell_order_t,
    ticket: *mut doorbell_ticket_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let given = unsafe { growing::one(pages) }?.ok_or(wrong("there are no pages"))?;
        if given.flags & !DOORBELL_PAGES_DISTINCT != 0 {
            return Err(wrong("pages.flags has a flag that this version does not know"));
        }
        if given.count.checked_mul(part_count).is_none_or(|count| count > PIECES) {
            return Err(Error::Limit(PIECES));
        }
        // SAFETY: the caller guarantees it.
        let parts = unsafe { growing::array(parts, part_count, PIECES, part_size) }?;
        // SAFETY: a part has the same layout as `submit::Part` (asserted above), whose handles are numbers.
        let parts = unsafe { std::slice::from_raw_parts(parts.as_ptr().cast::<Part>(), parts.len()) };
        let stride = |stride| if stride == 0 { given.bytes } else { stride };
        // SAFETY: the caller guarantees it.
        let (to_index, from_index) = unsafe {
            (
                index(given.to_index, given.count, given.index_size)?,
                index(given.from_index, given.count, given.index_size)?,
            )
        };
        let pages = Pages {
            bytes: given.bytes,
            to_stride: stride(given.to_stride),
            from_stride: stride(given.from_stride),
            to_index,
            from_index,
            count: given.count,
            distinct: given.flags & DOORBELL_PAGES_DISTINCT != 0,
        };
        // SAFETY: the caller guarantees it.
        unsafe { in_order(doorbell, order, ticket, |session, order| session.copy_pages(parts, &pages, order)) }
    })
}

/// Reports how a copy between two buffers is made, and why. `prepared` means a copy from doorbell_transfer_create(), otherwise
/// one from doorbell_copy() or doorbell_copy_async(). `way` becomes DOORBELL_BY_ENGINE, DOORBELL_BY_INLINE, DOORBELL_BY_STORES or
/// DOORBELL_BY_LOADS. `text` gets the reason, at most `room` bytes of English with a zero at the end. Either may be null. Batches
/// of several pieces, rings and ordered copies always use copy engines.
/// Cost: microseconds, and it allocates. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_ARGUMENT (a length of 0),
/// DOORBELL_CLOSED, DOORBELL_FORKED.
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
        // SAFETY: the caller guarantees it.
        unsafe { put_if_wanted(way, number) };
        // SAFETY: the caller guarantees it.
        unsafe { put_text(text, room, &choice.why) };
        Ok(())
    })
}
