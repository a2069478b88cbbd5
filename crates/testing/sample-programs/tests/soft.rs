//! The variants without libcuda on the software GPU, in strict mode: a lost doorbell leaves work undone.

use doorbell_softgpu::{Mode, Planted, SoftDriver};
use sample_programs::{Error, Options, run_soft};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Faults that a sample must notice. A new channel makes two entries itself, and each submission is two: its own, and one that reports it.
const FAULTS: &[(&str, &[Planted])] = &[
    ("copies", &[lost(5), lost(7), lost(9), lost(13)]),
    ("launches", &[lost(3), lost(9)]),
    // (Which thread makes an entry differs from run to run.)
    ("threads", &[Planted::ShortCopy]),
    ("spin", &[lost(3), lost(5), lost(300), lost(1_200)]),
    ("channels", &[lost(5), lost(7)]),
];

const fn lost(nth: u64) -> Planted {
    Planted::LostEntry { nth }
}

fn options(name: &str) -> Options {
    let count = match name {
        "spin" => 2_500,
        "storm" => 3_000,
        "threads" => 30,
        "copies" => 1,
        _ => 5,
    };
    Options { count: Some(count), seed: 7, ..Options::default() }
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn every_variant_passes_and_repeats_its_checksum() {
    for name in ["copies", "launches", "threads", "spin", "channels", "storm"] {
        let run = || run_soft(Arc::new(SoftDriver::new(Mode::Strict)), name, &options(name));
        let (first, again) = std::thread::scope(|scope| {
            let again = (name != "copies").then(|| scope.spawn(run));
            (run(), again.map(|again| again.join().unwrap()))
        });
        let first = first.unwrap_or_else(|error| panic!("{name}: {error}"));
        if let Some(again) = again {
            assert_eq!(first.checksum(), again.unwrap().checksum(), "{name}");
        }
    }
}

#[test]
fn faults_are_noticed_and_the_seed_changes_the_checksum() {
    for (name, faults) in FAULTS {
        let few = |seed| Options { count: Some(if *name == "spin" { 1_300 } else { 5 }), seed, ..options(name) };
        for fault in *faults {
            let result = run_soft(Arc::new(SoftDriver::broken(Mode::Strict, *fault)), name, &few(7));
            assert!(matches!(result, Err(Error::Wrong { .. })), "{name}, {fault:?}: {result:?}");
        }
        if *name != "copies" {
            let sum = |seed| run_soft(Arc::new(SoftDriver::new(Mode::Strict)), name, &few(seed)).unwrap().checksum();
            assert_ne!(sum(7), sum(8), "{name}");
        }
    }
}

/// The facts in a report, compared with what the software GPU reports.
#[test]
fn facts_are_what_the_gpu_did() {
    let run = |name: &str| {
        let driver = SoftDriver::new(Mode::Strict);
        let report = run_soft(Arc::new(driver), name, &options(name)).unwrap();
        let fact = move |what: &str| report.facts.iter().find(|(name, _)| *name == what).unwrap().1;
        (fact, driver.counters())
    };
    let get = |counter: &AtomicU64| counter.load(Ordering::SeqCst);
    let (fact, counters) = run("copies");
    assert_eq!(fact("copies"), get(&counters.copies) + get(&counters.inline_copies));
    assert_eq!(fact("fills"), get(&counters.fills));
    let (fact, counters) = run("launches");
    assert_eq!(fact("launches"), get(&counters.launches));
    let (fact, counters) = run("storm");
    assert_eq!(fact("submissions"), get(&counters.inline_copies));
    let (fact, counters) = run("spin");
    assert_eq!(fact("submissions after the waiting one"), get(&counters.copies));
    let (fact, counters) = run("channels");
    assert_eq!(fact("channels"), get(&counters.channels_created));
    // (On a busy machine a wait rings again, which announces no new work.)
    let (_, counters) = run("threads");
    assert_eq!((get(&counters.faults), get(&counters.unknown_tokens)), (0, 0));
}

#[test]
fn graphs_say_why_not() {
    let result = run_soft(Arc::new(SoftDriver::new(Mode::Strict)), "graphs", &options("graphs"));
    assert!(matches!(result, Err(Error::Unavailable { .. })), "{result:?}");
}

#[test]
fn a_machine_without_the_driver_gives_the_reason() {
    if std::path::Path::new("/dev/nvidiactl").exists() {
        test_support::skip!("there is a driver");
    }
    let options = Options { gpu: sample_programs::Gpu::Soft, ..options("launches") };
    let error = sample_programs::run("launches", &options).unwrap_err();
    assert!(matches!(&error, Error::Unavailable { reason } if reason.contains("/dev/nvidiactl")), "{error}");
}
