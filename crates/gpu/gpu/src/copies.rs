//! Copies that are written when they are submitted: other regions, offsets and lengths each time, one or many with one
//! doorbell. A submission may have acquires before the copies and releases after them.
//!
//! A [`Prepared`](crate::Prepared) transfer is cheaper, but moves the same number of bytes each time. Use this if the copies
//! are known only at the submission. A submission takes its ticket first and then looks at the regions. So a thread that frees
//! memory either sees the ticket or is seen. Each piece passes the validator. A submission does not allocate, and takes no lock
//! unless memory was unmapped since a region was last looked at.

use crate::channel::Channel;
use crate::engine::Engine;
use crate::error::Error;
use crate::pages::{self, CHUNK, LONGEST, Spot};
use crate::place::Place;
use crate::points::Point;
use crate::region::Region;
use crate::slots::Slots;
use crate::stores::LineStore;
use crate::tracker::Ticket;
use crate::validate::{self, Ranges, Rules};
use pushbuf::encode::subchannel::{COPY, HOST};
use pushbuf::encode::{Words, launch_dma, layout};
use pushbuf::semaphore::Execute;

/// Words of a slot, each one GPFIFO entry: about fifty pieces.
const SLOT: usize = 512;
/// The number of slots. Most are for batches: a copy takes one.
const SLOTS: usize = 128;
/// Words that stay free in a slot for the tracker's release.
const END: usize = 8;

/// Room for the words of copies on one channel.
#[derive(Debug)]
pub struct Copies {
    slots: Slots,
    /// The words of the slot in preparation.
    staged: Box<[u32; SLOT]>,
    /// GPFIFO entries of the submission in preparation.
    entries: Vec<u64>,
    lines: Option<LineStore>,
    channel: u64,
    grave: crate::channel::Grave,
}

impl Copies {
    /// For a copy engine's channel.
    ///
    /// # Errors
    /// [`Error::OtherChannel`] for another engine's channel, or no memory.
    pub fn new(ch: &mut Channel) -> Result<Copies, Error> {
        if !matches!(ch.engine(), Engine::Copy(_)) {
            return Err(Error::OtherChannel);
        }
        ch.usable()?;
        Ok(Copies {
            slots: Slots::of(ch, SLOT, SLOTS)?,
            staged: Box::new([0; SLOT]),
            entries: Vec::with_capacity(SLOTS),
            lines: (ch.pushbuffers() == Place::Video).then(LineStore::best),
            channel: ch.id(),
            grave: ch.grave(),
        })
    }

    /// Begins a submission: takes its ticket. If it is dropped before [`Written::submit`], the ticket is given back.
    ///
    /// # Errors
    /// [`Error::RingFull`] while the next slot is in progress, [`Error::OtherChannel`], [`Error::ChannelKilled`],
    /// [`Error::ChannelStopped`], [`Error::Forked`].
    #[inline]
    pub fn begin<'c>(&'c mut self, ch: &'c mut Channel) -> Result<Written<'c>, Error> {
        if self.channel != ch.id() {
            return Err(Error::OtherChannel);
        }
        ch.ready()?;
        self.entries.clear();
        self.slots.free(ch)?;
        // ORDERING: taken before any region is read, see `lease`.
        let ticket = ch.take_ticket();
        Ok(Written { copies: self, ch, ticket, words: 0, pieces: 0, submitted: false })
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        self.slots.bury(&self.grave);
    }
}

/// A submission in preparation.
#[derive(Debug)]
pub struct Written<'c> {
    copies: &'c mut Copies,
    ch: &'c mut Channel,
    ticket: Ticket,
    /// Words in the slot in preparation.
    words: usize,
    pieces: usize,
    submitted: bool,
}

/// A region that pieces may name.
struct Whole {
    va: u64,
    length: u64,
}

impl Whole {
    #[inline]
    fn at(&self, at: u64, bytes: u64) -> Result<u64, Error> {
        if bytes == 0 || bytes > LONGEST {
            return Err(Error::Length(bytes));
        }
        if at > self.length || bytes > self.length - at {
            return Err(Error::Outside { offset: at, length: bytes, size: self.length });
        }
        Ok(self.va + at)
    }

    fn span(&self) -> pages::Span {
        (self.va, self.va + (self.length - 1))
    }
}

/// The memory that the words of one piece may name.
struct Allowed([(u64, u64); 2]);

impl Ranges for Allowed {
    fn contains(&self, va: u64, length: u64) -> bool {
        self.0.iter().any(|&(start, bytes)| va >= start && va - start <= bytes && length <= bytes - (va - start))
    }
}

impl Written<'_> {
    /// The minimum number of pieces that fit into one submission without acquires and releases.
    pub const PIECES: usize = SLOTS * ((SLOT - END) / layout::COPY) - 1;

    /// Copies `bytes` from `from_at` in one region to `to_at` in another. The first piece waits for the channel's earlier
    /// submissions; pieces of one submission may overtake each other.
    ///
    /// # Errors
    /// [`Error::Outside`], [`Error::Length`] for no bytes, [`Error::OtherSpace`], [`Error::OtherGpu`], [`Error::Stale`] if the
    /// memory was freed, [`Error::RingFull`] if all slots are in use.
    #[inline]
    pub fn copy(&mut self, to: (&Region, u64), from: (&Region, u64), bytes: u64) -> Result<(), Error> {
        let (to, from) = (self.admit(to, bytes)?, self.admit(from, bytes)?);
        let mut done = 0;
        while done < bytes {
            let part = (bytes - done).min(LONGEST);
            let kind = if self.pieces == 0 { launch_dma::NON_PIPELINED } else { launch_dma::PIPELINED };
            let (to, from) = (to + done, from + done);
            self.write(layout::COPY, Allowed([(to, part), (from, part)]), |w| {
                w.copy(COPY, from, to, part as u32, kind | launch_dma::PITCH)
            })?;
            self.pieces += 1;
            done += part;
        }
        Ok(())
    }

    /// The first copy does not wait for the channel's earlier submissions, and may overlap them.
    pub fn beside_earlier(&mut self) {
        self.pieces = self.pieces.max(1);
    }

    /// Copies many pieces from one region to another, of at most 1 GiB each. `more` puts the next ones, and returns their number; 0 at the end. Pieces that
    /// continue the one before at both ends are copied with it. They may overtake each other, so no two may have the same destination.
    ///
    /// # Errors
    /// As [`Written::copy`].
    #[inline]
    pub fn scattered(
        &mut self,
        to: &Region,
        from: &Region,
        mut more: impl FnMut(&mut [Spot; CHUNK]) -> Result<usize, Error>,
    ) -> Result<(), Error> {
        let [to, from] = [
            Whole { va: self.admit((to, 0), to.length())?, length: to.length() },
            Whole { va: self.admit((from, 0), from.length())?, length: from.length() },
        ];
        let mut spots = [Spot::default(); CHUNK];
        // The words from here on are not checked yet, and no length is set in the slot.
        let (mut unchecked, mut length) = (self.words, 0);
        loop {
            let n = more(&mut spots)?;
            let mut spots = spots.get(..n).unwrap_or(&spots).iter().peekable();
            if n == 0 {
                break;
            }
            while let Some(spot) = spots.next() {
                let mut bytes = spot.bytes;
                while let Some(next) = spots.next_if(|next| {
                    (next.to, next.from) == (spot.to.wrapping_add(bytes), spot.from.wrapping_add(bytes))
                        && bytes > 0
                        && (1..=LONGEST).contains(&next.bytes)
                        && bytes <= LONGEST - next.bytes
                }) {
                    bytes += next.bytes;
                }
                let (to_va, from_va) = (to.at(spot.to, bytes)?, from.at(spot.from, bytes)?);
                if self.words + pages::MOST + END > SLOT {
                    pages::check(&self.copies.staged[unchecked..self.words], to.span(), from.span())?;
                    self.close_slot()?;
                    self.copies.slots.free_ahead(self.ch, self.copies.entries.len())?;
                    (unchecked, length) = (0, 0);
                }
                let room = self.copies.staged[self.words..].first_chunk_mut::<{ pages::MOST }>();
                let room = room.ok_or(Error::Length(bytes))?;
                let (sets, waits) = (length != bytes, self.pieces == 0);
                self.words += pages::write(room, (to_va, from_va), bytes as u32, sets, waits);
                (length, self.pieces) = (bytes, self.pieces + 1);
            }
        }
        pages::check(&self.copies.staged[unchecked..self.words], to.span(), from.span())?;
        Ok(())
    }

    /// The channel waits here until the word at `at` in the region has reached `value`, as a number that counts up and wraps.
    ///
    /// # Errors
    /// As [`Written::copy`], and [`Error::Misaligned`].
    pub fn acquire(&mut self, word: (&Region, u64), value: u32) -> Result<(), Error> {
        let va = self.word(word)?;
        self.write(layout::SEMAPHORE, Allowed([(va, 4); 2]), |w| {
            w.host_semaphore(HOST, va, value.into(), Execute::WAIT_AND_SWITCH)
        })
    }

    /// Writes `value` to the word at `at` in the region when all earlier pieces have arrived.
    ///
    /// # Errors
    /// As [`Written::acquire`].
    pub fn release(&mut self, word: (&Region, u64), value: u32) -> Result<(), Error> {
        let va = self.word(word)?;
        self.write(layout::SEMAPHORE, Allowed([(va, 4); 2]), |w| w.copy_release(COPY, va, value, false))
    }

    /// Lets the caller load and store this memory itself until the submission is dropped. Adds no words. A thread that frees
    /// the memory waits until then.
    ///
    /// # Errors
    /// As [`Written::copy`].
    #[inline]
    pub fn hold(&self, at: (&Region, u64), bytes: u64) -> Result<(), Error> {
        self.admit(at, bytes).map(|_| ())
    }

    fn word(&self, (region, at): (&Region, u64)) -> Result<u64, Error> {
        let va = self.admit((region, at), 4)?;
        if va.is_multiple_of(4) { Ok(va) } else { Err(Error::Misaligned { offset: at, size: 4 }) }
    }

    /// The address of `bytes` at `at` in a region, if this channel may name the region now.
    #[inline]
    fn admit(&self, (region, at): (&Region, u64), bytes: u64) -> Result<u64, Error> {
        if at.checked_add(bytes).is_none_or(|end| end > region.length()) {
            return Err(Error::Outside { offset: at, length: bytes, size: region.length() });
        }
        if bytes == 0 {
            return Err(Error::Length(0));
        }
        self.ch.admit(region)?;
        Ok(region.va() + at)
    }

    #[inline]
    fn write(
        &mut self,
        most: usize,
        allowed: Allowed,
        write: impl FnOnce(&mut Words<'_>) -> Result<(), pushbuf::encode::Error>,
    ) -> Result<(), Error> {
        if self.words + most + END > SLOT {
            self.close_slot()?;
            self.copies.slots.free_ahead(self.ch, self.copies.entries.len())?;
        }
        let mut w = Words::new(&mut self.copies.staged[self.words..]);
        write(&mut w)?;
        validate::check(w.as_slice(), &Rules { space: &allowed, ..self.ch.rules() })?;
        self.words += w.len();
        Ok(())
    }

    /// Stores the staged words into their slot, and adds its entry to the submission.
    fn close_slot(&mut self) -> Result<(), Error> {
        Point::AfterWords.reached();
        let Copies { slots, staged, entries, lines, .. } = &mut *self.copies;
        let (slot, words) = (slots.ahead(entries.len()), &staged[..self.words]);
        match *lines {
            // SAFETY: the slot is not in progress; `new` has checked that this CPU has the instruction.
            Some(how) => unsafe { slots.put_lines(slot, words, how) },
            None => slots.put(slot, words),
        }
        entries.push(slots.entry(slot, 0, words.len()).ok_or(Error::Length(words.len() as u64))?);
        self.words = 0;
        Ok(())
    }

    /// Rings the doorbell for the whole submission.
    ///
    /// # Errors
    /// [`Error::RingFull`]: the submission was not made.
    #[inline]
    pub fn submit(mut self) -> Result<Ticket, Error> {
        let (ticket, tracker) = (self.ticket, self.ch.ends().1);
        self.write(layout::SEMAPHORE, Allowed([(tracker, 16); 2]), |w| {
            w.copy_release(COPY, tracker, ticket.payload(), false)
        })?;
        self.push()
    }

    /// Rings the doorbell, but the ticket is only done with that of the channel's next submission that releases: an engine that releases first ends all its
    /// copies, and begins the next ones 2 us later (H200). The channel must get such a submission soon, because none of its slots is free before.
    ///
    /// # Errors
    /// As [`Written::submit`].
    #[inline]
    pub fn submit_without_release(self) -> Result<Ticket, Error> {
        self.push()
    }

    #[inline]
    fn push(mut self) -> Result<Ticket, Error> {
        let ticket = self.ticket;
        self.close_slot()?;
        self.ch.push_several(&self.copies.entries, ticket)?;
        let Copies { slots, entries, .. } = &mut *self.copies;
        entries.iter().for_each(|_| slots.took(slots.next(), ticket));
        self.submitted = true;
        Ok(ticket)
    }
}

impl Drop for Written<'_> {
    fn drop(&mut self) {
        if !self.submitted {
            self.ch.give_back(self.ticket);
        }
    }
}
