//! One queue as its thread drives it: free slots are filled, what is done is reaped, and each I/O is one sample.

use crate::Error;
use crate::queue::{Done, Queue};
use crate::walk::Walk;
use measure::clock::Clock;
use statistics::Histogram;

/// A slot without an I/O.
const FREE: u64 = u64::MAX;
/// Completions that one look takes.
const LOOK: usize = 128;

pub struct Lane<'q> {
    queue: Box<dyn Queue + 'q>,
    /// Which of all queues it is.
    number: usize,
    pub walk: Walk,
    free: Vec<u32>,
    /// Of each slot: which I/O is under way there, and the ticks when it, or the first of those with the same doorbell, was begun.
    numbers: Box<[u64]>,
    started: Box<[u64]>,
    done: [Done; LOOK],
    batch: usize,
    /// I/Os that came back with the place of one and a status.
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

    /// Submits into free slots. I/Os of one doorbell are submitted by that doorbell; their time begins when the first of them is made, so
    /// that each has waited for the others in its own.
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

    /// No two I/Os to one place may be under way: an old one holds the next half of a lap back. It is looked for where a half begins.
    #[inline]
    fn is_far_ahead(&self) -> bool {
        let (next, half) = (self.walk.taken(), self.walk.blocks() / 2);
        // Half of a power of two, or of one.
        let begins = next & half.saturating_sub(1) < self.batch as u64;
        begins && self.numbers.iter().any(|number| *number != FREE && number + half <= next)
    }

    /// Nothing is submitted any more.
    pub fn finish(&mut self) -> Result<(), Error> {
        self.queue.finish()
    }

    /// Takes what is done; how many I/Os that were.
    #[inline]
    pub fn reap(&mut self, clock: &Clock, latency: &mut Histogram) -> Result<usize, Error> {
        let reaped = self.queue.reap(&mut self.done)?;
        if reaped == 0 {
            return Ok(0);
        }
        let now = clock.now();
        // Those that began at one moment are samples of one value.
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
