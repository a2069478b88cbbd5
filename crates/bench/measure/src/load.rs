//! Load during a measurement: threads that repeat one operation, without a pause or at a rate.
//!
//! A load is defined by what it achieved: each thread counts its operations, and its data is compared. All threads open what they need before any
//! of them works, and none frees anything until all have stopped. Opening and freeing take locks of libcuda, for which a thread waits forever while
//! others launch.

use crate::clock::Clock;
use crate::process::{Elsewhere, Line};
use environment::placement::cpus::confine;
use environment::placement::renice;
use experiment::{Class, Gpu, LoadSpec, MustReach, Process, What};
use run_folder::Loaded;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use workload::{Checks, Machine, Opened, Subject, Wanted};

/// How long a load works alone, and how long the others get before that to finish their current operations.
const ALONE: Duration = Duration::from_millis(250);
const SETTLE: Duration = Duration::from_millis(20);

/// Why a thread of a load stopped.
#[derive(Debug)]
pub(crate) enum Reason {
    Unavailable(String),
    Failed(String),
}

impl From<workload::Error> for Reason {
    fn from(error: workload::Error) -> Reason {
        match error {
            workload::Error::Unavailable(u) => Reason::Unavailable(u.reason),
            error => Reason::Failed(error.to_string()),
        }
    }
}

/// How to run the threads of a stage's loads.
pub(crate) struct Plan<'p> {
    pub loads: &'p [LoadSpec],
    /// For each load the CPUs of its threads; empty leaves them where they are.
    pub cpus: Vec<Vec<usize>>,
    pub seed: u64,
    pub timeout: Duration,
    pub clock: &'p Clock,
    /// The GPU of separate processes.
    pub gpu: Gpu,
}

/// The counts of one thread, in separate cache lines, so that threads share none.
#[repr(align(128))]
#[derive(Default)]
struct Count {
    done: AtomicU64,
    /// Bytes of calls that report how much they moved.
    bytes: AtomicU64,
    checked: AtomicU64,
    longest_ns: AtomicU64,
    /// The kernel's id of the thread; 0 before it has begun.
    thread: AtomicI32,
}

/// The synchronization of all loads' threads.
#[derive(Default)]
struct Gates {
    threads: usize,
    /// Only one thread at a time opens or frees its resources: sixty at once would block each other for longer than they work.
    one: Mutex<()>,
    /// Number of threads that are ready, that have done their work once, and that have stopped working; failed threads count, too.
    ready: AtomicUsize,
    started: AtomicUsize,
    left: AtomicUsize,
    stop: AtomicBool,
    /// No thread works until it is false again.
    rest: AtomicBool,
    /// The number of the only load that works, from 1 on (0: all of them).
    alone: AtomicUsize,
    /// The measurement is over: until then all threads stay, even if they have stopped.
    over: AtomicBool,
}

impl Gates {
    fn wait_for(&self, threads: &AtomicUsize) {
        while threads.load(Ordering::Acquire) < self.threads {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Results of a load's threads that ended early: why the load is not available here, and why threads failed, with how many.
#[derive(Default)]
struct Ended {
    unavailable: Option<String>,
    failed: Vec<(String, u32)>,
}

/// The loads while they run.
pub(crate) struct Running<'p> {
    plan: &'p Plan<'p>,
    gates: &'p Gates,
    counts: Vec<Vec<Count>>,
    ended: Vec<Mutex<Ended>>,
    rests: Mutex<Rests>,
    /// The rate of each load alone, transfers a second.
    alone: Mutex<Vec<Option<f64>>>,
}

/// How long the loads have rested so far, and the start of the current rest.
#[derive(Clone, Copy, Debug, Default)]
struct Rests {
    before: Duration,
    since: Option<Instant>,
}

impl Rests {
    fn so_far(&self) -> Duration {
        self.before + self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Bytes that each transfer of a load moves. Calls have a size, too, but it is unknown how much of it they move.
fn moved(load: &LoadSpec) -> u64 {
    match load.what {
        What::Route(_) if load.process == Process::Own => 0,
        What::Route(_) => load.bytes,
        What::Call(_) => 0,
    }
}

/// The counts of all loads at a moment.
#[derive(Clone, Debug)]
pub(crate) struct Mark {
    at: Instant,
    done: Vec<u64>,
    bytes: Vec<u64>,
    rested: Duration,
    scheduled: Vec<(u64, u64)>,
}

impl Running<'_> {
    pub fn mark(&self) -> Mark {
        let done = |counts: &Vec<Count>| counts.iter().map(|c| c.done.load(Ordering::Relaxed)).sum();
        let bytes = |counts: &Vec<Count>| counts.iter().map(|c| c.bytes.load(Ordering::Relaxed)).sum();
        Mark {
            at: Instant::now(),
            done: self.counts.iter().map(done).collect(),
            bytes: self.counts.iter().map(bytes).collect(),
            rested: self.rested(),
            scheduled: self.counts.iter().map(|counts| scheduled(counts)).collect(),
        }
    }

    /// How long all loads have rested so far.
    pub fn rested(&self) -> Duration {
        poison::ignore(self.rests.lock()).so_far()
    }

    /// The work since a moment.
    pub fn since(&self, mark: &Mark) -> Vec<Loaded> {
        let now = self.mark();
        let seconds = now.at.duration_since(mark.at).as_secs_f64().max(1e-9);
        let alone = poison::ignore(self.alone.lock()).clone();
        let share = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9 / seconds;
        let one = |(n, load): (usize, &LoadSpec)| Loaded {
            name: load.name.clone(),
            what: load.what.to_string(),
            threads: load.count,
            bytes: moved(load).saturating_mul(now.done[n] - mark.done[n]) + (now.bytes[n] - mark.bytes[n]),
            transfers: now.done[n] - mark.done[n],
            seconds,
            rested: now.rested.saturating_sub(mark.rested).as_secs_f64(),
            alone: alone[n],
            longest_ns: self.counts[n].iter().map(|c| c.longest_ns.load(Ordering::Relaxed)).max().unwrap_or(0),
            on_cpu: share(mark.scheduled[n].0, now.scheduled[n].0),
            waiting: share(mark.scheduled[n].1, now.scheduled[n].1),
            checked: 0,
            failed: Vec::new(),
            unavailable: None,
            missed: None,
        };
        self.plan.loads.iter().enumerate().map(one).collect()
    }

    /// The threads with CPUs from the experiment, by their kernel ids.
    pub fn placed(&self) -> Vec<i32> {
        let threads = |(counts, cpus): (&Vec<Count>, &Vec<usize>)| match cpus.as_slice() {
            [] => Vec::new(),
            _ => counts.iter().map(|count| count.thread.load(Ordering::Relaxed)).collect(),
        };
        self.counts.iter().zip(&self.plan.cpus).flat_map(threads).collect()
    }

    /// Adds the known results of threads that ended early.
    pub fn with_ends(&self, mut loads: Vec<Loaded>) -> Vec<Loaded> {
        for (n, loaded) in loads.iter_mut().enumerate() {
            loaded.checked = self.counts[n].iter().map(|c| c.checked.load(Ordering::Relaxed)).sum();
            let ended = poison::ignore(self.ended[n].lock());
            (loaded.unavailable, loaded.failed) = (ended.unavailable.clone(), ended.failed.clone());
        }
        loads
    }

    /// The counts of a load since it began, without comparisons.
    pub fn so_far(&self, load: usize) -> Line {
        let sum = |of: fn(&Count) -> &AtomicU64| self.counts[load].iter().map(|c| of(c).load(Ordering::Relaxed)).sum();
        let longest_ns = self.counts[load].iter().map(|c| c.longest_ns.load(Ordering::Relaxed)).max().unwrap_or(0);
        let ended = poison::ignore(self.ended[load].lock());
        let done: u64 = sum(|c| &c.done);
        let bytes = sum(|c| &c.bytes) + moved(&self.plan.loads[load]).saturating_mul(done);
        let failed = ended.failed.first().map(|(why, _)| why.clone());
        Line { done, bytes, longest_ns, checked: 0, unavailable: ended.unavailable.clone(), failed }
    }

    /// Lets all threads rest after their current operation, or continue; does not wait for them.
    pub fn rest(&self, rest: bool) {
        self.gates.rest.store(rest, Ordering::Relaxed);
        let mut rests = poison::ignore(self.rests.lock());
        match (rest, rests.since) {
            (true, None) => rests.since = Some(Instant::now()),
            (false, Some(since)) => *rests = Rests { before: rests.before + since.elapsed(), since: None },
            _ => {}
        }
    }

    /// Measures the rate of each load that must reach a part of it, while no other load works and nothing is measured.
    pub fn look_alone(&self) {
        for (n, load) in self.plan.loads.iter().enumerate() {
            if !matches!((load.must_reach, load.rate), (Some(MustReach::Percent(_)), None)) {
                continue;
            }
            self.gates.alone.store(n + 1, Ordering::Relaxed);
            std::thread::sleep(SETTLE);
            let mark = self.mark();
            std::thread::sleep(ALONE);
            let done = self.since(&mark).swap_remove(n);
            poison::ignore(self.alone.lock())[n] = Some(done.transfers as f64 / done.seconds);
        }
        self.gates.alone.store(0, Ordering::Relaxed);
    }

    fn fail(&self, load: usize, reason: Reason) {
        let mut ended = poison::ignore(self.ended[load].lock());
        match reason {
            Reason::Unavailable(why) => ended.unavailable = Some(why),
            Reason::Failed(why) => match ended.failed.iter_mut().find(|(known, _)| *known == why) {
                Some((_, threads)) => *threads += 1,
                None => ended.failed.push((why, 1)),
            },
        }
    }

    /// One thread, from opening its subject to the comparison of its last data.
    fn thread(&self, machine: &Machine, load: usize, n: usize) {
        let mut steps = Steps { gates: self.gates, told: 0 };
        // SAFETY: only reads the calling thread's id.
        let number = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
        self.counts[load][n].thread.store(number, Ordering::Relaxed);
        if let Err(reason) = self.work(machine, load, n, &mut steps) {
            self.fail(load, reason);
        }
    }

    fn work(&self, machine: &Machine, load: usize, n: usize, steps: &mut Steps<'_>) -> Result<(), Reason> {
        let (spec, count) = (&self.plan.loads[load], &self.counts[load][n]);
        place(spec, &self.plan.cpus[load])?;
        let turn = || poison::ignore(self.gates.one.lock());
        let seed = self.plan.seed ^ ((load as u64) << 32 | n as u64);
        let opening = turn();
        if spec.process == Process::Shared {
            machine.enter().map_err(workload::Error::from)?;
        }
        let mut opened: Box<dyn Opened> = match spec.process {
            Process::Shared => workload::open(machine, &spec.what, &Wanted::of(spec.bytes))?,
            Process::Own => {
                let (plan, cpus) = (self.plan, &self.plan.cpus[load]);
                Box::new(Elsewhere::new(spec, cpus, seed, plan.timeout, plan.gpu))
            }
        };
        let mut subject = opened.prepare(seed)?;
        drop(opening);
        steps.tell(READY);
        self.gates.wait_for(&self.gates.ready);
        let worked = self.until_stopped(load, subject.as_mut(), count, steps);
        let checked = worked.and_then(|()| check(subject.as_mut(), count));
        steps.tell(LEFT);
        self.gates.wait_for(&self.gates.left);
        while !self.gates.over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _giving_back = turn();
        drop(subject);
        drop(opened);
        checked
    }

    fn until_stopped(
        &self,
        load: usize,
        subject: &mut dyn Subject,
        count: &Count,
        steps: &mut Steps<'_>,
    ) -> Result<(), Reason> {
        let (spec, clock) = (&self.plan.loads[load], self.plan.clock);
        let pause = spec.rate.filter(|rate| *rate > 0.0).map(|rate| Duration::from_secs_f64(1.0 / rate));
        let mut next = Instant::now();
        let (mut fired, mut done, mut bytes, mut longest, mut resting) = (0u64, 0, 0, 0, false);
        while !self.gates.stop.load(Ordering::Relaxed) {
            let alone = self.gates.alone.load(Ordering::Relaxed);
            if self.gates.rest.load(Ordering::Relaxed) || (alone != 0 && alone != load + 1) {
                if !resting {
                    subject.rest()?;
                }
                resting = true;
                std::thread::sleep(Duration::from_micros(100));
                continue;
            }
            resting = false;
            subject.renew()?;
            let before = clock.now();
            subject.fire()?;
            subject.wait(self.plan.timeout)?;
            let took = clock.ns(clock.now().saturating_sub(before));
            fired += 1;
            let did = subject.did();
            longest = longest.max(did.longest_ns.unwrap_or(took));
            done += did.times;
            bytes += did.bytes;
            count.done.store(done, Ordering::Relaxed);
            count.bytes.store(bytes, Ordering::Relaxed);
            count.longest_ns.store(longest, Ordering::Relaxed);
            if fired == 1 {
                // A thread that continues immediately may keep a lock of libcuda from all others: so all wait until each has had its turn.
                steps.tell(STARTED);
                self.gates.wait_for(&self.gates.started);
            }
            if spec.check_every > 0 && fired.is_multiple_of(spec.check_every) && spec.process == Process::Shared {
                check(subject, count)?;
            }
            if let Some(pause) = pause {
                next += pause;
                while !self.gates.stop.load(Ordering::Relaxed) {
                    let left = next.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    std::thread::sleep(left.min(Duration::from_millis(10)));
                }
            }
        }
        Ok(())
    }
}

fn check(subject: &mut dyn Subject, count: &Count) -> Result<(), Reason> {
    if subject.checks() == Checks::Nothing || count.done.load(Ordering::Relaxed) == 0 {
        return Ok(());
    }
    match subject.check()? {
        Some(wrong) => Err(Reason::Failed(format!("wrong data: {wrong}"))),
        None => {
            count.checked.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }
}

/// If the machine does not grant a class, the load counts as unavailable.
fn place(spec: &LoadSpec, cpus: &[usize]) -> Result<(), Reason> {
    let refused = |what: String, e: std::io::Error| match e.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => Reason::Unavailable(format!("{what} was refused: {e}")),
        _ => Reason::Failed(format!("{what} was refused: {e}")),
    };
    if !cpus.is_empty() {
        confine(0, cpus).map_err(|e| Reason::Failed(format!("its CPUs were refused: {e}")))?;
    }
    match spec.class {
        Class::Other => Ok(()),
        Class::Nice(nice) => renice(nice).map(|_| ()).map_err(|e| refused(format!("nice {nice}"), e)),
        Class::Fifo(priority) => {
            let param = libc::sched_param { sched_priority: priority as i32 };
            // SAFETY: reads one sched_param, for the calling thread.
            match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK, &param) } {
                0 => Ok(()),
                _ => Err(refused(format!("SCHED_FIFO {priority}"), std::io::Error::last_os_error())),
            }
        }
        Class::Deadline | Class::RealTime => Err(Reason::Failed("a load has the class other, nice or fifo".into())),
    }
}

/// CPU time of all threads of a load, and their time waiting for a CPU, ns.
fn scheduled(counts: &[Count]) -> (u64, u64) {
    let of = |count: &Count| {
        let thread = count.thread.load(Ordering::Relaxed);
        let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
        let mut fields = text.split_ascii_whitespace().map(|f| f.parse::<u64>().unwrap_or(0));
        Some((fields.next()?, fields.next()?))
    };
    counts.iter().filter_map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// The states of a thread, in this order.
const READY: u8 = 1;
const STARTED: u8 = 2;
const LEFT: u8 = 3;

/// Counts its thread once for each state that it reaches; when it ends, also for the other states.
struct Steps<'g> {
    gates: &'g Gates,
    told: u8,
}

impl Steps<'_> {
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

impl Drop for Steps<'_> {
    fn drop(&mut self) {
        self.tell(LEFT);
    }
}

/// Sets a flag when it is dropped, a panic included: threads that look at it end.
pub(crate) struct Set<'s>(pub &'s AtomicBool);

impl Drop for Set<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `measure` on the calling thread while the loads run. It starts when every thread has done its work once, or has failed. `tell` is called,
/// on the calling thread, with the number of ready threads. Afterwards the threads are stopped and joined; the counts from `measure` are completed
/// by the threads' results.
pub(crate) fn beside<T>(
    machine: &Machine,
    plan: &Plan<'_>,
    tell: &dyn Fn(usize),
    measure: impl FnOnce(&Running<'_>) -> (T, Vec<Loaded>),
) -> (T, Vec<Loaded>) {
    let gates = Gates { threads: plan.loads.iter().map(|l| l.count as usize).sum(), ..Gates::default() };
    let counts = |l: &LoadSpec| std::iter::repeat_with(Count::default).take(l.count as usize).collect();
    let running = Running {
        plan,
        gates: &gates,
        counts: plan.loads.iter().map(counts).collect(),
        ended: plan.loads.iter().map(|_| Mutex::default()).collect(),
        rests: Mutex::default(),
        alone: Mutex::new(vec![None; plan.loads.len()]),
    };
    let (measured, loaded) = std::thread::scope(|scope| {
        // Whatever `measure` does, the threads end.
        let _stop = (Set(&gates.stop), Set(&gates.over));
        for (load, spec) in plan.loads.iter().enumerate() {
            for n in 0..spec.count as usize {
                let thread = std::thread::Builder::new().name(format!("load {n}"));
                let running = &running;
                if let Err(e) = thread.spawn_scoped(scope, move || running.thread(machine, load, n)) {
                    running.fail(load, Reason::Failed(format!("the system starts no more threads: {e}")));
                    drop(Steps { gates: &gates, told: 0 });
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
        measure(&running)
    });
    (measured, running.with_ends(loaded))
}
