//! What all ways to submit copies share, and two of these ways: each copy alone, or copies that wait at gates.

use crate::saturate::queue::{Done, Place, Queue};
use crate::{Error, Unavailable};
use gpu::{Armed, Channel, CopyMode, CopyRelease, Observer, Prepared, Region, Ticket};
use std::time::Duration;

/// What copies go between.
pub struct Ends {
    pub target: Region,
    pub device: Region,
    pub bytes: u32,
}

impl Ends {
    /// Start of target and device.
    pub fn bases(&self) -> (u64, u64) {
        (self.target.va(), self.device.va())
    }
}

/// Bytes of the first copy.
const SMALL: u32 = 8;

/// Does one small copy: a channel that cannot do it is found before the load starts.
pub fn first(channel: &mut Channel, ends: &Ends, limit: Duration) -> Result<(), Error> {
    let bytes = SMALL.min(ends.bytes);
    let mut one = Prepared::copy(channel, &ends.target, &ends.device, bytes, CopyMode::Plain)?;
    let ticket = one.submit(channel)?;
    Ok(channel.wait(ticket, limit)?)
}

/// The I/Os in flight on a channel, which does them in order. I/Os that complete together share one mark.
pub struct UnderWay {
    observer: Observer,
    /// Rings of slots and marks, in order. Their lengths are powers of two.
    slots: Box<[u32]>,
    marks: Box<[Mark]>,
    /// Counts of slots: taken, known to be complete, and given back.
    taken: u64,
    done: u64,
    given: u64,
    /// Counts of marks: made, and reached.
    made: u64,
    reached: u64,
    last: Option<Ticket>,
}

/// All slots before `end` are complete when that number is reached.
#[derive(Clone, Copy, Default)]
struct Mark {
    number: u64,
    end: u64,
}

impl UnderWay {
    pub fn new(channel: &Channel, depth: u32) -> UnderWay {
        let length = depth.max(1).next_power_of_two() as usize;
        UnderWay {
            observer: channel.observer(),
            slots: vec![0; length].into(),
            marks: vec![Mark::default(); length].into(),
            taken: 0,
            done: 0,
            given: 0,
            made: 0,
            reached: 0,
            last: None,
        }
    }

    /// Takes a slot whose I/O is not submitted yet.
    #[inline]
    pub fn take(&mut self, slot: u32) {
        debug_assert!(self.taken - self.given < self.slots.len() as u64, "more than the depth");
        let at = self.taken as usize & (self.slots.len() - 1);
        self.slots[at] = slot;
        self.taken += 1;
    }

    /// The taken slots are submitted. `number` is the number with which they complete, `ticket` that of their submission.
    #[inline]
    pub fn submitted(&mut self, number: u64, ticket: Ticket) {
        let at = self.made as usize & (self.marks.len() - 1);
        self.marks[at] = Mark { number, end: self.taken };
        self.made += 1;
        self.last = Some(ticket);
    }

    /// Both for one I/O.
    #[inline]
    pub fn push(&mut self, slot: u32, number: u64, ticket: Ticket) {
        self.take(slot);
        self.submitted(number, ticket);
    }

    /// The last submission, while any I/O is in flight.
    #[inline]
    pub fn last(&self) -> Option<Ticket> {
        self.last.filter(|_| self.taken > self.given)
    }

    /// Reads the tracker once: the number of the last completed submission.
    #[inline]
    pub fn reached(&self) -> u64 {
        self.last.map_or(0, |last| last.number() - self.observer.missing(last))
    }

    /// Takes those up to that number.
    #[inline]
    pub fn reap(&mut self, number: u64, channel: &Channel, into: &mut [Done]) -> Result<usize, Error> {
        let Some(last) = self.last() else { return Ok(0) };
        while self.reached < self.made {
            let mark = self.marks[self.reached as usize & (self.marks.len() - 1)];
            if mark.number > number {
                break;
            }
            self.done = mark.end;
            self.reached += 1;
        }
        let reaped = ((self.done - self.given) as usize).min(into.len());
        for (n, done) in into[..reaped].iter_mut().enumerate() {
            let at = (self.given as usize + n) & (self.slots.len() - 1);
            *done = Done { slot: self.slots[at], status: 0 };
        }
        self.given += reaped as u64;
        if reaped == 0
            && let Some(code) = channel.error()
        {
            return Err(gpu::Error::ChannelKilled(code).into());
        }
        if reaped == 0 && channel.done(last) {
            // The channel rings again after a missed doorbell; later completions are seen at the next call.
        }
        Ok(reaped)
    }
}

/// Copies that take turns.
pub struct Turns {
    all: Vec<Prepared>,
    next: usize,
}

impl Turns {
    /// Enough copies for this many in flight.
    pub fn new(slots: u32, mut make: impl FnMut() -> Result<Prepared, gpu::Error>) -> Result<Turns, Error> {
        let (mut all, mut there) = (Vec::new(), 0);
        while there < slots.max(1) {
            let one = make()?;
            there += one.slots() as u32;
            all.push(one);
        }
        Ok(Turns { all, next: 0 })
    }

    #[inline]
    pub fn turn(&mut self) -> &mut Prepared {
        let at = self.next;
        self.next = if at + 1 == self.all.len() { 0 } else { at + 1 };
        &mut self.all[at]
    }
}

/// Each I/O is one submission.
pub struct Each {
    /// Declared before the channel, which may still read them.
    prepared: Turns,
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
        let prepared = Turns::new(depth, || {
            Prepared::copy(&mut channel, &ends.target, &ends.device, ends.bytes, (mode, release))
        })?;
        let under_way = UnderWay::new(&channel, depth);
        Ok(Each { prepared, under_way, bases: ends.bases(), channel })
    }
}

impl Queue for Each {
    #[inline]
    fn submit(&mut self, slot: u32, place: Place) -> Result<(), Error> {
        let (target, device) = self.bases;
        let ticket = self.prepared.turn().submit_at(&mut self.channel, target + place.target, device + place.device)?;
        self.under_way.push(slot, ticket.number(), ticket);
        Ok(())
    }

    #[inline]
    fn reap(&mut self, into: &mut [Done]) -> Result<usize, Error> {
        self.under_way.reap(self.under_way.reached(), &self.channel, into)
    }
}

/// Each I/O already waits in the channel; submitting it means to write its addresses and to open its gate.
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
                format!("{depth} I/Os in flight: a channel has gates for {most}; use a smaller depth and more queues");
            return Err(Unavailable::new(what).into());
        }
        let under_way = UnderWay::new(&channel, depth);
        let mut armed = Armed::copy(Box::new(channel), &ends.target, &ends.device, ends.bytes, mode, release)?;
        // Others use the engine before the first I/O does.
        armed.rest()?;
        Ok(AtGates { armed, under_way, bases: ends.bases() })
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
