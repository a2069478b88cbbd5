//! Words of pinned memory in which a kernel signals its end, and the wait for them.

use crate::error::Error;
use cuda::PinnedBuffer;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Polls without a pause between them, which would add to the transfer's time.
const EAGER: u32 = 4096;
const LOOKS: u32 = 256;

/// One word.
#[derive(Clone, Copy)]
pub(super) struct Word<'r>(&'r AtomicU32);

impl<'r> Word<'r> {
    /// The first word of a buffer.
    pub(super) fn of(buffer: &'r PinnedBuffer<'_>) -> Word<'r> {
        // SAFETY: an aligned word of pinned memory that lives as long as the buffer is borrowed; the CPU touches it only by
        // atomic accesses.
        Word(unsafe { AtomicU32::from_ptr(buffer.as_ptr().cast()) })
    }

    #[inline]
    pub(super) fn is(self, number: u32) -> bool {
        // ORDERING: all writes before the word are visible with it.
        self.0.load(Ordering::Acquire) == number
    }

    /// Call it while no kernel runs.
    pub(super) fn reset(self, number: u32) {
        self.0.store(number, Ordering::Release);
    }
}

/// Polls until `is_done`, for a transfer of `bytes`.
///
/// # Errors
/// [`Error::Late`] after `timeout`.
#[inline]
pub(crate) fn wait(timeout: Duration, bytes: u64, is_done: impl FnMut() -> bool) -> Result<(), Error> {
    until(timeout, is_done).map_err(|after| Error::Late { bytes, after })
}

/// Polls until `poll` returns true, for a transfer of `bytes` that may fail while it is polled.
///
/// # Errors
/// As [`wait`], and those of `poll`.
#[inline]
pub(crate) fn ended(timeout: Duration, bytes: u64, mut poll: impl FnMut() -> Result<bool, Error>) -> Result<(), Error> {
    let begun = Instant::now();
    while !poll()? {
        let after = begun.elapsed();
        if after > timeout {
            return Err(Error::Late { bytes, after });
        }
        std::hint::spin_loop();
    }
    Ok(())
}

/// Polls until `is_done`. After `timeout`, returns the time that has passed.
#[inline]
pub(super) fn until(timeout: Duration, mut is_done: impl FnMut() -> bool) -> Result<(), Duration> {
    for _ in 0..EAGER {
        if is_done() {
            return Ok(());
        }
    }
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if is_done() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let after = start.elapsed();
        if after > timeout {
            return Err(after);
        }
    }
}
