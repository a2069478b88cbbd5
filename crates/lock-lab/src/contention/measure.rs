//! One cell: what is measured takes turns on the calling thread, made real time, while the cell's load runs.

use super::cell::Cell;
use super::crowd::{self, Loaded, Stopped};
use super::plan::Plan;
use super::routes::{self, Measured};
use super::series::{Counting, Parts, Series, Slow, Slowest, Times};
use copy::{Difference, Error, Machine, Route, Transfer, verify};
use lab::clock::Clock;
use lab::counters::{Counters, Spent};
use placement::{Class, Placement, rest_if_due};
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// What a cell gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub cell: Cell,
    pub seconds: f64,
    pub cpu: Option<usize>,
    /// Before whom the measuring thread ran.
    pub class: Option<Class>,
    /// Periods in which the kernel kept it from its CPU because its budget was used up.
    pub throttled: u64,
    /// Samples after which it was on another CPU than before.
    pub moved: u64,
    pub notes: Vec<String>,
    pub series: Vec<Series>,
    pub load: Vec<Loaded>,
}

/// A call that took longer has the kernel's counters read behind it in any case.
const SLOW_NS: u64 = 50_000;

/// Runs a cell. What is missing on this machine is so in its series; nothing ends the cell but its time.
///
/// Everything is opened, filled and prepared before the load begins, and compared after it has ended.
pub fn run(machine: &Machine, cell: &Cell, plan: &Plan, clock: &Clock) -> Outcome {
    let mut random = fastrand::Rng::with_seed(plan.seed);
    let mut measured = routes::of(machine, cell);
    for m in &mut measured {
        verified(m, random.u64(..), plan.timeout);
    }
    let data = fresh(&mut measured, &mut random);
    let mut live = prepared(&mut measured);
    let mut outcome = Outcome {
        cell: *cell,
        seconds: 0.0,
        cpu: None,
        class: None,
        throttled: 0,
        moved: 0,
        notes: Vec::new(),
        series: Vec::new(),
        load: Vec::new(),
    };
    let ((), load) = crowd::beside(machine, cell, plan, |stopped| {
        let placed = Placement::real_time(plan.cpu, plan.priority);
        // libcuda may have started threads of its own meanwhile.
        if let Ok((_, stayed @ 1..)) = placement::cpus::clear(&plan.others) {
            outcome.notes.push(format!("{stayed} other threads of this process stayed on the measuring CPU"));
        }
        (outcome.seconds, outcome.moved) = {
            // Where each call may wait for ever, the same one is asked first in every round.
            let drawn = (!cell.is_setup()).then_some(&mut random);
            turns(&mut live, plan, clock, drawn, stopped)
        };
        (outcome.cpu, outcome.class, outcome.throttled) = (placed.cpu, placed.class, placed.throttled());
        outcome.notes.extend(placed.notes.iter().cloned());
        drop(placed);
        (plan.tell)("measured");
    });
    let taken: Vec<(usize, Series)> = live.into_iter().map(series).collect();
    let mut all: Vec<Series> = measured.iter().map(no_calls).collect();
    for (index, taken) in taken {
        let Series { name, about, .. } = std::mem::replace(&mut all[index], taken);
        (all[index].name, all[index].about) = (name, about);
    }
    compare(&mut measured, &data, &mut all);
    (outcome.series, outcome.load) = (all, load);
    if outcome.throttled > 0 {
        outcome.notes.push("the kernel took the measuring thread off its CPU where its budget was used up".into());
    }
    outcome
}

/// Moves random bytes once and compares them; what is not right is not measured.
fn verified(m: &mut Measured<'_>, seed: u64, timeout: Duration) {
    let Ok(route) = &mut m.route else { return };
    match verify(&mut **route, m.bytes, seed, timeout) {
        Ok(None) => {}
        Ok(Some(wrong)) => m.wrong = Some(format!("wrong data: {wrong}")),
        Err(error) => m.route = Err(error),
    }
}

struct Live<'r> {
    index: usize,
    own: bool,
    transfer: Box<dyn Transfer + 'r>,
    call: Counting,
    done: Counting,
    parts: Parts,
    done_parts: Parts,
    slowest: Slowest,
    slowest_done: Slowest,
    samples: u64,
    failed: Option<Error>,
}

/// Lets them take turns until the time is over, each once at least, or until the load was told to stop; the seconds that it took, and after how many samples the
/// thread was on another CPU than before.
fn turns(
    live: &mut [Live<'_>],
    plan: &Plan,
    clock: &Clock,
    mut random: Option<&mut fastrand::Rng>,
    stopped: &Stopped,
) -> (f64, u64) {
    let mut order: Vec<usize> = (0..live.len()).collect();
    let (began, limit) = (clock.now(), plan.duration.as_nanos() as u64);
    let elapsed = || clock.ns(clock.now().saturating_sub(began));
    let (mut cpu, mut moved) = (current_cpu(), 0);
    let mut first = true;
    'all: while live.iter().any(|l| l.failed.is_none()) {
        if let Some(random) = &mut random {
            random.shuffle(&mut order);
        }
        for &n in &order {
            let l = &mut live[n];
            if l.failed.is_some() {
                continue;
            }
            let sampled = if l.own {
                own(l, clock, began, plan.timeout)
            } else {
                time_cuda_call(l, clock, began, plan.timeout, stopped)
            };
            l.failed = sampled.err();
            let now = current_cpu();
            moved += u64::from(now != cpu);
            cpu = now;
            if (!first && elapsed() >= limit) || stopped.load(Ordering::Relaxed) {
                break 'all;
            }
            rest_if_due();
        }
        first = false;
    }
    (elapsed() as f64 / 1e9, moved)
}

/// New random bytes at every source, of which none is at its place at the destination already.
fn fresh(measured: &mut [Measured<'_>], random: &mut fastrand::Rng) -> Vec<Vec<u8>> {
    let one = |m: &mut Measured<'_>| {
        let mut data = vec![0; m.bytes as usize];
        let Ok(route) = &mut m.route else { return data };
        let filled = route.read_back(&mut data).and_then(|()| {
            data.iter_mut().for_each(|byte| *byte ^= random.u8(1..));
            route.fill(&data)
        });
        if let Err(error) = filled {
            m.route = Err(error);
        }
        data
    };
    measured.iter_mut().map(one).collect()
}

fn prepared<'r>(measured: &'r mut [Measured<'_>]) -> Vec<Live<'r>> {
    let mut live = Vec::new();
    for (index, m) in measured.iter_mut().enumerate() {
        let (own, bytes) = (m.own, m.bytes);
        if m.wrong.is_some() {
            continue;
        }
        let Ok(route) = &mut m.route else { continue };
        // What cannot be prepared was not verified either.
        let Ok(transfer) = Route::prepare(&mut **route, bytes) else { continue };
        live.push(Live {
            index,
            own,
            transfer,
            call: Counting::new(),
            done: Counting::new(),
            parts: Parts::default(),
            done_parts: Parts::default(),
            slowest: Slowest::by(|s| s.call_ns),
            slowest_done: Slowest::by(|s| s.done_ns),
            samples: 0,
            failed: None,
        });
    }
    live
}

/// A call of CUDA's and the wait for its work. The kernel's counters are read before the call, and in turns behind the call
/// or behind the wait: the one half of the samples says where the time of the calls went, the other that of the whole, whose
/// wait no reading has delayed. Behind a slow call they are read in any case.
#[inline]
fn time_cuda_call(
    l: &mut Live<'_>,
    clock: &Clock,
    began: u64,
    timeout: Duration,
    stopped: &Stopped,
) -> Result<(), Error> {
    let of_call = l.samples.is_multiple_of(2);
    l.samples += 1;
    let from = Counters::of_thread();
    let before = clock.now();
    l.transfer.submit()?;
    let submitted = clock.now();
    let call_capped = stopped.load(Ordering::Relaxed);
    let call_ns = clock.ns(submitted.saturating_sub(before));
    let behind_call = (of_call || call_ns > SLOW_NS).then(|| Spent::between(&from, &Counters::of_thread()));
    l.transfer.wait(timeout)?;
    let done_ns = clock.ns(clock.now().saturating_sub(before));
    l.call.add(call_ns);
    let capped = stopped.load(Ordering::Relaxed);
    let slow = |spent: Option<&Spent>, capped: bool| Slow {
        at_ns: clock.ns(before.saturating_sub(began)),
        call_ns,
        done_ns,
        asleep_ns: spent.and_then(Spent::asleep_ns),
        run_queue_ns: spent.and_then(|s| s.run_queue_ns),
        on_cpu_ns: spent.map(|s| s.cpu_ns.min(s.wall_ns)),
        longest_gap_ns: None,
        capped,
    };
    l.slowest.offer(slow(behind_call.as_ref(), call_capped));
    if of_call {
        behind_call.iter().for_each(|spent| l.parts.add(spent));
    }
    // What never came to its end is in both halves: it is the last.
    if !of_call || capped {
        let whole = Spent::between(&from, &Counters::of_thread());
        l.done.add(done_ns);
        l.done_parts.add(&whole);
        l.slowest_done.offer(slow(Some(&whole), capped));
    }
    Ok(())
}

/// A copy of our own: from the submission to the end the thread reads memory and the time stamp counter, nothing else.
#[inline]
fn own(l: &mut Live<'_>, clock: &Clock, began: u64, timeout: Duration) -> Result<(), Error> {
    l.samples += 1;
    let before = clock.now();
    l.transfer.submit()?;
    let submitted = clock.now();
    let (mut last, mut gap) = (submitted, 0);
    loop {
        let there = l.transfer.poll()?;
        let now = clock.now();
        gap = gap.max(now.saturating_sub(last));
        last = now;
        if there {
            break;
        }
        if Duration::from_nanos(clock.ns(now.saturating_sub(submitted))) > timeout {
            // Says what it is late with.
            l.transfer.wait(Duration::ZERO)?;
            break;
        }
    }
    let call_ns = clock.ns(submitted.saturating_sub(before));
    let done_ns = clock.ns(last.saturating_sub(before));
    l.call.add(call_ns);
    l.done.add(done_ns);
    l.slowest_done.offer(Slow {
        at_ns: clock.ns(before.saturating_sub(began)),
        call_ns,
        done_ns,
        asleep_ns: None,
        run_queue_ns: None,
        on_cpu_ns: None,
        longest_gap_ns: Some(clock.ns(gap)),
        capped: false,
    });
    Ok(())
}

fn series(l: Live<'_>) -> (usize, Series) {
    let series = Series {
        name: String::new(),
        about: String::new(),
        own: l.own,
        unavailable: None,
        failed: l.failed.map(|e| e.to_string()),
        call: l.call.done(),
        done: l.done.done(),
        parts: (!l.own).then_some(l.parts),
        done_parts: (!l.own).then_some(l.done_parts),
        slowest: l.slowest.done(),
        slowest_done: l.slowest_done.done(),
    };
    (l.index, series)
}

/// A series of what is not there.
fn no_calls(m: &Measured<'_>) -> Series {
    let (unavailable, failed) = match &m.route {
        Ok(_) => (None, Some(m.wrong.clone().unwrap_or_else(|| "it could not be prepared".into()))),
        Err(Error::Unavailable(u)) => (Some(u.reason.clone()), None),
        Err(error) => (None, Some(error.to_string())),
    };
    Series {
        name: m.name.clone(),
        about: m.about.clone(),
        own: m.own,
        unavailable,
        failed,
        call: Times::default(),
        done: Times::default(),
        parts: None,
        done_parts: None,
        slowest: Vec::new(),
        slowest_done: Vec::new(),
    }
}

/// What the destinations hold, against what was sent.
fn compare(measured: &mut [Measured<'_>], data: &[Vec<u8>], series: &mut [Series]) {
    for ((m, data), series) in measured.iter_mut().zip(data).zip(series) {
        let Ok(route) = &mut m.route else { continue };
        if series.failed.is_some() || series.call.count == 0 {
            continue;
        }
        let mut found = vec![0; data.len()];
        series.failed = match route.read_back(&mut found) {
            Err(error) => Some(error.to_string()),
            Ok(()) => Difference::between(data, &found, None).map(|d| format!("after its transfers: {d}")),
        };
    }
}

fn current_cpu() -> i32 {
    // SAFETY: takes nothing.
    unsafe { libc::sched_getcpu() }
}
