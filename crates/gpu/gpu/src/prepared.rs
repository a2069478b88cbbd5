//! A transfer that is validated once and submitted often.
//!
//! The words are ready in several slots, one for each submission that may be in progress. A submission checks one generation
//! number, patches the tracker's payload and, if they changed, the addresses within the regions given at the start, and
//! rings. It takes no lock, does not allocate and makes no system call, unless memory was unmapped since: then all words are
//! validated again.

use crate::channel::Channel;
use crate::engine::Engine;
use crate::error::Error;
use crate::place::Place;
use crate::points::Point;
use crate::region::Region;
use crate::semaphore::{Semaphore, Semaphores};
use crate::slots::{LINE_WORDS, Slots};
use crate::stores::LineStore;
use crate::tracker::Ticket;
use crate::transfer::{
    self, BEGUN, Between, CopyMode, CopyRelease, End, Form, InlineMode, InlineRelease, Layout, Told,
};
use pushbuf::encode::MAX_INLINE;
use std::sync::Arc;

/// The maximum number of lines in a slot that are all stored with each submission; longer slots are patched.
const WHOLE: usize = 4;

/// A transfer on one channel, ready to be submitted.
#[derive(Debug)]
pub struct Prepared {
    slots: Slots,
    /// The validated words of a slot, with the addresses of the last submission.
    template: Vec<u32>,
    entries: Vec<u64>,
    /// How often the addresses have changed, and the count at which each slot was written.
    moves: u64,
    written: Vec<u64>,
    layout: Layout,
    bytes: u64,
    /// Its release writes the time, too.
    timed: bool,
    /// The semaphore that the engine releases, with the time, before it begins.
    begun: Option<Semaphore>,
    /// A submission does not release the tracker, but the word of `_told` if there is one.
    untracked: bool,
    _told: Option<Told>,
    /// It has one address at each end.
    moves_whole: bool,
    between: Between,
    /// Each submission checks with CUDA whether the memory is still the allocation that was pinned.
    asks: bool,
    /// Data is written into one slot, not into the template: how often there was new data, and the count at which each slot
    /// was written.
    renewed: u64,
    data_of: Vec<u64>,
    /// The slot with the newest data.
    newest: usize,
    /// How the lines of an inline copy's slot are stored whole: a write-combining buffer with holes is sent in several
    /// writes (250 to 130 ns a submission). A copy's slot changes by one word, for which a line is too much (90 to 112).
    lines: Option<LineStore>,
    channel: u64,
    grave: crate::channel::Grave,
}

impl Prepared {
    /// A copy of `bytes` from the start of one region to the start of another by the channel's copy engine.
    ///
    /// # Errors
    /// The validator's error, or no memory.
    pub fn copy(
        ch: &mut Channel,
        to: &Region,
        from: &Region,
        bytes: u32,
        how: impl Into<Form<CopyMode, CopyRelease>>,
    ) -> Result<Prepared, Error> {
        let Form { mode, release, begins } = how.into();
        let begun = begins.then(|| begun(ch)).transpose()?;
        let between = Between { begun: begun.as_ref().map(Semaphore::va), ..Between::of(to, Some(from)) };
        let (engine, tracker) = ch.ends();
        let words = transfer::copy(engine, &between, bytes, mode, End { va: tracker, launch: release.launch() })?;
        let mut prepared = Prepared::new(ch, words, bytes.into(), between, release.is_timed())?;
        prepared.begun = begun;
        Ok(prepared)
    }

    /// A copy that does not update the tracker. Its ticket is done when a later submission that releases the tracker is
    /// done, for example that of [`Channel::release`]. Until then frees of its memory wait for it, and stop the channel if
    /// that takes too long. At the end of each copy the word of `told` is written, after the flush that `told` requests.
    ///
    /// # Errors
    /// As [`Prepared::copy`], and [`Error::OtherSpace`] for a word of another address space.
    pub fn copy_untracked(
        ch: &mut Channel,
        to: &Region,
        from: &Region,
        bytes: u32,
        mode: CopyMode,
        told: Option<Told>,
    ) -> Result<Prepared, Error> {
        if let Some(Told { word, .. }) = &told
            && !Arc::ptr_eq(word.space(), ch.space())
        {
            return Err(Error::OtherSpace { va: word.va() });
        }
        let mut between = Between::of(to, Some(from));
        between.told = told.as_ref().map(|told| told.word.va());
        let (engine, tracker) = ch.ends();
        let words = transfer::copy(engine, &between, bytes, mode, End::untracked(tracker, told.as_ref()))?;
        let mut prepared = Prepared::new(ch, words, bytes.into(), between, false)?;
        (prepared.untracked, prepared._told) = (true, told);
        Ok(prepared)
    }

    /// An inline copy of `bytes` to the start of a region, by the graphics engine. The data is given at each submission
    /// ([`Prepared::submit_data`]), or stays the same.
    ///
    /// # Errors
    /// The validator's error, or no memory.
    pub fn inline(
        ch: &mut Channel,
        to: &Region,
        bytes: u32,
        how: impl Into<Form<InlineMode, InlineRelease>>,
    ) -> Result<Prepared, Error> {
        let Form { mode, release, begins } = how.into();
        let begun = begins.then(|| begun(ch)).transpose()?;
        let between = Between { begun: begun.as_ref().map(Semaphore::va), ..Between::of(to, None) };
        let words = transfer::inline(ch.ends(), &between, bytes, mode, release)?;
        let mut prepared = Prepared::new(ch, words, bytes.into(), between, release.is_timed())?;
        prepared.begun = begun;
        // If each header has its own launch, each launch has its own address.
        prepared.moves_whole = mode == InlineMode::Headers || bytes as usize <= MAX_INLINE;
        Ok(prepared)
    }

    /// Words that end in a release of the tracker, with fixed addresses.
    pub(crate) fn fixed(
        ch: &mut Channel,
        template: (Vec<u32>, Layout),
        bytes: u64,
        between: Between,
        timed: bool,
    ) -> Result<Prepared, Error> {
        if !matches!(ch.ends().0, Engine::Copy(_)) {
            return Err(Error::OtherChannel);
        }
        let mut prepared = Prepared::new(ch, template, bytes, between, timed)?;
        prepared.moves_whole = false;
        Ok(prepared)
    }

    fn new(
        ch: &mut Channel,
        (template, layout): (Vec<u32>, Layout),
        bytes: u64,
        between: Between,
        timed: bool,
    ) -> Result<Prepared, Error> {
        if ch.space().device().forked() {
            return Err(Error::Forked);
        }
        ch.use_for(crate::channel::Use::Transfers)?;
        ch.bury();
        ch.check_transfer(&template, &between)?;
        let slots = Slots::new(ch, template.len())?;
        let mut entries = Vec::with_capacity(slots.count());
        for slot in 0..slots.count() {
            slots.put(slot, &template);
            entries.push(slots.entry(slot, 0, template.len()).ok_or(Error::Length(template.len() as u64))?);
        }
        let (count, template_lines) = (slots.count(), template.len().div_ceil(LINE_WORDS));
        Ok(Prepared {
            slots,
            template,
            entries,
            moves: 0,
            written: vec![0; count],
            renewed: 0,
            data_of: vec![0; count],
            newest: 0,
            layout,
            bytes,
            timed,
            begun: None,
            untracked: false,
            _told: None,
            moves_whole: true,
            lines: (between.from.is_none() && template_lines <= WHOLE && ch.pushbuffers() == Place::Video)
                .then(LineStore::best),
            between,
            asks: ch.space().checks_each_submission(),
            channel: ch.id(),
            grave: ch.grave(),
        })
    }

    /// Bytes that one submission moves.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if [`Channel::timestamp`] is the time at which a submission of this was done.
    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// When the engine began the last finished submission, in nanoseconds of the GPU's clock. `None` if it was not
    /// requested, and before the engine has begun. With several in progress it is the time of one of them.
    #[inline]
    pub fn started(&self) -> Option<u64> {
        self.begun.as_ref().filter(|begun| begun.poll(BEGUN)).map(Semaphore::timestamp)
    }

    /// The maximum number of unfinished submissions.
    pub fn slots(&self) -> usize {
        self.slots.count()
    }

    /// Submits it again, with the previous addresses and data.
    ///
    /// # Errors
    /// [`Error::RingFull`] while all slots or all GPFIFO entries are in use, [`Error::Stale`] if memory that it names was
    /// unmapped, [`Error::OtherChannel`], [`Error::ChannelKilled`], [`Error::Forked`]: the submission was not made.
    #[inline]
    pub fn submit(&mut self, ch: &mut Channel) -> Result<Ticket, Error> {
        let slot = self.free_slot(ch)?;
        if self.data_of[slot] != self.renewed {
            self.carry_data(slot);
        }
        self.ring(ch, slot, self.lines)
    }

    /// Copies the newest data into a slot with older data. For slots in GPU memory that reads over PCIe: a caller that has
    /// the data should give it again ([`Prepared::submit_data`]).
    #[cold]
    fn carry_data(&mut self, slot: usize) {
        for at in self.layout.data.iter().flat_map(|&(at, words)| at..at + words) {
            self.slots.store(slot, at, self.slots.load(self.newest, at));
        }
        self.data_of[slot] = self.renewed;
        self.newest = slot;
    }

    /// Submits it with other addresses, each within its region.
    ///
    /// # Errors
    /// As [`Prepared::submit`], and [`Error::OutsideRegion`].
    #[inline]
    pub fn submit_at(&mut self, ch: &mut Channel, to: u64, from: u64) -> Result<Ticket, Error> {
        self.between.check_places(to, from, self.bytes)?;
        let slot = self.free_slot(ch)?;
        for (at, value) in [(self.layout.destination, to), (self.layout.source, from)] {
            self.template[at] = (value >> 32) as u32;
            self.template[at + 1] = value as u32;
        }
        self.moves += 1;
        self.ring(ch, slot, self.lines)
    }

    /// Later submissions copy to another address within the given region, and from another if there is a source.
    ///
    /// # Errors
    /// [`Error::OutsideRegion`], also for a source without a source region, and for data in several launches.
    pub fn aim(&mut self, to: u64, from: Option<u64>) -> Result<(), Error> {
        let outside = |va| Error::OutsideRegion { va, length: self.bytes };
        if !self.moves_whole || !self.between.to.holds(to, self.bytes) {
            return Err(outside(to));
        }
        let from = match (&self.between.from, from) {
            (Some(source), Some(from)) if source.holds(from, self.bytes) => Some(from),
            (None, None) => None,
            (_, from) => return Err(outside(from.unwrap_or(0))),
        };
        for (at, value) in [(self.layout.destination, Some(to)), (self.layout.source, from)] {
            let Some(value) = value else { continue };
            self.template[at] = (value >> 32) as u32;
            self.template[at + 1] = value as u32;
        }
        self.moves += 1;
        Ok(())
    }

    /// Submits an inline copy of `data`, which must have the prepared length.
    ///
    /// # Errors
    /// As [`Prepared::submit`], and [`Error::Length`] for data of another length.
    #[inline]
    pub fn submit_data(&mut self, ch: &mut Channel, data: &[u8]) -> Result<Ticket, Error> {
        if self.between.from.is_some() || data.len() as u64 != self.bytes {
            return Err(Error::Length(data.len() as u64));
        }
        let slot = self.free_slot(ch)?;
        self.put(slot, data);
        self.ring(ch, slot, self.lines)
    }

    /// As [`Prepared::submit_data`], with the bytes of a region, which the CPU reads: a thread that frees that memory waits
    /// for the read.
    ///
    /// # Errors
    /// As [`Prepared::submit_data`]; [`Error::Stale`] also if the source was freed.
    ///
    /// # Safety
    /// The CPU can read the source at its address as long as it is live.
    #[inline]
    pub unsafe fn submit_from(&mut self, ch: &mut Channel, source: &Region) -> Result<Ticket, Error> {
        if self.between.from.is_some() || source.length() != self.bytes {
            return Err(Error::Length(source.length()));
        }
        let slot = self.free_slot(ch)?;
        let ticket = self.take(ch)?;
        if let Err(error) = ch.admit(source) {
            ch.give_back(ticket);
            return Err(error);
        }
        Point::BeforeStores.reached();
        // SAFETY: the caller's promise. The ticket is taken and the region was live after that, so a thread that frees it
        // waits.
        let data = unsafe { std::slice::from_raw_parts(source.va() as *const u8, source.length() as usize) };
        self.put(slot, data);
        Ok(self.push(ch, slot, self.lines, ticket))
    }

    /// Writes data for the slot's next submission; into the template if all lines are stored whole.
    #[inline]
    fn put(&mut self, slot: usize, data: &[u8]) {
        if self.lines.is_some() {
            self.layout.put_data(&mut self.template, data);
            return;
        }
        let mut rest = data;
        for &(at, words) in &self.layout.data {
            let (block, after) = rest.split_at(rest.len().min(4 * words));
            rest = after;
            // SAFETY: the slot is not in progress. The engine does not write the rest of the last word to memory.
            unsafe { self.slots.put_bytes(slot, at, block.as_ptr(), block.len()) };
        }
        self.renewed += 1;
        self.data_of[slot] = self.renewed;
        self.newest = slot;
    }

    #[inline]
    fn free_slot(&mut self, ch: &mut Channel) -> Result<usize, Error> {
        if self.channel != ch.id() {
            return Err(Error::OtherChannel);
        }
        ch.ready()?;
        self.slots.free(ch)
    }

    /// Writes the slot's words, as whole lines if `lines` is set, and rings the doorbell.
    #[inline]
    fn ring(&mut self, ch: &mut Channel, slot: usize, lines: Option<LineStore>) -> Result<Ticket, Error> {
        let ticket = self.take(ch)?;
        Ok(self.push(ch, slot, lines, ticket))
    }

    /// Takes the ticket of a submission, if all memory that it names is live.
    #[inline]
    fn take(&mut self, ch: &mut Channel) -> Result<Ticket, Error> {
        if self.asks {
            self.between.ask()?;
        }
        if let Some(begun) = &self.begun {
            begun.set(0);
        }
        // ORDERING: taken before the leases are read, see `lease`.
        let ticket = ch.take_ticket();
        if ch.admit_transfer(&self.between).is_err() {
            ch.give_back(ticket);
            return Err(Error::Stale);
        }
        Ok(ticket)
    }

    #[inline]
    fn push(&mut self, ch: &mut Channel, slot: usize, lines: Option<LineStore>, ticket: Ticket) -> Ticket {
        if let Some(how) = lines {
            self.template[self.layout.payload] = ticket.payload();
            // SAFETY: the slot is not in progress; `new` has checked that this CPU has the instruction.
            unsafe { self.slots.put_lines(slot, &self.template, how) };
        } else {
            if self.written[slot] != self.moves {
                self.written[slot] = self.moves;
                for at in [self.layout.destination, self.layout.source] {
                    self.slots.store(slot, at, self.template[at]);
                    self.slots.store(slot, at + 1, self.template[at + 1]);
                }
            }
            self.slots.store(slot, self.layout.payload, ticket.payload());
        }
        Point::AfterWords.reached();
        if self.untracked {
            ch.owes_release();
        }
        ch.push_prepared(self.entries[slot], ticket);
        self.slots.took(slot, ticket);
        ticket
    }
}

/// A semaphore for the start of a transfer.
fn begun(ch: &Channel) -> Result<Semaphore, Error> {
    // A separate page, so a slot is always free.
    Semaphores::new(ch.space())?.alloc().ok_or(Error::Length(0))
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.slots.bury(&self.grave);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AddressSpace, ChannelOptions, Device};
    use doorbell_softgpu::{Mode, SoftDriver};
    use std::time::Duration;

    /// As after 70 minutes at 500,000 submissions a second by another transfer of the channel.
    #[test]
    fn a_transfer_that_was_idle_for_more_than_2_to_the_31_submissions_goes_on() {
        const MANY: u64 = (1 << 31) + 12_345;
        let device = Device::open(Arc::new(SoftDriver::new(Mode::Strict)), 0).unwrap();
        let space = AddressSpace::new(&device).unwrap();
        let memory = space.alloc_host(0x1000).unwrap();
        let mut channel = Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap();
        let whole = memory.region();
        let mut idle = Prepared::copy(&mut channel, &whole, &whole, 64, CopyMode::Plain).unwrap();
        for _ in 0..idle.slots() {
            let ticket = idle.submit(&mut channel).unwrap();
            channel.wait(ticket, Duration::from_secs(10)).unwrap();
        }
        let last = channel.last_ticket();
        channel.pretend(MANY);
        assert!(channel.done(last));
        let ticket = idle.submit(&mut channel).unwrap();
        assert_eq!(ticket.0, last.0 + MANY + 1);
        channel.wait(ticket, Duration::from_secs(10)).unwrap();
    }
}
