//! How far a channel has come: one semaphore that every prepared transfer releases with its own number.

use crate::error::Error;
use crate::memory::Memory;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// A submission of a prepared transfer. Numbers wrap; a ticket is good for 2^31 submissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub(crate) u32);

/// Polls that follow one another at once: a pause between them (140 cycles on recent Xeons) would be part of a short transfer.
const EAGER: u32 = 4096;
/// How long a wait goes on before it looks whether something is wrong.
const AGAIN: Duration = Duration::from_millis(10);

/// Shared with who frees memory under the channel's feet.
#[derive(Debug)]
pub(crate) struct Tracker {
    memory: Arc<Memory>,
    /// Of the semaphore (payload @0, nanoseconds @8) in `memory`.
    offset: u64,
    /// The last number that a submission took.
    pub submitted: AtomicU32,
    /// Waited for in vain once: never again.
    lost: AtomicBool,
}

impl Tracker {
    pub fn new(memory: Arc<Memory>, offset: u64) -> Tracker {
        memory.word64(offset).store(0, Ordering::Relaxed);
        Tracker { memory, offset, submitted: AtomicU32::new(0), lost: AtomicBool::new(false) }
    }

    /// GPU address of the semaphore.
    pub fn va(&self) -> u64 {
        self.memory.va() + self.offset
    }

    /// The number released last.
    #[inline]
    pub fn reached(&self) -> u32 {
        // SAFETY: an aligned word of a mapping that lives as long as self; the forked child is asked for by the callers.
        let word = unsafe { &*((self.memory.va() + self.offset) as *const AtomicU32) };
        // ORDERING: what was written by the transfers up to this number is visible with it.
        word.load(Ordering::Acquire)
    }

    #[inline]
    pub fn done(&self, ticket: Ticket) -> bool {
        self.reached().wrapping_sub(ticket.0) as i32 >= 0
    }

    /// The GPU's nanoseconds at the last release.
    pub fn timestamp(&self) -> u64 {
        self.memory.word64(self.offset + 8).load(Ordering::Acquire)
    }

    /// Waits for all that is submitted by now; false if it does not come to an end, or once did not.
    pub fn drain(&self, limit: Duration) -> bool {
        // ORDERING: see AddressSpace::unmapped.
        let last = Ticket(self.submitted.load(Ordering::SeqCst));
        let start = Instant::now();
        loop {
            if self.done(last) {
                return true;
            }
            if self.lost.load(Ordering::Relaxed) {
                return false;
            }
            if start.elapsed() > limit {
                self.lost.store(true, Ordering::Relaxed);
            }
            std::hint::spin_loop();
        }
    }

    /// Spins until `ticket` is done; calls `stuck` after each [`AGAIN`] without it, which may say that it never will be.
    pub fn wait(&self, ticket: Ticket, limit: Duration, mut stuck: impl FnMut() -> Option<u32>) -> Result<(), Error> {
        let start = Instant::now();
        for _ in 0..EAGER {
            if self.done(ticket) {
                return Ok(());
            }
        }
        let mut next = AGAIN;
        loop {
            for _ in 0..64 {
                if self.done(ticket) {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            let after = start.elapsed();
            if after < next && after <= limit {
                continue;
            }
            next = after + AGAIN;
            if let Some(code) = stuck() {
                return Err(Error::ChannelKilled(code));
            }
            if after > limit {
                return Err(Error::Timeout { wanted: ticket.0, found: self.reached(), after });
            }
        }
    }
}
