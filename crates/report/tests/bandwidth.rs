//! What people and programs read of copies back to back.

use environment::{Environment, Gpu};
use lab::bandwidth::{Cell, Plan, Rate, Versus};
use lab::clock::Clock;
use report::bandwidth::{Bandwidth, write, write_json};
use report::table::Style;
use serde_json::Value;
use std::time::Duration;

fn plan(functional: bool) -> Plan {
    Plan {
        routes: Vec::new(),
        bytes: 64 << 20,
        copies: 20,
        rounds: 30,
        compare: Vec::new(),
        seed: 1,
        timeout: Duration::from_secs(10),
        functional,
    }
}

fn cell(route: &str) -> Cell {
    Cell {
        route: route.into(),
        rounds: 30,
        gpu_gbps: None,
        cpu_gbps: None,
        versus: None,
        verified: true,
        unavailable: None,
        failed: None,
    }
}

fn cells() -> Vec<Cell> {
    let rate = |p50: f64| Some(Rate { p50, min: p50 - 1.0, max: p50 + 0.25 });
    let versus =
        Versus { route: "host->cuda->gpu0".into(), median: 1.0004, low: Some(0.9991), high: Some(1.0012), rounds: 30 };
    let none = Cell { rounds: 0, verified: false, ..cell("gpu0->cuda->host") };
    vec![
        Cell { gpu_gbps: rate(55.012), cpu_gbps: rate(54.9), ..cell("host->cuda->gpu0") },
        Cell { gpu_gbps: rate(55.03), cpu_gbps: rate(54.95), versus: Some(versus), ..cell("host->ce2->gpu0") },
        Cell { unavailable: Some("no CUDA here".into()), ..none.clone() },
        Cell { route: "gpu0->ce2->host".into(), failed: Some("the channel was killed by error 31".into()), ..none },
    ]
}

fn environment() -> Environment {
    let mut e = Environment::gather(Gpu::Soft, Clock::monotonic_raw().calibrated(), 1, Vec::new());
    (e.gpu, e.driver) = (Some("GPU of a test".into()), Some("580.1".into()));
    (e.pcie_generation, e.pcie_width) = (None, None);
    e
}

fn texts(functional: bool) -> (String, Value) {
    let (plan, environment, cells) = (plan(functional), environment(), cells());
    let b = Bandwidth { plan: &plan, environment: &environment, cells: &cells };
    let (mut table, mut json) = (Vec::new(), Vec::new());
    write(&mut table, &Style::default(), &b).unwrap();
    write_json(&mut json, &b).unwrap();
    (String::from_utf8(table).unwrap(), serde_json::from_slice(&json).unwrap())
}

#[test]
fn the_table() {
    insta::assert_snapshot!(texts(false).0);
}

#[test]
fn the_table_of_the_software_gpu_has_no_times() {
    let text = texts(true).0;
    assert!(text.contains("functional") && text.contains("right") && !text.contains("GB/s"), "{text}");
}

#[test]
fn the_json_has_every_figure() {
    let json = texts(false).1;
    assert_eq!((json["bench"].as_str(), json["plan"]["copies"].as_u64()), (Some("bandwidth"), Some(20)));
    assert_eq!(json["environment"]["gpu"].as_str(), Some("GPU of a test"));
    let cells = json["cells"].as_array().unwrap();
    assert_eq!(cells[1]["gpu_gbps"]["p50"].as_f64(), Some(55.03));
    assert_eq!(cells[1]["versus"]["route"].as_str(), Some("host->cuda->gpu0"));
    assert_eq!(cells[2]["unavailable"].as_str(), Some("no CUDA here"));
    assert!(cells[0]["versus"].is_null() && cells[0].get("failed").is_none());
}
