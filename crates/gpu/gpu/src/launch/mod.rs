//! A launch of kernels that is validated once and submitted often.
//!
//! The caller supplies the words: an acquire of the channel's tracker in front, QMDs that add to the tracker, acquires between them. [`LaunchWords`] lists
//! which words are payloads, and of what. A submission takes as many ticket numbers as the launch adds, writes the payloads into a slot, and rings. It
//! takes no lock, does not allocate, makes no system call, and never waits. Launches on a channel run in the order of submission: each begins with an
//! acquire of the number before its own first, so the GPU waits. If the CPU sees that this number is reached, the entry begins after the acquire. That
//! saves a read over the bus: 1.1 us on an H200.
//!
//! Inline writes change kernels' parameters ([`Launch::submit_with`]). They are in a separate segment ahead of the launch's, after the same acquire: no
//! bank is written while a kernel of an earlier launch may read it.
//!
//! A *chain* ([`Launch::prepare_chain`]) is a launch whose parts wait for one another by their own counter, with copies between them. The tracker is
//! released once, at its end. Inline bytes are read from host memory when it is submitted.
//!
//! The CPU may store bytes into GPU memory before each submission ([`Launch::store_first`]).
//!
//! doorbell cannot see which memory kernels touch. So each free of memory by CUDA first waits for the channels of launches.

mod chain;
mod counts;
mod named;
mod stores;

use crate::channel::{Channel, Grave, acquire};
use crate::engine::Engine;
use crate::error::Error;
use crate::lease::Group;
use crate::memory::Memory;
use crate::pin::Pin;
use crate::region::Region;
use crate::slots::Slots;
use crate::tracker::Ticket;
use chain::Inner;
pub use chain::{ChainWords, Counter, Source};
use counts::{check_counts, check_payloads};
use named::Named;
use pushbuf::encode::subchannel::COMPUTE;
use pushbuf::encode::{CONSTANT_CACHES, Words, inline_dma, layout, offset};
use pushbuf::semaphore::Execute;
use std::sync::Arc;
use std::time::Duration;
pub use stores::Stores;

/// Time limit of the upload, which waits for earlier launches on its channel.
const UPLOAD: Duration = Duration::from_secs(10);

/// The words of a launch, and the memory that they may name.
#[derive(Clone, Copy, Debug)]
pub struct LaunchWords<'a> {
    /// Written once: banks and QMDs. These words must not start any work.
    pub upload: &'a [u32],
    pub launch: &'a [u32],
    /// Words of `launch` that hold the tracker's value before the launch plus `more`: (word, more).
    pub counts: &'a [(usize, u32)],
    /// How much one launch adds to the tracker; its QMDs release that word.
    pub adds: u32,
    /// QMDs that may be started, ascending.
    pub qmds: &'a [u64],
    /// The memory of QMDs and banks ([`AddressSpace::alloc_for_launch`]), kept until the last launch is done.
    pub memory: &'a [Arc<Memory>],
    /// The memory that copies, fills and writes of the launch touch.
    pub touched: &'a [Region],
    /// Memory that kernels need and words do not name. After it is freed, no launch is made.
    pub needed: &'a [Region],
    /// Bytes of the largest parameters in one submission, and the maximum number of writes for them.
    pub parameters: (usize, usize),
}

/// New bytes for a bank.
#[derive(Clone, Copy, Debug)]
pub struct NewParameters<'a> {
    pub address: u64,
    pub bytes: &'a [u8],
}

/// A launch on one channel, ready to be submitted.
#[derive(Debug)]
pub struct Launch {
    slots: Slots,
    entries: Vec<Entries>,
    counts: Vec<(usize, u64)>,
    adds: u32,
    /// The counts and sources of a chain.
    inner: Inner,
    /// The stores of the CPU before each submission.
    stores: Vec<Stores>,
    /// The validated words.
    words: Vec<u32>,
    qmds: Vec<u64>,
    named: Named,
    parameters: Option<Parameters>,
    asks: bool,
    /// All words that change from one launch to the next are before the words of `at_once`.
    is_plain: bool,
    generation: u64,
    /// The memory that each launch names, as far as it is known.
    leases: Arc<Group>,
    /// The address of kernels' local memory.
    local_memory: u64,
    channel: u64,
    grave: Grave,
    /// The last submission, of the upload or of a launch.
    last: Option<Ticket>,
    /// The last submission of its copies on a separate channel.
    copied: Option<Ticket>,
    kept: Vec<Pin>,
}

/// The entries of one slot.
#[derive(Clone, Copy, Debug)]
struct Entries {
    /// Begins with the wait for the previous launch.
    waiting: u64,
    /// Begins after that wait, for use when the previous launch is done.
    at_once: u64,
}

/// The place for the words of new parameters.
#[derive(Debug)]
struct Parameters {
    slots: Slots,
    staged: Vec<u32>,
}

impl Launch {
    /// Uploads the data of the words and waits until it has arrived.
    ///
    /// # Errors
    /// The validator's error, [`Error::OtherChannel`] for another engine's channel, [`Error::OtherUse`] for one with transfers, no memory, or a channel
    /// that does not finish.
    ///
    /// # Safety
    /// The upload starts no work. The kernels may run at each submission: the memory that they touch must live as long as this launch, or no submission
    /// may follow. Their QMDs add `adds` in all to the tracker, whose address is [`Channel::tracker`].
    pub unsafe fn prepare(ch: &mut Channel, words: LaunchWords<'_>) -> Result<Launch, Error> {
        // SAFETY: the caller's promise; there are no sources to read.
        unsafe { Launch::prepare_chain(ch, words, ChainWords::default()) }
    }

    /// As [`Launch::prepare`], for a chain.
    ///
    /// # Errors
    /// As [`Launch::prepare`]; [`Error::OtherSpace`] for memory that has other addresses here, [`Error::Length`] for a source without words.
    ///
    /// # Safety
    /// As [`Launch::prepare`], except that QMDs add to the chain's counter as `chain` states, and the words set the tracker to its number at their end.
    /// The CPU can read the sources at their addresses as long as they are live.
    pub unsafe fn prepare_chain(
        ch: &mut Channel,
        words: LaunchWords<'_>,
        chain: ChainWords<'_>,
    ) -> Result<Launch, Error> {
        // (A part of a chain that only copies counts as a transfer on its channel.)
        let copies = matches!(ch.engine(), Engine::Copy(_)) && words.upload.is_empty() && words.qmds.is_empty();
        if copies {
            ch.begin_transfers()?
        } else {
            ch.begin_launches()?
        }
        ch.bury();
        let space = ch.space().clone();
        let (generation, local_memory) = (space.generation(), space.local_memory());
        let (_, tracker) = ch.ends();
        let named = Named {
            space: space.clone(),
            tracker,
            memory: words.memory.to_vec(),
            held: chain.held.to_vec(),
            counter: chain.counter.cloned(),
            touched: words.touched.to_vec(),
            needed: words.needed.to_vec(),
            pointers: Vec::new(),
        };
        let leases = ch.group_of_leases();
        leases.add(named.all().map(Region::lease));
        named.check()?;
        ch.check_launch(words.launch, words.qmds, &named)?;
        if copies {
            check_payloads(words.launch, words.counts, words.adds)?;
        } else {
            check_counts(words.launch, words.counts, words.adds)?;
        }
        let inner = Inner::new(&words, &chain, &named)?;
        let front = front(words.launch, words.counts, tracker);
        ch.check_launch(words.launch.get(front..).unwrap_or_default(), words.qmds, &named)?;
        let slots = Slots::new(ch, words.launch.len())?;
        let length = words.launch.len();
        let mut entries = Vec::with_capacity(slots.count());
        for slot in 0..slots.count() {
            slots.put(slot, words.launch);
            let entry = |from| slots.entry(slot, from, length - from).ok_or(Error::Words(length - from));
            entries.push(Entries { waiting: entry(0)?, at_once: entry(front)? });
        }
        let parameters = match words.parameters {
            (0, _) | (_, 0) => None,
            (bytes, writes) => {
                let room = layout::SEMAPHORE + bytes.div_ceil(4) + writes * layout::INLINE + bytes / 0x7fff + 2;
                Some(Parameters { slots: Slots::new(ch, room)?, staged: vec![0; room] })
            }
        };
        let asks = space.checks_each_submission();
        let is_plain = words.counts.len() == 1 && front > 0 && inner.is_empty() && !asks;
        let mut launch = Launch {
            slots,
            entries,
            counts: words.counts.iter().map(|(word, more)| (*word, u64::from(*more))).collect(),
            adds: words.adds,
            inner,
            stores: Vec::new(),
            words: words.launch.to_vec(),
            qmds: words.qmds.to_vec(),
            named,
            parameters,
            asks,
            is_plain,
            generation,
            leases,
            local_memory,
            channel: ch.id(),
            grave: ch.grave(),
            last: None,
            copied: None,
            kept: Vec::new(),
        };
        if !copies {
            launch.upload(ch, words.upload)?;
        }
        Ok(launch)
    }

    /// Submits the upload. After it the tracker gets its next number, once all earlier launches have been counted.
    fn upload(&mut self, ch: &mut Channel, upload: &[u32]) -> Result<(), Error> {
        ch.ready()?;
        let mut words = upload.to_vec();
        words.resize(upload.len() + layout::SEMAPHORE + layout::INLINE + 1, 0);
        let (before, ticket) = ch.take_tickets(1);
        let tail = words.get_mut(upload.len()..).unwrap_or_default();
        let waits = acquire(tail, self.named.tracker, before as u32);
        let mut to = Words::new(tail.get_mut(waits..).unwrap_or_default());
        let number = ticket.payload().to_le_bytes();
        let submitted = to
            .inline(COMPUTE, self.named.tracker, &number, inline_dma::PITCH)
            .map_err(Error::from)
            .map(|()| upload.len() + waits + to.len())
            .and_then(|length| {
                words.truncate(length);
                ch.check_launch(&words, &self.qmds, &self.named)?;
                let segment = Slots::whole(ch, &words)?;
                Ok((segment.entry(0, 0, words.len()).ok_or(Error::Words(words.len()))?, segment.memory))
            });
        let (entry, memory) = match submitted {
            Ok(submitted) => submitted,
            Err(error) => {
                ch.give_back_to(before);
                return Err(error);
            }
        };
        ch.push_prepared(entry, ticket);
        self.grave.put(memory, ticket);
        self.last = Some(ticket);
        ch.wait(ticket, UPLOAD)
    }

    /// From now on [`Launch::submit_beside`] submits these copies, which have a separate channel, with this launch. The GPU may read their words until
    /// this launch's ticket is done, which is later than theirs: the channel of launches learns last that the copies are done.
    pub fn takes_beside(&self, copies: &mut Launch) {
        copies.grave = self.grave.clone();
    }

    /// Keeps pins of the memory that the words name until the last launch is done, even if this is dropped before.
    pub fn keep(&mut self, pins: impl IntoIterator<Item = Pin>) {
        self.kept.extend(pins);
    }

    /// From now on the CPU stores these bytes before each submission. A submission is refused while the previous one is not done ([`Error::RingFull`]),
    /// because the GPU may still read the bytes stored for it. For a chain with its copies on a separate channel, either ticket shows that.
    ///
    /// # Errors
    /// [`Error::OutsideRegion`] for a source that the launch does not keep, [`Error::Outside`] for more bytes than are mapped. The launch is unchanged
    /// then.
    ///
    /// # Safety
    /// The CPU can read the sources at their addresses as long as they are live.
    pub unsafe fn store_first(&mut self, stores: Vec<Stores>) -> Result<(), Error> {
        stores.iter().try_for_each(|stores| stores.check(&self.named))?;
        self.is_plain &= stores.is_empty();
        self.stores.extend(stores);
        Ok(())
    }

    /// Whether kernels' local memory still has the address that it had when this was prepared.
    pub fn local_memory_is_there(&self) -> bool {
        self.named.space.local_memory() == self.local_memory
    }

    /// The maximum number of launches in flight.
    pub fn slots(&self) -> usize {
        self.slots.count()
    }

    /// How many ticket numbers a launch takes.
    pub fn adds(&self) -> u32 {
        self.adds
    }

    /// The eight bytes at `at`, a parameter, will point into this region. After its memory is freed, no launch is made until they point elsewhere.
    ///
    /// # Errors
    /// If the region is of another address space or GPU, or its memory was freed. The launch is unchanged then.
    pub fn point(&mut self, at: u64, region: &Region) -> Result<(), Error> {
        // The lease is added before the region is checked: a thread that frees the memory then waits for this channel.
        self.leases.add([region.lease()]);
        region.check(&self.named.space, self.named.space.device().uuid())?;
        self.unpoint(at, 8);
        self.named.pointers.push((at, region.clone()));
        Ok(())
    }

    /// These bytes are no longer such pointers.
    pub fn unpoint(&mut self, at: u64, bytes: u64) {
        self.named.pointers.retain(|(other, _)| *other >= at.saturating_add(bytes) || at >= other.saturating_add(8));
    }

    /// Whether [`Launch::submit`] would find a slot and a GPFIFO entry now.
    ///
    /// # Errors
    /// As [`Launch::submit`].
    pub fn ready(&self, ch: &mut Channel) -> Result<(), Error> {
        self.free_slot(ch)?;
        self.is_over(ch)
    }

    /// As [`Launch::ready`], for [`Launch::submit_beside`].
    ///
    /// # Errors
    /// As [`Launch::submit_beside`].
    pub fn ready_beside(&self, ch: &mut Channel, (copies, other): (&Launch, &mut Channel)) -> Result<(), Error> {
        self.slots_beside(ch, (copies, other)).map(drop)
    }

    /// Launches again. Its ticket is done when all of its kernels are.
    ///
    /// # Errors
    /// [`Error::RingFull`] while all slots or all GPFIFO entries are in use, or while stores would overwrite the bytes of the previous submission,
    /// [`Error::Stale`] if memory that its copies and fills name was unmapped, [`Error::OtherChannel`], [`Error::ChannelKilled`],
    /// [`Error::ChannelStopped`], [`Error::Forked`]. In all these cases the launch was not submitted.
    #[inline]
    pub fn submit(&mut self, ch: &mut Channel) -> Result<Ticket, Error> {
        match self.submit_at_once(ch) {
            Some(ticket) => Ok(ticket),
            None => self.submit_in_slot(ch),
        }
    }

    /// The usual case: the channel is idle, and no word changes. Uses few instructions and cache lines, because a CPU with cold caches waits for each
    /// line.
    #[inline]
    fn submit_at_once(&mut self, ch: &mut Channel) -> Option<Ticket> {
        if !self.is_plain || self.channel != ch.id() || !ch.is_idle_with_room() {
            return None;
        }
        // (All slots are free.)
        let entry = self.entries.first()?.at_once;
        // ORDERING: taken before the generation is read, see `lease`.
        let (before, ticket) = ch.take_tickets(self.adds);
        self.leases.used(ticket.number());
        if ch.space().generation() != self.generation {
            ch.give_back_to(before);
            return None;
        }
        ch.push_prepared(entry, ticket);
        self.slots.took(0, ticket);
        self.last = Some(ticket);
        Some(ticket)
    }

    /// The general case. Not inlined: its code would be in the middle of the fast path.
    #[inline(never)]
    fn submit_in_slot(&mut self, ch: &mut Channel) -> Result<Ticket, Error> {
        let slot = self.free_slot(ch)?;
        self.is_over(ch)?;
        self.go(ch, slot, false)
    }

    /// `over`: all earlier launches on the channel are done, even if its tracker does not show it yet.
    #[inline]
    fn go(&mut self, ch: &mut Channel, slot: usize, over: bool) -> Result<Ticket, Error> {
        let (before, ticket) = self.begin(ch)?;
        if let Err(error) = stores::store(&self.stores) {
            ch.give_back_to(before);
            return Err(error);
        }
        self.count(slot, before);
        ch.push_prepared(self.entries[slot].for_launch(over || ch.has_reached(before)), ticket);
        self.took(slot, ticket);
        Ok(ticket)
    }

    /// As [`Launch::submit`], with new parameters. They also apply to later launches.
    ///
    /// # Errors
    /// As [`Launch::submit`]; [`Error::Length`] for more than was prepared for, or the validator's error for an address.
    pub fn submit_with<'a>(
        &mut self,
        ch: &mut Channel,
        new: impl IntoIterator<Item = NewParameters<'a>>,
    ) -> Result<Ticket, Error> {
        let slot = self.free_slot(ch)?;
        self.is_over(ch)?;
        self.go_with(ch, slot, new, false)
    }

    fn go_with<'a>(
        &mut self,
        ch: &mut Channel,
        slot: usize,
        new: impl IntoIterator<Item = NewParameters<'a>>,
        over: bool,
    ) -> Result<Ticket, Error> {
        let mut new = new.into_iter().peekable();
        if new.peek().is_none() {
            return self.go(ch, slot, over);
        }
        let (before, ticket) = self.begin(ch)?;
        let behind = if over || ch.has_reached(before) { None } else { Some(before) };
        let submitted = self.parameter_entry(ch, new, behind).and_then(|(place, entry)| {
            // Room for both entries before the first byte is stored.
            ch.room(2)?;
            stores::store(&self.stores)?;
            self.count(slot, before);
            // (The parameters' segment has waited for the previous launch.)
            ch.push_several(&[entry, self.entries[slot].at_once], ticket)?;
            Ok(place)
        });
        match submitted {
            Ok(place) => {
                if let Some(parameters) = &mut self.parameters {
                    parameters.slots.took(place, ticket);
                }
                self.took(slot, ticket);
                Ok(ticket)
            }
            Err(error) => {
                ch.give_back_to(before);
                Err(error)
            }
        }
    }

    /// As [`Launch::submit_with`], for a chain with its copies on a separate channel: both or neither are submitted. Returns the tickets of both.
    ///
    /// # Errors
    /// As [`Launch::submit_with`], for either part.
    pub fn submit_beside<'a>(
        &mut self,
        ch: &mut Channel,
        new: impl IntoIterator<Item = NewParameters<'a>>,
        (copies, other): (&mut Launch, &mut Channel),
    ) -> Result<[Ticket; 2], Error> {
        let [here, there] = self.slots_beside(ch, (copies, other))?;
        // Its copies end after its kernels, and no launch was made since.
        let over = self.last == Some(ch.last_ticket()) && self.copied.is_some_and(|copied| other.done(copied));
        let (before, copied) = copies.begin(other)?;
        match self.go_with(ch, here, new, over) {
            Ok(launched) => {
                copies.count(there, before);
                // There is room for it: no other submission was made on that channel since the check.
                other.push_prepared(copies.entries[there].waiting, copied);
                // The words after the release of the ticket are not counted.
                other.owes_release();
                copies.took(there, launched);
                self.copied = Some(copied);
                Ok([launched, copied])
            }
            Err(error) => {
                other.give_back_to(before);
                Err(error)
            }
        }
    }

    /// A slot for each part.
    #[inline]
    fn slots_beside(&self, ch: &mut Channel, (copies, other): (&Launch, &mut Channel)) -> Result<[usize; 2], Error> {
        copies.is_ready(other)?;
        let slots = [self.free_slot(ch)?, copies.slots.free(ch)?];
        // The copies' end is the chain's end, and the channel of launches learns of it later.
        if !self.stores.is_empty() && self.copied.is_some_and(|copied| !other.done(copied)) {
            self.is_over(ch)?;
        }
        Ok(slots)
    }

    /// Checks that the stores for the next submission do not overwrite bytes that the last one reads.
    #[inline]
    fn is_over(&self, ch: &Channel) -> Result<(), Error> {
        match self.last {
            Some(last) if !self.stores.is_empty() && !ch.done(last) => Err(ch.full(1)),
            _ => Ok(()),
        }
    }

    /// Writes the words with new parameters, to run after that number of the tracker. Returns their place, and the entry for them.
    fn parameter_entry<'a>(
        &mut self,
        ch: &Channel,
        new: impl Iterator<Item = NewParameters<'a>>,
        behind: Option<u64>,
    ) -> Result<(usize, u64), Error> {
        let Some(parameters) = &mut self.parameters else { return Err(Error::Length(0)) };
        let place = parameters.slots.free(ch)?;
        let staged = &mut parameters.staged;
        let waits = behind.map_or(0, |number| acquire(staged, self.named.tracker, number as u32));
        let mut to = Words::new(staged.get_mut(waits..).unwrap_or_default());
        for NewParameters { address, bytes } in new {
            to.inline_long(COMPUTE, address, bytes, inline_dma::PITCH | inline_dma::NO_SYSMEMBAR)?;
        }
        to.inc(COMPUTE, offset::INVALIDATE_SHADER_CACHES_NO_WFI, &[CONSTANT_CACHES])?;
        let length = waits + to.len();
        let words = staged.get(..length).unwrap_or_default();
        ch.check_launch(words, &self.qmds, &self.named)?;
        parameters.slots.put(place, words);
        Ok((place, parameters.slots.entry(place, 0, length).ok_or(Error::Words(length))?))
    }

    #[inline]
    fn free_slot(&self, ch: &mut Channel) -> Result<usize, Error> {
        self.is_ready(ch)?;
        self.slots.free(ch)
    }

    #[inline]
    fn is_ready(&self, ch: &mut Channel) -> Result<(), Error> {
        if self.channel != ch.id() {
            return Err(Error::OtherChannel);
        }
        ch.ready()
    }

    /// Takes the numbers of a launch, if all memory that it names still exists.
    #[inline]
    fn begin(&mut self, ch: &mut Channel) -> Result<(u64, Ticket), Error> {
        if self.asks {
            self.named.touched.iter().try_for_each(Region::ask)?;
        }
        // ORDERING: taken before the generation is read, see `lease`.
        let (before, ticket) = ch.take_tickets(self.adds);
        self.leases.used(ticket.number());
        if ch.space().generation() != self.generation
            && let Err(error) = self.again(ch)
        {
            ch.give_back_to(before);
            return Err(error);
        }
        Ok((before, ticket))
    }

    /// Memory was unmapped: checks everything again.
    #[cold]
    fn again(&mut self, ch: &Channel) -> Result<(), Error> {
        let generation = ch.space().generation();
        if !self.named.space.is_there() {
            return Err(Error::NoContext);
        }
        if self.named.space.local_memory() != self.local_memory {
            return Err(Error::LocalMemoryMoved);
        }
        if !self.named.all().all(Region::is_still_live)
            || ch.check_launch(&self.words, &self.qmds, &self.named).is_err()
        {
            return Err(Error::Stale);
        }
        self.generation = generation;
        Ok(())
    }

    /// Writes the payloads and bytes of a slot that is not in progress. One store for each payload: the first is in the slot's first line, and most
    /// launches have no other.
    #[inline]
    fn count(&self, slot: usize, before: u64) {
        for &(word, more) in &self.counts {
            self.slots.store(slot, word, (before + more) as u32);
        }
        self.inner.put(&self.slots, slot);
    }

    #[inline]
    fn took(&mut self, slot: usize, ticket: Ticket) {
        self.slots.took(slot, ticket);
        self.inner.launched();
        self.last = Some(ticket);
    }
}

impl Entries {
    #[inline]
    fn for_launch(self, over: bool) -> u64 {
        if over { self.at_once } else { self.waiting }
    }
}

/// How many words of a launch are its acquire of the previous launch: 0 for a part that does not begin with one.
fn front(words: &[u32], counts: &[(usize, u32)], tracker: u64) -> usize {
    let mut of_tracker = [0; layout::SEMAPHORE];
    let length = acquire(&mut of_tracker, tracker, 0);
    // Header and address; the words between this and the last are the payload.
    let address = words.get(..layout::PAYLOAD).is_some_and(|front| Some(front) == of_tracker.get(..layout::PAYLOAD));
    let waits = words.get(length - 1).is_some_and(|word| Execute::parse(*word).operation.is_acquire());
    let counted = counts.first() == Some(&(layout::PAYLOAD, 0));
    if address && waits && counted && words.len() > length { length } else { 0 }
}

impl Drop for Launch {
    fn drop(&mut self) {
        self.kept.iter_mut().for_each(Pin::let_go);
        self.stores.iter_mut().for_each(|stores| stores.to.let_go());
        // The channel may still read the words, and kernels their QMDs and banks: all are freed when the channel has passed them, or has ended.
        let Some(last) = self.last else { return };
        self.grave.put(self.slots.memory.clone(), last);
        if let Some(parameters) = &self.parameters {
            self.grave.put(parameters.slots.memory.clone(), last);
        }
        let named = &mut self.named;
        let held =
            named.memory.drain(..).chain(named.held.drain(..)).chain(named.counter.take().map(Counter::into_memory));
        held.for_each(|memory| self.grave.put(memory, last));
        self.kept.drain(..).for_each(|pin| self.grave.put(Arc::new(pin), last));
        // Kernels may still read the stored bytes.
        self.stores.drain(..).for_each(|stores| self.grave.put(Arc::new(stores.to), last));
    }
}
