//! One queue as its thread drives it: free slots are filled, what is done is reaped, and each I/O is one sample.

use crate::Error;
use crate::queue::{Done, Queue};
use crate::walk::Walk;
use lab::clock::Clock;
use statistics::Histogram;

/// A slot without an I/O.
const FREE: u64 = u64::MAX;
/// Completions that one look takes.
const LOOK: usize = 64;

pub struct Lane<'q> {
    queue: Box<dyn Queue + 'q>,
    /// Which of all queues it is.
    number: usize,
    pub walk: Walk,
    free: Vec<u32>,
    /// Of each slot: which I/O is under way there, and the ticks when it was submitted.
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

    /// Submits into free slots.
    #[inline]
    pub fn fill(&mut self, clock: &Clock) -> Result<(), Error> {
        while self.free.len() >= self.batch {
            if self.is_far_ahead() {
                break;
            }
            for _ in 0..self.batch {
                let Some(slot) = self.free.pop() else { break };
                self.numbers[slot as usize] = self.walk.taken();
                let place = self.walk.next();
                self.started[slot as usize] = clock.now();
                self.queue.submit(slot, place)?;
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
        let begins = next % half.max(1) < self.batch as u64;
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
        for n in 0..reaped {
            let Done { slot, status } = self.done[n];
            let under_way = self.numbers.get_mut(slot as usize).filter(|number| **number != FREE);
            let Some(number) = under_way else { return Err(Error::NotUnderWay { queue: self.number, slot }) };
            *number = FREE;
            self.refused += u64::from(status != 0);
            latency.record(clock.ns(now - self.started[slot as usize]));
            self.free.push(slot);
        }
        self.completed += reaped as u64;
        Ok(reaped)
    }
}
