//! Copy engines of the software GPU as devices: submitted I/Os arrive, one by one.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Device};
use measure::clock::Clock;
use saturate::cell::{Cell, Outcome, run};
use saturate::source::{Flow, Shape, Source, Submission, Target};
use saturate::sources::engine::Engines;
use saturate::way::{Flush, Memory as Lies, Mode as Told, Way};
use saturate::wire::Uncounted;
use saturate::worker::Limits;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn engines(mode: Told) -> (SoftDriver, Engines) {
    let driver = SoftDriver::new(Mode::Poll);
    let space = AddressSpace::new(&Device::open(Arc::new(driver), 0).unwrap()).unwrap();
    (driver, Engines::new(&space, &[], mode).unwrap())
}

fn cell(target: Target, threads: u32, devices: u32, queues: u32, depth: u32) -> Cell {
    let bytes = 512;
    Cell {
        shape: Shape {
            flow: Flow::to(target),
            devices,
            queues,
            depth,
            bytes,
            part: bytes << 9,
            batch: 1,
            way: Way::default(),
            seed: 7,
        },
        threads,
        cpus: Vec::new(),
        duration: Duration::from_millis(30),
        limits: Limits { warm_ios: 10, patience: Duration::from_secs(20) },
        every: Duration::from_millis(10),
    }
}

/// Measures longer if a busy machine left a thread without work in that time.
fn measured(source: &mut dyn Source, cell: &Cell) -> Outcome {
    let mut cell = cell.clone();
    loop {
        let outcome = run(source, &cell, &Clock::new(), &mut Uncounted).unwrap();
        let queues = u64::from(cell.shape.devices * cell.shape.queues);
        assert_eq!((outcome.checked.wrong, outcome.refused(), &outcome.checked.first), (0, 0, &None));
        assert_eq!(outcome.checked.blocks, queues << 9);
        assert_eq!(outcome.latency().count(), outcome.ios());
        assert!(outcome.submitted > outcome.ios(), "{outcome:?}");
        if outcome.threads.iter().all(|thread| thread.ios > 0) {
            return outcome;
        }
        cell.duration *= 4;
        assert!(cell.duration < Duration::from_secs(10), "{outcome:?}");
    }
}

#[test]
fn one_thread_drives_several_engines_and_every_io_has_its_own_doorbell() {
    let (driver, mut engines) = engines(Told::Pipelined);
    let copies = || driver.counters().copies.load(Ordering::Relaxed);
    for (target, devices, queues) in [(Target::Gpu, 1, 1), (Target::Host, 2, 1), (Target::Gpu, 2, 2)] {
        let (before, cell) = (copies(), cell(target, 1, devices, queues, 8));
        let outcome = run(&mut engines, &cell, &Clock::new(), &mut Uncounted).unwrap();
        assert_eq!((outcome.checked.wrong, outcome.checked.blocks), (0, u64::from(devices * queues) << 9));
        // Each I/O is a copy. The others are the first of each channel and those that fill and read the memories.
        let others = copies() - before - outcome.submitted;
        assert!(others < 20 + 8 * u64::from(devices * queues), "{target}: {others}");
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn threads_share_the_queues_and_gathered_submissions_arrive() {
    let (driver, mut engines) = engines(Told::Plain);
    let outcome = measured(&mut engines, &cell(Target::Gpu, 2, 2, 1, 40));
    assert_eq!(outcome.threads.len(), 2);
    let mut gathered = cell(Target::Host, 1, 1, 1, 32);
    gathered.shape.batch = 8;
    let entries = || driver.counters().entries.load(Ordering::Relaxed);
    let before = entries();
    let outcome = run(&mut engines, &gathered, &Clock::new(), &mut Uncounted).unwrap();
    assert_eq!(outcome.checked.wrong, 0);
    assert!(entries() - before < outcome.submitted / 4, "8 I/Os a doorbell");
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn armed_ios_arrive_where_each_was_sent() {
    let (driver, mut engines) = engines(Told::Pipelined);
    for (target, threads, devices, depth) in [(Target::Gpu, 1, 2, 4), (Target::Host, 1, 1, 1)] {
        let mut cell = cell(target, threads, devices, 1, depth);
        cell.shape.flow.submission = Submission::Armed;
        measured(&mut engines, &cell);
    }
    let mut deep = cell(Target::Gpu, 1, 1, 1, 5).shape;
    deep.flow.submission = Submission::Armed;
    let why = engines.open(&deep).map(drop).unwrap_err().to_string();
    assert!(why.contains("gates for 4"), "{why}");
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

/// In some ways the last I/Os have no completion until it is requested.
#[test]
fn ios_arrive_with_every_way_of_completion() {
    let (driver, mut engines) = engines(Told::Pipelined);
    let usual = Way::default();
    let every = |n| Way { completions_every: Some(n), ..usual };
    let ways = [
        (Way { flush: Flush::None, ..usual }, 1),
        (Way { flush: Flush::Local, mode: Some(Told::Folded), ..usual }, 1),
        (Way { flush: Flush::None, completions: Lies::Video, ..usual }, 1),
        (Way { commands: Lies::Host, completions: Lies::Video, ..usual }, 1),
        (Way { commands: Lies::Host, ..every(7) }, 1),
        (every(40), 1),
        (every(1), 8),
        (Way { completions: Lies::Video, ..every(1) }, 8),
    ];
    for (n, (way, batch)) in ways.into_iter().enumerate() {
        let (target, devices) = [(Target::Gpu, 1), (Target::Host, 2)][n % 2];
        let mut cell = cell(target, 1, devices, 1, 40);
        cell.duration = Duration::from_millis(5);
        (cell.shape.way, cell.shape.batch) = (way, batch);
        measured(&mut engines, &cell);
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn each_of_three_threads_has_an_engine_of_its_own_or_one_has_all() {
    let (driver, mut engines) = engines(Told::Pipelined);
    let devices = engines.devices().min(3);
    for (threads, target, depth, batch) in [(devices, Target::Gpu, 64, 32), (1, Target::Host, 256, 128)] {
        let mut cell = cell(target, threads, devices, 1, depth);
        cell.shape.batch = batch;
        assert_eq!(measured(&mut engines, &cell).threads.len(), threads as usize);
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}
