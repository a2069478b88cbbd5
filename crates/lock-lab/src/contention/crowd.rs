//! What runs beside the measurement: threads that copy, threads that launch, threads that burn a CPU.

use super::cell::{Cell, Copies, Memory};
use super::plan::Plan;
use super::routes;
use copy::Machine;
use lab::interference::{self, Ended, Load, Mark, Rate, Running};
use lab::launch;
use placement::cpus::confine;
use placement::renice;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// What a load achieved while the measurement ran, and what became of its threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    pub what: String,
    pub threads: u32,
    /// Of each transfer; none for launches.
    pub bytes: u64,
    pub transfers: u64,
    pub seconds: f64,
    /// Of one CPU, what all its threads had together, and what they waited for one, ready: by the kernel's counters.
    pub on_cpu: f64,
    pub waiting: f64,
    /// Threads whose data was compared at the end, and right.
    pub right: u32,
    /// Why the others did not start, stopped early or were wrong, and how many threads it stopped.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub failed: Vec<(String, u32)>,
}

/// Whether the load was told to stop before the measurement was over.
pub(super) type Stopped = AtomicBool;

/// Runs `measure` on the calling thread beside what the cell says; begun when every thread has done its work once.
pub(super) fn beside<T>(
    machine: &Machine,
    cell: &Cell,
    plan: &Plan,
    measure: impl FnOnce(&Stopped) -> T,
) -> (T, Vec<Loaded>) {
    let stopped = Stopped::new(false);
    match *cell {
        Cell::Alone | Cell::Sizes => (measure(&stopped), Vec::new()),
        Cell::Crowd { copies, launches } => {
            let loads = crowd(machine, plan, copies, launches);
            under(machine, plan, &loads, |_| measure(&stopped))
        }
        Cell::Setup { copies, launches } => {
            let loads = crowd(machine, plan, copies, launches);
            under(machine, plan, &loads, |all| ending(all, plan.duration, &stopped, || measure(&stopped)))
        }
        Cell::Inversion { copies: c, hogs, nice } => {
            let shared = plan.others.first().copied().into_iter().collect::<Vec<_>>();
            let low = Load { nice: 19, cpus: shared.clone(), ..load(machine, plan, c.threads, c.bytes, c.memory) };
            under(machine, plan, &[low], |_| burning(hogs, nice, &shared, plan.duration, || measure(&stopped)))
        }
    }
}

fn crowd(machine: &Machine, plan: &Plan, copies: Option<Copies>, launches: u32) -> Vec<Load> {
    let launching = (launches > 0).then(|| Load {
        route: launch::NAME.into(),
        threads: launches as usize,
        bytes: launch::BYTES,
        ..load(machine, plan, 1, 1, Memory::Pinned)
    });
    let copying = copies.map(|c| load(machine, plan, c.threads, c.bytes, c.memory));
    launching.into_iter().chain(copying).collect()
}

fn load(machine: &Machine, plan: &Plan, threads: u32, bytes: u64, memory: Memory) -> Load {
    let gpu = machine.index();
    let route = if machine.context().is_ok() { routes::by_cuda(memory, gpu) } else { routes::by_engine(memory, gpu) };
    Load {
        route,
        threads: threads as usize,
        bytes,
        cpus: plan.others.clone(),
        nice: 0,
        seed: plan.seed,
        timeout: plan.timeout,
    }
}

fn under<T>(
    machine: &Machine,
    plan: &Plan,
    loads: &[Load],
    measure: impl FnOnce(&[Running<'_>]) -> T,
) -> (T, Vec<Loaded>) {
    let threads: usize = loads.iter().map(|l| l.threads).sum();
    let tell = |ready: usize| (plan.tell)(&format!("{ready} of {threads} threads"));
    let ((measured, rates), ended) = interference::under_all(machine, loads, &tell, |all| {
        let before: Vec<_> = all.iter().map(|running| (running.mark(), scheduled(running))).collect();
        let measured = measure(all);
        let rate = |(running, (mark, from)): (&Running<'_>, &(Mark, (u64, u64)))| {
            let (rate, to) = (running.since(mark), scheduled(running));
            let share = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9 / rate.seconds;
            (rate, share(from.0, to.0), share(from.1, to.1))
        };
        (measured, all.iter().zip(&before).map(rate).collect::<Vec<_>>())
    });
    let loaded = |((load, (rate, on_cpu, waiting)), ended): ((&Load, (Rate, f64, f64)), Ended)| Loaded {
        what: load.route.clone(),
        threads: ended.threads as u32,
        bytes: if load.route == launch::NAME { 0 } else { load.bytes },
        transfers: rate.transfers,
        seconds: rate.seconds,
        on_cpu,
        waiting,
        right: ended.right as u32,
        failed: ended.failed.into_iter().map(|(why, n)| (why, n as u32)).collect(),
    };
    (measured, loads.iter().zip(rates).zip(ended).map(loaded).collect())
}

/// Tells the loads to stop after `limit`, so that who waits for them for ever waits no longer.
fn ending<T>(all: &[Running<'_>], limit: Duration, stopped: &Stopped, measure: impl FnOnce() -> T) -> T {
    let measured = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _measured = interference::Stop::of(&measured);
        scope.spawn(|| {
            // Later than a measurement that nothing stops.
            let end = Instant::now() + limit + GRACE;
            while Instant::now() < end && !measured.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            if !measured.load(Ordering::Relaxed) {
                stopped.store(true, Ordering::Relaxed);
                all.iter().for_each(Running::stop);
            }
        });
        measure()
    })
}

/// What all threads of a load had of CPUs, and what they waited for one, ns.
fn scheduled(running: &Running<'_>) -> (u64, u64) {
    let of = |thread: i32| {
        let text = std::fs::read_to_string(format!("/proc/self/task/{thread}/schedstat")).ok()?;
        let mut fields = text.split_ascii_whitespace().map(|f| f.parse::<u64>().unwrap_or(0));
        Some((fields.next()?, fields.next()?))
    };
    running.threads().filter_map(of).fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
}

/// How much longer than the measurement a load goes on at most: who waits for a lock that it holds waits no longer.
const GRACE: Duration = Duration::from_millis(50);

/// Burns CPUs beside `measure`, with no call of CUDA's.
fn burning<T>(hogs: u32, nice: i32, cpus: &[usize], duration: Duration, measure: impl FnOnce() -> T) -> T {
    let (stop, started) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _stop = interference::Stop::of(&stop);
        for n in 0..hogs {
            let burn = || {
                let _ = confine(0, cpus);
                let _ = renice(nice);
                started.fetch_add(1, Ordering::Release);
                let end = Instant::now() + duration + GRACE;
                while !stop.load(Ordering::Relaxed) && Instant::now() < end {
                    std::hint::spin_loop();
                }
            };
            if std::thread::Builder::new().name(format!("hog {n}")).spawn_scoped(scope, burn).is_err() {
                started.fetch_add(1, Ordering::Release);
            }
        }
        while started.load(Ordering::Acquire) < hogs as usize {
            std::thread::sleep(Duration::from_millis(1));
        }
        measure()
    })
}
