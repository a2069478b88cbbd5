//! One queue of a thread: free slots are filled while I/Os are left, and finished I/Os are reaped.

use crate::Error;
use crate::saturate::queue::{Done, Queue};
use crate::saturate::walk::Walk;

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
    /// For each slot: the I/O in flight.
    numbers: Box<[u64]>,
    done: [Done; LOOK],
    batch: usize,
    /// I/Os that returned with the place of an I/O and an error status.
    pub refused: u64,
    pub completed: u64,
    /// I/Os of this burst that are not submitted yet.
    left: u64,
    is_finished: bool,
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
            done: [Done::default(); LOOK],
            batch: (batch.max(1) as usize).min(slots),
            refused: 0,
            completed: 0,
            left: 0,
            is_finished: true,
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

    /// The number of I/Os of the next burst.
    pub fn begin(&mut self, ios: u64) {
        (self.left, self.is_finished) = (ios, false);
    }

    /// Whether all I/Os of the burst are complete.
    pub fn is_done(&self) -> bool {
        self.is_finished && self.under_way() == 0
    }

    /// Submits into free slots; I/Os that share a doorbell are submitted by that doorbell. After the last one, I/Os without their own completion get
    /// one.
    #[inline]
    pub fn fill(&mut self) -> Result<(), Error> {
        while self.left > 0 && self.free.len() >= self.batch {
            if self.is_far_ahead() {
                return Ok(());
            }
            for _ in 0..self.left.min(self.batch as u64) {
                let Some(slot) = self.free.pop() else { break };
                self.numbers[slot as usize] = self.walk.taken();
                self.left -= 1;
                self.queue.submit(slot, self.walk.next())?;
            }
            if self.batch > 1 {
                self.queue.ring()?;
            }
        }
        if self.left == 0 && !self.is_finished {
            self.is_finished = true;
            self.queue.finish()?;
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

    /// Reaps finished I/Os; returns their number.
    #[inline]
    pub fn reap(&mut self) -> Result<usize, Error> {
        let reaped = self.queue.reap(&mut self.done)?;
        for Done { slot, status } in &self.done[..reaped] {
            let under_way = self.numbers.get_mut(*slot as usize).filter(|number| **number != FREE);
            let Some(number) = under_way else {
                let queue = self.number;
                return Err(Error::Told(format!(
                    "queue {queue}: slot {slot} completed, but nothing is in flight there"
                )));
            };
            *number = FREE;
            self.refused += u64::from(*status != 0);
            self.free.push(*slot);
        }
        self.completed += reaped as u64;
        Ok(reaped)
    }
}
