//! Load beside a measurement: threads that move bytes or launch kernels without a pause, on every CPU but the measuring one.
//!
//! Load is only what it achieved: each thread counts its transfers, and its data is compared at the end.

use crate::launch;
use copy::{Difference, Machine};
use placement::cpus::confine;
use placement::renice;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What every thread does, each with a route, stream or channel, and buffers of its own.
#[derive(Clone, Debug)]
pub struct Load {
    /// A route's name, or [`launch::NAME`]: launches of a kernel instead of copies.
    pub route: String,
    /// None: nothing runs beside the measurement.
    pub threads: usize,
    /// Of each transfer.
    pub bytes: u64,
    /// The CPUs that the threads may use; empty leaves them where they are.
    pub cpus: Vec<usize>,
    /// Nice value of the threads; 0 leaves them as they are.
    pub nice: i32,
    pub seed: u64,
    /// A transfer that takes longer ends its thread.
    pub timeout: Duration,
}

/// How much the load did in a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    pub transfers: u64,
    pub bytes: u64,
    pub seconds: f64,
}

impl Rate {
    pub fn per_second(&self) -> f64 {
        self.transfers as f64 / self.seconds
    }

    /// 10^9 bytes a second.
    pub fn gigabytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e9
    }
}

/// What became of the load's threads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Threads that moved bytes until they were told to stop.
    pub threads: usize,
    /// Transfers of the least and the most busy of them.
    pub least: u64,
    pub most: u64,
    /// Threads whose last data was compared and right.
    pub right: usize,
    /// Why the others did not start, stopped early or were wrong; each reason once, with how many threads it stopped.
    pub failed: Vec<(String, usize)>,
}

/// A count, and whose it is, in a cache line of its own: the threads share none.
#[repr(align(128))]
#[derive(Default)]
struct Count(AtomicU64, AtomicI32);

/// Where the threads of all loads wait for each other: none works before each has all that it needs, and none gives it back
/// before none works any more. Who opens or frees memory takes locks of libcuda's for which it would wait for ever beside
/// threads that launch.
struct Gates {
    /// Of all loads together.
    threads: usize,
    /// One thread after the other opens what it needs, and gives it back: sixty at once would stand in each other's way for
    /// longer than they copy.
    one: Mutex<()>,
    /// Threads that have all that they need, that have done their work once, and that do no more of it; or have failed.
    ready: AtomicUsize,
    started: AtomicUsize,
    left: AtomicUsize,
    stop: AtomicBool,
    /// The measurement is over: until then all threads are there, whatever they were told.
    over: AtomicBool,
}

impl Gates {
    /// Until every thread is there, or has failed.
    fn wait_for(&self, threads: &AtomicUsize) {
        while threads.load(Ordering::Acquire) < self.threads {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// A load while it runs.
pub struct Running<'l> {
    load: &'l Load,
    gates: &'l Gates,
    counts: Vec<Count>,
    ended: Mutex<Ended>,
}

/// A moment of the load.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    at: Instant,
    transfers: u64,
}

impl Running<'_> {
    pub fn mark(&self) -> Mark {
        let transfers = self.counts.iter().map(|c| c.0.load(Ordering::Relaxed)).sum();
        Mark { at: Instant::now(), transfers }
    }

    /// What was achieved since a moment.
    pub fn since(&self, mark: &Mark) -> Rate {
        let now = self.mark();
        let transfers = now.transfers - mark.transfers;
        let seconds = now.at.duration_since(mark.at).as_secs_f64().max(1e-9);
        Rate { transfers, bytes: transfers.saturating_mul(self.load.bytes), seconds }
    }

    /// The kernel's numbers of the threads that have begun.
    pub fn threads(&self) -> impl Iterator<Item = i32> + '_ {
        self.counts.iter().map(|c| c.1.load(Ordering::Relaxed)).filter(|thread| *thread != 0)
    }

    /// Tells the threads of this load, and of those beside it, to stop; they are not waited for.
    pub fn stop(&self) {
        self.gates.stop.store(true, Ordering::Relaxed);
    }

    fn failed(&self, reason: String) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        match ended.failed.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, threads)) => *threads += 1,
            None => ended.failed.push((reason, 1)),
        }
    }

    /// One thread, from its route's opening to the comparison of its data.
    fn thread(&self, machine: &Machine, n: usize) {
        let mut starting = Starting { gates: self.gates, told: 0 };
        // SAFETY: asks for the calling thread's number.
        self.counts[n].1.store(unsafe { libc::syscall(libc::SYS_gettid) } as i32, Ordering::Relaxed);
        match self.transfers(machine, n, &mut starting) {
            Ok(None) => {
                let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
                ended.right += 1;
            }
            Ok(Some(difference)) => self.failed(format!("wrong data: {difference}")),
            Err(reason) => self.failed(reason),
        }
    }

    fn transfers(
        &self,
        machine: &Machine,
        n: usize,
        starting: &mut Starting<'_>,
    ) -> Result<Option<Difference>, String> {
        let load = self.load;
        if !load.cpus.is_empty() {
            confine(0, &load.cpus).map_err(|e| format!("the load's CPUs were not given: {e}"))?;
        }
        if load.nice != 0 {
            renice(load.nice).map_err(|e| format!("nice {} was not given: {e}", load.nice))?;
        }
        let text = |e: copy::Error| e.to_string();
        let mut sent = vec![0; load.bytes as usize];
        let mut random = fastrand::Rng::with_seed(load.seed ^ n as u64);
        random.fill(&mut sent);
        let turn = || self.gates.one.lock().unwrap_or_else(PoisonError::into_inner);
        let opened = turn();
        machine.enter().map_err(text)?;
        let mut route = match load.route.as_str() {
            launch::NAME => launch::open(machine),
            name => copy::open(machine, name, load.bytes),
        }
        .map_err(text)?;
        route.fill(&sent).map_err(text)?;
        let mut transfer = route.prepare(load.bytes).map_err(text)?;
        drop(opened);
        starting.tell(READY);
        self.gates.wait_for(&self.gates.ready);
        let count = &self.counts[n].0;
        while !self.gates.stop.load(Ordering::Relaxed) {
            transfer.submit().map_err(text)?;
            transfer.wait(load.timeout).map_err(text)?;
            count.fetch_add(1, Ordering::Relaxed);
            starting.tell(STARTED);
        }
        drop(transfer);
        starting.tell(LEFT);
        self.gates.wait_for(&self.gates.left);
        while !self.gates.over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let transfers = count.load(Ordering::Relaxed);
        {
            let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
            ended.least = if ended.threads == 0 { transfers } else { ended.least.min(transfers) };
            ended.most = ended.most.max(transfers);
            ended.threads += 1;
        }
        let mut found = vec![0; sent.len()];
        let _given_back = turn();
        route.read_back(&mut found).map_err(text)?;
        let difference = Difference::between(&sent, &found, None);
        drop(route);
        Ok(difference)
    }
}

/// What a thread has come to, in this order.
const READY: u8 = 1;
const STARTED: u8 = 2;
const LEFT: u8 = 3;

/// Counts its thread once for all that it comes to; when it ends, for what it has not come to.
struct Starting<'g> {
    gates: &'g Gates,
    told: u8,
}

impl Starting<'_> {
    fn tell(&mut self, come_to: u8) {
        while self.told < come_to {
            self.told += 1;
            let threads = match self.told {
                READY => &self.gates.ready,
                STARTED => &self.gates.started,
                _ => &self.gates.left,
            };
            threads.fetch_add(1, Ordering::Release);
        }
    }
}

impl Drop for Starting<'_> {
    fn drop(&mut self) {
        self.tell(LEFT);
    }
}

/// Runs `measure` on the calling thread while the load runs: begun when every thread has moved its bytes once or has
/// failed. The threads are told to stop afterwards and waited for.
pub fn under<T>(machine: &Machine, load: &Load, measure: impl FnOnce(&Running<'_>) -> T) -> (T, Ended) {
    let (measured, mut ended) = under_all(machine, std::slice::from_ref(load), &|_| {}, |all| measure(&all[0]));
    (measured, ended.pop().unwrap_or_default())
}

/// As [`under`], beside several loads; `tell` hears, on the calling thread, how many threads of all are ready, each time that
/// there are more. What became of each load, in their order.
pub fn under_all<T>(
    machine: &Machine,
    loads: &[Load],
    tell: &dyn Fn(usize),
    measure: impl FnOnce(&[Running<'_>]) -> T,
) -> (T, Vec<Ended>) {
    let gates = Gates {
        threads: loads.iter().map(|l| l.threads).sum(),
        one: Mutex::new(()),
        ready: AtomicUsize::new(0),
        started: AtomicUsize::new(0),
        left: AtomicUsize::new(0),
        stop: AtomicBool::new(false),
        over: AtomicBool::new(false),
    };
    let gates = &gates;
    let of = |load| Running {
        load,
        gates,
        counts: std::iter::repeat_with(Count::default).take(load.threads).collect(),
        ended: Mutex::default(),
    };
    let all: Vec<Running<'_>> = loads.iter().map(of).collect();
    let measured = std::thread::scope(|scope| {
        // Whatever `measure` does, the threads end.
        let _stop = (Stop::of(&gates.stop), Stop::of(&gates.over));
        for running in &all {
            for n in 0..running.load.threads {
                let thread = std::thread::Builder::new().name(format!("load {n}"));
                if let Err(e) = thread.spawn_scoped(scope, move || running.thread(machine, n)) {
                    running.failed(format!("the system starts no more threads: {e}"));
                    drop(Starting { gates, told: 0 });
                }
            }
        }
        let mut told = 0;
        while gates.started.load(Ordering::Acquire) < gates.threads {
            std::thread::sleep(Duration::from_millis(1));
            let ready = gates.ready.load(Ordering::Acquire);
            if ready > told {
                told = ready;
                tell(ready);
            }
        }
        measure(&all)
    });
    let ended = |running: Running<'_>| running.ended.into_inner().unwrap_or_else(PoisonError::into_inner);
    (measured, all.into_iter().map(ended).collect())
}

/// Sets a flag when it is dropped, a panic included: threads that look at it end.
pub struct Stop<'s>(&'s AtomicBool);

impl<'s> Stop<'s> {
    pub fn of(stop: &'s AtomicBool) -> Stop<'s> {
        Stop(stop)
    }
}

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
