//! The ways to submit copies: each by itself, gathered behind one doorbell, or waiting at gates.

use crate::Error;
use crate::queue::{Done, Place, Queue};
use gpu::{Armed, Channel, Copies, CopyMode, CopyRelease, Memory, Observer, Prepared, Region, Ticket};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What copies go between.
pub struct Ends {
    pub target: Region,
    pub device: Region,
    pub bytes: u64,
}

/// Of the copy that goes before all others.
const SMALL: u64 = 8;

/// One small copy, alone: a channel that cannot do it is known before there is load.
pub fn first(channel: &mut Channel, ends: &Ends, limit: Duration) -> Result<(), Error> {
    let bytes = SMALL.min(ends.bytes) as u32;
    let mut one = Prepared::copy(channel, &ends.target, &ends.device, bytes, CopyMode::Plain)?;
    let ticket = one.submit(channel)?;
    Ok(channel.wait(ticket, limit)?)
}

/// What is under way on a channel, which does one after the other.
pub struct UnderWay {
    observer: Observer,
    /// Slots and their numbers, in order, as a ring.
    all: Box<[(u32, u64)]>,
    first: usize,
    count: usize,
    last: Option<Ticket>,
}

impl UnderWay {
    pub fn new(channel: &Channel, depth: u32) -> UnderWay {
        let all = vec![(0, 0); depth.max(1) as usize].into();
        UnderWay { observer: channel.observer(), all, first: 0, count: 0, last: None }
    }

    /// `number` is what it is done with, `ticket` its submission's.
    #[inline]
    pub fn push(&mut self, slot: u32, number: u64, ticket: Ticket) {
        let length = self.all.len();
        debug_assert!(self.count < length, "more than the depth");
        let at = self.first + self.count;
        self.all[if at >= length { at - length } else { at }] = (slot, number);
        self.count += 1;
        self.last = Some(ticket);
    }

    /// The last submission, while any I/O is under way.
    #[inline]
    pub fn last(&self) -> Option<Ticket> {
        self.last.filter(|_| self.count > 0)
    }

    /// One look at the tracker: the number of the last submission that is done.
    #[inline]
    pub fn reached(&self) -> u64 {
        self.last.map_or(0, |last| last.number() - self.observer.missing(last))
    }

    /// Takes those up to that number.
    #[inline]
    pub fn reap(&mut self, reached: u64, channel: &Channel, into: &mut [Done]) -> Result<usize, Error> {
        let Some(last) = self.last() else { return Ok(0) };
        let mut reaped = 0;
        while self.count > 0 && reaped < into.len() {
            let (slot, number) = self.all[self.first];
            if number > reached {
                break;
            }
            into[reaped] = Done { slot, status: 0 };
            reaped += 1;
            self.count -= 1;
            self.first = if self.first + 1 == self.all.len() { 0 } else { self.first + 1 };
        }
        if reaped == 0
            && let Some(code) = channel.error()
        {
            return Err(gpu::Error::ChannelKilled(code).into());
        }
        if reaped == 0 && channel.done(last) {
            // It rings again where a doorbell was missed; what came in meanwhile is seen next time.
        }
        Ok(reaped)
    }
}

/// Slots of one prepared copy at least.
const SLOTS: u32 = 32;

/// Each I/O is one submission.
pub struct Each {
    /// Before the channel: it still may read them.
    prepared: Vec<Prepared>,
    next: usize,
    under_way: UnderWay,
    /// Start of target and device.
    bases: (u64, u64),
    channel: Channel,
}

impl Each {
    pub fn new(
        mut channel: Channel,
        ends: &Ends,
        depth: u32,
        (mode, release): (CopyMode, CopyRelease),
    ) -> Result<Each, Error> {
        let bytes = u32::try_from(ends.bytes).map_err(|_| gpu::Error::Length(ends.bytes))?;
        let prepared = (0..depth.div_ceil(SLOTS))
            .map(|_| Prepared::copy_with(&mut channel, &ends.target, &ends.device, bytes, mode, release))
            .collect::<Result<Vec<_>, _>>()?;
        let under_way = UnderWay::new(&channel, depth);
        Ok(Each { prepared, next: 0, under_way, bases: (ends.target.va(), ends.device.va()), channel })
    }
}

impl Queue for Each {
    #[inline]
    fn submit(&mut self, slot: u32, place: Place) -> Result<(), Error> {
        let (target, device) = self.bases;
        let prepared = &mut self.prepared[self.next];
        let ticket = prepared.submit_at(&mut self.channel, target + place.target, device + place.device)?;
        self.next = if self.next + 1 == self.prepared.len() { 0 } else { self.next + 1 };
        self.under_way.push(slot, ticket.number(), ticket);
        Ok(())
    }

    #[inline]
    fn reap(&mut self, into: &mut [Done]) -> Result<usize, Error> {
        self.under_way.reap(self.under_way.reached(), &self.channel, into)
    }
}

/// Room for words of gathered copies: so many slots, each of so many copies, or of copies with a word each.
const SUBMISSIONS: u32 = 128;
const PIECES: u32 = 56;
const TOLD: u32 = 33;

/// So many I/Os are one submission, whose end is that of all, or each has a word that is told of its own.
pub struct Gathered {
    copies: Copies,
    /// Not told to the engine yet.
    gathered: Vec<(u32, Place)>,
    batch: usize,
    under_way: UnderWay,
    ends: Ends,
    channel: Channel,
    // Behind the channel: it writes there.
    word: Option<Counted>,
}

/// The word that is told of each I/O, by their count.
struct Counted {
    memory: Arc<Memory>,
    region: Region,
    submitted: u64,
}

impl Gathered {
    /// `word`: where the word lies that is told of each.
    pub fn new(
        mut channel: Channel,
        ends: Ends,
        depth: u32,
        batch: u32,
        word: Option<gpu::Place>,
    ) -> Result<Gathered, Error> {
        // One more: I/Os with a word each are done before their submission is.
        let submissions = depth.div_ceil(batch) + u32::from(word.is_some());
        let slots = batch.div_ceil(if word.is_some() { TOLD } else { PIECES });
        if submissions * slots >= SUBMISSIONS {
            let what = format!(
                "{depth} I/Os, {batch} a doorbell: at most {SUBMISSIONS} doorbells' worth are under way; a smaller depth fits"
            );
            return Err(Error::Unavailable(what));
        }
        let copies = Copies::new(&mut channel)?;
        let under_way = UnderWay::new(&channel, depth);
        let gathered = Vec::with_capacity(batch as usize);
        let word = word.map(|place| Counted::new(&channel, place)).transpose()?;
        Ok(Gathered { copies, gathered, batch: batch as usize, under_way, ends, channel, word })
    }
}

impl Counted {
    fn new(channel: &Channel, place: gpu::Place) -> Result<Counted, Error> {
        let memory = match place {
            gpu::Place::Host => channel.space().alloc_host(4096)?,
            gpu::Place::Video => channel.space().alloc_video(4096)?,
        };
        memory.word(0).store(0, Ordering::Relaxed);
        Ok(Counted { region: memory.region(), memory, submitted: 0 })
    }

    /// The number of the last I/O that is done.
    #[inline]
    fn reached(&self) -> u64 {
        // ORDERING: what the engine wrote before the word is seen behind it.
        let word = self.memory.word(0).load(Ordering::Acquire);
        self.submitted - u64::from((self.submitted as u32).wrapping_sub(word))
    }
}

impl Queue for Gathered {
    #[inline]
    fn submit(&mut self, slot: u32, place: Place) -> Result<(), Error> {
        self.gathered.push((slot, place));
        if self.gathered.len() < self.batch { Ok(()) } else { self.ring() }
    }

    #[inline]
    fn ring(&mut self) -> Result<(), Error> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let mut written = self.copies.begin(&mut self.channel)?;
        let first = self.word.as_ref().map(|word| word.submitted);
        for (n, (_, place)) in self.gathered.iter().enumerate() {
            let (to, from) = ((&self.ends.target, place.target), (&self.ends.device, place.device));
            written.copy(to, from, self.ends.bytes)?;
            if let Some(word) = &self.word {
                written.release((&word.region, 0), (word.submitted + n as u64 + 1) as u32)?;
            }
        }
        let ticket = written.submit()?;
        if let Some(word) = &mut self.word {
            word.submitted += self.gathered.len() as u64;
        }
        for (n, (slot, _)) in self.gathered.drain(..).enumerate() {
            let number = first.map_or(ticket.number(), |first| first + n as u64 + 1);
            self.under_way.push(slot, number, ticket);
        }
        Ok(())
    }

    #[inline]
    fn reap(&mut self, into: &mut [Done]) -> Result<usize, Error> {
        let reached = self.word.as_ref().map_or_else(|| self.under_way.reached(), Counted::reached);
        self.under_way.reap(reached, &self.channel, into)
    }
}

/// Each I/O waits in the channel already; its submission writes its addresses and opens its gate.
pub struct AtGates {
    armed: Armed<Box<Channel>>,
    under_way: UnderWay,
    /// Start of target and device.
    bases: (u64, u64),
}

impl AtGates {
    pub fn new(
        channel: Channel,
        ends: &Ends,
        depth: u32,
        (mode, release): (CopyMode, CopyRelease),
    ) -> Result<AtGates, Error> {
        let most = Armed::<Box<Channel>>::MOST;
        if depth > most {
            let what =
                format!("{depth} I/Os under way: a channel has gates for {most}; a smaller depth and more queues fit");
            return Err(Error::Unavailable(what));
        }
        let bytes = u32::try_from(ends.bytes).map_err(|_| gpu::Error::Length(ends.bytes))?;
        let under_way = UnderWay::new(&channel, depth);
        let mut armed = Armed::copy(Box::new(channel), &ends.target, &ends.device, bytes, mode, release)?;
        // Others use the engine before the first I/O does.
        armed.rest()?;
        Ok(AtGates { armed, under_way, bases: (ends.target.va(), ends.device.va()) })
    }
}

impl Queue for AtGates {
    #[inline]
    fn submit(&mut self, slot: u32, place: Place) -> Result<(), Error> {
        let (target, device) = self.bases;
        let ticket = self.armed.submit_at(target + place.target, device + place.device)?;
        self.under_way.push(slot, ticket.number(), ticket);
        Ok(())
    }

    #[inline]
    fn reap(&mut self, into: &mut [Done]) -> Result<usize, Error> {
        self.under_way.reap(self.under_way.reached(), self.armed.channel(), into)
    }
}
