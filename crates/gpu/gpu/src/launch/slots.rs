//! Places for the words of a launch that take turns: one for each submission that may be under way.

use crate::channel::Channel;
use crate::error::Error;
use crate::memory::Memory;
use crate::place::Place;
use crate::prepared::store;
use crate::tracker::Ticket;
use pushbuf::gpfifo::Entry;
use std::sync::Arc;

/// Slots of one launch, where they all fit, and the bytes that they may take.
const SLOTS: usize = 32;
const SEGMENT: usize = 1 << 20;

/// Pieces of one memory that take turns.
#[derive(Debug)]
pub struct Slots {
    pub memory: Arc<Memory>,
    /// Dwords between them.
    pub stride: usize,
    /// Each one's last submission.
    pub tickets: Vec<Option<Ticket>>,
    next: usize,
}

impl Slots {
    pub fn new(ch: &Channel, words: usize) -> Result<Slots, Error> {
        // Whole cache lines, so that two share none.
        let stride = words.next_multiple_of(16);
        let count = (SEGMENT / (stride * 4)).clamp(2, SLOTS);
        let memory = ch.space().alloc_own(ch.pushbuffers(), (count * stride * 4) as u64)?;
        Ok(Slots { memory, stride, tickets: vec![None; count], next: 0 })
    }

    pub fn put(&self, slot: usize, words: &[u32]) {
        words.iter().enumerate().for_each(|(i, word)| store(&self.memory, slot * self.stride + i, *word));
    }

    pub fn entry(&self, slot: usize, words: usize) -> Result<u64, Error> {
        self.entry_from(slot, 0, words)
    }

    /// From a word of the slot on.
    pub fn entry_from(&self, slot: usize, from: usize, words: usize) -> Result<u64, Error> {
        let at = self.memory.va() + 4 * (slot * self.stride + from) as u64;
        let entry = u32::try_from(words).ok().and_then(|words| Entry::segment(at, words));
        Ok(entry.ok_or(Error::Words(words))?.encode())
    }

    #[inline]
    pub fn free(&self, ch: &Channel) -> Result<usize, Error> {
        match self.tickets[self.next] {
            Some(ticket) if !ch.done(ticket) => Err(ch.full(self.tickets.len() as u32)),
            _ => Ok(self.next),
        }
    }

    #[inline]
    pub fn took(&mut self, slot: usize, ticket: Ticket) {
        self.tickets[slot] = Some(ticket);
        self.next = if slot + 1 == self.tickets.len() { 0 } else { slot + 1 };
    }

    /// One, with these words.
    pub fn whole(ch: &Channel, words: &[u32]) -> Result<Slots, Error> {
        let memory = ch.space().alloc_own(Place::Host, 4 * words.len() as u64)?;
        let slots = Slots { memory, stride: words.len(), tickets: vec![None], next: 0 };
        slots.put(0, words);
        Ok(slots)
    }
}
