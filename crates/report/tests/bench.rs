//! What people and programs read of a measurement.

use environment::{Environment, Gpu};
use lab::Difference;
use lab::cells::{Cell, Count, Failed, Measured, Outcome, Plan};
use lab::clock::Clock;
use lab::samples::Sample;
use lab::statistics::{Interval, Ratio, Summary};
use report::bench::{Bench, write, write_json};
use report::table::Style;
use serde_json::Value;
use std::time::Duration;

fn plan() -> Plan {
    Plan {
        routes: ["host->cuda->gpu0", "host->ce0->gpu0", "host->bar1->gpu0"].map(String::from).to_vec(),
        sizes: vec![8, 64 << 20],
        samples: Count::Exactly(1000),
        rounds: 20,
        time_per_cell: Some(Duration::from_secs(10)),
        seed: 42,
        check_every: 16,
        timeout: Duration::from_secs(5),
        compare: vec![None, Some(0), Some(0)],
    }
}

fn measured(p50: u64, samples: u64, ratio: Option<f64>) -> Outcome {
    let summary = |p50: u64| {
        let mut all: Vec<u64> = (0..samples).map(|i| p50 - samples / 2 + i).collect();
        Summary::of(&mut all).unwrap()
    };
    let ratio = ratio.map(|median| {
        let interval = Some(Interval { low: median * 0.99, high: median * 1.01 });
        (0, Ratio { median, interval, rounds: 20 })
    });
    Outcome::Measured(Box::new(Measured {
        total: summary(p50),
        submit: summary(p50 / 2),
        asked: 1000,
        worst: vec![Sample { at_ns: 5_000, submit_ns: 60, total_ns: p50 + 7 }],
        ratio,
    }))
}

fn cells() -> Vec<Cell> {
    let cell = |route: &str, bytes, outcome| Cell { route: route.into(), bytes, outcome };
    let difference = Difference { bytes: 8, differing: 1, first: 7, expected: 0xa5, found: 0, nothing_moved: false };
    let failed = Failed { error: difference.to_string(), difference: Some(difference) };
    vec![
        cell("host->cuda->gpu0", 8, measured(8_800, 1000, None)),
        cell("host->ce0->gpu0", 8, measured(5_000, 1000, Some(0.568))),
        cell("host->bar1->gpu0", 8, Outcome::Failed(failed)),
        cell("host->cuda->gpu0", 64 << 20, measured(1_221_000, 50, None)),
        cell("host->ce0->gpu0", 64 << 20, measured(1_220_000, 50, Some(1.0))),
        cell("host->bar1->gpu0", 64 << 20, Outcome::Unavailable { reason: "BAR1 is too small".into() }),
    ]
}

fn environment() -> Environment {
    let mut e = Environment::gather(
        Gpu::Soft,
        Clock::monotonic_raw().calibrated(),
        42,
        vec!["SCHED_FIFO was not given".into()],
    );
    e.gpu = Some("NVIDIA H100".into());
    e.driver = Some("580.1".into());
    (e.pcie_generation, e.pcie_width) = (Some(5), Some(16));
    e.cpu = Some("Xeon".into());
    e.kernel = Some("6.18".into());
    e.affinity = Some(vec![0, 1, 2, 8]);
    (e.scheduler, e.priority) = (Some("SCHED_OTHER".into()), Some(0));
    e
}

fn text(functional: bool) -> String {
    text_on(Style::default(), functional)
}

fn text_on(style: Style, functional: bool) -> String {
    let (plan, environment, cells) = (plan(), environment(), cells());
    let b = Bench { plan: &plan, environment: &environment, functional, noise: None, cells: &cells };
    let mut out = Vec::new();
    write(&mut out, &style, &b).unwrap();
    String::from_utf8(out).unwrap()
}

fn json(functional: bool) -> Value {
    let (plan, environment, cells) = (plan(), environment(), cells());
    let noise = lab::noise::measure(&Clock::monotonic_raw(), Default::default(), Duration::from_millis(4));
    let b = Bench { plan: &plan, environment: &environment, functional, noise: Some(&noise), cells: &cells };
    let mut out = Vec::new();
    write_json(&mut out, &b).unwrap();
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn the_table() {
    insta::assert_snapshot!(text(false));
}

#[test]
fn a_narrow_terminal_keeps_a_row_in_one_line() {
    let t = text_on(Style { colour: false, width: Some(110) }, false);
    let rows = t.lines().filter(|l| l.contains("host->") && l.contains("ms")).count();
    assert_eq!(rows, 2, "{t}");
    assert!(t.lines().any(|l| l.trim_start().starts_with("64 MiB  host->cuda->gpu0  1.22 ms")), "{t}");
}

#[test]
fn the_table_of_the_software_gpu_has_no_times() {
    let t = text(true);
    insta::assert_snapshot!(t);
    assert!(!t.contains(" us") && !t.contains("GB/s"));
}

#[test]
fn json_has_every_figure_under_its_name() {
    let v = json(false);
    assert_eq!(v["environment"]["gpu"], "NVIDIA H100");
    assert_eq!((v["plan"]["seed"].as_u64(), v["functional"].as_bool()), (Some(42), Some(false)));
    assert!(v["noise"]["gaps"]["max_ns"].as_u64().unwrap() > 0 && v["noise"]["wakeups"]["max_ns"].is_u64());
    let cells = v["cells"].as_array().unwrap();
    assert_eq!(cells.len(), 6);
    for c in cells {
        assert!(c["route"].is_string() && c["bytes"].is_u64());
        let kinds = ["p50_ns", "unavailable", "failed"].iter().filter(|k| !c[**k].is_null()).count();
        assert_eq!(kinds, 1, "{c}");
    }
    let c = &cells[1];
    for key in ["samples", "p50_ns", "p99_ns", "max_ns", "submit_p50_ns", "submit_p99_ns", "min_ns", "p999_ns"] {
        assert!(c[key].is_u64(), "{key}: {c}");
    }
    assert_eq!((c["p50_ns"].as_u64(), c["samples"].as_u64()), (Some(4_999), Some(1000)));
    assert_eq!((c["verified"].as_bool(), c["ratio"]["differs"].as_bool()), (Some(true), Some(true)));
    assert_eq!((c["ratio"]["to"].as_str(), c["worst"][0]["at_ns"].as_u64()), (Some("host->cuda->gpu0"), Some(5_000)));
    let big = &cells[4];
    assert!(big["p99_ns"].is_null() && big["submit_p99_ns"].is_null() && big["samples"] == 50, "{big}");
    assert_eq!((big["samples_asked"].as_u64(), big["ratio"]["differs"].as_bool()), (Some(1000), Some(false)));
    assert!((big["gb_per_s"].as_f64().unwrap() - 55.0).abs() < 0.1);
    assert_eq!((cells[2]["verified"].as_bool(), cells[2]["difference"]["first"].as_u64()), (Some(false), Some(7)));
    assert_eq!(cells[5]["unavailable"], "BAR1 is too small");
}

#[test]
fn the_software_gpu_has_no_bandwidth() {
    let v = json(true);
    assert_eq!(v["functional"], true);
    assert!(v["cells"].as_array().unwrap().iter().all(|c| c["gb_per_s"].is_null()));
}
