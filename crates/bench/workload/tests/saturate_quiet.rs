//! The loop that submits and reaps makes no allocation and no system call, and notices every error that a queue reports. The test
//! has its own process, because it counts them.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, CopyFlush, CopyMode as Told, Device};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;
use test_support::counting::{Counting, cost, watch_system_calls};
use workload::Error;
use workload::saturate::lane::Lane;
use workload::saturate::queue::{Done, Place, Queue};
use workload::saturate::source::{Shape, Source, Target};
use workload::saturate::sources::engine::Engines;
use workload::saturate::walk::Walk;
use workload::saturate::way::Way;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The count of system calls is global to the process.
static ONE: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn the_loop_allocates_nothing_and_makes_no_system_call() {
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let watched = watch_system_calls();
    // A polling GPU: the strict one traps doorbells, which makes system calls on this thread.
    let space = AddressSpace::new(&Device::open(Arc::new(SoftDriver::new(Mode::Poll)), 0).unwrap()).unwrap();
    let usual = Way::default();
    let every = |n| Way { completions_every: Some(n), ..usual };
    for (mode, batch, armed, way) in [
        (Told::Pipelined, 1, false, usual),
        (Told::Folded, 1, false, usual),
        (Told::Plain, 8, false, usual),
        (Told::Pipelined, 32, false, usual),
        (Told::Pipelined, 1, true, usual),
        (Told::Pipelined, 1, false, every(8)),
        (Told::Plain, 8, false, every(1)),
        (Told::Folded, 1, false, Way { flush: CopyFlush::None, ..usual }),
    ] {
        let mut engines = Engines::new(&space, &[]).unwrap();
        let shape = Shape {
            target: Target::Gpu,
            armed,
            devices: 2,
            queues: 1,
            depth: if armed { 4 } else { 40 },
            bytes: 512,
            part: 512 << 10,
            batch,
            way: Way { mode, ..way },
            seed: 1,
        };
        let mut opened = engines.open(&shape).unwrap();
        let walk = Walk::new(shape.bytes, shape.part, 3).unwrap();
        let queues = opened.queues().into_iter().enumerate();
        let mut lanes: Vec<Lane<'_>> = queues.map(|(n, queue)| Lane::new(queue, n, walk, shape.depth, batch)).collect();
        lanes.iter_mut().for_each(|lane| lane.begin(u64::MAX));
        let begun = Instant::now();
        // Round the rings and more.
        while lanes.iter().any(|lane| lane.completed < 800) && begun.elapsed().as_secs() < 20 {
            let mut failed = false;
            let spent = cost(watched, || {
                for lane in &mut lanes {
                    failed |= lane.reap().is_err() || lane.fill().is_err();
                }
            });
            assert_eq!((failed, spent), (false, (0, 0)), "{mode:?}, {batch} a doorbell, {way:?}");
        }
        assert!(lanes.iter().all(|lane| lane.completed >= 200), "{mode:?}: nothing is done");
    }
}

/// A queue whose answers a test sets.
#[derive(Default)]
struct Fake {
    under_way: VecDeque<(u32, Place)>,
    answers: Vec<Done>,
    /// Places of all I/Os in flight, which complete in any order.
    held: Option<(u32, u64)>,
}

impl Queue for Fake {
    fn submit(&mut self, slot: u32, place: Place) -> Result<(), Error> {
        assert!(
            self.under_way.iter().all(|(other, at)| *other != slot && at.target != place.target),
            "twice at {place:?}"
        );
        self.under_way.push_back((slot, place));
        Ok(())
    }

    fn reap(&mut self, into: &mut [Done]) -> Result<usize, Error> {
        if let Some(answer) = self.answers.pop() {
            into[0] = answer;
            return Ok(1);
        }
        // The oldest is held back as long as possible.
        let oldest = usize::from(self.under_way.len() > 1 && self.held.is_some());
        let Some((slot, _)) = self.under_way.remove(oldest) else { return Ok(0) };
        into[0] = Done { slot, status: 0 };
        Ok(1)
    }
}

fn lane(fake: Fake, blocks: u64) -> Lane<'static> {
    let mut lane = Lane::new(Box::new(fake), 0, Walk::new(512, 512 * blocks, 9).unwrap(), 4, 1);
    lane.begin(u64::MAX);
    lane
}

#[test]
fn an_old_io_holds_back_the_next_one_to_its_place() {
    let mut lane = lane(Fake { held: Some((0, 0)), ..Fake::default() }, 8);
    for _ in 0..2000 {
        lane.fill().unwrap();
        lane.reap().unwrap();
    }
    // The loop continues, although the same I/O is always the last to complete.
    assert!(lane.completed > 1000, "{}", lane.completed);
}

#[test]
fn completions_that_are_none_are_errors_and_a_status_is_counted() {
    let answers = |answers: &[(u32, u32)]| {
        let answers = answers.iter().rev().map(|(slot, status)| Done { slot: *slot, status: *status }).collect();
        let mut lane = lane(Fake { answers, ..Fake::default() }, 64);
        lane.fill().unwrap();
        lane
    };
    for wrong in [&[(4, 0)][..], &[(u32::MAX, 0)], &[(1, 0), (1, 0)]] {
        let mut lane = answers(wrong);
        let mut all = wrong.iter().map(|_| lane.reap());
        assert!(
            all.any(|reaped| matches!(reaped, Err(Error::Told(why)) if why.contains("nothing is in flight"))),
            "{wrong:?}"
        );
    }
    let mut lane = answers(&[(2, 0x4080), (0, 0)]);
    assert_eq!((lane.reap().unwrap(), lane.reap().unwrap()), (1, 1));
    assert_eq!((lane.refused, lane.completed, lane.under_way()), (1, 2, 2));
}
