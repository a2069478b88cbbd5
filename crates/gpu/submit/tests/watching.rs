//! The thread that watches queues with a descriptor. Alone in its process: threads and descriptors are counted.

mod alone;

use alone::{LIMIT, alone, piece, word};
use gpu::points::{self, Point};
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use submit::{Done, InOrder, Options, Queue, Session};

fn threads() -> Vec<PathBuf> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten().map(|task| task.path());
    tasks.filter(|task| read(task, "comm").trim() == "doorbell-waits").collect()
}

fn read(task: &Path, what: &str) -> String {
    std::fs::read_to_string(task.join(what)).unwrap_or_default()
}

/// Nanoseconds on a CPU.
fn spent(task: &Path) -> u64 {
    read(task, "schedstat").split_whitespace().next().unwrap().parse().unwrap()
}

fn soon(what: impl Fn() -> bool) -> bool {
    let start = Instant::now();
    while !what() && start.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(1));
    }
    what()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

thread_local!(static CLAIMS: Cell<u32> = const { Cell::new(0) });

/// A thread that takes in a loop leaves the lanes to the threads that submit.
fn takes_in_vain_take_few_lanes(queue: &Queue<&Session>) {
    fn at(point: Point) {
        if point == Point::AfterClaim {
            CLAIMS.set(CLAIMS.get() + 1);
        }
    }
    let counts = points::hold(at);
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(60) {
        assert_eq!(queue.take(&mut [Done::default()]).unwrap(), 0);
    }
    let most = start.elapsed().as_millis() as u32 / 10 + 1;
    assert!(!counts || (1..=most).contains(&CLAIMS.get()), "{} claims, {most} at most", CLAIMS.get());
}

#[test]
fn a_session_has_one_thread_from_its_first_descriptor_to_its_close_which_sleeps_where_nothing_is_under_way() {
    let options = Options { lanes: 1, ..Options::default() };
    let ((one, _), (two, _)) = (alone(&options), alone(&options));
    let [gate, to, from] = [(); 3].map(|()| one.allocate(4096, false).unwrap());
    let (queue, without) = (Queue::new(&one, 4).unwrap(), Queue::new(&one, 4).unwrap());
    let (more, others) = (Queue::new(&one, 4).unwrap(), Queue::new(&two, 4).unwrap());
    without.add(one.copy_async((to, 0), (from, 0), 8).unwrap(), 0).unwrap();
    without.wait(LIMIT).unwrap();
    assert!(threads().is_empty(), "nobody has asked for a descriptor");
    queue.descriptor().unwrap();
    more.descriptor().unwrap();
    assert!(soon(|| threads().len() == 1), "one for the session");
    let task = threads().remove(0);
    others.descriptor().unwrap();
    assert!(soon(|| threads().len() == 2), "another session has its own");

    let status = read(&task, "status");
    let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
    // All but SIGKILL, SIGSTOP and the two of glibc.
    assert_eq!(u64::from_str_radix(blocked, 16).unwrap() | 1 << 8 | 1 << 18 | 3 << 31, u64::MAX, "{blocked}");

    // Pending for longer than any expected time: it looks.
    queue
        .add(one.copy_in(&piece(to, from), &InOrder { word: Some((gate, 0, 1)), ..InOrder::default() }).unwrap(), 1)
        .unwrap();
    std::thread::sleep(Duration::from_millis(9));
    takes_in_vain_take_few_lanes(&queue);
    let looking = spent(&task);
    word(&one, gate).store(1, Ordering::SeqCst);
    let mut done = [Done::default()];
    while queue.take(&mut done).unwrap() == 0 {
        queue.wait(LIMIT).unwrap();
    }
    assert!(looking > 0);
    // Taken: it sleeps.
    std::thread::sleep(Duration::from_millis(20));
    let before = spent(&task);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(spent(&task), before, "nothing is under way");

    // Not taken: the descriptor is readable, and it sleeps, too.
    queue.add(one.copy_async((to, 0), (from, 0), 8).unwrap(), 2).unwrap();
    queue.wait(LIMIT).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let before = spent(&task);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(spent(&task), before, "all have been told");

    // Entries of a queue keep no part of a closed session.
    let open = descriptors();
    one.close().unwrap();
    assert_eq!(threads().len(), 1, "a close ends the thread");
    assert!(descriptors() + 3 < open, "{open} descriptors before the close, {} after it", descriptors());
    assert_eq!(queue.take(&mut done).unwrap(), 1);
    assert!(done[0].user == 2 && done[0].result.is_ok());
    two.close().unwrap();
    assert!(threads().is_empty());
}
