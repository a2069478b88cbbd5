//! What runs beside the measurement: threads that copy, threads that launch, threads that burn a CPU.

use super::cell::{Cell, Memory};
use super::measure::Plan;
use super::routes;
use crate::interference::{self, Ended, Load, Running, confine};
use crate::placement::renice;
use crate::worst::launch;
use copy::Machine;
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

/// Runs `measure` on the calling thread beside what the cell says; begun when every thread has done its work once.
pub(super) fn beside<T>(machine: &Machine, cell: &Cell, plan: &Plan, measure: impl FnOnce() -> T) -> (T, Vec<Loaded>) {
    match *cell {
        Cell::Alone | Cell::Sizes => (measure(), Vec::new()),
        Cell::Crowd { copies, launches } => {
            let copying = copies.map(|c| load(machine, plan, c.threads, c.bytes, c.memory));
            let launching = (launches > 0).then(|| Load {
                route: launch::NAME.into(),
                threads: launches as usize,
                bytes: launch::BYTES,
                ..load(machine, plan, 1, 1, Memory::Pinned)
            });
            let (inner, mut all) = under(machine, plan, launching, || under(machine, plan, copying, measure));
            let (measured, copied) = inner;
            all.extend(copied);
            (measured, all)
        }
        Cell::Inversion { copies: c, hogs, nice } => {
            let shared = plan.others.first().copied().into_iter().collect::<Vec<_>>();
            let low = Load { nice: 19, cpus: shared.clone(), ..load(machine, plan, c.threads, c.bytes, c.memory) };
            under(machine, plan, Some(low), || burning(hogs, nice, &shared, plan.duration, measure))
        }
    }
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

fn under<T>(machine: &Machine, plan: &Plan, load: Option<Load>, measure: impl FnOnce() -> T) -> (T, Vec<Loaded>) {
    let Some(load) = load else { return (measure(), Vec::new()) };
    let tell = |ready: usize| (plan.tell)(&format!("{ready} of {} threads of {}", load.threads, load.route));
    let ((measured, rate), ended) = interference::under_told(machine, &load, &tell, |running: &Running<'_>| {
        let (mark, from) = (running.mark(), scheduled(running));
        let measured = measure();
        let (rate, to) = (running.since(&mark), scheduled(running));
        let share = |from: u64, to: u64| to.saturating_sub(from) as f64 / 1e9 / rate.seconds;
        (measured, (rate, share(from.0, to.0), share(from.1, to.1)))
    });
    let (rate, on_cpu, waiting) = rate;
    let Ended { threads, right, failed, .. } = ended;
    let copies = load.route != launch::NAME;
    let loaded = Loaded {
        what: load.route.clone(),
        threads: threads as u32,
        bytes: if copies { load.bytes } else { 0 },
        transfers: rate.transfers,
        seconds: rate.seconds,
        on_cpu,
        waiting,
        right: right as u32,
        failed: failed.into_iter().map(|(why, n)| (why, n as u32)).collect(),
    };
    (measured, vec![loaded])
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

/// Longer than the measurement the hogs burn their CPU in no case: who waits for a lock that is held there waits no longer.
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
