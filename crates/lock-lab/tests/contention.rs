//! Cells of contention on a stand-in for libcuda and on the software GPU: that they measure what they say, beside the threads
//! they say, and come to an end. Nothing of their speed is shown here.

#[path = "../../sample/tests/fake/mod.rs"]
#[allow(dead_code)]
mod fake;

use copy::Machine;
use cuda::Cuda;
use doorbell_softgpu::{Mode, Planted, SoftDriver};
use lab::clock::Clock;
use lock_lab::contention::cell::Memory;
use lock_lab::contention::{Cell, Outcome, Plan, What, run};
use placement::affinity;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The stand-in for libcuda is one for the process.
static ONE: Mutex<()> = Mutex::new(());

fn one() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn stand_in() -> Machine {
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    Machine::of_cuda(&unsafe { Cuda::from_symbols(fake::find) }.unwrap()).unwrap()
}

fn plan() -> Plan {
    Plan {
        duration: Duration::from_millis(150),
        cpu: None,
        others: affinity().unwrap(),
        priority: 1,
        seed: 5,
        timeout: Duration::from_secs(10),
        tell: |_| {},
    }
}

fn of(machine: &Machine, cell: &str) -> Outcome {
    let outcome = run(machine, &cell.parse().unwrap(), &plan(), &Clock::monotonic_raw());
    assert_eq!(outcome.cell.to_string(), cell);
    let json = serde_json::to_string(&outcome).unwrap();
    assert!(!json.contains('\n'), "one line: {json}");
    // Fractions come back to the last digit but one.
    let back = serde_json::from_str::<Outcome>(&json).unwrap();
    assert!(back.series == outcome.series && back.class == outcome.class && back.notes == outcome.notes, "{json}");
    outcome
}

#[test]
fn launches_and_graphs_are_measured_beside_copies_and_launches() {
    let _one = one();
    let outcome = of(&stand_in(), "copy=2x64KiB[pageable]+launch=2");
    let names: Vec<&str> = outcome.series.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names[..3], ["launch", "graph", "copy"], "{names:?}");
    for s in &outcome.series[..3] {
        assert_eq!((&s.failed, &s.unavailable), (&None, &None), "{s:?}");
        assert!(s.call.count > 0 && s.done.count > 0 && s.done.count <= s.call.count, "{s:?}");
        assert!(s.call.max >= s.call.min && s.call.sum >= s.call.max, "{s:?}");
        let parts = s.parts.unwrap();
        assert!(parts.calls > 0 && parts.calls <= s.call.count, "{s:?}");
        assert_eq!((s.slowest[0].call_ns, s.slowest_done[0].done_ns), (s.call.max, s.done.max));
        assert_eq!(s.done_parts.unwrap().calls, s.done.count);
    }
    for s in &outcome.series[3..] {
        assert!(
            s.own && s.unavailable.as_ref().is_some_and(|why| !why.is_empty()),
            "the stand-in has no channels: {s:?}"
        );
    }
    let load: Vec<_> = outcome.load.iter().map(|l| (l.what.as_str(), l.threads, l.right, l.failed.len())).collect();
    assert_eq!(load, [("launch", 2, 2, 0), ("host[pageable]->cuda->gpu0", 2, 2, 0)]);
    // Within the window they may get no turn at the stand-in's one lock; tests/load.rs counts transfers.
    assert!(outcome.load.iter().all(|l| l.seconds > 0.1), "{:?}", outcome.load);
    assert!(outcome.seconds >= 0.15 && outcome.seconds < 5.0, "{}", outcome.seconds);
}

#[test]
fn copies_of_every_size_are_measured_alone() {
    let _one = one();
    let outcome = of(&stand_in(), "sizes");
    assert_eq!((outcome.series.len(), outcome.load.len()), (16, 0));
    assert_eq!(outcome.series[0].name, "copy 4 KiB pinned");
    assert!(outcome.series.iter().all(|s| s.failed.is_none() && !s.own), "{:?}", outcome.series);
    assert!(outcome.series.iter().any(|s| s.call.count > 0));
}

#[test]
fn hogs_end_with_the_measurement() {
    let _one = one();
    let outcome = of(&stand_in(), "inversion=1x64KiB+hogs=2");
    assert_eq!(outcome.load.len(), 1);
    assert_eq!((outcome.load[0].threads, outcome.load[0].right), (1, 1), "{:?}", outcome.load);
    assert!(outcome.series[0].call.count > 0);
    assert!(outcome.seconds < 5.0, "{}", outcome.seconds);
}

#[test]
fn what_a_thread_needs_is_measured_beside_launches() {
    let _one = one();
    let outcome = of(&stand_in(), "setup+launch=2");
    let names: Vec<&str> = outcome.series.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names, ["stream", "memory", "pinned memory"]);
    for s in &outcome.series {
        assert_eq!((&s.failed, &s.unavailable), (&None, &None), "{s:?}");
        assert!(s.call.count > 0 && s.done.max >= s.call.min, "{s:?}");
    }
    assert_eq!((outcome.load.len(), outcome.load[0].right), (1, 2), "{:?}", outcome.load);
    assert_eq!(fake::alive(), Vec::<&str>::new(), "all was given back");
}

#[test]
fn who_waits_for_ever_waits_until_the_load_is_told_to_stop() {
    let _one = one();
    let machine = stand_in();
    fake::STARVE.store(true, Ordering::SeqCst);
    let outcome = of(&machine, "setup+copy=1x4KiB+launch=1");
    fake::STARVE.store(false, Ordering::SeqCst);
    let stream = &outcome.series[0];
    assert_eq!(stream.call.count, 1, "{stream:?}");
    assert!(stream.is_capped(What::Call) && stream.call.max >= 100_000_000, "{stream:?}");
    assert!(outcome.series[1..].iter().all(|s| s.call.count == 0 && s.failed.is_none()), "not begun: {outcome:?}");
    assert!(outcome.load.iter().all(|l| l.right == 1), "{:?}", outcome.load);
    assert!(outcome.seconds < 5.0, "{}", outcome.seconds);
}

#[test]
fn a_launch_that_does_nothing_is_no_figure() {
    let _one = one();
    let machine = stand_in();
    fake::LOSE_LAUNCH.store(1, Ordering::SeqCst);
    let outcome = run(&machine, &Cell::Alone, &plan(), &Clock::monotonic_raw());
    fake::LOSE_LAUNCH.store(0, Ordering::SeqCst);
    let launch = &outcome.series[0];
    assert!(launch.failed.as_ref().is_some_and(|why| why.contains("wrong data")), "{launch:?}");
    assert_eq!(launch.call.count, 0);
}

#[test]
fn on_the_software_gpu_only_our_own_copies_are_there() {
    let machine = Machine::of_driver(Arc::new(SoftDriver::new(Mode::Strict)), false).unwrap();
    let outcome = of(&machine, "copy=1x4KiB");
    let (cudas, own) = outcome.series.split_at(3);
    assert!(cudas.iter().all(|s| s.unavailable.is_some() && s.call.count == 0), "{cudas:?}");
    assert!(own.iter().all(|s| s.own && s.failed.is_none() && s.done.count > 0), "{own:?}");
    assert!(own[0].name.starts_with("host->ce") && own[1].name == "host->inline->gpu0 4 KiB", "{own:?}");
    assert_eq!(outcome.load[0].right, 1, "{:?}", outcome.load);
}

#[test]
fn wrong_bytes_are_found() {
    let machine = Machine::of_driver(Arc::new(SoftDriver::broken(Mode::Strict, Planted::ShortCopy)), false).unwrap();
    let outcome = run(&machine, &Cell::copies(1, 4096, Memory::Pinned), &plan(), &Clock::monotonic_raw());
    let engine = &outcome.series[3];
    assert!(engine.failed.is_some() && engine.call.count == 0, "{engine:?}");
    assert_eq!((outcome.load[0].right, outcome.load[0].failed.len()), (0, 1), "{:?}", outcome.load);
}
