//! Priority inversion with three SCHED_FIFO threads on one CPU: low holds a lock that high waits for, and middle, which uses no lock, keeps low off
//! the CPU.
//!
//! The priorities determine the order of events, without a race. Low, inside, wakes high; high runs immediately, requests the lock and sleeps. Then
//! low wakes middle, which runs immediately unless low was raised.

use super::subject::{Access, Subject, Visit, with_mutex, with_rwlock};
use super::{Missing, Plan, Policy, Wait, Waits, keep, none_yet, turns};
use measure::clock::Clock;
use placement::{Placement, Wish, affinity};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering};
use std::thread::{self, Thread};
use std::time::Duration;

/// All but the last are mutexes. With the gate of the rwlock, low reads and high tries to write.
pub const POLICIES: [Policy; 7] =
    [Policy::Stock, Policy::Pi, Policy::StockInherit, Policy::Boost, Policy::Guard, Policy::Ticket, Policy::PhaseFair];

const LOW: i32 = 10;
const MIDDLE: i32 = 20;
const HIGH: i32 = 30;

/// So that SCHED_FIFO threads have the CPU for less than the kernel's 95 % of any second.
const REST: Duration = Duration::from_millis(100);

/// `Err`: why an inversion cannot be made here. The policies take turns. `progress` is called for each policy.
pub fn inversion(plan: &Plan, clock: &Clock, progress: &mut dyn FnMut(Policy)) -> Result<Vec<Waits>, String> {
    let cpus = affinity().map_err(|e| format!("which CPUs may be used: {e}"))?;
    let cpu = *cpus.last().ok_or("no CPU may be used")?;
    permitted(cpu)?;
    let mut dice = fastrand::Rng::with_seed(plan.seed);
    let mut all = none_yet(&POLICIES);
    for _ in 0..plan.inversions {
        for policy in turns(&all, &mut dice) {
            progress(policy);
            thread::sleep(REST.max(plan.burn / 3));
            let three = Three { plan, clock, cpu };
            let wait = match policy {
                Policy::PhaseFair => with_rwlock(policy, three),
                _ => with_mutex(policy, three),
            };
            keep(&mut all, policy, wait);
        }
    }
    Ok(all)
}

/// Whether a thread may run under SCHED_FIFO at `HIGH` on this CPU; tries to raise the limit first.
fn permitted(cpu: usize) -> Result<(), String> {
    let highest = HIGH as libc::rlim_t;
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: both use a local rlimit. If the limit cannot be raised, it stays, and the next step reports that.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_RTPRIO, &mut limit) == 0 && limit.rlim_cur < highest {
            limit.rlim_cur = highest;
            limit.rlim_max = limit.rlim_max.max(highest);
            libc::setrlimit(libc::RLIMIT_RTPRIO, &limit);
        }
    }
    let tried = thread::spawn(move || {
        let placed = Placement::take(Wish { cpu: Some(cpu), fifo: Some(HIGH) });
        match (placed.cpu, placed.fifo) {
            (Some(_), Some(_)) => Ok(()),
            _ => Err(placed.notes.join("; ")),
        }
    });
    tried.join().unwrap_or_else(|_| Err("the thread that tried ended early".into()))
}

struct Three<'a> {
    plan: &'a Plan,
    clock: &'a Clock,
    cpu: usize,
}

#[derive(Default)]
struct Scene {
    /// Threads that sleep until they are needed.
    ready: AtomicU32,
    high: AtomicBool,
    middle: AtomicBool,
    inside: AtomicBool,
    /// High requested the lock while low was inside.
    met: AtomicBool,
    wait_ns: AtomicU64,
    /// Middle started burning CPU before high got the lock.
    overtaken: AtomicBool,
    served: AtomicBool,
    trouble: AtomicI32,
    not_placed: AtomicBool,
}

impl Visit for Three<'_> {
    type Out = Wait;

    fn visit<S: Subject>(self, lock: &S) -> Result<Wait, Missing> {
        let scene = Scene::default();
        thread::scope(|scope| {
            let high = scope.spawn(|| self.placed(&scene, HIGH, || self.high(lock, &scene)));
            let middle = scope.spawn(|| self.placed(&scene, MIDDLE, || self.middle(&scene)));
            let (high, middle) = (high.thread().clone(), middle.thread().clone());
            scope.spawn(|| self.placed(&scene, LOW, || self.low(lock, &scene, [high, middle])));
        });
        match scene.trouble.load(Ordering::Relaxed) {
            _ if scene.not_placed.load(Ordering::Relaxed) => {
                Err(Missing::Unavailable("SCHED_FIFO was refused meanwhile".into()))
            }
            0 if scene.met.load(Ordering::Relaxed) => Ok(Wait {
                ns: scene.wait_ns.load(Ordering::Relaxed),
                capped: false,
                overtaken: scene.overtaken.load(Ordering::Relaxed).into(),
            }),
            0 => {
                Err(Missing::Failed("low had left before high asked: the kernel did not keep to the priorities".into()))
            }
            code => Err(Missing::Failed(format!("an operation of the lock ended with error {code}"))),
        }
    }
}

impl Three<'_> {
    fn placed(&self, scene: &Scene, priority: i32, body: impl FnOnce()) {
        let placed = Placement::take(Wish { cpu: Some(self.cpu), fifo: Some(priority) });
        if placed.cpu.is_none() || placed.fifo.is_none() {
            // The others continue, so that they do not wait for this one; there is no figure then.
            scene.not_placed.store(true, Ordering::Relaxed);
        }
        body();
    }

    fn high<S: Subject>(&self, lock: &S, scene: &Scene) {
        let hand = lock.hand();
        await_call(scene, &scene.high);
        scene.met.store(scene.inside.load(Ordering::Relaxed), Ordering::Relaxed);
        let asked = self.clock.now();
        let taken = lock.take(&hand, Access::Write);
        scene.wait_ns.store(self.clock.ns(self.clock.now().saturating_sub(asked)), Ordering::Relaxed);
        scene.served.store(true, Ordering::Relaxed);
        let released = if taken == 0 { lock.release(&hand, Access::Write) } else { taken };
        scene.trouble.fetch_or(released, Ordering::Relaxed);
    }

    fn middle(&self, scene: &Scene) {
        await_call(scene, &scene.middle);
        scene.overtaken.store(!scene.served.load(Ordering::Relaxed), Ordering::Relaxed);
        burn(self.plan.burn);
    }

    fn low<S: Subject>(&self, lock: &S, scene: &Scene, [high, middle]: [Thread; 2]) {
        let hand = lock.hand();
        while scene.ready.load(Ordering::Relaxed) < 2 {
            thread::sleep(Duration::from_micros(200));
        }
        // Both reported ready on this CPU with higher priorities, so they must be asleep if this thread runs.
        let taken = lock.take(&hand, Access::Read);
        scene.inside.store(true, Ordering::Relaxed);
        call(&scene.high, &high);
        call(&scene.middle, &middle);
        burn(self.plan.held);
        scene.inside.store(false, Ordering::Relaxed);
        let released = if taken == 0 { lock.release(&hand, Access::Read) } else { taken };
        scene.trouble.fetch_or(released, Ordering::Relaxed);
    }
}

fn await_call(scene: &Scene, called: &AtomicBool) {
    scene.ready.fetch_add(1, Ordering::Relaxed);
    while !called.load(Ordering::Relaxed) {
        thread::park();
    }
}

fn call(flag: &AtomicBool, thread: &Thread) {
    flag.store(true, Ordering::Relaxed);
    thread.unpark();
}

/// Uses this much CPU time of the calling thread.
fn burn(time: Duration) {
    let now = || {
        let mut t = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: writes one timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut t) };
        Duration::new(t.tv_sec as u64, t.tv_nsec as u32)
    };
    let begin = now();
    while now().saturating_sub(begin) < time {
        std::hint::spin_loop();
    }
}
