//! The text of `bench worst` where times are shown, and what JSON says of the same.

use environment::Taken;
use environment::{Environment, Gpu};
use lab::clock::Clock;
use lab::interference::{Ended, Load, Rate};
use lab::noise::Gaps;
use lab::statistics::Summary;
use lab::worst::{Kind, Measured, Missing, Phase, Row, Split, Stage, Worst};
use report::table::Style;
use report::worst::{Run, write, write_json};
use serde_json::Value;
use std::time::Duration;

fn row(name: &str, kind: Kind, mut totals: Vec<u64>, split: Split) -> Row {
    let mut submits = vec![60; totals.len()];
    let total = Summary::of(&mut totals).unwrap();
    let worst = vec![Worst { at_ns: 2_500_000_000, submit_ns: 60, total_ns: total.max, split }];
    let measured = Some(Measured { total, submit: Summary::of(&mut submits).unwrap(), worst });
    Row { name: name.into(), about: String::new(), kind, bytes: 8, measured, missing: None }
}

fn stage(load: Option<Rate>, rows: Vec<Row>) -> Stage {
    let gaps = |max_ns| Gaps {
        readings: 9,
        p50_ns: 20,
        p99_ns: 21,
        max_ns,
        interruptions: 1,
        lost_ppm: 0.5,
        switched: 1,
        switched_max_ns: 25_000,
        unswitched_max_ns: max_ns,
    };
    let phase = Phase { rows, turns: 7, seconds: 1.5, clock: Some((3, 700)), full: false, noise: gaps(29_000) };
    let (steal, interrupts_time) = (Duration::from_millis(40), Duration::from_millis(10));
    let taken = Taken { cpu: 15, steal, interrupts_time, softirq_time: Duration::ZERO, interrupts: Some(1234) };
    Stage { load, noise: [gaps(12_000), gaps(30_000)], phase, taken: Some(taken), throttled: 2 }
}

fn with(f: impl FnOnce(&Run<'_>)) {
    let environment = Environment::gather(Gpu::Soft, Clock::monotonic_raw().calibrated(), 1, Vec::new());
    let load = Load {
        route: "host->cuda->gpu0".into(),
        threads: 64,
        bytes: 4 << 20,
        cpus: Vec::new(),
        nice: 0,
        seed: 1,
        timeout: Duration::from_secs(1),
    };
    let own = Split {
        engine_ns: Some(129_000),
        seen_ns: Some(-300),
        clock_error_ns: Some(700),
        longest_gap_ns: Some(90),
        ..Split::default()
    };
    let cuda = Split {
        asleep_ns: Some(31_000_000),
        run_queue_ns: Some(0),
        on_cpu_ns: Some(900_000),
        switches: Some((2, 0)),
        unknown: vec!["engine: not told apart"],
        ..Split::default()
    };
    let gone = Row {
        measured: None,
        missing: Some(Missing::Unavailable("no CUDA".into())),
        ..row("launch", Kind::Cuda, vec![1], Split::default())
    };
    let rows = || {
        vec![
            row("host->ce2->gpu0", Kind::Own, (0..1000).map(|n| 5_000 + n * 125).collect(), own.clone()),
            row("host->cuda->gpu0", Kind::Cuda, vec![9_000, 32_000_000], cuda.clone()),
            gone.clone(),
        ]
    };
    let rate = Rate { transfers: 13_000, bytes: 13_000 << 22, seconds: 1.0 };
    let ended = Ended { threads: 63, least: 200, most: 210, right: 63, failed: vec![("out of memory".into(), 1)] };
    let (quiet, loaded) = (stage(None, rows()), stage(Some(rate), rows()));
    f(&Run {
        environment: &environment,
        functional: false,
        load: &load,
        ended: Some(&ended),
        quiet: &quiet,
        loaded: Some(&loaded),
        within_ns: 100_000,
    });
}

#[test]
fn the_worst_stand_above_the_floor_with_their_parts() {
    with(|run| {
        let mut out = Vec::new();
        write(&mut out, &Style::default(), run).unwrap();
        let text = String::from_utf8(out).unwrap();
        let from = text.find("load: 64 threads").unwrap();
        insta::assert_snapshot!(&text[from..]);
    });
}

#[test]
fn json_has_the_same_and_every_part() {
    with(|run| {
        let mut out = Vec::new();
        write_json(&mut out, run).unwrap();
        let v: Value = serde_json::from_slice(&out).unwrap();
        let rows = &v["loaded"]["rows"];
        assert_eq!(v["loaded"]["noise_floor_ns"], 30_000);
        assert_eq!((rows[0]["within"].as_bool(), rows[1]["within"].as_bool()), (Some(true), Some(false)));
        assert_eq!(rows[0]["above_noise_floor_ns"], 129_875 - 30_000);
        assert_eq!(rows[0]["worst"][0]["mostly"], "engine");
        assert_eq!(rows[1]["worst"][0]["mostly"], "asleep");
        assert_eq!((rows[1]["p99_ns"].is_null(), rows[2]["unavailable"].as_str()), (true, Some("no CUDA")));
        assert_eq!(v["loaded"]["load"]["transfers_per_second"], 13_000.0);
        assert_eq!(v["load"]["ended"]["failed"][0]["threads"], 1);
    });
}
