//! I/Os with a doorbell each, of which not each releases the tracker. Either one release completes several, or each writes a word without a flush,
//! and a flushed release follows after several.

use super::submitter::{Ends, Turns, UnderWay};
use crate::saturate::queue::{Done, Place, Queue};
use crate::{Error, Unavailable};
use gpu::{Channel, CopyFlush, CopyMode, CopyRelease, Place as Lies, Prepared, Semaphore, Semaphores, Told};
use std::sync::Arc;
use std::time::Duration;

/// If each I/O has a word, the tracker is released after this many I/Os: what precedes that release is flushed, and its slots are free.
const FLUSHED: u32 = 64;
/// Time limit for the release after the last I/O.
const PATIENCE: Duration = Duration::from_secs(10);

/// How completions come.
#[derive(Clone, Copy, Debug)]
pub enum Completions {
    /// One flushed release for this many I/Os.
    Every(u32),
    /// A word for each I/O, in this memory, after this flush.
    Words(Lies, CopyFlush),
}

pub struct Spaced {
    /// Copies that do not release the tracker, and those that do. Declared before the channel, which may still read them.
    without: Turns,
    with: Turns,
    every: u32,
    /// I/Os since the last release.
    since: u32,
    /// The number of I/Os by which the word may be ahead of the tracker; 0 without a word.
    ahead: u64,
    under_way: UnderWay,
    /// Start of target and device.
    bases: (u64, u64),
    channel: Channel,
    // Behind the channel: it writes there.
    word: Option<Arc<Semaphore>>,
}

impl Spaced {
    pub fn new(
        mut channel: Channel,
        ends: &Ends,
        depth: u32,
        mode: CopyMode,
        completions: Completions,
    ) -> Result<Spaced, Error> {
        let (every, ahead, told) = match completions {
            Completions::Every(every) => (every, 0, None),
            Completions::Words(place, flush) => {
                let word = Semaphores::new_in(channel.space(), place)?.alloc().map(Arc::new);
                let word = word.ok_or_else(|| Unavailable::new("a page of semaphores has none"))?;
                (FLUSHED, 2 * FLUSHED, Some(Told { word, flush }))
            }
        };
        // An I/O is submitted when the one `depth` before it has completed, and the tracker is at most `ahead` behind that.
        let slots = depth + ahead;
        let (to, from, bytes) = (&ends.target, &ends.device, ends.bytes);
        let without =
            Turns::new(slots, || Prepared::copy_untracked(&mut channel, to, from, bytes, mode, told.clone()))?;
        let with = Turns::new(slots.div_ceil(every), || {
            Prepared::copy(&mut channel, to, from, bytes, (mode, CopyRelease::Word))
        })?;
        Ok(Spaced {
            without,
            with,
            every,
            since: 0,
            ahead: ahead.into(),
            under_way: UnderWay::new(&channel, depth),
            bases: ends.bases(),
            channel,
            word: told.map(|told| told.word),
        })
    }
}

impl Queue for Spaced {
    #[inline]
    fn submit(&mut self, slot: u32, place: Place) -> Result<(), Error> {
        let (target, device) = self.bases;
        let releases = self.since + 1 == self.every;
        let copies = if releases { &mut self.with } else { &mut self.without };
        let ticket = copies.turn().submit_at(&mut self.channel, target + place.target, device + place.device)?;
        self.since = if releases { 0 } else { self.since + 1 };
        self.under_way.push(slot, ticket.number(), ticket);
        Ok(())
    }

    #[inline]
    fn reap(&mut self, into: &mut [Done]) -> Result<usize, Error> {
        let Some(last) = self.under_way.last() else { return Ok(0) };
        let mut reached = self.under_way.reached();
        if let Some(word) = &self.word {
            // The word holds the low 32 bits of the number of a submitted I/O.
            let behind = (last.number() as u32).wrapping_sub(word.value());
            let told = last.number().saturating_sub(behind.into());
            reached = reached.max(told.min(reached + self.ahead));
        }
        self.under_way.reap(reached, &self.channel, into)
    }

    /// Submits a flushed release after the last I/O, and waits for it.
    fn finish(&mut self) -> Result<(), Error> {
        let ticket = self.channel.release()?;
        Ok(self.channel.wait(ticket, PATIENCE)?)
    }
}
