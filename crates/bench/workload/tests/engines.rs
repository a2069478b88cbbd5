//! Copy engines of the software GPU as devices: submitted I/Os arrive, one by one.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, CopyFlush, CopyMode, Device, Place};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use workload::Error;
use workload::saturate::Burst;
use workload::saturate::source::{Shape, Source, Target};
use workload::saturate::sources::engine::Engines;
use workload::saturate::way::Way;

const PATIENCE: Duration = Duration::from_secs(20);

fn engines() -> (SoftDriver, Engines) {
    let driver = SoftDriver::new(Mode::Poll);
    let space = AddressSpace::new(&Device::open(Arc::new(driver), 0).unwrap()).unwrap();
    (driver, Engines::new(&space, &[]).unwrap())
}

fn shape(target: Target, devices: u32, queues: u32, depth: u32) -> Shape {
    let bytes = 512;
    Shape {
        target,
        armed: false,
        devices,
        queues,
        depth,
        bytes,
        part: bytes << 9,
        batch: 1,
        way: Way::default(),
        seed: 7,
    }
}

/// Three bursts, each compared: some blocks have both images, some were never written.
fn measured(source: &mut dyn Source, shape: &Shape, threads: u32) -> u64 {
    let queues = u64::from(shape.devices * shape.queues);
    let mut burst = Burst::open(source, shape, threads).unwrap();
    for ios in [200, 40, 700] {
        burst.run(ios, PATIENCE).unwrap();
        let checked = burst.check().unwrap();
        assert_eq!((checked.wrong, checked.blocks, checked.first), (0, queues << 9, None));
    }
    assert_eq!(burst.submitted(), 940 * queues);
    burst.submitted()
}

#[test]
fn one_thread_drives_several_engines_and_every_io_has_its_own_doorbell() {
    let (driver, mut engines) = engines();
    let copies = || driver.counters().copies.load(Ordering::Relaxed);
    for (target, devices, queues) in [(Target::Gpu, 1, 1), (Target::Host, 2, 1), (Target::Gpu, 2, 2)] {
        let before = copies();
        let submitted = measured(&mut engines, &shape(target, devices, queues, 8), 1);
        // Each I/O is a copy. The others are the first of each channel and those that fill and read the memories.
        let others = copies() - before - submitted;
        assert!(others < 20 + 12 * u64::from(devices * queues), "{target:?}: {others}");
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn threads_share_the_queues_and_gathered_submissions_arrive() {
    let (driver, mut engines) = engines();
    let plain = Way { mode: CopyMode::Plain, ..Way::default() };
    measured(&mut engines, &Shape { way: plain, ..shape(Target::Gpu, 2, 1, 40) }, 2);
    let entries = || driver.counters().entries.load(Ordering::Relaxed);
    let before = entries();
    let submitted = measured(&mut engines, &Shape { batch: 8, ..shape(Target::Host, 1, 1, 32) }, 1);
    assert!(entries() - before < submitted / 4, "8 I/Os a doorbell");
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn armed_ios_arrive_where_each_was_sent() {
    let (driver, mut engines) = engines();
    for (target, devices, depth) in [(Target::Gpu, 2, 4), (Target::Host, 1, 1)] {
        measured(&mut engines, &Shape { armed: true, ..shape(target, devices, 1, depth) }, 1);
    }
    let deep = Shape { armed: true, ..shape(Target::Gpu, 1, 1, 5) };
    let why = engines.open(&deep).map(drop).unwrap_err().to_string();
    assert!(why.contains("gates for 4"), "{why}");
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

/// In some ways the last I/Os have no completion until it is requested.
#[test]
fn ios_arrive_with_every_way_of_completion() {
    let (driver, mut engines) = engines();
    let usual = Way::default();
    let every = |n| Way { completions_every: Some(n), ..usual };
    let ways = [
        (Way { flush: CopyFlush::None, ..usual }, 1),
        (Way { flush: CopyFlush::Local, mode: CopyMode::Folded, ..usual }, 1),
        (Way { flush: CopyFlush::None, completions: Place::Video, ..usual }, 1),
        (Way { commands: Place::Host, completions: Place::Video, ..usual }, 1),
        (Way { commands: Place::Host, ..every(7) }, 1),
        (every(40), 1),
        (every(1), 8),
        (Way { completions: Place::Video, ..every(1) }, 8),
    ];
    for (n, (way, batch)) in ways.into_iter().enumerate() {
        let (target, devices) = [(Target::Gpu, 1), (Target::Host, 2)][n % 2];
        measured(&mut engines, &Shape { way, batch, ..shape(target, devices, 1, 40) }, 1);
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn each_of_three_threads_has_an_engine_of_its_own_or_one_has_all() {
    let (driver, mut engines) = engines();
    for (threads, target, depth, batch) in [(3, Target::Gpu, 64, 32), (1, Target::Host, 256, 128)] {
        measured(&mut engines, &Shape { batch, ..shape(target, 3, 1, depth) }, threads);
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn what_has_no_room_is_refused() {
    let (_, mut engines) = engines();
    let small = Shape { part: 512 << 3, ..shape(Target::Gpu, 1, 1, 8) };
    let refused = Burst::open(&mut engines, &small, 1).map(drop).unwrap_err();
    assert!(matches!(&refused, Error::Unavailable(why) if why.reason.contains("8 I/Os of 512 bytes")), "{refused}");
    let many = Burst::open(&mut engines, &shape(Target::Gpu, 64, 1, 8), 1).map(drop).unwrap_err().to_string();
    assert!(many.contains("64 copy engines"), "{many}");
}
