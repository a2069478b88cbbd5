//! Copies of one length whose addresses are set when they are submitted, many with one doorbell.
//!
//! The words for the maximum number of copies are made and validated once, between two regions. Adding a copy compares its two
//! addresses with the regions and writes them into its words. No other word changes, so the validator need not check again. A
//! [`Batch`](crate::Batch) has fixed places and various lengths. [`Copies`](crate::Copies) takes any copy at each submission,
//! and each passes the validator then.
//!
//! Words that all copies share are written once: the length, and the source's upper half if it is the same for the whole
//! region. LAUNCH_DMA shares a word with its header (IMMD_DATA_METHOD). That leaves five words a copy, of which three change.
//!
//! The words are made in ordinary memory. Streaming stores send them to the GPU's memory in whole lines, some lines at a time,
//! so the stores are on their way while the caller adds the next copies. The last lines are stored after the ticket is taken,
//! because taking it waits until earlier stores have left the CPU. No word is read back.

use crate::channel::{Channel, Grave, Use};
use crate::engine::Engine;
use crate::error::Error;
use crate::place::Place;
use crate::region::Region;
use crate::slots::{LINE_WORDS as WORDS, Slots};
use crate::stores::{self, Level};
use crate::tracker::Ticket;
use crate::transfer::{Between, CopyMode, CopyRelease, PAYLOAD};
use pushbuf::encode::subchannel::COPY;
use pushbuf::encode::{Words, launch_dma, layout, offset};

/// Lines that are stored together while copies are added.
const RUN: usize = 16;
/// Words before the copies, at most: the length, the source's upper half.
const HEAD: usize = 2 + 2;
/// Words of a copy, at most: a header and four halves of addresses, the launch.
const PIECE: usize = 5 + 1;

/// A line of words.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line([u32; WORDS]);

/// The addresses that a copy of this length may have within a region.
#[derive(Clone, Copy, Debug)]
struct Within {
    first: u64,
    /// The distance of the last one from the first.
    span: u64,
}

impl Within {
    fn new(region: &Region, bytes: u64) -> Result<Within, Error> {
        let span = region.length().checked_sub(bytes);
        let span = span.ok_or(Error::OutsideRegion { va: region.va(), length: bytes })?;
        Ok(Within { first: region.va(), span })
    }

    #[inline]
    fn holds(self, va: u64) -> bool {
        va.wrapping_sub(self.first) <= self.span
    }
}

/// Copies of one length between two regions on one channel, to be given addresses and submitted together.
#[derive(Debug)]
pub struct Burst {
    slots: Slots,
    /// The validated words.
    template: Vec<u32>,
    /// The words of the submission in preparation, followed by those of the template.
    staged: Vec<Line>,
    /// How to store to the GPU's memory; none if the words are in host memory.
    level: Option<Level>,
    /// The number of words before the copies, and of each copy.
    head: usize,
    piece: usize,
    most: usize,
    bytes: u64,
    to: Within,
    from: Within,
    /// Copies in the submission in preparation, and how many of its lines are stored.
    added: usize,
    stored: usize,
    between: Between,
    /// Each submission checks with CUDA whether the memory is still the allocation that was pinned.
    asks: bool,
    channel: u64,
    grave: Grave,
}

impl Burst {
    /// The maximum number of copies for one doorbell.
    pub const MOST: usize = 4096;

    /// Prepares up to `most` copies of `bytes` each, from one region to another, with one doorbell. Up to `slots` submissions
    /// may be unfinished. Copies of one submission may overtake each other. With [`CopyMode::Pipelined`] they may also overtake
    /// those of earlier submissions; otherwise the first copy waits for these. In any mode the release after them is separate.
    ///
    /// # Errors
    /// [`Error::OtherChannel`] for another engine's channel, [`Error::Length`] for no bytes, no copies, no slots or more copies
    /// than [`Burst::MOST`], [`Error::OutsideRegion`] if a region is shorter than a copy, the validator's error, or no memory.
    pub fn new(
        ch: &mut Channel,
        (to, from): (&Region, &Region),
        bytes: u32,
        (mode, release): (CopyMode, CopyRelease),
        (most, slots): (usize, usize),
    ) -> Result<Burst, Error> {
        let (Engine::Copy(_), tracker) = ch.ends() else { return Err(Error::OtherChannel) };
        if bytes == 0 || most == 0 || most > Burst::MOST || slots == 0 {
            return Err(Error::Length(if bytes == 0 { 0 } else { most as u64 }));
        }
        let (into, out_of) = (Within::new(to, bytes.into())?, Within::new(from, bytes.into())?);
        if ch.space().device().forked() {
            return Err(Error::Forked);
        }
        ch.use_for(Use::Transfers)?;
        ch.bury();
        let between = Between::of(to, Some(from));
        let is_narrow = out_of.first >> 32 == (out_of.first + out_of.span) >> 32;
        let made = |pieces| words(tracker, (into.first, out_of.first), bytes, (mode, release), (pieces, is_narrow));
        // A submission of fewer copies has the words of its copies and those of the release.
        ch.check_transfer(&made(1)?, &between)?;
        let template = made(most)?;
        ch.check_transfer(&template, &between)?;
        let (head, piece) = if is_narrow { (HEAD, PIECE - 1) } else { (HEAD - 2, PIECE) };
        debug_assert_eq!(template.len(), head + most * piece + layout::SEMAPHORE);
        let mut staged = vec![Line([0; WORDS]); template.len().div_ceil(WORDS)];
        for (line, words) in staged.iter_mut().zip(template.chunks(WORDS)) {
            line.0[..words.len()].copy_from_slice(words);
        }
        Ok(Burst {
            slots: Slots::of(ch, staged.len() * WORDS, slots)?,
            template,
            staged,
            level: (ch.pushbuffers() == Place::Video).then(Level::best),
            head,
            piece,
            most,
            bytes: bytes.into(),
            to: into,
            from: out_of,
            added: 0,
            stored: 0,
            asks: ch.space().checks_each_submission(),
            between,
            channel: ch.id(),
            grave: ch.grave(),
        })
    }

    /// The number of copies in the submission in preparation.
    #[inline]
    pub fn added(&self) -> usize {
        self.added
    }

    /// Adds a copy to the submission in preparation. Each address must be within its region.
    ///
    /// # Errors
    /// [`Error::OutsideRegion`], [`Error::Length`] if it has the maximum; for the first copy [`Error::RingFull`] while the GPU
    /// still uses the next slot, [`Error::OtherChannel`], [`Error::ChannelKilled`]. The copy was not added then.
    #[inline]
    pub fn add(&mut self, ch: &Channel, to: u64, from: u64) -> Result<(), Error> {
        if self.added == 0 {
            self.free(ch)?;
        }
        if self.added == self.most {
            return Err(Error::Length(self.most as u64 + 1));
        }
        for (range, va) in [(self.to, to), (self.from, from)] {
            if !range.holds(va) {
                return Err(Error::OutsideRegion { va, length: self.bytes });
            }
        }
        // The launch is its last word, after the halves of the addresses.
        let end = self.head + (self.added + 1) * self.piece;
        self.put(end - 2, to as u32);
        self.put(end - 3, (to >> 32) as u32);
        self.put(end - 4, from as u32);
        if self.piece == PIECE {
            self.put(end - 5, (from >> 32) as u32);
        }
        self.added += 1;
        // One line late: the last line's words may not have reached the cache yet, and a load of the whole line would wait for
        // that.
        if end / WORDS > self.stored + RUN {
            self.store(self.stored + RUN);
        }
        Ok(())
    }

    /// Submits the added copies, with one doorbell.
    ///
    /// # Errors
    /// [`Error::RingFull`], [`Error::OtherChannel`], [`Error::ChannelKilled`], [`Error::ChannelStopped`], [`Error::Forked`]:
    /// the submission was not made, and its copies remain. [`Error::Length`] without copies. [`Error::Stale`] if memory that it
    /// names was unmapped.
    #[inline]
    pub fn submit(&mut self, ch: &mut Channel) -> Result<Ticket, Error> {
        if self.channel != ch.id() {
            return Err(Error::OtherChannel);
        }
        if self.added == 0 {
            return Err(Error::Length(0));
        }
        ch.ready()?;
        if self.asks {
            self.between.ask()?;
        }
        let at = self.head + self.added * self.piece;
        let (slot, end) = (self.slots.next(), at + layout::SEMAPHORE);
        let entry = self.slots.entry(slot, 0, end).ok_or(Error::Length(end as u64))?;
        // ORDERING: taken before the leases are read, see `lease`.
        let ticket = ch.take_ticket();
        if ch.admit_transfer(&self.between).is_err() {
            ch.give_back(ticket);
            (self.added, self.stored) = (0, 0);
            return Err(Error::Stale);
        }
        let is_whole = self.added == self.most;
        if !is_whole {
            // The release replaces the words of the next copy.
            self.restore(at, self.template.len() - layout::SEMAPHORE);
        }
        self.put(at + layout::PAYLOAD, ticket.payload());
        self.store(end.div_ceil(WORDS));
        if !is_whole {
            self.restore(at, at);
        }
        (self.added, self.stored) = (0, 0);
        ch.push_prepared(entry, ticket);
        self.slots.took(slot, ticket);
        Ok(ticket)
    }

    fn free(&self, ch: &Channel) -> Result<(), Error> {
        if self.channel != ch.id() {
            return Err(Error::OtherChannel);
        }
        self.slots.free(ch).map(drop)
    }

    #[inline]
    fn put(&mut self, word: usize, value: u32) {
        self.staged[word / WORDS].0[word % WORDS] = value;
    }

    /// Copies as many words as a release has from `from` in the template to `to`.
    fn restore(&mut self, to: usize, from: usize) {
        for n in 0..layout::SEMAPHORE {
            self.put(to + n, self.template[from + n]);
        }
    }

    /// Stores the lines up to that one into the slot.
    fn store(&mut self, upto: usize) {
        let lines = &self.staged[self.stored..upto];
        let at = 4 * (self.slots.next() * self.slots.stride + self.stored * WORDS);
        debug_assert!((at + size_of_val(lines)) as u64 <= self.slots.memory.length());
        // SAFETY: lines of a slot that the GPU is done with (`free`), in bounds. This CPU has `level`. The slots' memory begins
        // at a page.
        unsafe {
            let to = self.slots.memory.as_ptr().add(at);
            match self.level {
                Some(level) => stores::store(level, to, lines.as_ptr().cast(), size_of_val(lines)),
                None => to.cast::<Line>().copy_from_nonoverlapping(lines.as_ptr(), lines.len()),
            }
        }
        self.stored = upto;
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.slots.bury(&self.grave);
    }
}

/// Copies from the start of one region to the start of another, and the release. `is_narrow`: the source's upper half is
/// constant.
fn words(
    tracker: u64,
    (to, from): (u64, u64),
    bytes: u32,
    (mode, release): (CopyMode, CopyRelease),
    (pieces, is_narrow): (usize, bool),
) -> Result<Vec<u32>, Error> {
    let mut words = vec![0; HEAD + PIECE * pieces + layout::SEMAPHORE];
    let mut w = Words::new(&mut words);
    let addresses = [(from >> 32) as u32, from as u32, (to >> 32) as u32, to as u32];
    w.inc(COPY, offset::COPY_LINE_LENGTH_IN, &[bytes])?;
    if is_narrow {
        w.inc(COPY, offset::COPY_OFFSET_IN_UPPER, &addresses[..1])?;
    }
    for n in 0..pieces {
        if is_narrow {
            w.inc(COPY, offset::COPY_OFFSET_IN_UPPER + 4, &addresses[1..])?;
        } else {
            w.inc(COPY, offset::COPY_OFFSET_IN_UPPER, &addresses)?;
        }
        let waits = n == 0 && mode != CopyMode::Pipelined;
        let overlap = if waits { launch_dma::NON_PIPELINED } else { launch_dma::PIPELINED };
        w.imm(COPY, offset::COPY_LAUNCH_DMA, overlap | launch_dma::PITCH)?;
    }
    w.copy_semaphore(COPY, tracker, PAYLOAD)?;
    w.inc(COPY, offset::COPY_LAUNCH_DMA, &[release.launch()])?;
    Ok(w.as_slice().to_vec())
}
