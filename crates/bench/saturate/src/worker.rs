//! A submitting thread: it serves its queues in turn, from the moment when all threads are ready until it is asked to stop.

use crate::Error;
use crate::cycles::{Cycles, Used};
use crate::lane::Lane;
use measure::clock::Clock;
use statistics::Histogram;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// What all threads of a cell do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Phase {
    Warm,
    Measure,
    Stop,
}

/// Seen by all threads of a cell.
#[derive(Debug)]
pub struct Shared {
    phase: AtomicU32,
    /// Threads that have warmed up, and threads that measure.
    pub warm: AtomicU32,
    pub measuring: AtomicU32,
    /// I/Os that each thread has completed since it began to measure.
    completed: Box<[Line]>,
}

/// On a separate cache line: one thread stores, another loads now and then.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Line(AtomicU64);

impl Shared {
    pub fn new(threads: usize) -> Shared {
        Shared {
            phase: AtomicU32::new(Phase::Warm as u32),
            warm: AtomicU32::new(0),
            measuring: AtomicU32::new(0),
            completed: (0..threads).map(|_| Line::default()).collect(),
        }
    }

    pub fn measure(&self) {
        // One that failed has stopped all.
        let _ =
            self.phase.compare_exchange(Phase::Warm as u32, Phase::Measure as u32, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub fn stop(&self) {
        self.phase.store(Phase::Stop as u32, Ordering::Release);
    }

    pub fn is_stopped(&self) -> bool {
        self.phase.load(Ordering::Acquire) == Phase::Stop as u32
    }

    /// I/Os completed since the threads began to measure.
    pub fn completed(&self) -> u64 {
        self.completed.iter().map(|line| line.0.load(Ordering::Relaxed)).sum()
    }
}

/// How long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Each queue warms up with this many I/Os.
    pub warm_ios: u64,
    /// If no I/O completes for this long, the queue is dead.
    pub patience: Duration,
}

/// What a thread measured.
#[derive(Debug)]
pub struct Measured {
    /// I/Os from the first moment to the last.
    pub ios: u64,
    pub seconds: f64,
    /// Latency in ns of the I/Os that completed in that time.
    pub latency: Histogram,
    pub used: Used,
    /// Over all I/Os, including the warm-up.
    pub refused: u64,
}

/// Rounds without a completion before the clock is read to see how long that has lasted.
const ROUNDS: u32 = 1 << 12;

pub struct Worker<'c, 'q> {
    pub lanes: Vec<Lane<'q>>,
    pub clock: &'c Clock,
    pub shared: &'c Shared,
    pub number: usize,
    pub limits: Limits,
}

impl Worker<'_, '_> {
    /// Runs until it is asked to stop and all its I/Os have ended. An error stops all threads.
    pub fn run(&mut self) -> Result<Measured, Error> {
        let measured = self.measure();
        if measured.is_err() {
            self.shared.stop();
        }
        measured
    }

    fn measure(&mut self) -> Result<Measured, Error> {
        let mut cycles = Cycles::open();
        let mut latency = Histogram::new();
        let (shared, clock) = (self.shared, self.clock);
        self.turn(&mut latency, Phase::Warm)?;
        shared.warm.fetch_add(1, Ordering::AcqRel);
        self.turn(&mut latency, Phase::Warm)?;
        let (mut latency, before) = (Histogram::new(), self.completed());
        let begun = (cycles.now(), clock.now());
        shared.measuring.fetch_add(1, Ordering::AcqRel);
        self.turn(&mut latency, Phase::Measure)?;
        let (end, used) = (clock.now(), cycles.now());
        let ios = self.completed() - before;
        let seconds = clock.ns(end - begun.1) as f64 / 1e9;
        self.drain()?;
        let refused = self.lanes.iter().map(|lane| lane.refused).sum();
        Ok(Measured { ios, seconds, latency, used: used.since(begun.0), refused })
    }

    fn completed(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.completed).sum()
    }

    fn is_warm(&self) -> bool {
        self.lanes.iter().all(|lane| lane.completed >= self.limits.warm_ios)
    }

    /// Continues during this phase. The first warm-up turn ends when this thread is warm, the second when all are.
    fn turn(&mut self, latency: &mut Histogram, phase: Phase) -> Result<(), Error> {
        let warming = phase == Phase::Warm && !self.is_warm();
        let before = self.completed();
        let mut patience = Patience::new(self.clock, self.limits.patience);
        while self.shared.phase.load(Ordering::Acquire) == phase as u32 {
            if warming && self.is_warm() {
                return Ok(());
            }
            let mut reaped = 0;
            for lane in &mut self.lanes {
                reaped += lane.reap(self.clock, latency)?;
                lane.fill(self.clock)?;
            }
            patience.look(reaped, self.clock, &self.lanes)?;
            if phase == Phase::Measure && reaped > 0 {
                let completed: u64 = self.lanes.iter().map(|lane| lane.completed).sum();
                self.shared.completed[self.number].0.store(completed - before, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    /// Waits for the I/Os in flight.
    fn drain(&mut self) -> Result<(), Error> {
        let mut unmeasured = Histogram::new();
        self.lanes.iter_mut().try_for_each(Lane::finish)?;
        let mut patience = Patience::new(self.clock, self.limits.patience);
        while self.lanes.iter().any(|lane| lane.under_way() > 0) {
            let mut reaped = 0;
            for lane in &mut self.lanes {
                reaped += lane.reap(self.clock, &mut unmeasured)?;
            }
            patience.look(reaped, self.clock, &self.lanes)?;
        }
        Ok(())
    }
}

/// A limit on the time without any completion.
struct Patience {
    rounds: u32,
    since: u64,
    ticks: u64,
    limit: Duration,
}

impl Patience {
    fn new(clock: &Clock, limit: Duration) -> Patience {
        Patience { rounds: 0, since: clock.now(), ticks: clock.ticks(limit.as_nanos() as u64), limit }
    }

    #[inline]
    fn look(&mut self, reaped: usize, clock: &Clock, lanes: &[Lane<'_>]) -> Result<(), Error> {
        self.rounds += 1;
        if reaped > 0 && self.rounds < ROUNDS {
            return Ok(());
        }
        if reaped > 0 {
            (self.rounds, self.since) = (0, clock.now());
            return Ok(());
        }
        if self.rounds < ROUNDS {
            return Ok(());
        }
        self.rounds = 0;
        if clock.now().saturating_sub(self.since) > self.ticks {
            return Err(late(lanes, self.limit));
        }
        Ok(())
    }
}

#[cold]
fn late(lanes: &[Lane<'_>], after: Duration) -> Error {
    let stuck = lanes.iter().max_by_key(|lane| lane.under_way());
    let (queue, under_way, depth) = stuck.map_or((0, 0, 0), |lane| (lane.number(), lane.under_way(), lane.depth()));
    Error::Late { queue, under_way, depth, after }
}
