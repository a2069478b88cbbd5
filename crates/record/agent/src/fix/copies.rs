//! Copies of pageable memory, through pinned pieces, in the caller's stream.
//!
//! CUDA holds a lock for which launches wait while it copies to and from its own pieces: 9 ms for 64 MiB on an H200. An asynchronous copy
//! from pinned memory takes that lock for microseconds.
//!
//! When memory is read and when the call returns is as CUDA has it (measured: docs/how-it-works/fix.md). A synchronous copy waits for its
//! stream before it reads. An asynchronous one to the GPU reads as pieces become free. Both return when the source has been read. A copy to the
//! host returns when all has arrived. One thing is not as CUDA has it: work that other threads put into the same stream meanwhile may run
//! between two parts of a copy.

use super::driver::{Driver, NOT_READY, SUCCESS};
use super::known::Known;
use super::ring::{Piece, Pieces};
use super::{bytes, driver, told, turn_off};
use crate::process::restrictions::{may, need};
use crate::process::sys;
use tape::call::Direction;
use tape::fix::{Count, Why};

/// Pieces of one copy: with more of them from the GPU, the first ones leave the caches before the CPU reads them.
const TO_GPU: usize = 4;
const FROM_GPU: usize = 2;
pub struct Copy {
    pub to: usize,
    pub from: usize,
    pub bytes: usize,
    pub direction: Direction,
    pub stream: usize,
    /// It waits for the stream first.
    pub waits: bool,
}

/// # Safety
/// As cuMemcpyHtoD, cuMemcpyDtoH, cuMemcpy and their asynchronous forms.
pub unsafe fn copy(count: &Count, c: &Copy) -> Result<i32, Why> {
    let d = driver(count)?;
    let mut capturing = 0;
    // First, for a capture of which the agent does not know. (With cuStreamGetFlags before it, the capture became invalid: H200.)
    // SAFETY: a place for the result.
    if unsafe { (d.is_capturing)(c.stream, &raw mut capturing) } != SUCCESS || capturing != 0 {
        return Err(Why::Capture);
    }
    let (Some(to), Some(from)) = (Known::at(&d, c.to), Known::at(&d, c.from)) else {
        return Err(Why::NotPageable);
    };
    let to_gpu = c.direction != Direction::FromGpu && from.is_pageable() && to.is_on_device();
    if !to_gpu && (c.direction == Direction::ToGpu || !to.is_pageable() || !from.is_on_device()) {
        return Err(Why::NotPageable);
    }
    let (gpu, its) = if to_gpu { (c.to, to) } else { (c.from, from) };
    let mut current = 0;
    // SAFETY: a place for the context.
    if unsafe { (d.current)(&raw mut current) } == SUCCESS && ![0, current as u64].contains(&its.context) {
        return Err(Why::Context);
    }
    if !c.waits && is_non_blocking(&d, c.stream) {
        return Err(Why::OwnStream);
    }
    // What CUDA refuses is refused whole, and by CUDA.
    let (base, length) = told::range(&d, gpu).ok_or(Why::Range)?;
    if c.bytes > length - (gpu - base) {
        return Err(Why::Range);
    }
    let at_a_time = if to_gpu { TO_GPU } else { FROM_GPU };
    let Some(pieces) = Pieces::take(&d, c.bytes, at_a_time) else { return Err(Why::Busy) };
    let end = d.relaxed(|| {
        if c.waits || !to_gpu {
            // The mark makes this a wait for all work that a copy of this stream would wait for: that of other streams, too, if the
            // stream is the default one. (It spins or sleeps as the context says.)
            mark_after(SUCCESS, &d, c.stream, pieces.of(0))?;
            // SAFETY: the caller's stream.
            if unsafe { (d.synchronize)(c.stream) } != SUCCESS {
                return Err(End::Failed);
            }
        }
        // SAFETY: the caller's.
        unsafe { if to_gpu { copy_to_gpu(&d, c, &pieces) } else { copy_from_gpu(&d, c, &pieces) } }
    });
    match end {
        Ok(()) => {
            count.answered(c.bytes as u64);
            Ok(SUCCESS)
        }
        Err(End::Failed) => Err(Why::Failed),
        Err(End::Unexpected(result)) => {
            // The GPU may still use a piece that it was not asked to mark: nobody gets one of these again.
            core::mem::forget(pieces);
            Err(turn_off(count, result))
        }
    }
}

/// A copy that was not made, or not whole. CUDA is asked to make it.
enum End {
    /// The stream has an error, which CUDA will give.
    Failed,
    /// A step had this result, which it should not have.
    Unexpected(i32),
}

/// CUDA makes asynchronous copies in such a stream without the lock.
fn is_non_blocking(d: &Driver, stream: usize) -> bool {
    /// CU_STREAM_NON_BLOCKING
    const NON_BLOCKING: u32 = 1;
    let mut flags = 0;
    // SAFETY: a place for the flags.
    stream > driver::PER_THREAD
        && unsafe { (d.stream_flags)(stream, &raw mut flags) == SUCCESS }
        && flags & NON_BLOCKING != 0
}

/// The GPU marks the piece after a step that had this result.
fn mark_after(step: i32, d: &Driver, stream: usize, piece: Piece) -> Result<(), End> {
    match if step == SUCCESS { piece.marks(d, stream) } else { step } {
        SUCCESS => Ok(()),
        result => Err(End::Unexpected(result)),
    }
}

/// Waits until the GPU has marked the piece.
fn wait(d: &Driver, stream: usize, piece: Piece) -> Result<(), End> {
    /// About 100 us, after which the stream is asked, too.
    const LOOKS: u32 = 4096;
    /// After so many of them the thread sleeps in between: the stream waits for more than this copy.
    const SPINS: u32 = 8;
    let mut asked = 0u32;
    loop {
        for _ in 0..LOOKS {
            if piece.is_done() {
                return Ok(());
            }
            core::hint::spin_loop();
        }
        // SAFETY: the caller's stream.
        match unsafe { (d.query)(stream) } {
            NOT_READY => {}
            SUCCESS if piece.is_done() => return Ok(()),
            // (It has done all that it had, and not this: its context was reset.)
            SUCCESS => return Err(End::Unexpected(SUCCESS)),
            _ => return Err(End::Failed),
        }
        asked = asked.saturating_add(1);
        if asked > SPINS && may(need::SLEEP) {
            sys::nap(50_000);
        }
    }
}

/// # Safety
/// As [`copy`].
unsafe fn copy_to_gpu(d: &Driver, c: &Copy, pieces: &Pieces) -> Result<(), End> {
    let (part, mut done) = (pieces.part(), 0);
    while done < c.bytes {
        let piece = pieces.of(done / part);
        wait(d, c.stream, piece)?;
        let length = part.min(c.bytes - done);
        // SAFETY: the caller's source; a piece that only this thread uses until the GPU has marked it.
        let asked = unsafe {
            bytes::copy(c.from + done, piece.at(), length);
            (d.to_gpu)(c.to + done, piece.at(), length, c.stream)
        };
        mark_after(asked, d, c.stream, piece)?;
        done += length;
        if c.waits && done == c.bytes {
            wait(d, c.stream, piece)?;
        }
    }
    Ok(())
}

/// Returns when all has arrived.
///
/// # Safety
/// As [`copy`].
unsafe fn copy_from_gpu(d: &Driver, c: &Copy, pieces: &Pieces) -> Result<(), End> {
    let (part, mut asked, mut done) = (pieces.part(), 0, 0);
    while done < c.bytes {
        // As many as there are pieces, before the wait for the oldest.
        while asked < c.bytes && asked / part - done / part < pieces.count() {
            let piece = pieces.of(asked / part);
            let length = part.min(c.bytes - asked);
            // SAFETY: the caller's memory of the GPU, and a piece of this thread's.
            let result = unsafe { (d.from_gpu)(piece.at(), c.from + asked, length, c.stream) };
            mark_after(result, d, c.stream, piece)?;
            asked += length;
        }
        let piece = pieces.of(done / part);
        let length = part.min(c.bytes - done);
        wait(d, c.stream, piece)?;
        // SAFETY: the caller's destination; the GPU has filled the piece.
        unsafe { bytes::copy(piece.at(), c.to + done, length) };
        done += length;
    }
    Ok(())
}
