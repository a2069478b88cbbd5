//! Slots: places for the words of a submission, which take turns, one for each submission that may be under way.
//!
//! A slot is free when the ticket of its last submission is done. Nothing here allocates, locks or calls the system once the slots are made.

use crate::channel::{Channel, Grave};
use crate::error::Error;
use crate::memory::Memory;
use crate::place::Place;
use crate::stores::{LINE, Line, LineStore, store_line};
use crate::tracker::Ticket;
use pushbuf::gpfifo::Entry;
use std::sync::Arc;

/// Slots of one transfer or launch, where they all fit, and the bytes that they may take.
const SLOTS: usize = 32;
const SEGMENT: usize = 1 << 20;
/// Words of a line.
pub(crate) const LINE_WORDS: usize = LINE / 4;

/// Pieces of one memory that take turns.
#[derive(Debug)]
pub(crate) struct Slots {
    pub memory: Arc<Memory>,
    /// Words between them.
    pub stride: usize,
    /// Each one's last submission.
    tickets: Vec<Option<Ticket>>,
    next: usize,
}

impl Slots {
    /// As many as fit, for so many words each.
    pub fn new(ch: &Channel, words: usize) -> Result<Slots, Error> {
        let count = (SEGMENT / (words.next_multiple_of(LINE_WORDS) * 4)).clamp(2, SLOTS);
        Slots::of(ch, words, count)
    }

    /// So many, for so many words each.
    pub fn of(ch: &Channel, words: usize, count: usize) -> Result<Slots, Error> {
        // Whole cache lines, so that two share none.
        let stride = words.next_multiple_of(LINE_WORDS);
        let memory = ch.space().alloc_own(ch.pushbuffers(), (count * stride * 4) as u64)?;
        Ok(Slots { memory, stride, tickets: vec![None; count], next: 0 })
    }

    /// One, with these words, in host memory.
    pub fn whole(ch: &Channel, words: &[u32]) -> Result<Slots, Error> {
        let memory = ch.space().alloc_own(Place::Host, 4 * words.len() as u64)?;
        let slots = Slots { memory, stride: words.len(), tickets: vec![None], next: 0 };
        slots.put(0, words);
        Ok(slots)
    }

    /// How many there are.
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
    /// [`Error::RingFull`] while it is under way, [`Error::ChannelKilled`].
    #[inline]
    pub fn free(&self, ch: &Channel) -> Result<usize, Error> {
        self.is_free(ch, self.next)
    }

    /// The slot that is `ahead` of the next.
    ///
    /// # Errors
    /// As [`Slots::free`], and [`Error::RingFull`] where the submission has all slots.
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

    /// The slot has a submission, and the one after it is next.
    #[inline]
    pub fn took(&mut self, slot: usize, ticket: Ticket) {
        self.tickets[slot] = Some(ticket);
        self.next = if slot + 1 == self.tickets.len() { 0 } else { slot + 1 };
    }

    /// The GPFIFO entry of so many words from a word of the slot on; none where no entry counts so many.
    #[inline]
    pub fn entry(&self, slot: usize, from: usize, words: usize) -> Option<u64> {
        let at = self.memory.va() + 4 * (slot * self.stride + from) as u64;
        Some(Entry::segment(at, u32::try_from(words).ok()?)?.encode())
    }

    /// Into a word of a slot that is not under way.
    #[inline]
    pub fn store(&self, slot: usize, word: usize, value: u32) {
        store(&self.memory, slot * self.stride + word, value);
    }

    /// From a word of a slot, which the GPU only reads.
    pub fn load(&self, slot: usize, word: usize) -> u32 {
        load(&self.memory, slot * self.stride + word)
    }

    /// Words from the start of a slot on that is not under way.
    #[inline]
    pub fn put(&self, slot: usize, words: &[u32]) {
        words.iter().enumerate().for_each(|(i, word)| self.store(slot, i, *word));
    }

    /// Bytes from a word of the slot on; what is left of their last word stays.
    ///
    /// # Safety
    /// So many bytes can be read at `from`, and the slot is not under way.
    #[inline]
    pub unsafe fn put_bytes(&self, slot: usize, word: usize, from: *const u8, bytes: usize) {
        let at = 4 * (slot * self.stride + word);
        debug_assert!((at + bytes) as u64 <= self.memory.length());
        // SAFETY: within the slot; the caller's.
        unsafe { self.memory.as_ptr().add(at).copy_from_nonoverlapping(from, bytes) };
    }

    /// Words from the start of the slot on, in whole lines: NOPs behind them.
    ///
    /// # Safety
    /// This CPU can ([`LineStore::is_available`]), and the slot is not under way.
    #[inline]
    pub unsafe fn put_lines(&self, slot: usize, words: &[u32], how: LineStore) {
        for (i, words) in words.chunks(LINE_WORDS).enumerate() {
            let at = 4 * slot * self.stride + LINE * i;
            debug_assert!((at + LINE) as u64 <= self.memory.length());
            // SAFETY: a line of the slot; the caller's.
            unsafe { store_line(how, self.memory.as_ptr().add(at), &line(words)) };
        }
    }

    /// Frees the memory when the channel has come past the last submission, or has gone: until then it may still read it.
    pub fn bury(&self, grave: &Grave) {
        if let Some(last) = self.tickets[self.next.checked_sub(1).unwrap_or(self.tickets.len() - 1)] {
            grave.put(self.memory.clone(), last);
        }
    }
}

/// Words at the start of a line, NOPs behind them.
#[inline]
pub(crate) fn line(words: &[u32]) -> Line {
    let mut line = Line([0; LINE]);
    for (to, word) in line.0.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    line
}

/// Posted through write-combining where the memory is the GPU's.
#[inline]
pub(crate) fn store(memory: &Memory, dword: usize, value: u32) {
    debug_assert!((dword as u64 + 1) * 4 <= memory.length());
    debug_assert!(memory.place() == Place::Host || memory.place() == Place::Video);
    // SAFETY: within the segment, which was made for all slots; the slot is not under way.
    unsafe { memory.as_ptr().cast::<u32>().add(dword).write_volatile(value) };
}

fn load(memory: &Memory, dword: usize) -> u32 {
    debug_assert!((dword as u64 + 1) * 4 <= memory.length());
    // SAFETY: within the segment; the GPU only reads it.
    unsafe { memory.as_ptr().cast::<u32>().add(dword).read_volatile() }
}
