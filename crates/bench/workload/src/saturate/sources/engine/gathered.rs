//! Copies that are batched under one doorbell. One release completes all of them, or each copy counts up a word.

use super::submitter::{Ends, UnderWay};
use crate::saturate::queue::{Done, Place, Queue};
use crate::{Error, Unavailable};
use gpu::{Burst, Channel, Copies, CopyMode, CopyRelease, Memory, Region};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A batch of I/Os is one submission, and all complete together.
pub struct Gathered {
    /// Declared before the channel, which may still read them.
    burst: Burst,
    batch: usize,
    under_way: UnderWay,
    /// Start of target and device.
    bases: (u64, u64),
    channel: Channel,
}

impl Gathered {
    pub fn new(
        mut channel: Channel,
        ends: &Ends,
        depth: u32,
        batch: u32,
        way: (CopyMode, CopyRelease),
    ) -> Result<Gathered, Error> {
        // An I/O is submitted after the one `depth` before it has completed.
        let sizes = (batch as usize, depth.div_ceil(batch) as usize + 1);
        let burst = Burst::new(&mut channel, (&ends.target, &ends.device), ends.bytes, way, sizes)?;
        let under_way = UnderWay::new(&channel, depth);
        Ok(Gathered { burst, batch: sizes.0, under_way, bases: ends.bases(), channel })
    }
}

impl Queue for Gathered {
    #[inline]
    fn submit(&mut self, slot: u32, place: Place) -> Result<(), Error> {
        let (target, device) = self.bases;
        self.burst.add(&self.channel, target + place.target, device + place.device)?;
        self.under_way.take(slot);
        if self.burst.added() < self.batch { Ok(()) } else { self.ring() }
    }

    #[inline]
    fn ring(&mut self) -> Result<(), Error> {
        if self.burst.added() == 0 {
            return Ok(());
        }
        let ticket = self.burst.submit(&mut self.channel)?;
        self.under_way.submitted(ticket.number(), ticket);
        Ok(())
    }

    #[inline]
    fn reap(&mut self, into: &mut [Done]) -> Result<usize, Error> {
        self.under_way.reap(self.under_way.reached(), &self.channel, into)
    }
}

/// Room for the commands of copies with a word each: the number of slots, and of copies in each.
const SUBMISSIONS: u32 = 128;
const PIECES: u32 = 33;

/// A batch of I/Os is one submission; each I/O has its own completion: a word counts them.
pub struct Counted {
    copies: Copies,
    /// Not submitted to the engine yet.
    gathered: Vec<(u32, Place)>,
    batch: usize,
    under_way: UnderWay,
    ends: Ends,
    channel: Channel,
    // Behind the channel: it writes there.
    word: Count,
}

/// A word with the number of completed I/Os.
struct Count {
    memory: Arc<Memory>,
    region: Region,
    submitted: u64,
}

impl Counted {
    /// `word`: the memory in which the word is placed.
    pub fn new(mut channel: Channel, ends: Ends, depth: u32, batch: u32, word: gpu::Place) -> Result<Counted, Error> {
        // One more: I/Os complete before their submission does.
        let submissions = depth.div_ceil(batch) + 1;
        if submissions * batch.div_ceil(PIECES) >= SUBMISSIONS {
            let what = format!(
                "{depth} I/Os with a completion each, {batch} per doorbell: at most {SUBMISSIONS} doorbells' worth can be in flight; use a smaller depth"
            );
            return Err(Unavailable::new(what).into());
        }
        let copies = Copies::new(&mut channel)?;
        let under_way = UnderWay::new(&channel, depth);
        let gathered = Vec::with_capacity(batch as usize);
        let word = Count::new(&channel, word)?;
        Ok(Counted { copies, gathered, batch: batch as usize, under_way, ends, channel, word })
    }
}

impl Count {
    fn new(channel: &Channel, place: gpu::Place) -> Result<Count, Error> {
        let memory = match place {
            gpu::Place::Host => channel.space().alloc_host(4096)?,
            gpu::Place::Video => channel.space().alloc_video(4096)?,
        };
        memory.word(0).store(0, Ordering::Relaxed);
        Ok(Count { region: memory.region(), memory, submitted: 0 })
    }

    /// The number of the last completed I/O.
    #[inline]
    fn reached(&self) -> u64 {
        // ORDERING: after this load, what the engine wrote before the word is visible.
        let word = self.memory.word(0).load(Ordering::Acquire);
        self.submitted - u64::from((self.submitted as u32).wrapping_sub(word))
    }
}

impl Queue for Counted {
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
        for (n, (_, place)) in self.gathered.iter().enumerate() {
            let (to, from) = ((&self.ends.target, place.target), (&self.ends.device, place.device));
            written.copy(to, from, self.ends.bytes.into())?;
            written.release((&self.word.region, 0), (self.word.submitted + n as u64 + 1) as u32)?;
        }
        let ticket = written.submit()?;
        for (slot, _) in self.gathered.drain(..) {
            self.word.submitted += 1;
            self.under_way.push(slot, self.word.submitted, ticket);
        }
        Ok(())
    }

    #[inline]
    fn reap(&mut self, into: &mut [Done]) -> Result<usize, Error> {
        self.under_way.reap(self.word.reached(), &self.channel, into)
    }
}
