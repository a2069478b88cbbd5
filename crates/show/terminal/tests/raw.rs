//! The raw study as people and programs read it.
#![cfg(target_arch = "x86_64")]

use environment::{Environment, Gpu};
use measure::clock::Clock;
use measure::raw::profiler::Reported;
use measure::raw::{Budget, Cell, Direction, Mode, Plan, WAYS};
use serde_json::Value;
use std::time::Duration;
use terminal::raw::{Raw, write, write_json};
use terminal::table::Style;

fn plan() -> Plan {
    Plan {
        sizes: vec![8, 32768],
        repeats: 20,
        seed: 42,
        copy_engine: 2,
        budget: Budget::REAL,
        timeout: Duration::from_secs(5),
    }
}

fn environment() -> Environment {
    let mut e = Environment::gather(Gpu::Soft, Some(Clock::new().calibrated()), Vec::new()).seeded(42);
    e.set("gpu.name", "NVIDIA H100 80GB HBM3");
    e.set("gpu.driver", "580.159.04");
    e.set("gpu.link_generation", 5u64);
    e.set("gpu.link_width", 16u64);
    e
}

/// 18.2 ns inline, 1.57 us by copy engine; at 32 KiB ten times as much, and no inline copy.
fn cells(functional: bool) -> Vec<Cell> {
    let cell = |bytes: u64, way: measure::raw::Way| {
        let none = way.mode == Mode::Inline && bytes > 32764;
        let ns = if way.mode == Mode::Inline { 18.2 } else { 1570.0 } * if bytes > 8 { 10.0 } else { 1.0 };
        let ns = (!functional && !none).then_some(ns);
        Cell {
            engine: if way.mode == Mode::Inline { "inline".into() } else { "ce2".into() },
            direction: way.direction,
            mode: way.mode,
            bytes,
            copies: 2048,
            repeats: if none { 0 } else { 20 },
            raw_p50_ns: ns,
            raw_min_ns: ns.map(|ns| ns * 0.9),
            raw_max_ns: ns.map(|ns| ns * 1.2),
            gbps: ns.map(|ns| bytes as f64 / ns),
            verified: !none,
            unavailable: none.then(|| "one header counts at most 32764 bytes of inline data".into()),
            failed: None,
        }
    };
    [8, 32768].into_iter().flat_map(|bytes| WAYS.map(|way| cell(bytes, way))).collect()
}

fn text(r: &Raw<'_>) -> String {
    let mut out = Vec::new();
    write(&mut out, &Style::default(), r).unwrap();
    String::from_utf8(out).unwrap()
}

fn json(r: &Raw<'_>) -> Value {
    let mut out = Vec::new();
    write_json(&mut out, r).unwrap();
    serde_json::from_slice(&out).unwrap()
}

#[test]
fn times_bandwidths_curves_and_the_profiler() {
    let (plan, environment, mut cells) = (plan(), environment(), cells(false));
    cells[9].failed = Some("wrong data: 1 of 32768 bytes differs".into());
    let reported = |direction, bytes, p50_ns| Reported {
        direction,
        bytes,
        samples: 100,
        p50_ns,
        min_ns: p50_ns - 100,
        max_ns: p50_ns + 900,
    };
    let rows = Ok(vec![reported(Direction::HostToDevice, 8, 1820), reported(Direction::DeviceToHost, 32768, 31_400)]);
    let r = Raw { plan: &plan, environment: &environment, functional: false, cells: &cells, profiler: Some(&rows) };
    insta::assert_snapshot!(text(&r));
    let json = json(&r);
    assert_eq!((json["bench"].as_str(), json["functional"].as_bool()), (Some("raw"), Some(false)));
    let cell = &json["cells"][0];
    assert_eq!(cell["engine"], "inline");
    assert_eq!((cell["direction"].as_str(), cell["mode"].as_str()), (Some("h2d"), Some("inline")));
    assert_eq!((cell["raw_p50_ns"].as_f64(), cell["copies"].as_u64()), (Some(18.2), Some(2048)));
    assert_eq!(cell["verified"], true);
    let row = &json["profiler"]["rows"][0];
    assert_eq!((row["profiler_p50_ns"].as_u64(), row["raw_inline_p50_ns"].as_f64()), (Some(1820), Some(18.2)));
    assert_eq!(row["beyond_inline_percent"], 99.0);
    assert_eq!(json["curves"].as_array().unwrap().len(), 5);
}

#[test]
fn the_software_gpu_has_no_times_anywhere() {
    let (plan, environment, cells) = (plan(), environment(), cells(true));
    let missing = Err("no libcupti: libcupti.so.13: cannot open shared object file".into());
    let r = Raw { plan: &plan, environment: &environment, functional: true, cells: &cells, profiler: Some(&missing) };
    let text = text(&r);
    assert!(text.contains("functional") && text.contains("right") && text.contains("unavailable: no libcupti"));
    assert!(!text.contains(" ns") && !text.contains(" us") && !text.contains("GB/s"), "{text}");
    let json = json(&r);
    assert_eq!(json["functional"], true);
    assert!(
        json["cells"].as_array().unwrap().iter().all(|cell| cell["raw_p50_ns"].is_null() && cell["gbps"].is_null())
    );
    assert_eq!(json["curves"].as_array().unwrap().len(), 0);
    assert!(json["profiler"]["unavailable"].as_str().unwrap().contains("libcupti"));
}
