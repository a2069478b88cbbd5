//! A number of I/Os through all queues of a shape, by one or several threads.

use crate::saturate::lane::Lane;
use crate::saturate::source::{self, Checked, Opened, Shape, Source};
use crate::saturate::walk::Walk;
use crate::{Error, Unavailable};
use std::time::{Duration, Instant};

/// Queues that are open, distributed among threads, and their memory.
pub struct Burst<'s> {
    // Before the memory that their I/Os may name.
    threads: Vec<Vec<Lane<'s>>>,
    opened: Box<dyn Opened<'s> + 's>,
}

impl<'s> Burst<'s> {
    /// Opens the queues and clears the targets. Thread n gets every n-th queue, so that each thread has queues of all devices if there are enough.
    ///
    /// # Errors
    /// What this machine lacks, and errors of the device or its driver.
    pub fn open(source: &'s mut (dyn Source + 's), shape: &Shape, threads: u32) -> Result<Burst<'s>, Error> {
        let mut opened = source.open(shape)?;
        let queues = opened.queues();
        let walks = walks(shape, queues.len())?;
        source::clear(&mut *opened, &walks)?;
        let mut all: Vec<Vec<Lane<'s>>> = (0..threads).map(|_| Vec::new()).collect();
        for (n, (queue, walk)) in queues.into_iter().zip(walks).enumerate() {
            all[n % threads as usize].push(Lane::new(queue, n, walk, shape.depth, shape.batch));
        }
        Ok(Burst { threads: all, opened })
    }

    /// Does this many I/Os of each queue, and returns when all are complete. The calling thread is the first one.
    ///
    /// # Errors
    /// Errors of the device or its driver; [`Error::Told`] if no I/O of a thread completes for `patience`.
    pub fn run(&mut self, ios: u64, patience: Duration) -> Result<(), Error> {
        self.threads.iter_mut().flatten().for_each(|lane| lane.begin(ios));
        let Some((own, others)) = self.threads.split_first_mut() else { return Ok(()) };
        if others.is_empty() {
            drive(own, patience)?;
        } else {
            std::thread::scope(|scope| {
                let started: Vec<_> = others.iter_mut().map(|lanes| scope.spawn(|| drive(lanes, patience))).collect();
                let own = drive(own, patience);
                let panicked = |_| Err(Error::Told("a thread that submits has panicked".into()));
                started.into_iter().try_for_each(|thread| thread.join().unwrap_or_else(panicked)).and(own)
            })?;
        }
        match self.lanes().map(|lane| lane.refused).sum() {
            0 => Ok(()),
            refused => Err(Error::Told(format!("{refused} I/Os ended with an error status"))),
        }
    }

    fn lanes(&self) -> impl Iterator<Item = &Lane<'s>> {
        self.threads.iter().flatten()
    }

    /// I/Os so far.
    pub fn submitted(&self) -> u64 {
        self.lanes().map(|lane| lane.walk.taken()).sum()
    }

    /// Compares every byte of the targets with what the I/Os so far must have left there.
    ///
    /// # Errors
    /// A memory cannot be read. A wrong byte is no error, but part of the result.
    pub fn check(&mut self) -> Result<Checked, Error> {
        let mut walks: Vec<(usize, Walk)> = self.lanes().map(|lane| (lane.number(), lane.walk)).collect();
        walks.sort_by_key(|(number, _)| *number);
        let walks: Vec<Walk> = walks.into_iter().map(|(_, walk)| walk).collect();
        source::check(&mut *self.opened, &walks)
    }
}

/// Each queue's sequence of places in its part.
fn walks(shape: &Shape, queues: usize) -> Result<Vec<Walk>, Error> {
    let walk = |n: usize| Walk::new(shape.bytes, shape.part, shape.seed.rotate_left(n as u32) ^ n as u64);
    let walks: Option<Vec<Walk>> = (0..queues).map(walk).collect();
    // Two I/Os to the same place must never be in flight together.
    let fits = |walk: &Walk| walk.blocks() >= 2 * u64::from(shape.depth) && walk.part() == shape.part;
    walks.filter(|walks| walks.iter().all(fits)).ok_or_else(|| {
        let Shape { bytes, depth, part, .. } = shape;
        let what = format!("{depth} I/Os of {bytes} bytes in flight need more than the {part} bytes of a queue's part");
        Unavailable::new(what).into()
    })
}

/// Rounds without a completion before the clock is read to see how long that has lasted.
const ROUNDS: u32 = 1 << 12;

/// Serves the queues of a thread in turn until all their I/Os are complete.
fn drive(lanes: &mut [Lane<'_>], patience: Duration) -> Result<(), Error> {
    let (mut vain, mut since) = (0u32, Instant::now());
    while lanes.iter().any(|lane| !lane.is_done()) {
        let mut reaped = 0;
        for lane in lanes.iter_mut() {
            reaped += lane.reap()?;
            lane.fill()?;
        }
        vain = if reaped > 0 { 0 } else { vain + 1 };
        if reaped > 0 || !vain.is_multiple_of(ROUNDS) {
            continue;
        }
        // The first of these readings after a completion begins the time.
        if vain == ROUNDS {
            since = Instant::now();
        } else if since.elapsed() > patience {
            return Err(late(lanes, patience));
        }
    }
    Ok(())
}

#[cold]
fn late(lanes: &[Lane<'_>], after: Duration) -> Error {
    let stuck = lanes.iter().max_by_key(|lane| lane.under_way());
    let (queue, under_way, depth) = stuck.map_or((0, 0, 0), |lane| (lane.number(), lane.under_way(), lane.depth()));
    Error::Told(format!("queue {queue}: {under_way} of {depth} I/Os in flight, and none completed for {after:?}"))
}
