//! Queues of submissions: what a take returns, in any thread, with a descriptor and without, and what ends a
//! queue.

mod alone;

use alone::{LIMIT, SOON, alone, open, piece, timed, word};
use doorbell_softgpu::Planted;
use std::collections::HashSet;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use submit::{Buffer, Chooser, Copy, Direction, Done, Error, Executor, Follow, InOrder, Options, Queue, Session, Wait};

const AT_ONCE: Wait = Wait::Sleep { spin: Duration::ZERO };

struct Rig {
    session: Arc<Session>,
    driver: doorbell_softgpu::SoftDriver,
    gate: Buffer,
    to: Buffer,
    from: Buffer,
}

fn rig(lanes: usize) -> Rig {
    let (session, driver) = alone(&Options { lanes, ..Options::default() });
    session.set_wait(AT_ONCE);
    let [gate, to, from] = [(); 3].map(|()| session.allocate(4096, false).unwrap());
    Rig { session: Arc::new(session), driver, gate, to, from }
}

impl Rig {
    fn queue(&self, size: usize) -> Queue<Arc<Session>> {
        Queue::new(self.session.clone(), size).unwrap()
    }

    fn quick(&self) -> Copy {
        self.session.copy_async((self.to, 0), (self.from, 0), 64).unwrap()
    }

    /// A copy that waits for the gate.
    fn waits(&self) -> Copy {
        self.session
            .copy_in(&piece(self.to, self.from), &InOrder { word: Some((self.gate, 0, 1)), ..InOrder::default() })
            .unwrap()
    }

    fn open_gate(&self) {
        word(&self.session, self.gate).store(1, Ordering::SeqCst);
    }
}

fn take_all<S: std::ops::Deref<Target = Session>>(queue: &Queue<S>) -> Vec<Done> {
    let mut all = Vec::new();
    while !queue.is_empty() {
        queue.wait(LIMIT).unwrap();
        let mut some: [Done; 3] = Default::default();
        let count = queue.take(&mut some).unwrap();
        all.extend(some.into_iter().take(count));
    }
    all
}

/// Whether a poll of this length finds it readable.
fn readable(descriptor: BorrowedFd<'_>, milliseconds: i32) -> bool {
    let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry on the stack.
    unsafe { libc::poll(&raw mut poll, 1, milliseconds) == 1 }
}

#[test]
fn what_is_done_comes_out_with_its_number() {
    let rig = rig(2);
    let queue = rig.queue(8);
    let copies: Vec<Copy> = (0..8).map(|_| rig.quick()).collect();
    copies.iter().zip(0..).for_each(|(copy, n)| queue.add(*copy, 100 + n).unwrap());
    let all = take_all(&queue);
    assert!(all.iter().all(|done| done.result.is_ok()));
    let users: HashSet<(u64, u64)> = all.iter().map(|done| (done.copy.raw(), done.user)).collect();
    assert_eq!(users, copies.iter().zip(0..).map(|(copy, n)| (copy.raw(), 100 + n)).collect());
    assert_eq!(queue.take(&mut [Done::default()]).unwrap(), 0);
    assert!(matches!(queue.wait(Duration::from_millis(2)), Err(Error::Timeout(_))), "an empty queue is waited for");
}

#[test]
fn a_queue_that_is_full_takes_nothing_and_what_is_none_is_refused() {
    let rig = rig(1);
    let queue = rig.queue(2);
    let waits = rig.waits();
    queue.add(waits, 1).unwrap();
    queue.add(waits, 2).unwrap();
    assert!(matches!(queue.add(waits, 3), Err(Error::Full(2))));
    assert!(matches!(queue.add(Copy::from_raw(7), 3), Err(Error::Handle(_))));
    assert!(queue.remove(waits).unwrap() && !queue.remove(waits).unwrap() && queue.is_empty());
    assert!(!rig.session.poll(waits).unwrap(), "it goes on");
    queue.add(waits, 4).unwrap();
    assert!(matches!(queue.wait(Duration::from_millis(2)), Err(Error::Timeout(_))));
    rig.open_gate();
    assert_eq!(take_all(&queue)[0].user, 4);
    for size in [0, (1 << 16) + 1] {
        assert!(matches!(Queue::new(&*rig.session, size), Err(Error::Argument(_))));
    }
}

#[test]
fn many_threads_add_and_take_and_each_entry_comes_out_once() {
    const THREADS: u64 = 8;
    const EACH: u64 = 100;
    let rig = rig(4);
    let (queue, taken, seen) = (rig.queue(64), AtomicU64::new(0), Mutex::new(HashSet::new()));
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (rig, queue, taken, seen) = (&rig, &queue, &taken, &seen);
            scope.spawn(move || {
                let add = |n: u64| loop {
                    let copy = match rig.session.copy_async((rig.to, 64 * thread), (rig.from, 64 * thread), 64) {
                        Err(Error::Busy | Error::Full(_)) => {
                            std::thread::yield_now();
                            continue;
                        }
                        copy => copy.unwrap(),
                    };
                    return loop {
                        match queue.add(copy, thread * EACH + n) {
                            Err(Error::Full(_)) => std::thread::yield_now(),
                            added => break added.unwrap(),
                        }
                    };
                };
                (0..EACH).for_each(add);
            });
            scope.spawn(move || {
                let mut done: [Done; 4] = Default::default();
                while taken.load(Ordering::SeqCst) < THREADS * EACH {
                    match queue.wait(Duration::from_millis(20)) {
                        Ok(()) | Err(Error::Timeout(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                    let count = queue.take(&mut done).unwrap();
                    for done in &mut done[..count] {
                        std::mem::replace(&mut done.result, Ok(())).unwrap();
                        assert!(seen.lock().unwrap().insert(done.user));
                    }
                    taken.fetch_add(count as u64, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(seen.lock().unwrap().len() as u64, THREADS * EACH);
}

#[test]
fn a_descriptor_is_readable_in_epoll_when_something_is_done_until_it_is_taken() {
    let rig = rig(1);
    let queue = rig.queue(8);
    let descriptor = queue.descriptor().unwrap();
    // SAFETY: this test's descriptors, and one event that is read or written.
    let epoll = unsafe {
        let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 77 };
        assert_eq!(libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, descriptor.as_raw_fd(), &raw mut event), 0);
        epoll
    };
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one event.
    let mut wait = |milliseconds| unsafe { libc::epoll_wait(epoll, &raw mut event, 1, milliseconds) };
    assert_eq!(wait(20), 0, "nothing is in it");
    for round in 0..20 {
        queue.add(rig.quick(), round).unwrap();
        queue.add(rig.quick(), round).unwrap();
        let mut done = [Done::default()];
        for left in [1, 0] {
            loop {
                assert_eq!(wait(20_000), 1, "round {round}");
                if queue.take(&mut done).unwrap() == 1 {
                    break;
                }
            }
            assert_eq!((done[0].user, queue.len()), (round, left));
        }
        assert_eq!(wait(0), 0, "all is taken");
    }
    // A submission that is done before the descriptor is made.
    let late = rig.queue(1);
    let copy = rig.quick();
    rig.session.wait(copy, LIMIT).unwrap();
    late.add(copy, 0).unwrap();
    assert!(readable(late.descriptor().unwrap(), 0));
    // SAFETY: this test's own.
    unsafe { libc::close(epoll) };
}

#[test]
fn a_doorbell_that_was_missed_is_rung_again_where_only_a_descriptor_is_waited_for() {
    let rig = rig(1);
    let queue = rig.queue(1);
    let descriptor = queue.descriptor().unwrap();
    rig.driver.machine.plant(Some(Planted::LostDoorbell { nth: 1 }));
    queue.add(rig.quick(), 5).unwrap();
    let mut done = [Done::default()];
    let mut in_vain = 0;
    while {
        assert!(readable(descriptor, 20_000));
        queue.take(&mut done).unwrap() == 0
    } {
        in_vain += 1;
        assert!(in_vain < 100);
    }
    assert!(done[0].user == 5 && done[0].result.is_ok() && in_vain > 0);
    rig.driver.machine.plant(None);
}

#[test]
fn a_queue_in_which_nothing_moves_asks_seldom() {
    let rig = rig(1);
    let queue = rig.queue(1);
    let descriptor = queue.descriptor().unwrap();
    queue.add(rig.waits(), 0).unwrap();
    let (mut asked, start) = (0, std::time::Instant::now());
    while start.elapsed() < Duration::from_millis(700) {
        if readable(descriptor, 50) {
            asked += 1;
            assert_eq!(queue.take(&mut [Done::default()]).unwrap(), 0);
        }
    }
    assert!((1..=8).contains(&asked), "{asked}");
    rig.open_gate();
    assert_eq!(take_all(&queue).len(), 1);
}

#[test]
fn what_is_killed_comes_out_with_its_error() {
    let rig = rig(1);
    let queue = rig.queue(4);
    let descriptor = queue.descriptor().unwrap();
    let waits = rig.waits();
    rig.driver.machine.plant(Some(Planted::DeadChannel { entry: 1, xid: 31 }));
    let behind = rig.quick();
    queue.add(waits, 0).unwrap();
    queue.add(behind, 1).unwrap();
    rig.open_gate();
    assert!(readable(descriptor, 20_000));
    let all = take_all(&queue);
    assert!(all.iter().any(|done| done.user == 1 && matches!(done.result, Err(Error::Killed(31)))), "{all:?}");
    // A dead submission may be added, and is returned.
    queue.add(behind, 2).unwrap();
    assert!(matches!(take_all(&queue)[..], [Done { user: 2, result: Err(Error::Killed(31)), .. }]));
    rig.driver.machine.plant(None);
}

#[test]
fn a_close_while_threads_sleep_ends_their_waits_and_what_was_in_the_queue_comes_out_after_it() {
    for with_descriptor in [false, true] {
        let rig = rig(1);
        let (queue, empty) = (rig.queue(4), rig.queue(4));
        if with_descriptor {
            queue.descriptor().unwrap();
        }
        let quick = rig.quick();
        rig.session.wait(quick, LIMIT).unwrap();
        let waits = rig.waits();
        queue.add(waits, 1).unwrap();
        let (gate, asleep) = (word(&rig.session, rig.gate), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..16)
                .map(|n| {
                    let (queue, asleep) = (if n % 2 == 0 { &queue } else { &empty }, &asleep);
                    scope.spawn(move || {
                        asleep.fetch_add(1, Ordering::SeqCst);
                        queue.wait(LIMIT)
                    })
                })
                .collect();
            while asleep.load(Ordering::SeqCst) < 16 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(20));
            let closer = scope.spawn(|| rig.session.close().unwrap());
            let (ended, took) = timed(|| threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>());
            assert!(
                took < SOON && ended.iter().all(|ended| matches!(ended, Err(Error::Closed))),
                "{took:?}: {ended:?}"
            );
            gate.store(1, Ordering::SeqCst);
            closer.join().unwrap();
        });
        assert!(matches!(queue.add(quick, 2), Err(Error::Closed)) && matches!(queue.descriptor(), Err(Error::Closed)));
        // The close has waited for it.
        let mut done: [Done; 2] = Default::default();
        assert_eq!(queue.take(&mut done).unwrap(), 1);
        assert!(done[0].user == 1 && done[0].result.is_ok(), "{done:?}");
        // The next opening uses the same queue.
        open(&rig.session, rig.driver, &Options { lanes: 1, ..Options::default() });
        let host = rig.session.allocate(4096, false).unwrap();
        queue.add(rig.session.copy_async((host, 0), (host, 64), 8).unwrap(), 3).unwrap();
        if with_descriptor {
            assert!(readable(queue.descriptor().unwrap(), 20_000));
        }
        assert_eq!(take_all(&queue)[0].user, 3);
        assert!(matches!(queue.add(waits, 2), Err(Error::Handle(_))), "of another opening");
    }
}

#[test]
fn a_thread_that_waits_is_let_go_when_another_says_so() {
    let rig = rig(1);
    let (queue, asleep) = (rig.queue(4), AtomicUsize::new(0));
    queue.add(rig.waits(), 0).unwrap();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    asleep.fetch_add(1, Ordering::SeqCst);
                    queue.wait(LIMIT)
                })
            })
            .collect();
        while asleep.load(Ordering::SeqCst) < 8 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(20));
        let (ended, took) = timed(|| {
            queue.wake().unwrap();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(took < SOON && ended.iter().all(Result::is_ok), "{took:?}: {ended:?}");
    });
    assert_eq!(queue.take(&mut [Done::default()]).unwrap(), 0);
    rig.open_gate();
    take_all(&queue);
}

#[test]
fn a_childs_queue_is_an_error_and_the_parents_goes_on() {
    let rig = rig(1);
    let queue = rig.queue(4);
    queue.descriptor().unwrap();
    let waits = rig.waits();
    queue.add(waits, 9).unwrap();
    for _ in 0..20 {
        // SAFETY: the child makes no call that takes a lock, and leaves by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let forked = |error: Result<(), Error>| matches!(error, Err(Error::Forked));
            let all = [
                forked(queue.add(waits, 0)),
                forked(queue.take(&mut [Done::default()]).map(drop)),
                forked(queue.wait(LIMIT)),
                forked(queue.wake()),
                forked(queue.remove(waits).map(drop)),
                forked(queue.descriptor().map(drop)),
                queue.is_empty(),
                forked(Queue::new(&*rig.session, 1).map(drop)),
            ];
            let wrong = all.iter().position(|right| !right);
            drop(queue);
            // SAFETY: no destructor runs.
            unsafe { libc::_exit(wrong.map_or(0, |at| at as i32 + 1)) };
        }
        let mut status = 0;
        // SAFETY: this test's child.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0, "which call; status {status:#x}");
    }
    rig.open_gate();
    assert!(readable(queue.descriptor().unwrap(), 20_000));
    assert_eq!(take_all(&queue)[0].user, 9);
}

struct Stores;

impl Chooser for Stores {
    fn sizes(&self, direction: Direction) -> Vec<(u64, Executor)> {
        if direction == Direction::ToGpu { vec![(64, Executor::Stores)] } else { vec![] }
    }

    fn why(&self, _: Direction, _: u64) -> String {
        String::new()
    }
}

#[test]
fn copies_of_the_cpus_own_are_done_when_they_are_added() {
    let (s, _) = alone(&Options { lanes: 1, profile: Follow::Given(Arc::new(Stores)), ..Options::default() });
    let (video, host) = (s.allocate(4096, true).unwrap(), s.allocate(4096, false).unwrap());
    let queue = Queue::new(&s, 2).unwrap();
    let stored = s.copy_async((video, 0), (host, 0), 8).unwrap();
    queue.add(stored, 1).unwrap();
    assert!(readable(queue.descriptor().unwrap(), 0));
    assert_eq!(queue.take(&mut [Done::default()]).unwrap(), 1);
    assert_eq!(s.wait_any(&[stored], Duration::ZERO).unwrap(), 0);
    fn shared<T: Send + Sync>(_: &T) {}
    shared(&queue);
}
