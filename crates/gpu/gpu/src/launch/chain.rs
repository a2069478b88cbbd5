//! The parts of a chain that a plain launch lacks: its own counter, by which its parts wait for one another, and bytes that are read when it is submitted.

use super::LaunchWords;
use super::counts::{blocks_are_data, check_payloads};
use super::named::Named;
use crate::error::Error;
use crate::memory::Memory;
use crate::place::Place;
use crate::region::Region;
use crate::slots::Slots;
use crate::space::AddressSpace;
use crate::validate::{Invalid, Ranges};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A word that counts up: the parts of one chain add to it and wait for it. The CPU does not read it, so it may be in GPU memory, where the GPU's wait
/// does not cross the bus.
#[derive(Clone, Debug)]
pub struct Counter(Arc<Memory>);

/// A counter's first value: it wraps soon, so that code which does not handle that fails early.
const FIRST: u32 = u32::MAX - 100;

impl Counter {
    /// A new counter. (It begins shortly before it wraps.)
    ///
    /// # Errors
    /// No memory.
    pub fn new(space: &Arc<AddressSpace>, place: Place) -> Result<Counter, Error> {
        let memory = space.alloc_own(place, 4)?;
        memory.word(0).store(FIRST, Ordering::SeqCst);
        Ok(Counter(memory))
    }

    /// Its address, for the GPU.
    pub fn va(&self) -> u64 {
        self.0.va()
    }

    pub fn place(&self) -> Place {
        self.0.place()
    }

    pub(super) fn memory(&self) -> &Arc<Memory> {
        &self.0
    }

    pub(super) fn into_memory(self) -> Arc<Memory> {
        self.0
    }
}

/// The words of a chain that are not in [`LaunchWords`].
#[derive(Clone, Copy, Debug, Default)]
pub struct ChainWords<'a> {
    /// The counter that only QMDs and copies of this chain add to.
    pub counter: Option<&'a Counter>,
    /// Words of the launch that hold the counter's value before the launch plus `more`: (word, more).
    pub counts: &'a [(usize, u32)],
    /// How much one launch adds to the counter.
    pub adds: u32,
    /// Bytes that are inline in the words.
    pub sources: &'a [Source],
    /// Further memory that the words may name, possibly of another address space of the same CUDA. It lives as long as the chain.
    pub held: &'a [Arc<Memory>],
}

/// Bytes of host memory that each submission reads into its words.
#[derive(Clone, Debug)]
pub struct Source {
    pub from: Region,
    /// Words of inline data, in order: first word, words.
    pub blocks: Vec<(usize, usize)>,
}

/// The same, as stored in a launch.
#[derive(Debug)]
pub(super) struct Inner {
    counts: Vec<(usize, u64)>,
    adds: u64,
    /// The counter's value when all submitted work is done.
    base: u64,
    sources: Vec<Source>,
}

impl Inner {
    pub fn new(words: &LaunchWords<'_>, chain: &ChainWords<'_>, named: &Named) -> Result<Inner, Error> {
        let invalid = |why, detail| Err(Invalid { at: 0, why, detail }.into());
        check_payloads(words.launch, chain.counts, chain.adds)?;
        if chain.counter.is_none() && (!chain.counts.is_empty() || chain.adds > 0) {
            return invalid("counts without a counter", chain.adds.into());
        }
        if chain.counter.is_some() && words.counts.last().is_none_or(|(_, more)| *more != words.adds) {
            return invalid("a chain that does not set the tracker to its number at its end", words.adds.into());
        }
        for source in chain.sources {
            let (va, length) = (source.from.va(), source.from.length());
            if !named.contains(va, length) {
                return Err(Error::OutsideRegion { va, length });
            }
            blocks_are_data(words.launch, &source.blocks, length)?;
        }
        let counts = chain.counts.iter().map(|(word, more)| (*word, u64::from(*more))).collect();
        Ok(Inner { counts, adds: chain.adds.into(), base: FIRST.into(), sources: chain.sources.to_vec() })
    }

    /// Whether it changes no word.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.sources.is_empty() && self.adds == 0
    }

    /// Writes payloads and bytes into a slot that is not in progress.
    #[inline]
    pub fn put(&self, slots: &Slots, slot: usize) {
        for &(word, more) in &self.counts {
            slots.store(slot, word, (self.base + more) as u32);
        }
        for source in &self.sources {
            let (mut from, mut left) = (source.from.va() as *const u8, source.from.length() as usize);
            for &(word, words) in &source.blocks {
                let bytes = left.min(4 * words);
                // SAFETY: the ticket is taken and the region was live after that, so a thread that frees it waits. The caller of `prepare_chain` promised
                // that the CPU can read it. The slot is not in progress. The engine does not write the rest of the last word to memory.
                unsafe {
                    slots.put_bytes(slot, word, from, bytes);
                    from = from.add(bytes);
                }
                left -= bytes;
            }
        }
    }

    /// Called after each submission.
    #[inline]
    pub fn launched(&mut self) {
        self.base = self.base.wrapping_add(self.adds);
    }
}
