//! The lock experiments as people and programs read them.
#![cfg(target_arch = "x86_64")]

use environment::{Environment, Gpu};
use lock_bench::locks::{Cost, Figures, Missing, Pairs, Plan, Policy, Wait, Waits};
use measure::clock::Clock;
use serde_json::Value;
use terminal::locks_bench::{Locks, write, write_json};
use terminal::table::Style;

fn environment() -> Environment {
    Environment::gather(Gpu::Soft, Some(Clock::monotonic_raw().calibrated()), vec!["the machine was busy".into()])
        .seeded(7)
}

fn waits(policy: Policy, ms: &[u64], cap: u64, overtaken: u64) -> Waits {
    let wait = |ms: &u64| Wait { ns: ms * 1_000_000, capped: *ms >= cap, overtaken };
    Waits { policy, outcome: Ok(ms.iter().map(wait).collect()) }
}

fn starvation() -> Vec<Waits> {
    vec![
        waits(Policy::Stock, &[2010, 1200, 2003], 2000, 397),
        waits(Policy::PhaseFair, &[19, 12, 20], 2000, 0),
        Waits { policy: Policy::Guard, outcome: Err(Missing::Failed("error 35".into())) },
    ]
}

fn costs() -> Vec<Cost> {
    let figures = |p50_ns: f64, threads: u32| Figures {
        samples: 12_345,
        p50_ns,
        p99_ns: Some(p50_ns * 1.5),
        max_ns: p50_ns * 100.0,
        pairs_per_s: (threads > 1).then_some(1_234_567.0),
        added_ns: (p50_ns > 12.0).then_some(p50_ns - 11.8),
    };
    let cost = |pairs, policy, threads, p50| Cost { pairs, policy, threads, outcome: Ok(figures(p50, threads)) };
    vec![
        cost(Pairs::Mutex, Policy::Stock, 1, 11.8),
        cost(Pairs::Mutex, Policy::Ticket, 1, 23.4),
        cost(Pairs::Mutex, Policy::Stock, 4, 11.8),
        cost(Pairs::Mutex, Policy::Ticket, 4, 5000.0),
        Cost {
            pairs: Pairs::Mutex,
            policy: Policy::Pi,
            threads: 4,
            outcome: Err(Missing::Unavailable("not converted: Init".into())),
        },
    ]
}

fn text(r: &Locks<'_>) -> String {
    let mut out = Vec::new();
    write(&mut out, &Style::default(), r).unwrap();
    String::from_utf8(out).unwrap()
}

fn json(r: &Locks<'_>) -> Value {
    let mut out = Vec::new();
    write_json(&mut out, r).unwrap();
    serde_json::from_slice(&out).unwrap()
}

/// A row by its first words, with single blanks.
fn row(text: &str, begin: &str) -> String {
    let words = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    let found = text.lines().map(words).find(|line| line.starts_with(begin));
    found.unwrap_or_else(|| panic!("no row {begin:?} in\n{text}"))
}

#[test]
fn capped_waits_are_not_shown_as_times_of_the_lock() {
    let (plan, environment) = (Plan::default(), environment());
    let (starvation, costs) = (starvation(), costs());
    let inversion = Ok(vec![waits(Policy::Stock, &[305, 304], u64::MAX, 1), waits(Policy::Pi, &[5, 6], u64::MAX, 0)]);
    let r = Locks {
        plan: &plan,
        environment: &environment,
        libc: "glibc 2.36",
        starvation: Some(&starvation),
        reader_starvation: None,
        inversion: Some(&inversion),
        costs: Some(&costs),
    };
    let text = text(&r);
    assert!(text.contains("glibc 2.36\n") && text.contains("note: the machine was busy"), "{text}");
    assert!(text.contains("wait of a writer behind 4 overlapping readers, each inside for 20.0 ms"), "{text}");
    assert!(!text.contains("wait of a reader") && !text.contains('\x1b'), "{text}");
    assert_eq!(row(&text, "stock > 2"), "stock > 2.00 s > 2.01 s > 100.5 3 waits 397 glibc as it is");
    assert!(row(&text, "phase-fair").starts_with("phase-fair 19.0 ms 20.0 ms 1.0 3 waits 0 a phase-fair"));
    assert_eq!(row(&text, "failed"), "failed: guard: error 35");
    assert!(row(&text, "stock 304 ms").starts_with("stock 304 ms 305 ms 2 waits yes"));
    assert!(row(&text, "pi 5.00 ms").starts_with("pi 5.00 ms 6.00 ms 2 waits no"));
    assert!(row(&text, "ticket 23.4").starts_with("ticket 23.4 35.1 2340.0 12,345 +11.6"));
    assert!(row(&text, "ticket 5.00 us").ends_with("12,345 1,234,567"));
    assert_eq!(row(&text, "unavailable"), "unavailable: mutex, pi, 4 threads: not converted: Init");

    let v = json(&r);
    assert_eq!((v["bench"].as_str(), v["environment"]["facts"]["run.seed"].as_u64()), (Some("locks"), Some(7)));
    assert_eq!(v["starvation_ms"], serde_json::json!({"stock": 2010.0, "phase-fair": 20.0, "guard": null}));
    assert_eq!(v["inversion_ms"], serde_json::json!({"stock": 305.0, "pi": 6.0}));
    assert!(v["reader_starvation_ms"].is_null() && v["inversion_unavailable"].is_null());
    let stock = &v["starvation"]["stock"];
    assert_eq!((stock["capped"].as_bool(), stock["waits_capped"].as_u64()), (Some(true), Some(2)));
    assert_eq!(stock["every_ms"], serde_json::json!([2010.0, 1200.0, 2003.0]));
    assert_eq!(v["starvation"]["guard"]["failed"], "error 35");
    assert_eq!(v["costs"].as_array().unwrap().len(), 5);
    assert_eq!(v["costs"][1]["added_ns"].as_f64().map(|v| v.round()), Some(12.0));
    assert_eq!(v["costs"][4]["unavailable"], "not converted: Init");
}

#[test]
fn an_inversion_that_is_not_permitted_has_its_reason_and_no_figures() {
    let (plan, environment) = (Plan::default(), environment());
    let inversion = Err("SCHED_FIFO 30 was refused: Operation not permitted".to_string());
    let r = Locks {
        plan: &plan,
        environment: &environment,
        libc: "glibc 2.36",
        starvation: None,
        reader_starvation: None,
        inversion: Some(&inversion),
        costs: None,
    };
    assert!(text(&r).contains("unavailable: SCHED_FIFO 30 was refused: Operation not permitted\n"));
    let v = json(&r);
    assert!(v["inversion_ms"]["stock"].is_null() && v["inversion_ms"].get("pi").is_some());
    assert!(v["inversion_unavailable"].as_str().unwrap().contains("not permitted"));
    assert!(v["starvation_ms"].is_null() && v["costs"].as_array().unwrap().is_empty());
}
