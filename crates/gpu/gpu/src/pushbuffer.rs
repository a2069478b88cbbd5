//! Pushbuffers: words in GPU memory, written by typed calls, validated once, and submitted any number of times.
//!
//! The type shows the state: [`Pushbuffer`] can be written, [`Validated`] can be submitted, and no type can do both.

use crate::engine::Engine;
use crate::error::Error;
use crate::memory::Memory;
use crate::place::Place;
use crate::semaphore::Semaphore;
use crate::space::AddressSpace;
use crate::validate::{self, Rules};
use pushbuf::encode::subchannel::{COMPUTE, COPY, HOST};
use pushbuf::encode::{Lines, Words, inline_dma, launch_dma};
use pushbuf::gpfifo::Entry;
use pushbuf::qmd::PcasAction;
use pushbuf::semaphore::{Execute, Operation};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The memory of one pushbuffer.
#[derive(Debug)]
pub(crate) struct Segment {
    memory: Arc<Memory>,
}

/// A pushbuffer in preparation.
#[derive(Debug)]
pub struct Pushbuffer {
    segment: Arc<Segment>,
    capacity: usize,
    len: usize,
}

/// A pushbuffer that a channel accepts.
#[derive(Debug)]
pub struct Validated {
    segment: Arc<Segment>,
    capacity: usize,
    len: usize,
    /// Its GPFIFO entry.
    entry: Entry,
    engine: Engine,
    names_pins: AtomicBool,
    /// The address space's generation at the last check.
    generation: AtomicU64,
}

impl Pushbuffer {
    /// Room for `dwords` words, in host memory.
    pub fn new(space: &Arc<AddressSpace>, dwords: usize) -> Result<Pushbuffer, Error> {
        // A length that no GPFIFO entry can hold is an error.
        let bytes = (dwords as u64)
            .checked_mul(4)
            .filter(|_| u32::try_from(dwords).is_ok_and(|dwords| Entry::segment(0, dwords).is_some()));
        let memory = space.alloc_own(Place::Host, bytes.ok_or(Error::Words(dwords))?)?;
        Ok(Pushbuffer { segment: Arc::new(Segment { memory }), capacity: dwords, len: 0 })
    }

    /// Words written.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Removes all words.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    fn write<T>(
        &mut self,
        write: impl FnOnce(&mut Words<'_>) -> Result<T, pushbuf::encode::Error>,
    ) -> Result<&mut Self, Error> {
        // SAFETY: the segment's memory is mapped, at least `capacity` words long, and no channel reads it: a segment in
        // flight belongs to a `Validated`, never to a `Pushbuffer`.
        let buffer =
            unsafe { std::slice::from_raw_parts_mut(self.segment.memory.as_ptr().cast::<u32>(), self.capacity) };
        let mut words = Words::new(&mut buffer[self.len..]);
        write(&mut words)?;
        self.len += words.len();
        Ok(self)
    }

    /// Adds any words: the validator decides.
    pub fn raw(&mut self, words: &[u32]) -> Result<&mut Self, Error> {
        self.write(|w| w.raw(words))
    }

    /// SET_OBJECT.
    pub fn set_object(&mut self, subch: u8, class: u32) -> Result<&mut Self, Error> {
        self.write(|w| w.set_object(subch, class))
    }

    /// A copy by the copy engine, after earlier copies (NON_PIPELINED).
    pub fn copy(&mut self, dst: u64, src: u64, bytes: u32) -> Result<&mut Self, Error> {
        self.write(|w| w.copy(COPY, src, dst, bytes, launch_dma::NON_PIPELINED | launch_dma::PITCH))
    }

    /// A copy that may overlap earlier ones.
    pub fn copy_pipelined(&mut self, dst: u64, src: u64, bytes: u32) -> Result<&mut Self, Error> {
        self.write(|w| w.copy(COPY, src, dst, bytes, launch_dma::PIPELINED | launch_dma::PITCH))
    }

    /// Lines of a pitched image.
    pub fn copy_lines(&mut self, lines: Lines) -> Result<&mut Self, Error> {
        self.write(|w| w.copy_lines(COPY, lines, launch_dma::NON_PIPELINED | launch_dma::PITCH))
    }

    /// `elements` words of `value`.
    pub fn fill(&mut self, dst: u64, value: u32, elements: u32) -> Result<&mut Self, Error> {
        self.write(|w| w.fill(COPY, dst, value, elements, launch_dma::NON_PIPELINED | launch_dma::PITCH))
    }

    /// A release by the copy engine with a timestamp, when earlier copies are done.
    pub fn copy_release(&mut self, semaphore: &Semaphore, payload: u32) -> Result<&mut Self, Error> {
        self.write(|w| w.copy_release(COPY, semaphore.va(), payload, true))
    }

    /// Inline data, by the compute class.
    pub fn inline(&mut self, dst: u64, data: &[u8]) -> Result<&mut Self, Error> {
        self.write(|w| w.inline(COMPUTE, dst, data, inline_dma::PITCH | inline_dma::NO_SYSMEMBAR))
    }

    /// A release by the host with a timestamp, when the engine is idle.
    pub fn host_release(&mut self, semaphore: &Semaphore, payload: u32) -> Result<&mut Self, Error> {
        self.write(|w| w.host_release(HOST, semaphore.va(), payload, true))
    }

    /// The channel waits until the semaphore holds `payload`.
    pub fn host_acquire(&mut self, semaphore: &Semaphore, payload: u32) -> Result<&mut Self, Error> {
        let acquire = Execute { operation: Operation::Acquire, switch_tsg: true, ..Execute::RELEASE };
        self.write(|w| w.host_semaphore(HOST, semaphore.va(), payload.into(), acquire))
    }

    /// Launches the QMD at `qmd`, which the channel must have been granted
    /// ([`Channel::grant_launches`](crate::Channel::grant_launches)).
    pub fn launch(&mut self, qmd: u64) -> Result<&mut Self, Error> {
        self.write(|w| w.pcas(COMPUTE, qmd, PcasAction::InvalidatePrefetchCopySchedule))
    }

    /// A copy of the words.
    pub fn words(&self) -> Vec<u32> {
        self.segment.words(self.len)
    }

    pub(crate) fn validate_for(
        self,
        engine: Engine,
        space: &Arc<AddressSpace>,
        rules: &Rules<'_>,
    ) -> Result<Validated, Error> {
        // Read before the check: memory that is unmapped during the check makes the result stale.
        let generation = space.generation();
        if !Arc::ptr_eq(self.segment.memory.space(), space) {
            return Err(Error::OtherChannel);
        }
        validate::check(&self.words(), rules)?;
        let Pushbuffer { segment, capacity, len } = self;
        let entry = u32::try_from(len).ok().and_then(|words| Entry::segment(segment.memory.va(), words));
        let entry = entry.ok_or(Error::Words(len))?;
        let (names_pins, generation) = (AtomicBool::new(false), AtomicU64::new(generation));
        Ok(Validated { segment, capacity, len, entry, engine, names_pins, generation })
    }
}

impl Segment {
    fn words(&self, len: usize) -> Vec<u32> {
        // SAFETY: mapped, and at least `len` words were written.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().cast::<u32>(), len) }.to_vec()
    }
}

impl Validated {
    /// Words.
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// GPU address of the first word.
    pub fn va(&self) -> u64 {
        self.segment.memory.va()
    }

    pub fn words(&self) -> Vec<u32> {
        self.segment.words(self.len)
    }

    pub(crate) fn segment(&self) -> &Arc<Segment> {
        &self.segment
    }

    pub(crate) fn entry(&self) -> Entry {
        self.entry
    }

    /// Whether it was validated for a channel of this kind.
    #[inline]
    pub(crate) fn is_for(&self, engine: Engine, space: &Arc<AddressSpace>) -> bool {
        let same_kind =
            matches!((self.engine, engine), (Engine::Graphics, Engine::Graphics) | (Engine::Copy(_), Engine::Copy(_)));
        same_kind && Arc::ptr_eq(self.segment.memory.space(), space)
    }

    /// Whether no memory at all was unmapped since the last check.
    #[inline]
    pub(crate) fn is_fresh(&self, generation: u64) -> bool {
        self.generation.load(Ordering::Relaxed) == generation
    }

    /// Checks all words again: no memory that they name may have been unmapped.
    pub(crate) fn check(&self, rules: &Rules<'_>, generation: u64) -> Result<(), Error> {
        validate::check(&self.words(), rules).map_err(|_| Error::Stale)?;
        self.generation.store(generation, Ordering::Relaxed);
        Ok(())
    }

    /// Whether it was seen to name pinned CUDA memory.
    #[inline]
    pub(crate) fn names_pins(&self) -> bool {
        self.names_pins.load(Ordering::Relaxed)
    }

    pub(crate) fn note(&self, names_pins: bool) {
        if names_pins {
            self.names_pins.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn revalidate_for(
        &mut self,
        engine: Engine,
        space: &Arc<AddressSpace>,
        rules: &Rules<'_>,
    ) -> Result<(), Error> {
        let generation = space.generation();
        validate::check(&self.words(), rules)?;
        *self.generation.get_mut() = generation;
        self.engine = engine;
        Ok(())
    }

    /// The memory, to be written again; `Err` with itself while a channel may still read it.
    pub fn reuse(mut self) -> Result<Pushbuffer, Validated> {
        if Arc::get_mut(&mut self.segment).is_none() {
            return Err(self);
        }
        Ok(Pushbuffer { segment: self.segment, capacity: self.capacity, len: 0 })
    }
}
