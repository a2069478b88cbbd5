//! The text of `bench contention` where times are shown, and what JSON says of the same.

use environment::{Environment, Gpu};
use lab::clock::Clock;
use lock_lab::contention::{Cell, Comparison, Loaded, Outcome, Parts, Series, Slow, Times};
use placement::Class;
use report::contention::{Contention, Policy, line, write, write_json};
use report::table::Style;
use serde_json::Value;

/// Of each time as many as said.
fn times(buckets: &[(u64, u64)]) -> Times {
    Times {
        buckets: buckets.to_vec(),
        count: buckets.iter().map(|b| b.1).sum(),
        sum: buckets.iter().map(|b| b.0 * b.1).sum(),
        min: buckets.first().map_or(0, |b| b.0),
        max: buckets.last().map_or(0, |b| b.0),
    }
}

fn series(name: &str, own: bool, call: &[(u64, u64)]) -> Series {
    let call = times(call);
    let parts = Parts {
        calls: 9,
        wall_ns: 1_000,
        on_cpu_ns: 250,
        run_queue_ns: 50,
        asleep_ns: 700,
        slept: 3,
        ..Parts::default()
    };
    let slow = Slow {
        at_ns: 1_500_000_000,
        call_ns: call.max,
        done_ns: call.max + 7_000,
        asleep_ns: Some(call.max - 9),
        run_queue_ns: Some(0),
        on_cpu_ns: Some(9),
        longest_gap_ns: None,
        capped: false,
    };
    Series {
        name: name.into(),
        about: String::new(),
        own,
        unavailable: None,
        failed: None,
        done: call.clone(),
        call,
        parts: (!own).then_some(parts),
        done_parts: (!own).then_some(parts),
        slowest: vec![slow],
        slowest_done: vec![slow],
    }
}

fn outcome(cell: Cell, launch: &[(u64, u64)]) -> Outcome {
    let load = Loaded {
        what: "host->cuda->gpu0".into(),
        threads: 64,
        bytes: 4 << 20,
        transfers: 26_000,
        seconds: 2.0,
        on_cpu: 14.5,
        waiting: 3.25,
        right: 64,
        failed: Vec::new(),
    };
    Outcome {
        cell,
        seconds: 2.0,
        cpu: Some(15),
        class: Some(Class::Fifo { priority: 80 }),
        throttled: 0,
        moved: 2,
        notes: vec!["a note".into()],
        series: vec![series("launch", false, launch), series("host->ce3->gpu0 4 KiB", true, &[(5_000, 2_000)])],
        load: if cell == Cell::Alone { Vec::new() } else { vec![load] },
    }
}

const SETUP: Cell = Cell::Setup { copies: None, launches: 32 };

fn with(functional: bool, f: impl FnOnce(&Contention<'_>)) {
    let environment = Environment::gather(Gpu::Soft, Clock::monotonic_raw().calibrated(), 1, Vec::new());
    let mut comparison = Comparison::default();
    for _ in 0..2 {
        comparison.add("stock", outcome(Cell::Alone, &[(4_000, 900_000), (40_000, 100)]));
        comparison.add("stock", outcome(Cell::WORST, &[(6_000, 3_000), (32_000_000, 40)]));
        comparison.add("ticket", outcome(Cell::WORST, &[(7_000, 3_000), (2_000_000, 40)]));
        comparison.add("boost", outcome(Cell::WORST, &[(6_000, 3_000), (32_000_000, 40)]));
        let mut starved = outcome(SETUP, &[(1_600_000_000, 1)]);
        starved.series[0].slowest[0].capped = true;
        comparison.add("stock", starved);
        comparison.add("ticket", outcome(SETUP, &[(300_000, 1_000), (1_000_000, 1)]));
    }
    let policy = |name: &str| Policy { name: name.into(), how: "how".into(), missing: None, report: Vec::new() };
    let mut policies = vec![policy("stock"), policy("ticket"), policy("boost"), policy("guard")];
    policies[1].report = vec!["5 locks under ticket".into()];
    policies[3].missing = Some("no such policy".into());
    let cells = [Cell::Alone, Cell::WORST, SETUP];
    f(&Contention {
        environment: &environment,
        functional,
        policies: &policies,
        cells: &cells,
        comparison: &comparison,
        seconds: 4.0,
        rounds: 2,
        partial: false,
    });
}

fn text(functional: bool) -> String {
    let mut out = Vec::new();
    with(functional, |run| write(&mut out, &Style::default(), run).unwrap());
    String::from_utf8(out).unwrap()
}

#[test]
fn the_text_says_which_policy_helps_and_where_the_time_went() {
    let text = text(false);
    let has = |what: &str| assert!(text.contains(what), "{what:?} is not in:\n{text}");
    has("measuring thread: SCHED_FIFO 80\n");
    has("ticket, launch, p99.9: helps in 1 cell: copy=64x4MiB 32.0 ms to 2.00 ms, 16.0 times less\n");
    has("ticket, launch + wait, max: helps in 1 cell: copy=64x4MiB 32.0 ms to 2.00 ms, 16.0 times less\n");
    has("boost, launch, p99.9: no difference in 1 cell\n");
    has("ticket, launch, max: helps in 1 cell: setup+launch=32 over 1.60 s to 1.00 ms, 1600.0 times less\n");
    let row = text.lines().find(|l| l.starts_with("setup+launch=32 ") && l.contains("  stock ")).unwrap();
    assert!(row.contains("over 1.60 s"), "{row}");
    has("unavailable: guard (how): no such policy\n");
    has("ticket: 5 locks under ticket\n");
    has("launch, alone, stock: 1,800,200 calls; 99.9889 % within 30 us");
    let row = text.lines().find(|l| l.starts_with("copy=64x4MiB ") && l.contains("  stock ")).unwrap();
    let cells: Vec<&str> = row.split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
    assert_eq!(
        cells[2..],
        ["launch", "6,080", "6.00 us", "32.0 ms", "32.0 ms", "32.0 ms", "70.0 %", "5.0 %", "25.0 %"],
        "{row}"
    );
    let beside = text.lines().find(|l| l.contains("host->cuda->gpu0 4 MiB")).unwrap();
    for figure in ["64", "13,000", "54.53", "14.500", "3.250"] {
        assert!(beside.split_whitespace().any(|c| c == figure), "{figure}: {beside}");
    }
    let slowest = text.lines().find(|l| l.contains("launch + wait") && l.ends_with("1.50 s")).unwrap();
    assert!(slowest.contains("40.0 us") || slowest.contains("47.0 us"), "{slowest}");
}

#[test]
fn on_the_software_gpu_no_time_is_shown() {
    let text = text(true);
    for wrong in ["p50", "p99", " us", " ms", "GB/s", "helps"] {
        assert!(!text.contains(wrong), "{wrong} in:\n{text}");
    }
    assert!(text.contains("6,080"), "{text}");
}

#[test]
fn json_has_every_round_and_the_whole_histogram() {
    let mut out = Vec::new();
    with(false, |run| write_json(&mut out, run).unwrap());
    let v: Value = serde_json::from_slice(&out).unwrap();
    assert_eq!(v["cells"].as_array().unwrap().len(), 6);
    let stock = &v["cells"][1];
    assert_eq!((stock["cell"].as_str(), stock["policy"].as_str()), (Some("copy=64x4MiB"), Some("stock")));
    let launch = &stock["series"][0];
    assert_eq!((launch["call"]["p50_ns"].as_u64(), launch["call"]["max_ns"].as_u64()), (Some(6_000), Some(32_000_000)));
    assert_eq!(launch["call"]["histogram"], serde_json::json!([[6_000, 6_000], [32_000_000, 80]]));
    assert_eq!(
        (launch["call_rounds"].as_array().unwrap().len(), launch["call_parts"]["asleep_ns"].as_u64()),
        (2, Some(1_400))
    );
    assert_eq!(stock["class"]["policy"], "fifo");
    let against = v["against_stock"].as_array().unwrap();
    let ticket = against.iter().find(|a| a["policy"] == "ticket" && a["what"] == "call").unwrap();
    assert_eq!((ticket["effect"].as_str(), ticket["factor"].as_f64()), (Some("helps"), Some(16.0)));
}

#[test]
fn a_cell_is_one_line_as_it_ends() {
    let text = line("ticket", &outcome(Cell::WORST, &[(7_000, 10)]));
    assert_eq!(
        text,
        "ticket, copy=64x4MiB, 2.00 s: launch p50 7.00 us, max 7.00 us and done 7.00 us; host->ce3->gpu0 4 KiB p50 5.00 us, max 5.00 us"
    );
    let mut starved = outcome(SETUP, &[(1_600_000_000, 1)]);
    starved.series[0].slowest[0].capped = true;
    let text = line("stock", &starved);
    assert!(text.contains("max over 1.60 s and done 1.60 s"), "{text}");
}
