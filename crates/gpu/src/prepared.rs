//! A transfer that is validated once and submitted often.
//!
//! The words lie ready, several times over (one slot for each submission that may be under way). A submission checks one
//! generation number, patches the tracker's payload and, if they moved, the addresses within the windows that were given at
//! the start, and rings. It takes no lock, allocates nothing and makes no system call, unless something was unmapped since:
//! then all is validated again.

use crate::channel::{Channel, Engine};
use crate::error::Error;
use crate::memory::{Memory, Place};
use crate::pushbuffer::{COMPUTE, COPY};
use crate::tracker::Ticket;
use crate::validate::{self, Invalid, Ranges, Rules};
use pushbuf::encode::{MAX_INLINE, Words, inline_dma, launch_dma};
use pushbuf::gpfifo::Entry;
use std::sync::Arc;

/// Slots of one prepared transfer, where they all fit.
const SLOTS: usize = 32;
/// Bytes that the slots of one transfer may take.
const SEGMENT: usize = 1 << 20;

/// A range of memory that a transfer may move within.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// GPU address.
    pub base: u64,
    /// Bytes.
    pub length: u64,
}

impl Window {
    fn holds(&self, va: u64, bytes: u64) -> bool {
        va >= self.base && va.checked_add(bytes).is_some_and(|end| end <= self.base + self.length)
    }
}

/// How the copy engine is told that a copy is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CopyMode {
    /// The copy after those before it (NON_PIPELINED), then a release of its own, as CUDA writes them.
    #[default]
    Plain,
    /// It may overlap those before it (PIPELINED); then a release of its own.
    Pipelined,
    /// The release in the same LAUNCH_DMA as the copy.
    Folded,
}

/// How more inline data than one header counts (13 bits, 32,764 bytes) is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InlineMode {
    /// One LAUNCH_DMA, then several data headers.
    #[default]
    Headers,
    /// A LAUNCH_DMA for each header's worth.
    Launches,
}

/// Who says that an inline copy is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum InlineRelease {
    /// The host, when the engine is idle (SEM_EXECUTE with RELEASE_WFI).
    Host,
    /// The compute class (SET_REPORT_SEMAPHORE_A to D), as CUDA does it; on an H100 8 bytes take 3.7 us instead of 4.1.
    #[default]
    Engine,
}

/// A transfer that is ready to go, on one channel.
#[derive(Debug)]
pub struct Prepared {
    memory: Arc<Memory>,
    /// The words of a slot as they were validated, with the addresses of the last submission.
    template: Vec<u32>,
    entries: Vec<u64>,
    /// Each slot's last submission.
    tickets: Vec<Option<Ticket>>,
    /// How often the addresses have moved, and at which of these moves each slot was written.
    moves: u64,
    written: Vec<u64>,
    /// Dwords between slots.
    stride: usize,
    next: usize,
    layout: Layout,
    bytes: u64,
    source: Option<Window>,
    destination: Window,
    generation: u64,
    channel: u64,
    grave: crate::channel::Grave,
}

/// Where in the words lies what is patched.
#[derive(Clone, Debug, Default)]
struct Layout {
    payload: usize,
    /// Upper word of the source address; the lower one follows.
    source: usize,
    destination: usize,
    /// Blocks of inline data: first word, words.
    data: Vec<(usize, usize)>,
}

impl Prepared {
    /// A copy of `bytes` from the start of one window to the start of another by the channel's copy engine.
    ///
    /// # Errors
    /// What the validator has against it, or no memory.
    pub fn copy(ch: &mut Channel, to: Window, from: Window, bytes: u32, mode: CopyMode) -> Result<Prepared, Error> {
        if !matches!(ch.engine(), Engine::Copy(_)) {
            return Err(Error::OtherChannel);
        }
        let mut words = [0u32; 32];
        let mut w = Words::new(&mut words);
        let (tracker, pitch) = (ch.tracker().va(), launch_dma::PITCH);
        match mode {
            CopyMode::Plain => w.copy(COPY, from.base, to.base, bytes, launch_dma::NON_PIPELINED | pitch)?,
            CopyMode::Pipelined => w.copy(COPY, from.base, to.base, bytes, launch_dma::PIPELINED | pitch)?,
            CopyMode::Folded => {
                w.copy_semaphore(COPY, tracker, PAYLOAD)?;
                let release = launch_dma::RELEASE_TIMED | launch_dma::FLUSH;
                w.copy(COPY, from.base, to.base, bytes, launch_dma::NON_PIPELINED | pitch | release)?
            }
        };
        if mode != CopyMode::Folded {
            w.copy_release(COPY, tracker, PAYLOAD, true)?;
        }
        let words = w.as_slice().to_vec();
        Prepared::new(ch, words, u64::from(bytes), Some(from), to)
    }

    /// `bytes` that travel in the command stream to the start of a window, by the graphics engine. They are given at each
    /// submission ([`Prepared::submit_data`]), or stay what they were.
    ///
    /// # Errors
    /// What the validator has against it, or no memory.
    pub fn inline(ch: &mut Channel, to: Window, bytes: u32, mode: InlineMode) -> Result<Prepared, Error> {
        Prepared::inline_with(ch, to, bytes, mode, InlineRelease::default())
    }

    /// As [`Prepared::inline`], with a choice of who says that it is done.
    ///
    /// # Errors
    /// As [`Prepared::inline`].
    pub fn inline_with(
        ch: &mut Channel,
        to: Window,
        bytes: u32,
        mode: InlineMode,
        release: InlineRelease,
    ) -> Result<Prepared, Error> {
        if ch.engine() != Engine::Graphics {
            return Err(Error::OtherChannel);
        }
        if bytes == 0 {
            return Err(Error::Length(0));
        }
        let data = vec![0u8; bytes as usize];
        let mut words = vec![0u32; data.len().div_ceil(4) + 64 + 9 * (data.len() / MAX_INLINE)];
        let mut w = Words::new(&mut words);
        let tracker = ch.tracker().va();
        let launch = inline_dma::PITCH | inline_dma::NO_SYSMEMBAR;
        match mode {
            InlineMode::Headers => w.inline_long(COMPUTE, to.base, &data, launch)?,
            InlineMode::Launches => {
                for (i, block) in data.chunks(MAX_INLINE).enumerate() {
                    w.inline(COMPUTE, to.base + (i * MAX_INLINE) as u64, block, launch)?;
                }
            }
        }
        match release {
            InlineRelease::Host => w.host_release(0, tracker, PAYLOAD, true)?,
            InlineRelease::Engine => w.report_release(COMPUTE, tracker, PAYLOAD)?,
        }
        let words = w.as_slice().to_vec();
        Prepared::new(ch, words, u64::from(bytes), None, to)
    }

    fn new(
        ch: &mut Channel,
        template: Vec<u32>,
        bytes: u64,
        source: Option<Window>,
        destination: Window,
    ) -> Result<Prepared, Error> {
        if ch.space().device().forked() {
            return Err(Error::Forked);
        }
        ch.bury();
        let layout = Layout::find(&template)?;
        let generation = ch.space().generation();
        check(&template, ch)?;
        // Whole cache lines, so that two slots share none.
        let stride = template.len().next_multiple_of(16);
        let slots = (SEGMENT / (stride * 4)).clamp(2, SLOTS);
        let memory = ch.space().alloc_own(ch.pushbuffers(), (slots * stride * 4) as u64)?;
        let mut entries = Vec::with_capacity(slots);
        for slot in 0..slots {
            let at = slot * stride;
            for (i, word) in template.iter().enumerate() {
                store(&memory, at + i, *word);
            }
            let entry = Entry::segment(memory.va() + 4 * at as u64, template.len() as u32);
            entries.push(entry.ok_or(Error::Length(template.len() as u64))?.encode());
        }
        Ok(Prepared {
            memory,
            template,
            entries,
            tickets: vec![None; slots],
            moves: 0,
            written: vec![0; slots],
            stride,
            next: 0,
            layout,
            bytes,
            source,
            destination,
            generation,
            channel: ch.id(),
            grave: ch.grave(),
        })
    }

    /// Bytes that one submission moves.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Submissions that may be under way at a time.
    pub fn slots(&self) -> usize {
        self.tickets.len()
    }

    /// Submits it once more, with the addresses and data of the last time.
    ///
    /// # Errors
    /// [`Error::RingFull`] while all slots or all GPFIFO entries are in use, [`Error::Stale`] where something that it names
    /// was unmapped, [`Error::OtherChannel`], [`Error::ChannelKilled`], [`Error::Forked`]: nothing was submitted then.
    #[inline]
    pub fn submit(&mut self, ch: &mut Channel) -> Result<Ticket, Error> {
        let slot = self.free_slot(ch)?;
        self.ring(ch, slot)
    }

    /// Submits it with other addresses, each within its window.
    ///
    /// # Errors
    /// As [`Prepared::submit`], and [`Error::OutsideWindow`].
    #[inline]
    pub fn submit_at(&mut self, ch: &mut Channel, to: u64, from: u64) -> Result<Ticket, Error> {
        let outside = |va| Error::OutsideWindow { va, length: self.bytes };
        let Some(source) = self.source else { return Err(outside(from)) };
        if !self.destination.holds(to, self.bytes) {
            return Err(outside(to));
        }
        if !source.holds(from, self.bytes) {
            return Err(outside(from));
        }
        let slot = self.free_slot(ch)?;
        for (at, value) in [(self.layout.destination, to), (self.layout.source, from)] {
            self.template[at] = (value >> 32) as u32;
            self.template[at + 1] = value as u32;
        }
        self.moves += 1;
        self.ring(ch, slot)
    }

    /// Submits an inline copy of `data`, which is as long as was prepared.
    ///
    /// # Errors
    /// As [`Prepared::submit`], and [`Error::Length`] for data of another length.
    #[inline]
    pub fn submit_data(&mut self, ch: &mut Channel, data: &[u8]) -> Result<Ticket, Error> {
        if self.source.is_some() || data.len() as u64 != self.bytes {
            return Err(Error::Length(data.len() as u64));
        }
        let slot = self.free_slot(ch)?;
        let mut rest = data;
        for &(at, words) in &self.layout.data {
            let (block, after) = rest.split_at(rest.len().min(4 * words));
            rest = after;
            debug_assert!(((slot * self.stride + at) * 4 + block.len()) as u64 <= self.memory.length());
            // SAFETY: within the slot, which is not under way. What is left of the last word is not written to memory.
            unsafe {
                let to = self.memory.as_ptr().add(4 * (slot * self.stride + at));
                to.copy_from_nonoverlapping(block.as_ptr(), block.len());
            }
        }
        self.ring(ch, slot)
    }

    #[inline]
    fn free_slot(&mut self, ch: &mut Channel) -> Result<usize, Error> {
        if self.channel != ch.id() {
            return Err(Error::OtherChannel);
        }
        ch.ready()?;
        let slot = self.next;
        match self.tickets[slot] {
            Some(ticket) if !ch.done(ticket) => Err(match ch.error() {
                Some(code) => Error::ChannelKilled(code),
                None => Error::RingFull(self.tickets.len() as u32),
            }),
            _ => Ok(slot),
        }
    }

    #[inline]
    fn ring(&mut self, ch: &mut Channel, slot: usize) -> Result<Ticket, Error> {
        // ORDERING: taken before the generation is read, see AddressSpace::unmapped.
        let ticket = ch.take_ticket();
        if ch.space().generation() != self.generation {
            let generation = ch.space().generation();
            if check(&self.template, ch).is_err() {
                ch.give_back(ticket);
                return Err(Error::Stale);
            }
            self.generation = generation;
        }
        let base = slot * self.stride;
        if self.written[slot] != self.moves {
            self.written[slot] = self.moves;
            for at in [self.layout.destination, self.layout.source] {
                store(&self.memory, base + at, self.template[at]);
                store(&self.memory, base + at + 1, self.template[at + 1]);
            }
        }
        store(&self.memory, base + self.layout.payload, ticket.0);
        ch.push_prepared(self.entries[slot]);
        self.tickets[slot] = Some(ticket);
        self.next = if slot + 1 == self.tickets.len() { 0 } else { slot + 1 };
        Ok(ticket)
    }
}

/// What stands for the ticket's number until one is taken: no address or length looks like it.
const PAYLOAD: u32 = 0xd00b_e11a;

impl Layout {
    /// Finds the words of what is patched by walking the methods.
    fn find(words: &[u32]) -> Result<Layout, Error> {
        use pushbuf::header::Header;
        let mut layout = Layout::default();
        let mut at = 0;
        while at < words.len() {
            let count = match Header::parse(words[at]) {
                Header::Methods { address, count, .. } => {
                    match address {
                        // OFFSET_IN_UPPER, then OFFSET_OUT_UPPER
                        0x400 => (layout.source, layout.destination) = (at + 1, at + 3),
                        // inline: OFFSET_OUT_UPPER
                        0x188 if layout.destination == 0 => layout.destination = at + 1,
                        0x1b4 => layout.data.push((at + 1, count.into())),
                        // SET_SEMAPHORE_A, B, PAYLOAD; SET_REPORT_SEMAPHORE_A, B, C
                        0x240 | 0x1b00 => layout.payload = at + 3,
                        // SEM_ADDR_LO, HI, PAYLOAD_LO
                        0x5c => layout.payload = at + 3,
                        _ => {}
                    }
                    usize::from(count)
                }
                _ => 0,
            };
            at += 1 + count;
        }
        // An inline copy has no source address: the same word is patched twice.
        if layout.source == 0 {
            layout.source = layout.destination;
        }
        if layout.destination == 0 || words.get(layout.payload) != Some(&PAYLOAD) {
            return Err(Invalid { at: 0, why: "no transfer with a release at its end", detail: 0 }.into());
        }
        Ok(layout)
    }
}

/// The address space and the channel's own tracker, which its own releases name.
struct AndTracker<'a>(&'a Channel);

impl Ranges for AndTracker<'_> {
    fn contains(&self, va: u64, length: u64) -> bool {
        va == self.0.tracker().va() && length <= 16 || self.0.space().contains(va, length)
    }
}

pub(crate) fn check(words: &[u32], ch: &Channel) -> Result<(), Error> {
    validate::check(words, &Rules { space: &AndTracker(ch), ..ch.rules() })?;
    Ok(())
}

/// Posted through write-combining where the memory is the GPU's.
#[inline]
fn store(memory: &Memory, dword: usize, value: u32) {
    debug_assert!((dword as u64 + 1) * 4 <= memory.length());
    debug_assert!(memory.place() == Place::Host || memory.place() == Place::Video);
    // SAFETY: within the segment, which was made for all slots; the slot is not under way.
    unsafe { memory.as_ptr().cast::<u32>().add(dword).write_volatile(value) };
}

impl Drop for Prepared {
    fn drop(&mut self) {
        // The channel may still read it: it is freed when the channel has come past, or has gone.
        let before = self.next.checked_sub(1).unwrap_or(self.tickets.len() - 1);
        if let Some(last) = self.tickets[before] {
            self.grave.put(self.memory.clone(), last);
        }
    }
}
