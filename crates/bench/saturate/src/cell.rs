//! One cell: a number of threads, devices, queues and I/Os in flight, of one size, for one time.

use crate::Error;
use crate::lane::Lane;
use crate::queue::Queue;
use crate::source::{self, Checked, Shape, Source};
use crate::walk::Walk;
use crate::wire::{Moment, Wire};
use crate::worker::{Limits, Measured, Shared, Worker};
use environment::link::OFTEN;
use measure::clock::Clock;
use placement::{Placement, Wish};
use statistics::Histogram;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// What is measured.
#[derive(Clone, Debug)]
pub struct Cell {
    pub shape: Shape,
    pub threads: u32,
    /// The CPUs of the threads, one each (empty: the kernel chooses).
    pub cpus: Vec<usize>,
    pub duration: Duration,
    pub limits: Limits,
    /// Interval between readings of the wire's counters.
    pub every: Duration,
}

/// The result.
#[derive(Debug)]
pub struct Outcome {
    pub threads: Vec<Measured>,
    /// Readings of the link's counters and of the number of finished I/Os, within the measured time.
    pub moments: Vec<Moment>,
    pub checked: Checked,
    /// All I/Os, including the warm-up and the last ones.
    pub submitted: u64,
    /// Requests that were refused.
    pub notes: Vec<String>,
}

impl Outcome {
    pub fn ios(&self) -> u64 {
        self.threads.iter().map(|thread| thread.ios).sum()
    }

    pub fn refused(&self) -> u64 {
        self.threads.iter().map(|thread| thread.refused).sum()
    }

    pub fn latency(&self) -> Histogram {
        let mut all = Histogram::new();
        self.threads.iter().for_each(|thread| all.merge(&thread.latency));
        all
    }

    /// I/Os a second: each thread over its own time.
    pub fn iops(&self) -> f64 {
        self.threads.iter().filter(|thread| thread.seconds > 0.0).map(|t| t.ios as f64 / t.seconds).sum()
    }
}

/// The result of a thread: its figures, its queues, and notes about its CPU.
type Ended<'q> = (Result<Measured, Error>, Vec<Lane<'q>>, Vec<String>);

/// Opens the queues, measures, and compares every byte of the targets.
///
/// # Errors
/// Errors of the device or its driver. A wrong byte is no error, but part of the result.
pub fn run(source: &mut dyn Source, cell: &Cell, clock: &Clock, wire: &mut dyn Wire) -> Result<Outcome, Error> {
    let Cell { shape, threads, .. } = cell;
    let mut opened = source.open(shape)?;
    let queues = opened.queues();
    let walks = walks(shape, queues.len())?;
    source::clear(&mut *opened, &walks)?;
    let shared = Shared::new(*threads as usize);
    let workers = workers(cell, queues, &walks, (clock, &shared));
    let mut moments = Vec::new();
    let ended: Vec<Ended<'_>> = std::thread::scope(|scope| {
        let started: Vec<_> = workers
            .into_iter()
            .map(|mut worker| {
                let cpu = cell.cpus.get(worker.number).copied();
                scope.spawn(move || {
                    let placed = Placement::take(Wish { cpu, fifo: None });
                    let measured = worker.run();
                    (measured, worker.lanes, placed.notes.clone())
                })
            })
            .collect();
        moments = watch(&shared, cell, wire);
        shared.stop();
        started
            .into_iter()
            .map(|thread| thread.join().unwrap_or((Err(Error::Panicked), Vec::new(), Vec::new())))
            .collect()
    });
    let (mut all, mut lanes, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for (measured, of_thread, said) in ended {
        all.push(measured);
        lanes.extend(of_thread);
        notes.extend(said);
    }
    lanes.sort_by_key(Lane::number);
    let walks: Vec<Walk> = lanes.iter().map(|lane| lane.walk).collect();
    // Queues are dropped before their memory is compared: then no I/O is in flight.
    drop(lanes);
    let threads = all.into_iter().collect::<Result<Vec<_>, _>>()?;
    let checked = source::check(&mut *opened, &walks)?;
    let submitted = walks.iter().map(Walk::taken).sum();
    notes.dedup();
    Ok(Outcome { threads, moments, checked, submitted, notes })
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
        Error::Unavailable(what)
    })
}

/// Distributes the queues: thread n gets every n-th, so that each thread has queues of all devices if there are enough.
fn workers<'c, 'q>(
    cell: &Cell,
    queues: Vec<Box<dyn Queue + 'q>>,
    walks: &[Walk],
    (clock, shared): (&'c Clock, &'c Shared),
) -> Vec<Worker<'c, 'q>> {
    let threads = cell.threads as usize;
    let worker = |number| Worker { lanes: Vec::new(), clock, shared, number, limits: cell.limits };
    let mut workers: Vec<Worker<'c, 'q>> = (0..threads).map(worker).collect();
    for (n, (queue, walk)) in queues.into_iter().zip(walks).enumerate() {
        workers[n % threads].lanes.push(Lane::new(queue, n, *walk, cell.shape.depth, cell.shape.batch));
    }
    workers
}

/// Lets the threads warm up, then measure, and reads the link's counters in the meantime, from a thread that does not submit.
fn watch(shared: &Shared, cell: &Cell, wire: &mut dyn Wire) -> Vec<Moment> {
    let all = |count: &std::sync::atomic::AtomicU32| {
        while count.load(Ordering::Acquire) < cell.threads && !shared.is_stopped() {
            std::thread::sleep(Duration::from_micros(200));
        }
    };
    all(&shared.warm);
    shared.measure();
    all(&shared.measuring);
    let (begun, mut moments) = (Instant::now(), Vec::new());
    wire.begin();
    let mut look = |sample| {
        let look = wire.look(sample);
        moments.push(Moment { at: begun.elapsed(), ios: shared.completed(), look });
    };
    look(true);
    let mut next = cell.every;
    while begun.elapsed() < cell.duration && !shared.is_stopped() {
        std::thread::sleep(OFTEN.min(cell.duration.saturating_sub(begun.elapsed())));
        let (is_due, is_over) = (begun.elapsed() >= next, begun.elapsed() >= cell.duration);
        look(is_due);
        if is_due && !is_over {
            next += cell.every;
        }
    }
    moments
}
