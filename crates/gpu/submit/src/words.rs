//! The words by which copies and a CUDA stream wait for each other: each use takes its own word, in turn.

use crate::error::Error;
use crate::handle::Buffer;
use crate::promises::Promises;
use gpu::{AddressSpace, Region};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Orders that may be pending at a time.
pub(crate) const WORDS: usize = 1024;

/// The words of one session.
pub(crate) struct Order {
    /// Dropped before the words.
    pub promises: Promises,
    pub words: Arc<cuda::Words>,
    pub buffer: Buffer,
    /// The same words for launch channels, which belong to CUDA's client: pinned at their first use there.
    pub launches: OnceLock<gpu::Pin>,
    pub next: AtomicU64,
}

impl Order {
    /// Takes a word, and returns the value that it will get.
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

    /// Writes the value of a word that has no other writer any more, so that the word may be used again.
    pub fn give_up(&self, (index, value): (usize, u32)) {
        self.words.word(index).store(value, Ordering::SeqCst);
    }

    /// The words, as launch channels may name them, in their address space.
    pub fn for_launches(&self, space: &Arc<AddressSpace>) -> Result<&Region, Error> {
        if let Some(pin) = self.launches.get() {
            return Ok(pin.region());
        }
        let pin = space.pin(self.words.address(), 4 * WORDS as u64)?;
        // (Two lanes may pin it twice at the same time: one of the pins ends here.)
        Ok(self.launches.get_or_init(|| pin).region())
    }

    pub fn place(&self, (index, value): (usize, u32)) -> (Buffer, u64, u32) {
        (self.buffer, 4 * index as u64, value)
    }
}
