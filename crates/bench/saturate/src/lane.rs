//! One queue of a thread: free slots are filled, finished I/Os are reaped, and each I/O is one sample.

use crate::Error;
use crate::queue::{Done, Queue};
use crate::walk::Walk;
use measure::clock::Clock;
use statistics::Histogram;

/// A slot without an I/O.
const FREE: u64 = u64::MAX;
/// Maximum number of completions of one poll.
const LOOK: usize = 128;

pub struct Lane<'q> {
    queue: Box<dyn Queue + 'q>,
    /// Its index among all queues.
    number: usize,
    pub walk: Walk,
    free: Vec<u32>,
    /// For each slot: the I/O in flight, and the ticks when it, or the first of those with the same doorbell, was begun.
    numbers: Box<[u64]>,
    started: Box<[u64]>,
    done: [Done; LOOK],
    batch: usize,
    /// I/Os that returned with the place of an I/O and an error status.
    pub refused: u64,
    pub completed: u64,
}

impl<'q> Lane<'q> {
    pub fn new(queue: Box<dyn Queue + 'q>, number: usize, walk: Walk, depth: u32, batch: u32) -> Lane<'q> {
        let slots = depth as usize;
        Lane {
            queue,
            number,
            walk,
            // The lowest is taken first.
            free: (0..depth).rev().collect(),
            numbers: vec![FREE; slots].into(),
            started: vec![0; slots].into(),
            done: [Done::default(); LOOK],
            batch: (batch.max(1) as usize).min(slots),
            refused: 0,
            completed: 0,
        }
    }

    pub fn number(&self) -> usize {
        self.number
    }

    pub fn depth(&self) -> usize {
        self.numbers.len()
    }

    pub fn under_way(&self) -> usize {
        self.numbers.len() - self.free.len()
    }

    /// Submits into free slots. I/Os that share a doorbell are submitted by that doorbell. Their time begins when the first of them is made, so
    /// each one's time includes waiting for the others.
    #[inline]
    pub fn fill(&mut self, clock: &Clock) -> Result<(), Error> {
        while self.free.len() >= self.batch {
            if self.is_far_ahead() {
                break;
            }
            let begun = clock.now();
            for _ in 0..self.batch {
                let Some(slot) = self.free.pop() else { break };
                self.numbers[slot as usize] = self.walk.taken();
                self.started[slot as usize] = begun;
                self.queue.submit(slot, self.walk.next())?;
            }
            if self.batch > 1 {
                self.queue.ring()?;
            }
        }
        Ok(())
    }

    /// Two I/Os to the same place must not be in flight together: an old one blocks the next half of a lap. This is checked where a half begins.
    #[inline]
    fn is_far_ahead(&self) -> bool {
        let (next, half) = (self.walk.taken(), self.walk.blocks() / 2);
        // Half of a power of two, or of one.
        let begins = next & half.saturating_sub(1) < self.batch as u64;
        begins && self.numbers.iter().any(|number| *number != FREE && number + half <= next)
    }

    /// No I/O is submitted after this.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.queue.finish()
    }

    /// Reaps finished I/Os; returns their number.
    #[inline]
    pub fn reap(&mut self, clock: &Clock, latency: &mut Histogram) -> Result<usize, Error> {
        let reaped = self.queue.reap(&mut self.done)?;
        if reaped == 0 {
            return Ok(0);
        }
        let now = clock.now();
        // I/Os that began at the same moment are samples with the same value.
        let (mut began, mut alike) = (0, 0);
        for Done { slot, status } in &self.done[..reaped] {
            let under_way = self.numbers.get_mut(*slot as usize).filter(|number| **number != FREE);
            let Some(number) = under_way else { return Err(Error::NotUnderWay { queue: self.number, slot: *slot }) };
            *number = FREE;
            self.refused += u64::from(*status != 0);
            let started = self.started[*slot as usize];
            if started != began && alike > 0 {
                latency.record_n(clock.ns(now - began), std::mem::take(&mut alike));
            }
            (began, alike) = (started, alike + 1);
            self.free.push(*slot);
        }
        latency.record_n(clock.ns(now - began), alike);
        self.completed += reaped as u64;
        Ok(reaped)
    }
}
