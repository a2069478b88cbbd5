//! The cost of a copy engine's I/O for the submitting thread: the whole path of the loop, from the free slot to the sample, on the software GPU.
//! The engine's work is not included: slots are filled, then all are waited for, then all are reaped, and only filling and reaping are timed.
//!
//! Its memory is ordinary: a real GPU adds the cost of stores to GPU memory.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Device, Place};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use workload::saturate::lane::Lane;
use workload::saturate::source::{Shape, Source, Target};
use workload::saturate::sources::engine::Engines;
use workload::saturate::walk::Walk;
use workload::saturate::way::Way;

const ROUNDS: usize = 400;
const DEPTH: u32 = 512;
/// After the last copy the engine still releases.
const BEHIND: Duration = Duration::from_micros(20);

fn main() {
    let driver = SoftDriver::new(Mode::Poll);
    let space = AddressSpace::new(&Device::open(Arc::new(driver), 0).expect("a device")).expect("an address space");
    println!("ns of the submitting thread an I/O, median and least of {ROUNDS} rounds");
    println!("{:>8} {:>8} {:>9}   {:>13}  {:>13}  {:>6}", "devices", "batch", "commands", "fill", "reap", "both");
    for (devices, commands) in [(1, Place::Video), (3, Place::Video), (3, Place::Host)] {
        for batch in [1, 8, 32, 128] {
            let way = Way { commands, ..Way::default() };
            let [fill, reap] = measured(&driver, &space, (devices, batch, way));
            let place = if commands == Place::Video { "video" } else { "host" };
            let both = fill.0 + reap.0;
            println!(
                "{devices:>8} {batch:>8} {place:>9}   {:>6.1} {:>6.1}  {:>6.1} {:>6.1}  {both:>6.1}",
                fill.0, fill.1, reap.0, reap.1
            );
        }
    }
}

/// Median and minimum of filling and of reaping.
fn measured(driver: &SoftDriver, space: &Arc<AddressSpace>, (devices, batch, way): (u32, u32, Way)) -> [(f64, f64); 2] {
    let mut engines = Engines::new(space, &[]).expect("engines");
    let shape = Shape {
        target: Target::Gpu,
        armed: false,
        devices,
        queues: 1,
        depth: DEPTH,
        // The engine takes no time then, so the thread is hardly disturbed.
        bytes: 64,
        part: 64 << 12,
        batch,
        way,
        seed: 1,
    };
    let mut opened = engines.open(&shape).expect("queues");
    let walk = Walk::new(shape.bytes, shape.part, 3).expect("blocks");
    let queues = opened.queues().into_iter().enumerate();
    let mut lanes: Vec<Lane<'_>> = queues.map(|(n, queue)| Lane::new(queue, n, walk, DEPTH, batch)).collect();
    let copies = || driver.counters().copies.load(Ordering::Relaxed);
    let (mut fills, mut reaps) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        lanes.iter_mut().for_each(|lane| lane.begin(DEPTH.into()));
        let (before, begun) = (copies(), Instant::now());
        lanes.iter_mut().for_each(|lane| lane.fill().expect("filled"));
        fills.push(begun.elapsed());
        let ios: usize = lanes.iter().map(Lane::under_way).sum();
        let waits = Instant::now();
        while copies() < before + ios as u64 {
            assert!(waits.elapsed() < Duration::from_secs(10), "the engine does nothing");
            std::hint::spin_loop();
        }
        let behind = Instant::now();
        while behind.elapsed() < BEHIND {}
        let begun = Instant::now();
        while lanes.iter().any(|lane| lane.under_way() > 0) {
            for lane in &mut lanes {
                lane.reap().expect("reaped");
            }
        }
        reaps.push(begun.elapsed());
    }
    let ios = f64::from(devices * DEPTH);
    [fills, reaps].map(|mut times| {
        times.sort_unstable();
        let each = |time: Duration| time.as_nanos() as f64 / ios;
        (each(times[ROUNDS / 2]), each(times[0]))
    })
}
