//! Slots: places for the words of submissions, used in turn, one for each submission that may be in progress.
//!
//! A slot is free when the ticket of its last submission is done. Once the slots are made, no call here allocates, locks or
//! makes a system call.

use crate::channel::{Channel, Grave};
use crate::error::Error;
use crate::memory::Memory;
use crate::place::Place;
use crate::stores::{LINE, Line, LineStore, store_line};
use crate::tracker::Ticket;
use pushbuf::gpfifo::Entry;
use std::sync::Arc;

/// The maximum number of slots of one transfer or launch, and the maximum bytes for all of them.
const SLOTS: usize = 32;
const SEGMENT: usize = 1 << 20;
/// Words of a line.
pub(crate) const LINE_WORDS: usize = LINE / 4;

/// Pieces of one memory, used in turn.
#[derive(Debug)]
pub(crate) struct Slots {
    pub memory: Arc<Memory>,
    /// Words between the starts of two slots.
    pub stride: usize,
    /// The last submission of each slot.
    tickets: Vec<Option<Ticket>>,
    next: usize,
}

impl Slots {
    /// As many slots as fit, each for `words` words.
    pub fn new(ch: &Channel, words: usize) -> Result<Slots, Error> {
        let count = (SEGMENT / (words.next_multiple_of(LINE_WORDS) * 4)).clamp(2, SLOTS);
        Slots::of(ch, words, count)
    }

    /// `count` slots, each for `words` words.
    pub fn of(ch: &Channel, words: usize, count: usize) -> Result<Slots, Error> {
        // Whole cache lines, so that no two slots share one.
        let stride = words.next_multiple_of(LINE_WORDS);
        let memory = ch.space().alloc_own(ch.pushbuffers(), (count * stride * 4) as u64)?;
        Ok(Slots { memory, stride, tickets: vec![None; count], next: 0 })
    }

    /// One slot with these words, in host memory.
    pub fn whole(ch: &Channel, words: &[u32]) -> Result<Slots, Error> {
        let memory = ch.space().alloc_own(Place::Host, 4 * words.len() as u64)?;
        let slots = Slots { memory, stride: words.len(), tickets: vec![None], next: 0 };
        slots.put(0, words);
        Ok(slots)
    }

    /// The number of slots.
    pub fn count(&self) -> usize {
        self.tickets.len()
    }

    /// The next slot, whether it is free or not.
    #[inline]
    pub fn next(&self) -> usize {
        self.next
    }

    /// The next slot.
    ///
    /// # Errors
    /// [`Error::RingFull`] while it is in progress, [`Error::ChannelKilled`].
    #[inline]
    pub fn free(&self, ch: &Channel) -> Result<usize, Error> {
        self.is_free(ch, self.next)
    }

    /// The slot `ahead` places after the next.
    ///
    /// # Errors
    /// As [`Slots::free`], and [`Error::RingFull`] if the submission uses all slots.
    #[inline]
    pub fn free_ahead(&self, ch: &Channel, ahead: usize) -> Result<usize, Error> {
        let count = self.tickets.len();
        if ahead >= count {
            return Err(Error::RingFull(count as u32));
        }
        self.is_free(ch, self.ahead(ahead))
    }

    #[inline]
    pub fn ahead(&self, ahead: usize) -> usize {
        let (slot, count) = (self.next + ahead, self.tickets.len());
        if slot < count { slot } else { slot - count }
    }

    #[inline]
    fn is_free(&self, ch: &Channel, slot: usize) -> Result<usize, Error> {
        match self.tickets[slot] {
            Some(ticket) if !ch.done(ticket) => Err(ch.full(self.tickets.len() as u32)),
            _ => Ok(slot),
        }
    }

    /// Records the slot's submission; the slot after it becomes the next.
    #[inline]
    pub fn took(&mut self, slot: usize, ticket: Ticket) {
        self.tickets[slot] = Some(ticket);
        self.next = if slot + 1 == self.tickets.len() { 0 } else { slot + 1 };
    }

    /// The GPFIFO entry for `words` words of the slot, beginning with word `from`. `None` if an entry cannot hold that many.
    #[inline]
    pub fn entry(&self, slot: usize, from: usize, words: usize) -> Option<u64> {
        let at = self.memory.va() + 4 * (slot * self.stride + from) as u64;
        Some(Entry::segment(at, u32::try_from(words).ok()?)?.encode())
    }

    /// Stores to a word of a slot that is not in progress.
    #[inline]
    pub fn store(&self, slot: usize, word: usize, value: u32) {
        store(&self.memory, slot * self.stride + word, value);
    }

    /// Loads a word of a slot, which the GPU only reads.
    pub fn load(&self, slot: usize, word: usize) -> u32 {
        load(&self.memory, slot * self.stride + word)
    }

    /// Stores words at the start of a slot that is not in progress.
    #[inline]
    pub fn put(&self, slot: usize, words: &[u32]) {
        words.iter().enumerate().for_each(|(i, word)| self.store(slot, i, *word));
    }

    /// Stores bytes at a word of the slot; the rest of their last word does not change.
    ///
    /// # Safety
    /// `bytes` bytes can be read at `from`, and the slot is not in progress.
    #[inline]
    pub unsafe fn put_bytes(&self, slot: usize, word: usize, from: *const u8, bytes: usize) {
        let at = 4 * (slot * self.stride + word);
        debug_assert!((at + bytes) as u64 <= self.memory.length());
        // SAFETY: within the slot; the caller's promise.
        unsafe { self.memory.as_ptr().add(at).copy_from_nonoverlapping(from, bytes) };
    }

    /// Stores words at the start of the slot, in whole lines padded with NOPs.
    ///
    /// # Safety
    /// This CPU supports `how` ([`LineStore::is_available`]), and the slot is not in progress.
    #[inline]
    pub unsafe fn put_lines(&self, slot: usize, words: &[u32], how: LineStore) {
        for (i, words) in words.chunks(LINE_WORDS).enumerate() {
            let at = 4 * slot * self.stride + LINE * i;
            debug_assert!((at + LINE) as u64 <= self.memory.length());
            // SAFETY: a line of the slot; the caller's promise.
            unsafe { store_line(how, self.memory.as_ptr().add(at), &line(words)) };
        }
    }

    /// Frees the memory when the channel has passed the last submission or has ended: until then it may still read the memory.
    pub fn bury(&self, grave: &Grave) {
        if let Some(last) = self.tickets[self.next.checked_sub(1).unwrap_or(self.tickets.len() - 1)] {
            grave.put(self.memory.clone(), last);
        }
    }
}

/// A line that begins with these words, padded with NOPs.
#[inline]
pub(crate) fn line(words: &[u32]) -> Line {
    let mut line = Line([0; LINE]);
    for (to, word) in line.0.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    line
}

/// Posted through write-combining if the memory is the GPU's.
#[inline]
pub(crate) fn store(memory: &Memory, dword: usize, value: u32) {
    debug_assert!((dword as u64 + 1) * 4 <= memory.length());
    debug_assert!(memory.place() == Place::Host || memory.place() == Place::Video);
    // SAFETY: within the segment, which was made for all slots; the slot is not in progress.
    unsafe { memory.as_ptr().cast::<u32>().add(dword).write_volatile(value) };
}

fn load(memory: &Memory, dword: usize) -> u32 {
    debug_assert!((dword as u64 + 1) * 4 <= memory.length());
    // SAFETY: within the segment; the GPU only reads it.
    unsafe { memory.as_ptr().cast::<u32>().add(dword).read_volatile() }
}
