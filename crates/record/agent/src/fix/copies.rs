//! Copies of pageable memory, through pinned pieces, in the caller's stream.
//!
//! CUDA holds a lock for which launches wait while it copies to and from its own pieces: 9 ms for 64 MiB on an H200. An asynchronous copy
//! from pinned memory takes that lock for microseconds.
//!
//! When memory is read and when the call returns is as CUDA has it (measured: docs/how-it-works/fix.md). A synchronous copy waits for its
//! stream before it reads. An asynchronous copy to the GPU reads at once. Both return when the source has been read. A copy to the host returns when
//! all has arrived.

use super::driver::{Driver, INVALID_VALUE, NOT_READY, SUCCESS};
use super::ring::{PIECE, PIECES, Piece};
use super::{driver, turn_off};
use tape::fix::{Count, Why};

/// Below this CUDA holds its lock for less than it takes to ask whether memory is pageable.
const SMALLEST: usize = 64 << 10;
/// Pieces of one copy at a time, so that others have some, too.
const AT_A_TIME: usize = PIECES / 4;
/// CU_POINTER_ATTRIBUTE_MEMORY_TYPE
const MEMORY_TYPE: i32 = 2;

pub struct Copy {
    pub to: usize,
    pub from: usize,
    pub bytes: usize,
    pub to_gpu: bool,
    pub stream: usize,
    /// It waits for the stream first.
    pub waits: bool,
}

/// # Safety
/// As cuMemcpyHtoD, cuMemcpyDtoH and their asynchronous forms.
pub unsafe fn copy(count: &Count, c: &Copy) -> Result<i32, Why> {
    if c.bytes < SMALLEST {
        return Err(Why::Small);
    }
    let d = driver(count)?;
    let (host, gpu) = if c.to_gpu { (c.from, c.to) } else { (c.to, c.from) };
    let (mut kind, mut capturing, mut base, mut length) = (0u64, 0, 0, 0);
    // SAFETY: places for the results.
    unsafe {
        // CUDA knows nothing of pageable memory.
        if (d.pointer)(&raw mut kind, MEMORY_TYPE, host) != INVALID_VALUE {
            return Err(Why::NotPageable);
        }
        // What CUDA refuses is refused whole, and by CUDA.
        if (d.range)(&raw mut base, &raw mut length, gpu) != SUCCESS || c.bytes > length - (gpu - base) {
            return Err(Why::NotPageable);
        }
        if (d.is_capturing)(c.stream, &raw mut capturing) != SUCCESS || capturing != 0 {
            return Err(Why::Capture);
        }
    }
    let Some(first) = Piece::take(&d) else { return Err(Why::Busy) };
    let result = d.relaxed(|| {
        // SAFETY: the caller's.
        unsafe { if c.to_gpu { to_gpu(&d, c, first) } else { from_gpu(&d, c, first) } }
    });
    match result {
        Ok(SUCCESS) => {
            count.answered(c.bytes as u64);
            Ok(SUCCESS)
        }
        Ok(failed) => Ok(failed),
        Err(result) => Err(turn_off(count, result)),
    }
}

/// Waits for a free piece. Its own pieces become free as the stream goes on; an error of the stream is the answer.
fn next(d: &Driver, stream: usize) -> Result<Piece, i32> {
    wait(d, stream, || Piece::take(d))
}

fn wait<T>(d: &Driver, stream: usize, mut until: impl FnMut() -> Option<T>) -> Result<T, i32> {
    for turn in 1u64.. {
        if let Some(it) = until() {
            return Ok(it);
        }
        core::hint::spin_loop();
        // About each 100 us.
        if turn % 4096 == 0 {
            // SAFETY: the caller's stream.
            match unsafe { (d.query)(stream) } {
                SUCCESS | NOT_READY => {}
                failed => return Err(failed),
            }
        }
    }
    Err(NOT_READY)
}

/// `Ok`: the call's result. `Err`: a step failed that should not have, after others had been made.
///
/// # Safety
/// As [`copy`].
unsafe fn to_gpu(d: &Driver, c: &Copy, first: Piece) -> Result<i32, i32> {
    if c.waits {
        // SAFETY: the caller's stream.
        let waited = unsafe { (d.synchronize)(c.stream) };
        if waited != SUCCESS {
            first.let_go();
            return Ok(waited);
        }
    }
    let mut first = Some(first);
    let mut done = 0;
    while done < c.bytes {
        let piece = match first.take() {
            Some(piece) => piece,
            None => match next(d, c.stream) {
                Ok(piece) => piece,
                Err(failed) => return Ok(failed),
            },
        };
        let bytes = PIECE.min(c.bytes - done);
        // SAFETY: the caller's source; a piece that only this thread uses until the GPU has marked it.
        let result = unsafe {
            core::ptr::copy_nonoverlapping((c.from + done) as *const u8, piece.at() as *mut u8, bytes);
            (d.to_gpu)(c.to + done, piece.at(), bytes, c.stream)
        };
        if result != SUCCESS {
            piece.let_go();
            return if done == 0 { Ok(result) } else { Err(result) };
        }
        let marked = piece.marks(d, c.stream);
        if marked != SUCCESS {
            // (The GPU may still read it: nobody gets it again.)
            return Err(marked);
        }
        done += bytes;
        // (CUDA's last piece may still be under way, too, but it is the last one alone: a program that relies on the rest gets it.)
        let arrived =
            if c.waits && done == c.bytes { wait(d, c.stream, || piece.is_done().then_some(())) } else { Ok(()) };
        piece.let_go();
        if let Err(failed) = arrived {
            return Ok(failed);
        }
    }
    Ok(SUCCESS)
}

/// As [`to_gpu`].
///
/// # Safety
/// As [`copy`].
unsafe fn from_gpu(d: &Driver, c: &Copy, first: Piece) -> Result<i32, i32> {
    // Both forms return when all has arrived, so the wait for earlier work is CUDA's own: it spins or sleeps as the context says.
    // SAFETY: the caller's stream.
    let waited = unsafe { (d.synchronize)(c.stream) };
    if waited != SUCCESS {
        first.let_go();
        return Ok(waited);
    }
    let mut under_way: [Option<Piece>; AT_A_TIME] = [const { None }; AT_A_TIME];
    let mut free = Some(first);
    let (mut asked, mut done, mut failed) = (0usize, 0usize, None);
    while done < c.bytes && failed.is_none() {
        // As many as there are, before the wait for the oldest.
        while asked < c.bytes && asked / PIECE - done / PIECE < AT_A_TIME {
            let is_needed = asked == done;
            let piece = match free.take().or_else(|| Piece::take(d)) {
                Some(piece) => piece,
                None if is_needed => match next(d, c.stream) {
                    Ok(piece) => piece,
                    Err(result) => return Ok(result),
                },
                None => break,
            };
            let bytes = PIECE.min(c.bytes - asked);
            // SAFETY: the caller's memory of the GPU, and a piece of this thread's.
            let mut result = unsafe { (d.from_gpu)(piece.at(), c.from + asked, bytes, c.stream) };
            if result == SUCCESS {
                result = piece.marks(d, c.stream);
            }
            if result != SUCCESS {
                failed = Some(result);
                break;
            }
            if let Some(to) = under_way.get_mut(asked / PIECE % AT_A_TIME) {
                *to = Some(piece);
            }
            asked += bytes;
        }
        let Some(piece) = under_way.get_mut(done / PIECE % AT_A_TIME).and_then(Option::take) else { break };
        let bytes = PIECE.min(c.bytes - done);
        if let Err(result) = wait(d, c.stream, || piece.is_done().then_some(())) {
            return Ok(result);
        }
        // SAFETY: the caller's destination; the GPU has filled the piece.
        unsafe { core::ptr::copy_nonoverlapping(piece.at() as *const u8, (c.to + done) as *mut u8, bytes) };
        piece.let_go();
        done += bytes;
    }
    match failed {
        Some(result) if asked == 0 => Ok(result),
        Some(result) => Err(result),
        None => Ok(SUCCESS),
    }
}
