//! No allocation happens between submit and reap.

mod ground;

use files::{Direction, Done, Extents, Options, Queue, Source, Target, Way};
use ground::{filled, machine, random};
use std::sync::Arc;
use test_support::counting::{self, Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Submits the blocks of the file in turn, and returns the allocations after the first quarter of the rounds.
fn allocations(queue: &mut Queue<'_>, rounds: usize, length: u64) -> u64 {
    let mut done = [Done::NONE; 8];
    let (mut free, mut next) = ((0..queue.depth()).collect::<Vec<_>>(), 0u64);
    let blocks = length / 4096;
    let mut before = 0;
    let mut reaped = 0;
    while reaped < rounds {
        if reaped >= rounds / 4 && before == 0 {
            before = counting::allocations();
        }
        while let Some(slot) = free.pop() {
            queue.submit(slot, next % blocks * 4096, 4096).unwrap();
            next += 1;
        }
        let count = queue.wait(&mut done).unwrap();
        for done in &done[..count] {
            assert_eq!(done.result, Ok(4096));
            free.push(done.slot);
        }
        reaped += count;
    }
    counting::allocations() - before
}

#[test]
fn no_transfer_allocates() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = random(&dir, "f", 64 * 4096);
    let source = Source::open(&path, false).unwrap();
    let target = Target::new(&machine, 64 * 4096).unwrap();
    let places = Arc::new(Extents::whole(source.length()));
    for way in [Way::Auto, Way::Threads] {
        let options = Options { block: 4096, depth: 8, way, ..Options::default() };
        let mut queue = Queue::new(&machine, &source, Direction::Read, (&target, &places), &options).unwrap();
        assert_eq!(allocations(&mut queue, 1000, 64 * 4096), 0, "{way:?}");
        let mut queue = Queue::by_slot(&machine, &source, Direction::Read, &target, &options).unwrap();
        assert_eq!(allocations(&mut queue, 1000, 64 * 4096), 0, "{way:?}");
        let mut queue = Queue::bare(&source, Direction::Read, &options).unwrap();
        assert_eq!(allocations(&mut queue, 1000, 64 * 4096), 0, "{way:?}");
    }
}

#[test]
fn slots_and_offsets_are_checked() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let (path, data) = random(&dir, "f", 64 * 4096);
    let source = Source::open(&path, false).unwrap();
    let (target, _) = filled(&machine, 4 * 4096);
    let options = Options { block: 4096, depth: 4, ..Options::default() };
    let mut queue = Queue::by_slot(&machine, &source, Direction::Read, &target, &options).unwrap();
    let refused = |result: Result<(), files::Error>, what: &str| {
        let error = result.unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    };
    refused(queue.submit(4, 0, 4096), "no slot 4");
    refused(queue.submit(0, 0, 0), "a block of 0 bytes");
    refused(queue.submit(0, 0, 4097), "a block of 4097 bytes");
    if source.buffered().is_none() {
        refused(queue.submit(0, 100, 4096), "offset 100");
    }
    queue.submit(2, 8 * 4096, 4096).unwrap();
    refused(queue.submit(2, 0, 4096), "slot 2 is in use");
    let mut done = [Done::NONE; 4];
    assert_eq!(queue.wait(&mut done).unwrap(), 1);
    assert_eq!(done[0], Done { slot: 2, offset: 8 * 4096, result: Ok(4096) });
    let mut found = vec![0; 4096];
    target.read(2 * 4096, &mut found).unwrap();
    assert!(found == data[8 * 4096..9 * 4096]);
    assert_eq!(queue.wait(&mut done).unwrap(), 0, "nothing is under way");
    // A queue that is dropped with pending blocks waits for them.
    queue.submit(0, 0, 4096).unwrap();
    queue.submit(1, 4096, 4096).unwrap();
    assert_eq!(queue.in_flight(), 2);
    queue.reap(&mut []).unwrap();
    drop(queue);
    let too_small = Queue::by_slot(&machine, &source, Direction::Read, &target, &Options { depth: 5, ..options });
    assert!(too_small.unwrap_err().to_string().contains("5 slots"));
}
