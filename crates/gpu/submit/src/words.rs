//! The words by which copies and a CUDA stream wait for each other: each use takes one of its own, in turn.

use crate::error::Error;
use crate::handle::Buffer;
use crate::promises::Promises;
use gpu::{AddressSpace, Region};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Orders that may be under way at a time.
pub(crate) const WORDS: usize = 1024;

/// The words of one session.
pub(crate) struct Order {
    /// Before the words.
    pub promises: Promises,
    pub words: Arc<cuda::Words>,
    pub buffer: Buffer,
    /// The same words for channels of launches, which live in CUDA's client: pinned when they are first wanted there.
    pub launches: OnceLock<gpu::Pin>,
    pub next: AtomicU64,
}

impl Order {
    /// A word, and the value that it will have.
    pub fn take(&self) -> Result<(usize, u32), Error> {
        let mut number = self.next.load(Ordering::Relaxed);
        loop {
            let (index, before) = (number as usize % WORDS, (number / WORDS as u64) as u32);
            if self.words.word(index).load(Ordering::SeqCst) != before {
                return Err(Error::Full(WORDS as u32));
            }
            match self.next.compare_exchange_weak(number, number + 1, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return Ok((index, before.wrapping_add(1))),
                Err(other) => number = other,
            }
        }
    }

    /// What nobody writes any more is written here, so that the word may be used again.
    pub fn give_up(&self, (index, value): (usize, u32)) {
        self.words.word(index).store(value, Ordering::SeqCst);
    }

    /// The words as channels of launches may name them, in their address space.
    pub fn for_launches(&self, space: &Arc<AddressSpace>) -> Result<&Region, Error> {
        if let Some(pin) = self.launches.get() {
            return Ok(pin.region());
        }
        let pin = space.pin(self.words.address(), 4 * WORDS as u64)?;
        // (Two lanes at once may pin it twice: one of the pins ends here.)
        Ok(self.launches.get_or_init(|| pin).region())
    }

    pub fn place(&self, (index, value): (usize, u32)) -> (Buffer, u64, u32) {
        (self.buffer, 4 * index as u64, value)
    }
}
