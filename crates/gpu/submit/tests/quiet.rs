//! Submitting and polling allocate no memory and make no system call. Alone in its process: it counts them.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Device};
use std::sync::Arc;
use std::time::Duration;
use submit::{Chooser, Direction, Done, Executor, Follow, Options, Piece, Queue, Session, Wait};
use test_support::counting::{Counting, cost, watch_system_calls};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const LIMIT: Duration = Duration::from_secs(20);

/// Up to 32 bytes by stores.
struct Small;

impl Chooser for Small {
    fn sizes(&self, direction: Direction) -> Vec<(u64, Executor)> {
        vec![(32, if direction == Direction::ToGpu { Executor::Stores } else { Executor::Loads })]
    }

    fn why(&self, _: Direction, _: u64) -> String {
        String::new()
    }
}

#[test]
fn submit_copy_and_poll_allocate_nothing_and_make_no_system_call() {
    // A GPU that polls: to trap a doorbell, the strict one makes system calls on this thread.
    let device = Device::open(Arc::new(SoftDriver::new(Mode::Poll)), 0).unwrap();
    let session = Session::new();
    let options = Options { lanes: 2, profile: Follow::Given(Arc::new(Small)), ..Options::default() };
    session.open_in(AddressSpace::new(&device).unwrap(), None, &options).unwrap();
    let watched = watch_system_calls();
    if !watched {
        eprintln!("system calls are not watched: this kernel has no syscall user dispatch");
    }
    let (host, video) = (session.allocate(1 << 16, false).unwrap(), session.allocate(1 << 16, true).unwrap());
    let prepared = session.prepare((video, 0), (host, 0), 4096).unwrap();
    let stores = session.prepare((video, 0), (host, 0), 32).unwrap();
    let given = session.prepare_bytes((video, 64), 56).unwrap();
    let ring = session.ring((video, 0), (host, 0), 4096, 4).unwrap();
    let piece = |n: u64| Piece { to: host, to_at: n * 64, from: video, from_at: n * 128, bytes: 64 };
    let pieces: Vec<_> = (0..300).map(piece).collect();
    type Way<'a> = (&'a str, &'a dyn Fn() -> Result<submit::Copy, submit::Error>);
    let ways: [Way; 8] = [
        ("prepared", &|| session.submit(prepared)),
        ("bytes", &|| session.submit_bytes(given, &[7; 56])),
        ("any", &|| session.copy_async((video, 8), (host, 16), 100)),
        ("stores", &|| session.submit(stores)),
        ("any stores", &|| session.copy_async((video, 8), (host, 16), 32)),
        ("any loads", &|| session.copy_async((host, 8), (video, 16), 32)),
        ("batch", &|| session.copy_batch(&pieces)),
        ("ring", &|| session.ring_next(ring).and_then(|_| session.ring_submit(ring))),
    ];
    for (name, submit) in ways {
        // Once around the ring of GPFIFO entries, and around the slots.
        for round in 0..if name == "prepared" { 600 } else { 140 } {
            let mut copy = None;
            let spent = cost(watched, || {
                copy = submit().ok();
                std::hint::black_box(copy.map(|copy| session.poll(copy).is_ok()));
            });
            assert_eq!((copy.is_some(), spent), (true, (0, 0)), "{name}, round {round}");
            session.wait(copy.unwrap(), LIMIT).unwrap();
        }
    }
    let message = session.message((video, 128), (host, 192)).unwrap();
    for round in 0..100 {
        let mut number = None;
        let spent = cost(watched, || {
            number = session.send(message, &[7; 56]).ok();
            std::hint::black_box(session.answer(message).is_ok());
        });
        assert_eq!((number, spent), (Some(round + 1), (0, 0)));
    }
    // Waits may sleep, and a queue may wake a thread, but they allocate no memory.
    let queue = Queue::new(&session, 8).unwrap();
    let mut done = [Done::default()];
    for how in [Wait::Spin, Wait::SLEEP, Wait::Sleep { spin: Duration::ZERO }] {
        session.set_wait(how);
        for round in 0..100 {
            let copy = session.submit(prepared).unwrap();
            // (A system call that is watched is not made.)
            let (allocations, _) = cost(false, || {
                let mut all = queue.add(copy, round).is_ok() && queue.wait(LIMIT).is_ok();
                all &= session.wait(copy, LIMIT).is_ok() && session.wait_any(&[copy], LIMIT).is_ok();
                all &= session.wait_all(&[copy], LIMIT).is_ok() && queue.take(&mut done).is_ok_and(|count| count == 1);
                assert!(std::hint::black_box(all));
            });
            assert_eq!((allocations, done[0].user), (0, round), "{how:?}");
        }
        // A wait for a finished submission makes no system call, in any way of waiting; nor does a
        // submission.
        let copy = session.submit(prepared).unwrap();
        session.wait(copy, LIMIT).unwrap();
        let spent = cost(watched, || {
            std::hint::black_box(session.wait(copy, LIMIT).is_ok() && session.submit(prepared).is_ok());
        });
        assert_eq!(spent, (0, 0), "{how:?}");
    }
    // Both counters count.
    let (allocations, calls) = cost(watched, || {
        drop(std::hint::black_box(Box::new(7)));
        // SAFETY: no arguments.
        unsafe { libc::getppid() };
    });
    assert_eq!((allocations, calls), (2, u32::from(watched)));
}
