//! Transfers that wait in the channel: the engine has fetched them and waits at a gate. A submission is one store that
//! opens the gate.
//!
//! Each transfer has two GPFIFO entries: a gate (the host's SEM_EXECUTE, ACQUIRE of the transfer's own word in video
//! memory), and a body with SYNC_WAIT, whose words are fetched only after the gate. The data, the number and the gate's
//! word are in one line, so one write of the CPU stores all three. The cost of a doorbell (it wakes the channel, which
//! reads GP_PUT and the entry) is paid earlier, when the transfer is armed.
//!
//! The price: a channel that waits at a gate occupies its runlist. Other channels there, CUDA's among them, run only in
//! time slices; [`Armed::rest`] ends that. And no other transfer can use the channel: its entries would wait for the gates.
//!
//! A transfer gets its number when it is armed. The number is announced when its gate is opened, and code that frees
//! memory waits only for announced numbers. If the memory is freed first, the gate is never opened: the words are first
//! replaced by NOPs.

use crate::bar1;
use crate::channel::{Channel, Group};
use crate::error::Error;
use crate::memory::Memory;
use crate::region::Region;
use crate::slots::{line, store};
use crate::stores::{self, LINE, LineStore};
use crate::tracker::Ticket;
use crate::transfer::{self, Between, CopyMode, CopyRelease, End, InlineMode, InlineRelease, Layout};
use crate::validate::{self, Ranges, Rules};
use pushbuf::encode::subchannel::HOST;
use pushbuf::encode::{Words, layout};
use pushbuf::gpfifo::{Entry, Segment};
use pushbuf::semaphore::{Execute, Operation};
use std::ops::DerefMut;
use std::sync::Arc;
use std::time::Duration;

/// Transfers, each with its own place. At most one fewer waits at its gate.
const PLACES: usize = 4;
/// Words of a line.
const LINE_WORDS: usize = LINE / 4;
/// How long a channel may take for the transfers that are let go.
const LET_GO: Duration = Duration::from_secs(2);

/// A transfer that is armed several times in the channel. It borrows the channel (`&mut Channel`) or owns it
/// (`Box<Channel>`).
#[derive(Debug)]
pub struct Armed<C: DerefMut<Target = Channel>> {
    channel: C,
    /// For each place: a line with the gate's words, then the lines of the body. The body's last word opens the gate.
    memory: Arc<Memory>,
    /// The validated words of the body.
    template: Vec<u32>,
    layout: Layout,
    /// Words between the starts of two places.
    stride: usize,
    bytes: u64,
    timed: bool,
    between: Between,
    /// Each submission checks with CUDA whether the memory is still the allocation that was pinned.
    asks: bool,
    how: LineStore,
    /// GPFIFO entries of each place.
    entries: [[u64; 2]; PLACES],
    /// The last number given to each place.
    tickets: [Ticket; PLACES],
    /// How often the addresses have changed, and the count at which each place was written.
    moves: u64,
    written: [u64; PLACES],
    /// The place whose gate is opened next, and how many places from there on wait at their gates.
    next: usize,
    waiting: usize,
    last: Option<Ticket>,
}

impl<C: DerefMut<Target = Channel>> Armed<C> {
    /// A copy of `bytes` from the start of one region to the start of another by the channel's copy engine.
    ///
    /// # Errors
    /// The validator's error, or no memory.
    pub fn copy(
        channel: C,
        to: &Region,
        from: &Region,
        bytes: u32,
        mode: CopyMode,
        release: CopyRelease,
    ) -> Result<Armed<C>, Error> {
        let between = Between::of(to, Some(from));
        let words = {
            let (engine, tracker) = channel.ends();
            transfer::copy(engine, &between, bytes, mode, End { va: tracker, launch: release.launch() })?
        };
        Armed::new(channel, words, bytes.into(), release.is_timed(), between)
    }

    /// An inline copy of `bytes` to the start of a region. Each submission gives the data.
    ///
    /// # Errors
    /// As [`Armed::copy`].
    pub fn inline(
        channel: C,
        to: &Region,
        bytes: u32,
        mode: InlineMode,
        release: InlineRelease,
    ) -> Result<Armed<C>, Error> {
        let between = Between::of(to, None);
        let words = transfer::inline(channel.ends(), &between, bytes, mode, release)?;
        Armed::new(channel, words, bytes.into(), release.is_timed(), between)
    }

    fn new(
        mut channel: C,
        (template, layout): (Vec<u32>, Layout),
        bytes: u64,
        timed: bool,
        between: Between,
    ) -> Result<Armed<C>, Error> {
        channel.usable()?;
        if channel.group() == Group::Cudas {
            return Err(Error::Group("a gate there keeps the whole group waiting, CUDA's channels too"));
        }
        channel.use_for(crate::channel::Use::Transfers)?;
        channel.bury();
        channel.check_transfer(&template, &between)?;
        let channel_asks = channel.space().checks_each_submission();
        let stride = LINE_WORDS + (template.len() + 1).next_multiple_of(LINE_WORDS);
        let memory = channel.space().alloc_own(channel.pushbuffers(), (PLACES * stride * 4) as u64)?;
        let tickets = [Ticket(0); PLACES];
        let how = LineStore::best();
        let mut armed = Armed {
            channel,
            memory,
            template,
            layout,
            stride,
            bytes,
            timed,
            asks: channel_asks,
            between,
            how,
            entries: [[0; 2]; PLACES],
            tickets,
            moves: 0,
            written: [0; PLACES],
            next: 0,
            waiting: 0,
            last: None,
        };
        for place in 0..PLACES {
            armed.entries[place] = armed.entries_of(place)?;
            for (i, word) in armed.template.iter().enumerate() {
                store(&armed.memory, armed.body(place) + i, *word);
            }
        }
        armed.fill()?;
        Ok(armed)
    }

    /// How many submissions may be unfinished at a time.
    pub const MOST: u32 = PLACES as u32;

    /// Bytes that one submission moves.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True if [`Channel::timestamp`] is the time at which a submission of this was done.
    pub fn is_timed(&self) -> bool {
        self.timed
    }

    /// The channel, to wait on.
    pub fn channel(&self) -> &Channel {
        &self.channel
    }

    /// First word of a place's body.
    fn body(&self, place: usize) -> usize {
        place * self.stride + LINE_WORDS
    }

    /// The word that opens a place's gate: the last of its body's last line.
    fn gate(&self, place: usize) -> usize {
        (place + 1) * self.stride - 1
    }

    /// Arms transfers until all places but one wait.
    fn fill(&mut self) -> Result<(), Error> {
        while self.waiting < PLACES - 1 {
            let place = (self.next + self.waiting) % PLACES;
            // The number before it is the last one given, or the last one announced.
            let before = match self.waiting {
                0 => self.channel.last_ticket(),
                _ => self.tickets[(place + PLACES - 1) % PLACES],
            };
            if self.last.is_some() && !self.channel.done(self.tickets[place]) && !self.is_new(place) {
                // It is still in progress.
                return Ok(());
            }
            self.arm(place, Ticket(before.0 + 1))?;
            self.waiting += 1;
        }
        Ok(())
    }

    /// Never used.
    fn is_new(&self, place: usize) -> bool {
        self.tickets[place] == Ticket(0)
    }

    /// The words of a place's gate.
    fn acquire(&self, place: usize, number: u32) -> Result<[u32; layout::SEMAPHORE], Error> {
        let mut words = [0; layout::SEMAPHORE];
        let acquire = Execute { operation: Operation::Acquire, switch_tsg: false, ..Execute::RELEASE };
        Words::new(&mut words).host_semaphore(HOST, self.gate_va(place), number.into(), acquire)?;
        Ok(words)
    }

    fn gate_va(&self, place: usize) -> u64 {
        self.memory.va() + 4 * self.gate(place) as u64
    }

    /// The GPFIFO entries of a place. Its gate is validated: later only numbers differ.
    fn entries_of(&self, place: usize) -> Result<[u64; 2], Error> {
        let rules = Rules { space: &Gate(self.gate_va(place)), ..self.channel.rules() };
        validate::check(&self.acquire(place, 0)?, &rules)?;
        let segment = |word: usize, length: usize, sync_wait| {
            let entry = Entry::segment(self.memory.va() + 4 * word as u64, length as u32);
            let Some(Entry::Segment(segment)) = entry else { return Err(Error::Length(length as u64)) };
            Ok(Entry::Segment(Segment { sync_wait, ..segment }).encode())
        };
        let gate = segment(place * self.stride, layout::SEMAPHORE, false)?;
        Ok([gate, segment(self.body(place), self.template.len(), true)?])
    }

    fn arm(&mut self, place: usize, ticket: Ticket) -> Result<(), Error> {
        // Closes the gate: its value must differ from the new number.
        store(&self.memory, self.gate(place), !ticket.payload());
        store(&self.memory, self.body(place) + self.layout.payload, ticket.payload());
        for (i, word) in self.acquire(place, ticket.payload())?.into_iter().enumerate() {
            store(&self.memory, place * self.stride + i, word);
        }
        self.channel.push_armed(self.entries[place])?;
        self.tickets[place] = ticket;
        Ok(())
    }

    /// Opens the next gate, with the previous data.
    ///
    /// # Errors
    /// [`Error::RingFull`] while all places are in progress, [`Error::Stale`] if memory that it names was unmapped,
    /// [`Error::ChannelKilled`], [`Error::Forked`]. In all these cases the gate stays closed.
    #[inline]
    pub fn submit(&mut self) -> Result<Ticket, Error> {
        self.open(None)
    }

    /// Opens the next gate for a copy between other places of the same two regions. The body is fetched after the gate
    /// opens, so its addresses may change until then. They also apply to the next [`Armed::submit`].
    ///
    /// # Errors
    /// As [`Armed::submit`], and [`Error::OutsideRegion`].
    #[inline]
    pub fn submit_at(&mut self, to: u64, from: u64) -> Result<Ticket, Error> {
        self.between.check_places(to, from, self.bytes)?;
        for (at, va) in [(self.layout.destination, to), (self.layout.source, from)] {
            self.template[at] = (va >> 32) as u32;
            self.template[at + 1] = va as u32;
        }
        self.moves += 1;
        self.open(None)
    }

    /// Opens the next gate for an inline copy of `data`, which must have the prepared length.
    ///
    /// # Errors
    /// As [`Armed::submit`], and [`Error::Length`] for data of another length.
    #[inline]
    pub fn submit_data(&mut self, data: &[u8]) -> Result<Ticket, Error> {
        if self.between.from.is_some() || data.len() as u64 != self.bytes {
            return Err(Error::Length(data.len() as u64));
        }
        self.open(Some(data))
    }

    #[inline]
    fn open(&mut self, data: Option<&[u8]>) -> Result<Ticket, Error> {
        self.channel.usable()?;
        if self.waiting == 0 {
            self.fill()?;
            if self.waiting == 0 {
                return Err(Error::RingFull(PLACES as u32));
            }
        }
        if self.asks {
            self.between.ask()?;
        }
        let place = self.next;
        let ticket = self.tickets[place];
        // ORDERING: announced before the leases are read, see `lease`.
        self.channel.announce(ticket);
        if self.channel.admit_transfer(&self.between).is_err() {
            self.channel.give_back(ticket);
            return Err(Error::Stale);
        }
        if let Some(data) = data {
            self.layout.put_data(&mut self.template, data);
        }
        self.store(place, ticket);
        self.channel.finish();
        self.written[place] = self.moves;
        self.next = (place + 1) % PLACES;
        self.waiting -= 1;
        self.last = Some(ticket);
        // Arms the next ones while this one is in progress. This submission is already made, so an error here is
        // dropped: the next submission arms again and returns the error.
        let _ = self.fill();
        Ok(ticket)
    }

    /// Stores the body with its data. Its last line, which holds the gate, is stored last and in one piece.
    #[inline]
    fn store(&mut self, place: usize, ticket: Ticket) {
        let body = self.body(place);
        let last = self.gate(place) + 1 - LINE_WORDS - body;
        let mut line = line(&self.template[last.min(self.template.len())..]);
        let mut put = |at: usize, word: u32| line.0[4 * at..4 * at + 4].copy_from_slice(&word.to_le_bytes());
        if self.layout.payload >= last {
            put(self.layout.payload - last, ticket.payload());
        }
        put(LINE_WORDS - 1, ticket.payload());
        let mut before = false;
        if self.written[place] != self.moves {
            let ends = [self.layout.destination, self.layout.source];
            for at in ends.into_iter().flat_map(|at| [at, at + 1]).filter(|at| *at < last) {
                store(&self.memory, body + at, self.template[at]);
                before = true;
            }
        }
        for at in self.layout.data.iter().flat_map(|&(at, words)| at..at + words).take_while(|at| *at < last) {
            store(&self.memory, body + at, self.template[at]);
            before = true;
        }
        if before {
            // ORDERING: the gate opens after all words of the body.
            stores::sfence();
        }
        debug_assert!(bar1::check(4 * (body + last) as u64, LINE as u64, self.memory.length()).is_ok());
        // SAFETY: a line of the memory, which is mapped as long as self; this CPU has the instruction.
        unsafe { stores::store_line(self.how, self.memory.as_ptr().add(4 * (body + last)), &line) };
    }

    /// Frees the engine: no transfer waits at a gate any more. The next submission arms again, and takes longer.
    ///
    /// # Errors
    /// [`Error::Timeout`] if the channel does not finish, [`Error::ChannelKilled`], [`Error::Forked`].
    pub fn rest(&mut self) -> Result<(), Error> {
        self.channel.usable()?;
        if self.waiting == 0 {
            return Ok(());
        }
        let places = (0..self.waiting).map(|i| (self.next + i) % PLACES).collect::<Vec<_>>();
        for &place in &places {
            // NOPs. The GPU has not fetched these words yet, because the gate is closed.
            for i in 0..self.template.len() {
                store(&self.memory, self.body(place) + i, 0);
            }
        }
        // ORDERING: the gates open after the NOPs.
        stores::sfence();
        for &place in &places {
            store(&self.memory, self.gate(place), self.tickets[place].payload());
        }
        stores::sfence();
        self.channel.settle(LET_GO)?;
        self.waiting = 0;
        for place in places {
            self.tickets[place] = Ticket(0);
            self.written[place] = self.moves;
            for (i, word) in self.template.iter().enumerate() {
                store(&self.memory, self.body(place) + i, *word);
            }
        }
        Ok(())
    }
}

/// The word of one gate. No other words may name it.
struct Gate(u64);

impl Ranges for Gate {
    fn contains(&self, va: u64, length: u64) -> bool {
        va == self.0 && length == 4
    }

    /// An armed copy is fast because no other transfer runs on its channel's engine.
    fn may_hold(&self, va: u64) -> bool {
        va == self.0
    }
}

impl<C: DerefMut<Target = Channel>> Drop for Armed<C> {
    fn drop(&mut self) {
        // If the channel does not finish, it keeps the words until it is dropped itself.
        let _ = self.rest();
        // The next submission follows this one in the ring.
        let next = Ticket(self.channel.last_ticket().0 + 1);
        let done = self.waiting == 0 && self.last.is_none_or(|last| self.channel.done(last));
        self.channel.grave().put(self.memory.clone(), if done { self.channel.last_ticket() } else { next });
    }
}
