//! Invented runs with any number of cells.

#![allow(dead_code, unused_imports, reason = "each test uses some of it")]

mod long;

pub use long::soak;

use experiment::{Arrival, Observe, What};
use html::Named;
use run_folder::commands::{CommandsOfRun, Moved, ToGpu, Typical, UsedChannel};
use run_folder::part::{Compared, Loaded, Tally};
use run_folder::run::{
    Cause, CellOfRun, Coordinate, Figure, Figures, PartOfRun, PerRound, Rate, RatioOfRun, Run, SCHEMA, StageOfRun,
    Used, WorstOfRun,
};
use run_folder::{Status, run};
use statistics::{Interval, Misses, Ratio, Summary};

/// 10 subjects at 25 sizes with 0, 1, 16 and 64 threads of load: 1,000 cells in 100 stages.
pub const THOUSAND: &str = r#"
name = "thousand"
about = "Which way for which size, alone and beside a crowd <of & threads>?"
[run]
rounds = 10
samples = 2000
[matrix]
crowd.count = [0, 1, 16, 64]
bytes = "4B..64MiB"
[[subject]]
name = "cuda"
route = "host->cuda->gpu0"
[[subject]]
route = "host->ce0->gpu0"
[[subject]]
route = "host->ce3->gpu0"
[[subject]]
route = "host->inline->gpu0"
[[subject]]
route = "host->bar1[flush]->gpu0"
[[subject]]
route = "gpu0->cuda->host"
[[subject]]
route = "gpu0->ce3->host"
[[subject]]
route = "gpu0->bar1->host"
[[subject]]
route = "gpu0->sm->host"
deadline = "100us"
[[subject]]
name = "<script>alert(1)</script> & \"co\""
call = "malloc"
[[load]]
name = "crowd"
route = "host->cuda->gpu0"
bytes = "4MiB"
[compare]
baseline = "cuda"
[[assert]]
subject = "cuda"
metric = "p50"
at-most = "1ms"
"#;

fn summary(median: u64) -> Summary {
    Summary {
        count: 20_000,
        min: median * 9 / 10,
        mean: median as f64 * 1.03,
        p50: median,
        p90: Some(median * 11 / 10),
        p99: Some(median * 14 / 10),
        p999: Some(median * 4),
        p9999: None,
        max: median * 30 + 7,
    }
}

fn figure(median: u64) -> Figure {
    let interval = |v: u64| Some(Interval { low: v as f64 * 0.99, high: v as f64 * 1.01 });
    Figure { summary: summary(median), p50_interval: interval(median), p999_interval: interval(median * 4) }
}

/// Deterministic, and different for each.
fn median(cell: u32, bytes: u64, threads: u64) -> u64 {
    let (fixed, per_byte) = match cell {
        0 | 5 => (5_700, 0.04),
        1 | 2 | 6 => (4_200 + u64::from(cell) * 20, 0.02),
        3 => (2_300, 0.1),
        4 | 7 => (1_200, 0.06),
        _ => (9_000, 0.03),
    };
    let beside = 1.0 + threads as f64 * if cell == 0 || cell == 5 { 0.9 } else { 0.01 };
    ((fixed as f64 + bytes as f64 * per_byte) * beside) as u64
}

fn worst(n: u64, median: u64) -> WorstOfRun {
    let causes = [Cause::Engine, Cause::CpuKeptAway, Cause::Submission, Cause::Unknown];
    let value = median * 30 + 7 - n * median / 8;
    WorstOfRun {
        repeat: 0,
        index: n * 97,
        round: (n % 10) as u32,
        at_ns: n * 9_700_000 % 900_000_000,
        value_ns: value,
        total_ns: value,
        submit_ns: 90,
        engine_ns: Some(value as i64 / 2),
        seen_ns: Some(value as i64 / 3),
        mostly: causes[(n % 4) as usize],
        ..WorstOfRun::default()
    }
}

/// An invented run of an experiment's text.
pub fn run(text: &str) -> Run {
    let experiment = experiment::read_stored(text, "made-up.toml").unwrap_or_else(|e| panic!("{e}\n{text}"));
    let stages = experiment.stages().unwrap_or_else(|e| panic!("{e}"));
    let functional = Run::is_functional(&experiment);
    let (mut of_run, mut cells, mut parts) = (Vec::new(), Vec::new(), Vec::new());
    for stage in &stages {
        let point: Vec<Coordinate> =
            stage.point.iter().map(|(n, v)| Coordinate { name: n.clone(), value: v.clone() }).collect();
        let threads: u64 = stage.loads.iter().map(|l| u64::from(l.count)).sum();
        let load = |l: &experiment::LoadSpec| Loaded {
            name: l.name.clone(),
            what: l.what.text().into(),
            threads: l.count,
            bytes: 1 << 30,
            transfers: 4_096,
            seconds: 1.0,
            longest_ns: 7_000_000,
            ..Loaded::default()
        };
        of_run.push(StageOfRun {
            number: stage.number,
            point: point.clone(),
            policy: stage.run.policy.clone(),
            seconds: 1.0,
            lasted: None,
            noise_floor_ns: Some(41_000),
            away: Some(0.001),
            loads: stage.loads.iter().map(load).collect(),
            used: Used::default(),
        });
        parts.push(PartOfRun {
            stage: stage.number,
            repeat: 0,
            began: format!("2026-11-22T18:{:02}:{:02}Z", stage.number / 60, stage.number % 60),
            seconds: 1.0,
            cpu: Some(1),
            class: "other".into(),
            throttled: 0,
            noise: Vec::new(),
            clock_error_ns: Some(40),
            counted: Vec::new(),
            notes: vec!["a note".into()],
            recorded: None,
        });
        for (number, cell) in (0u32..).zip(&stage.cells) {
            let s = &cell.subject;
            let median = median(number, cell.bytes, threads);
            let done = (!matches!(s.what, What::Call(_)) || cell.bytes == 0 || number != 3).then(|| figure(median));
            let ratio = (s.name != "cuda").then(|| RatioOfRun {
                baseline: "cuda".into(),
                metric: experiment::Metric::P50,
                bounded: None,
                ratio: Ratio { ratio: 0.5, interval: Some(Interval { low: 0.4, high: 0.6 }), rounds: 10 },
            });
            cells.push(CellOfRun {
                stage: stage.number,
                cell: number,
                point: point.clone(),
                subject: s.name.clone(),
                what: s.what.clone(),
                about: "made up".into(),
                bytes: cell.bytes,
                back_to_back: s.back_to_back,
                arrival: Arrival::Closed { depth: 1 },
                policy: stage.run.policy.clone(),
                status: Status::Measured,
                samples: 20_000,
                capped: 0,
                rounds: 10,
                checked: Compared { whole: 20, guards: true },
                observe: Observe::Done,
                figures: Figures { done, submit: Some(figure(90)), engine: None },
                per_round: PerRound {
                    repeat: vec![0; 10],
                    round: (0..10).collect(),
                    samples: vec![2_000; 10],
                    p50: (0..10).map(|n| median + n).collect(),
                    p99: vec![None; 10],
                    max: vec![median * 30; 10],
                    rested_ns: Vec::new(),
                },
                arrivals: None,
                lasted: None,
                misses: s.deadline_ns.map(|deadline_ns| Misses {
                    deadline_ns,
                    missed: 3,
                    of: 20_000,
                    longest_run: 2,
                    first: Some(17),
                    unmade: 0,
                }),
                rate: Some(Rate {
                    transfers_per_second: 1e9 / median as f64,
                    bytes_per_second: Some(cell.bytes as f64 * 1e9 / median as f64),
                    interval: None,
                }),
                ratio,
                places: None,
                worst: (0..100).map(|n| worst(n, median)).collect(),
                tally: Some(Tally { calls: 100, wall_ns: 700_000, on_cpu_ns: 650_000, ..Tally::default() }),
                metered: None,
                worst_counted: Vec::new(),
                commands: None,
                budget: None,
            });
        }
    }
    let environment = serde_json::json!({ "facts": {
        "host.name": "node1", "gpu.name": if functional { "software GPU" } else { "NVIDIA H200" }, "cpu.model": "Xeon",
        "kernel.release": "6.18",
    }, "unknown": { "gpu.mig": "nobody asked" }, "notes": [] });
    let asserts = experiment.asserts.clone();
    let made = Run {
        schema: SCHEMA.into(),
        doorbell: "0.1.0".into(),
        commit: Some("0123abc".into()),
        command: vec!["doorbell".into(), "bench".into(), "made-up.toml".into()],
        started: "2026-11-22T18:00:00Z".into(),
        ended: "2026-11-22T18:10:00Z".into(),
        complete: true,
        missing: Vec::new(),
        functional,
        experiment,
        environment,
        warnings: vec!["CPU 15 is not isolated <b>".into()],
        stages: of_run,
        cells,
        repaid: Vec::new(),
        largest: Vec::new(),
        scaling: Vec::new(),
        best: Vec::new(),
        asserts: Vec::new(),
        parts,
    };
    made.with_best().judged_by(&asserts)
}

/// As if its process had been recorded.
pub fn recorded(mut run: Run) -> Run {
    let each = |n: u64| Typical { min: n, median: n, max: n + 2, mean: n as f64 + 0.1 };
    let channel = |engine: &str, doorbells| UsedChannel {
        engine: engine.into(),
        gpfifo: "video".into(),
        userd: "video".into(),
        pushbuffer: "host".into(),
        semaphores: vec!["host".into()],
        doorbells,
        entries: doorbells,
        pushbuffer_bytes: doorbells * 60,
    };
    for cell in &mut run.cells {
        cell.commands = Some(CommandsOfRun {
            calls: 19_999,
            doorbells: each(1),
            entries: each(2),
            pushbuffer_bytes: each(60 + cell.bytes % 4096),
            inline_bytes: each(cell.bytes % 4096),
            locks: each(7),
            lock_wait_ns: each(0),
            until_doorbell_ns: each(1_900),
            executors: [("COPY2".into(), Moved { operations: each(1), bytes: each(cell.bytes) })].into(),
            methods: [("HOPPER_DMA_COPY_A".into(), each(9))].into(),
            channels: vec![channel("COPY2", 20_000)],
            to_gpu: ToGpu { doorbell: 4.0, gpfifo: 8.0, userd: 4.0, fetched: 60.0, ..ToGpu::default() },
            ..CommandsOfRun::default()
        });
    }
    run
}

/// A page of two runs whose samples were not compared.
pub fn two(a: Run, b: Run) -> html::Document {
    use comparison::{Cell, Comparison, Heading, Key, Limits, Request, compare};
    let request = Request { figures: vec![statistics::Figure::P50], limits: Limits::new(0.05, None) };
    let absent = || Cell::Absent("nobody measured it".into());
    let rows = a.cells.iter().flat_map(|cell| compare(&Key::of(cell), &absent(), &absent(), &request, |_| None));
    let comparison = Comparison::of(rows.collect(), request.limits);
    html::of_two(&named(a), &named(b), &Heading::default(), &comparison).expect("no samples are read")
}

pub fn named(run: run::Run) -> Named {
    Named { name: run.experiment.name.clone(), run, folder: None }
}
