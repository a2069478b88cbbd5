//! The cost of each way of waiting: `cargo run --release -p submit --example waits`, next to CUDA or, with the software GPU preloaded, without it. It only
//! submits prepared copies. `waits ROUNDS` makes this many of each (default 200).
//!
//! `late`: time from when a thread that polls all the time on another CPU sees the submission done until the wait has returned. `cpu`: CPU time of a wait,
//! including the watching thread's, measured without that other thread.

use std::os::fd::AsRawFd;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use submit::{Buffer, Copy, Done, Error, Options, Queue, Session, Transfer, Wait};

const LIMIT: Duration = Duration::from_secs(60);
const LARGEST: u64 = 64 << 20;
const TARGETS: [u64; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
const MANY: usize = 64;

fn main() -> Result<(), Error> {
    static SESSION: Session = Session::new();
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(200);
    // Before the program's first CUDA call, if it makes any.
    let _ = Session::watch();
    let log = std::sync::Arc::new(|text: &str| println!("doorbell: {text}"));
    SESSION.open(&Options { log: Some(log), ..Options::default() })?;
    let (video, host) = (SESSION.allocate(LARGEST, true)?, SESSION.allocate(LARGEST, false)?);
    println!(
        "{:>9} {:>9} {:<12} {:>12} {:>12} {:>11}",
        "wanted us", "takes us", "way", "late p50 us", "late p99 us", "cpu us"
    );
    for target in TARGETS {
        let work = Work::lasting(&SESSION, target, video, host)?;
        let rounds = rounds.min(20_000_000_000 / target).max(10);
        for way in WAYS {
            let mut late = way.late(&SESSION, &work, rounds)?;
            late.sort_unstable();
            let cpu = way.cpu(&SESSION, &work, rounds)?;
            let at = |percent: usize| late[(late.len() - 1) * percent / 100] as f64 / 1e3;
            println!(
                "{:>9} {:>9.1} {:<12} {:>12.1} {:>12.1} {:>11.1}",
                target / 1000,
                work.takes as f64 / 1e3,
                way.name(),
                at(50),
                at(99),
                cpu as f64 / 1e3
            );
        }
        for way in [Way::Sleep(Wait::SLEEP), Way::Queue] {
            let cpu = many(&SESSION, way, &work, rounds.min(50))?;
            println!("{:>19} {:<12} {MANY} threads: {:.1} us of CPU for each wait", "", way.name(), cpu as f64 / 1e3);
        }
        SESSION.release(work.transfer)?;
    }
    SESSION.close()
}

/// A prepared copy that is submitted several times; the last submission is waited for.
struct Work {
    transfer: Transfer,
    times: u64,
    takes: u64,
}

impl Work {
    fn lasting(session: &Session, target: u64, to: Buffer, from: Buffer) -> Result<Work, Error> {
        let mut bytes = 4096;
        loop {
            let mut work = Work { transfer: session.prepare((to, 0), (from, 0), bytes)?, times: 1, takes: 0 };
            work.takes = work.measure(session)?;
            if work.takes >= target || bytes == LARGEST {
                // (Up to the number that may be in flight together.)
                work.times = (target / work.takes.max(1)).clamp(1, 30);
                work.takes = work.measure(session)?;
                return Ok(work);
            }
            session.release(work.transfer)?;
            // By an eighth, to get close to the target.
            bytes = (bytes + bytes / 8).next_multiple_of(4096).min(LARGEST);
        }
    }

    fn submit(&self, session: &Session) -> Result<Copy, Error> {
        let mut last = session.submit(self.transfer)?;
        for _ in 1..self.times {
            last = session.submit(self.transfer)?;
        }
        Ok(last)
    }

    /// The median of 11.
    fn measure(&self, session: &Session) -> Result<u64, Error> {
        let mut all = [0; 11];
        for took in &mut all {
            let start = clock(libc::CLOCK_MONOTONIC);
            session.wait_by(Wait::Spin, self.submit(session)?, LIMIT)?;
            *took = clock(libc::CLOCK_MONOTONIC) - start;
        }
        all.sort_unstable();
        Ok(all[5])
    }
}

/// Waits for one submission.
type Waiter = Box<dyn FnMut(Copy) -> Result<(), Error>>;

#[derive(Clone, Copy)]
enum Way {
    Sleep(Wait),
    Queue,
    Epoll,
}

const WAYS: [Way; 5] = [
    Way::Sleep(Wait::Spin),
    Way::Sleep(Wait::SLEEP),
    Way::Sleep(Wait::Sleep { spin: Duration::ZERO }),
    Way::Queue,
    Way::Epoll,
];

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Sleep(Wait::Spin) => "spin",
            Way::Sleep(Wait::SLEEP) => "sleep",
            Way::Sleep(_) => "sleep, 0 us",
            Way::Queue => "queue",
            Way::Epoll => "queue, epoll",
        }
    }

    /// Returns a closure that waits for one submission after the other.
    fn waiter(self, session: &'static Session) -> Result<Waiter, Error> {
        if let Way::Sleep(how) = self {
            return Ok(Box::new(move |copy| session.wait_by(how, copy, LIMIT)));
        }
        session.set_wait(Wait::SLEEP);
        let queue = Queue::new(session, 16)?;
        let epoll = if matches!(self, Way::Epoll) { Some(Epoll::of(&queue)?) } else { None };
        let mut done = [Done::default()];
        Ok(Box::new(move |copy| {
            queue.add(copy, 0)?;
            loop {
                match &epoll {
                    Some(epoll) => epoll.wait(),
                    None => queue.wait(LIMIT)?,
                }
                if queue.take(&mut done)? == 1 {
                    return std::mem::take(&mut done[0]).result;
                }
            }
        }))
    }

    /// Nanoseconds from the end of the copy until the wait returns.
    fn late(self, session: &'static Session, work: &Work, rounds: u64) -> Result<Vec<u64>, Error> {
        let mut wait = self.waiter(session)?;
        let (copy, seen, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Acquire) {
                    let now = copy.swap(0, Ordering::AcqRel);
                    if now != 0 {
                        while matches!(session.poll(Copy::from_raw(now)), Ok(false)) {
                            std::hint::spin_loop();
                        }
                        seen.store(clock(libc::CLOCK_MONOTONIC), Ordering::Release);
                    }
                    std::hint::spin_loop();
                }
            });
            let mut all = Vec::new();
            let mut once = || -> Result<u64, Error> {
                seen.store(0, Ordering::Relaxed);
                let submitted = work.submit(session)?;
                copy.store(submitted.raw(), Ordering::Release);
                wait(submitted)?;
                let returned = clock(libc::CLOCK_MONOTONIC);
                loop {
                    match seen.load(Ordering::Acquire) {
                        0 => std::thread::yield_now(),
                        seen => return Ok(returned.saturating_sub(seen)),
                    }
                }
            };
            let found = (0..rounds).try_for_each(|_| once().map(|late| all.push(late)));
            over.store(true, Ordering::Release);
            found.map(|()| all)
        })
    }

    /// Nanoseconds of CPU time of a wait.
    fn cpu(self, session: &'static Session, work: &Work, rounds: u64) -> Result<u64, Error> {
        let mut wait = self.waiter(session)?;
        let before = watching();
        let mut spent = 0;
        for _ in 0..rounds {
            let submitted = work.submit(session)?;
            let start = clock(libc::CLOCK_THREAD_CPUTIME_ID);
            wait(submitted)?;
            spent += clock(libc::CLOCK_THREAD_CPUTIME_ID) - start;
        }
        Ok((spent + watching() - before) / rounds)
    }
}

/// CPU time of a wait when many threads wait together: for the same submission, or on one queue, each for one entry.
fn many(session: &'static Session, way: Way, work: &Work, rounds: u64) -> Result<u64, Error> {
    session.set_wait(Wait::SLEEP);
    let queue = Queue::new(session, MANY)?;
    let (copy, barrier, spent) = (AtomicU64::new(0), Barrier::new(MANY + 1), AtomicU64::new(0));
    let wait = || match way {
        Way::Queue => loop {
            queue.wait(LIMIT)?;
            if queue.take(&mut [Done::default()])? == 1 {
                return Ok::<(), Error>(());
            }
        },
        _ => session.wait(Copy::from_raw(copy.load(Ordering::Acquire)), LIMIT),
    };
    std::thread::scope(|scope| {
        for _ in 0..MANY {
            scope.spawn(|| {
                for _ in 0..rounds {
                    barrier.wait();
                    let start = clock(libc::CLOCK_THREAD_CPUTIME_ID);
                    if let Err(error) = wait() {
                        eprintln!("{error}");
                    }
                    spent.fetch_add(clock(libc::CLOCK_THREAD_CPUTIME_ID) - start, Ordering::Relaxed);
                    barrier.wait();
                }
            });
        }
        for _ in 0..rounds {
            let submitted = work.submit(session)?;
            copy.store(submitted.raw(), Ordering::Release);
            if matches!(way, Way::Queue) {
                (0..MANY as u64).try_for_each(|n| queue.add(submitted, n))?;
            }
            barrier.wait();
            barrier.wait();
        }
        Ok(spent.load(Ordering::Relaxed) / rounds / MANY as u64)
    })
}

fn clock(which: libc::clockid_t) -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: writes one timespec of this function.
    unsafe { libc::clock_gettime(which, &mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

/// CPU time of the session's watching thread so far.
fn watching() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let spent = tasks.filter_map(|task| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        (name.trim() == "doorbell-waits").then_some(())?;
        let spent = std::fs::read_to_string(task.path().join("schedstat")).ok()?;
        spent.split_whitespace().next()?.parse::<u64>().ok()
    });
    spent.sum()
}

struct Epoll(std::fs::File);

impl Epoll {
    fn of(queue: &Queue<&'static Session>) -> Result<Epoll, Error> {
        use std::os::fd::FromRawFd;
        let descriptor = queue.descriptor()?.as_raw_fd();
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: this process's descriptors, and an event that is read.
        let epoll = unsafe {
            let epoll = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, descriptor, &raw mut event);
            std::fs::File::from_raw_fd(epoll)
        };
        Ok(Epoll(epoll))
    }

    fn wait(&self) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // SAFETY: room for one event.
        unsafe { libc::epoll_wait(self.0.as_raw_fd(), &raw mut event, 1, 60_000) };
    }
}
