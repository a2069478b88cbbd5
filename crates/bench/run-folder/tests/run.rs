//! `run.json`: the summary of the parts and samples of a folder, computed again here by simpler means.

mod made;

use experiment::Observe;
use made::{part, read, sample};
use run_folder::part::{LinkBy, LinkCount, Metered, StuckBetween};
use run_folder::run::{After, Cause, Missing, SCHEMA, Used, Verdict};
use run_folder::{Context, Error, Explained, Folder, Interrupted, Loaded, Noise, Part, Run, Sample, Status, Tally};
use serde_json::{Value, json};
use std::collections::HashMap;

const ROUNDS: u32 = 8;

fn text(more: &str) -> experiment::Experiment {
    read(&format!(
        r#"
name = "made-up"
[run]
rounds = {ROUNDS}
repeats = 2
samples = 1600
{more}
[[subject]]
name = "base"
route = "host->cuda->gpu0"
sizes = "8,4096"
[[subject]]
name = "fast"
route = "host->bar1->gpu0"
sizes = "8"
deadline = "3us"
"#
    ))
}

/// Rounds of so many samples, of 1,000 ns multiplied by `times`, where each twentieth takes twice as long; the host is slow in every third round.
fn cell(repeat: u32, times: f64, each: u64, seed: u64) -> Vec<Sample> {
    let mut random = fastrand::Rng::with_seed(seed * 31 + u64::from(repeat));
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        let slow = if (round + repeat).is_multiple_of(3) { 1.5 } else { 1.0 };
        for i in 0..each {
            let at = u64::from(round) * 1_000_000_000 + i * 10_000;
            let spike = if random.u32(0..20) == 0 { 2.0 } else { 1.0 };
            let ns = 1000.0 * times * slow * spike * (1.0 + 0.05 * random.f64());
            all.push(sample(round, at, ns as u64));
        }
    }
    all
}

fn three(repeat: u32) -> [Vec<Sample>; 3] {
    [cell(repeat, 2.0, 200, 1), cell(repeat, 4.0, 200, 2), cell(repeat, 1.0, 200, 3)]
}

fn folder(experiment: &experiment::Experiment, parts: &[(Part, [Vec<Sample>; 3])]) -> (tempfile::TempDir, Folder) {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), experiment, false).unwrap();
    for (part, cells) in parts {
        folder.write_part(part, cells).unwrap();
    }
    (dir, folder)
}

fn context() -> Context {
    Context {
        commit: Some("0123abc".into()),
        command: vec!["doorbell".into(), "bench".into()],
        started: "2026-11-22T18:00:30Z".into(),
        ended: "2026-11-22T18:01:00Z".into(),
        environment: json!({ "cpu": "made up" }),
        ..Context::default()
    }
}

fn both(experiment: &experiment::Experiment) -> (tempfile::TempDir, Folder) {
    in_processes(2, experiment)
}

fn in_processes(count: u32, experiment: &experiment::Experiment) -> (tempfile::TempDir, Folder) {
    let of = |repeat| {
        let cells = three(repeat);
        (part(0, repeat, &cells), cells)
    };
    folder(experiment, &(0..count).map(of).collect::<Vec<_>>())
}

/// By sorting plain values.
fn rank(values: &[u64], part: f64) -> u64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    sorted[((part * sorted.len() as f64).ceil() as usize).max(1) - 1]
}

#[test]
fn figures_are_those_of_all_samples_of_all_repeats() {
    let (_dir, folder) = both(&text(""));
    let run = Run::from_folder(&folder, context()).unwrap();
    assert!(run.complete && run.missing.is_empty() && !run.functional);
    assert_eq!(run.started, "2026-11-22T18:00:00Z", "by the earliest part");
    assert_eq!((run.cells.len(), run.parts.len(), run.stages.len()), (3, 2, 1));
    for (number, cell) in run.cells.iter().enumerate() {
        let samples: Vec<Sample> = (0..2).flat_map(|r| three(r)[number].clone()).collect();
        let done: Vec<u64> = samples.iter().map(Sample::done).collect();
        let f = cell.figures.done.as_ref().unwrap();
        assert_eq!((cell.samples, cell.rounds, f.summary.count), (3200, 16, 3200));
        assert_eq!(f.summary.p50, rank(&done, 0.5));
        assert_eq!(f.summary.p99, Some(rank(&done, 0.99)));
        assert_eq!((f.summary.p999, f.p999_interval.is_none()), (None, true), "3,200 samples are too few");
        assert_eq!(f.summary.max, *done.iter().max().unwrap());
        assert!(f.p50_interval.is_none(), "two processes do not show how far processes differ");
        let submit: Vec<u64> = samples.iter().map(Sample::submit).collect();
        assert_eq!(cell.figures.submit.as_ref().unwrap().summary.p50, rank(&submit, 0.5));
        let engine: Vec<u64> = samples.iter().filter_map(Sample::engine).collect();
        assert_eq!(cell.figures.engine.as_ref().unwrap().summary.max, *engine.iter().max().unwrap());
        let third = &samples[1600 + 2 * 200..][..200];
        let third: Vec<u64> = third.iter().map(Sample::done).collect();
        let p = &cell.per_round;
        assert_eq!((p.repeat[10], p.round[10], p.samples[10]), (1, 2, 200));
        assert_eq!((p.p50[10], p.max[10], p.p99[10]), (rank(&third, 0.5), rank(&third, 1.0), None));
        let mean = done.iter().sum::<u64>() as f64 / 3200.0;
        let rate = cell.rate.as_ref().unwrap();
        assert!((rate.transfers_per_second / (1e9 / mean) - 1.0).abs() < 1e-9);
        assert!((rate.bytes_per_second.unwrap() / rate.transfers_per_second - cell.bytes as f64).abs() < 1e-6);
        assert!(rate.interval.is_none());
    }
    let fast = &run.cells[2];
    let done: Vec<u64> = (0..2).flat_map(|r| three(r)[2].clone()).map(|s| s.done()).collect();
    let misses = fast.misses.unwrap();
    assert_eq!((misses.missed, misses.of), (done.iter().filter(|ns| **ns > 3000).count() as u64, 3200));
    assert!(run.cells[0].misses.is_none());
}

#[test]
fn the_worst_have_their_place_and_their_known_times() {
    let mut parts = [0, 1].map(|repeat| {
        let cells = three(repeat);
        (part(0, repeat, &cells), cells)
    });
    // 100 us, in the second repeat, while the CPU was away.
    let planted = &mut parts[1].1[0][977];
    planted.done_ns += 100_000;
    let (at, total) = (planted.release_ns, planted.done());
    parts[1].0.cells[0].worst =
        vec![Explained { index: 977, round: 4, longest_gap_ns: Some(99_000), ..Explained::default() }];
    // A sample with a late engine, in the first repeat. The missing polls in that time are not the reason.
    let late = &mut parts[0].1[0][5];
    late.ended_ns += 50_000;
    late.done_ns += 50_000;
    parts[0].0.cells[0].worst = vec![Explained { index: 5, longest_gap_ns: Some(40_000), ..Explained::default() }];
    // A sample that ended long before its call returned.
    let call = &mut parts[0].1[0][8];
    call.submitted_ns += 20_000;
    (call.started_ns, call.ended_ns, call.done_ns) = (call.call_ns + 5, call.call_ns + 10, call.submitted_ns + 90);
    // And one that was seen late though the CPU polled.
    parts[0].1[0][6].done_ns += 30_000;
    let (_dir, folder) = folder(&text(""), &parts);
    let worst = Run::from_folder(&folder, context()).unwrap().cells[0].worst.clone();
    assert_eq!(worst.len(), 100);
    let first = &worst[0];
    assert_eq!((first.repeat, first.index, first.round), (1, 977, 4));
    assert_eq!((first.at_ns, first.total_ns, first.longest_gap_ns), (at, total, Some(99_000)));
    assert_eq!(first.mostly, Cause::CpuKeptAway);
    assert_eq!((worst[1].repeat, worst[1].index, worst[1].mostly), (0, 5, Cause::Engine));
    assert_eq!((worst[2].repeat, worst[2].index, worst[2].mostly), (0, 6, Cause::Seeing));
    assert_eq!((worst[3].repeat, worst[3].index, worst[3].mostly), (0, 8, Cause::Submission));
    assert!(worst[3].engine_ns < Some(-10_000) && worst[3].seen_ns > Some(worst[3].submit_ns as i64));
    assert!(worst.windows(2).all(|w| w[0].value_ns >= w[1].value_ns));
    assert!(worst.iter().all(|w| w.value_ns == w.total_ns));
    let row = folder.samples(0, 1).unwrap()[0][977];
    assert_eq!(row.done(), total, "the index is the row in the file");
}

#[test]
fn waiting_samples_are_distinguished_from_slow_ones() {
    let mut experiment = text("");
    experiment.subjects[0].arrival = experiment::Arrival::Paced { period_ns: 10_000 };
    let mut cells = three(0);
    for (k, s) in cells[0][100..110].iter_mut().enumerate() {
        // A stall of 100 us: later ones are called late.
        let late = 100_000 - 10_000 * k as u64;
        for ns in [&mut s.call_ns, &mut s.submitted_ns, &mut s.started_ns, &mut s.ended_ns, &mut s.done_ns] {
            *ns += late;
        }
    }
    let (_dir, folder) = folder(&experiment, &[(part(0, 0, &cells), cells)]);
    let run = Run::from_folder(&folder, context()).unwrap();
    let worst = &run.cells[0].worst;
    assert!(worst[..5].iter().all(|w| w.mostly == Cause::Queue && w.queued_ns >= 60_000));
    assert!(worst[0].total_ns > 100_000 && run.cells[0].figures.submit.as_ref().unwrap().summary.max < 10_000);
}

#[test]
fn ratios_are_paired_by_round_and_stay_within_a_size() {
    let compare = "\n[compare]\nbaseline = \"base\"\nmetric = \"p50\"\n";
    let mut experiment = text("");
    experiment.run.repeats = 4;
    experiment.compare = read(&format!("{}{compare}", experiment.to_toml())).compare;
    let (_dir, folder) = in_processes(4, &experiment);
    let run = Run::from_folder(&folder, context()).unwrap();
    let ratio = run.cells[2].ratio.as_ref().unwrap();
    assert_eq!((ratio.baseline.as_str(), ratio.ratio.rounds), ("base", 32));
    assert!((ratio.ratio.ratio - 0.5).abs() < 0.01, "{ratio:?}");
    let i = ratio.ratio.interval.unwrap();
    assert!(i.holds(0.5) && i.high - i.low < 0.02, "the host's speed does not count: {i:?}");
    assert!(run.cells[0].ratio.is_none() && run.cells[1].ratio.is_none());
    // The baseline is compared with another subject, which has no baseline.
    experiment.subjects[0].baseline = Some("fast".into());
    experiment.subjects[1].baseline = Some("fast".into());
    let (_dir, folder) = in_processes(4, &experiment);
    let run = Run::from_folder(&folder, context()).unwrap();
    validate(&run);
    let ratio = run.cells[0].ratio.as_ref().unwrap();
    assert_eq!(ratio.baseline, "fast");
    assert!((ratio.ratio.ratio - 2.0).abs() < 0.04, "{ratio:?}");
    assert!(run.cells[1].ratio.is_none() && run.cells[2].ratio.is_none());
    experiment.subjects.iter_mut().for_each(|s| s.baseline = None);
    experiment.compare.as_mut().unwrap().metric = experiment::Metric::Rate;
    let (_dir, folder) = in_processes(4, &experiment);
    let run = Run::from_folder(&folder, context()).unwrap();
    assert!((run.cells[2].ratio.as_ref().unwrap().ratio.ratio - 2.0).abs() < 0.1, "twice as many a second");
}

#[test]
fn policies_are_compared_between_otherwise_equal_stages() {
    let experiment = read(&format!(
        "{}\n[compare]\nbaseline = \"stock\"\n[matrix]\npolicy = [\"stock\", \"agent\"]\n\"base.arrival\" = [\"closed(1)\", \"closed(2)\"]\n",
        text("").to_toml()
    ));
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), &experiment, false).unwrap();
    for stage in folder.stages() {
        // The agent makes everything a quarter slower, depth 2 twice as slow.
        let slower = if stage.run.policy == "agent" { 1.25 } else { 1.0 };
        let deep = if stage.point.iter().any(|(_, v)| v == "closed(2)") { 2.0 } else { 1.0 };
        for repeat in 0..2 {
            let cells = [2.0, 4.0, 1.0].map(|t| cell(repeat, t * slower * deep, 200, u64::from(stage.number)));
            folder.write_part(&part(stage.number, repeat, &cells), &cells).unwrap();
        }
    }
    let run = Run::from_folder(&folder, context()).unwrap();
    assert_eq!(run.cells.len(), 12);
    for cell in &run.cells {
        let ratio = cell.ratio.as_ref().map(|r| r.ratio.ratio);
        match cell.policy.as_str() {
            "stock" => assert_eq!(ratio, None),
            _ => assert!(ratio.is_some_and(|r| (r - 1.25).abs() < 0.03), "{ratio:?}"),
        }
    }
}

#[test]
fn rounds_with_counters_count_for_the_tally_only() {
    let experiment = text("counters-every = 4");
    let parts = [0, 1].map(|repeat| {
        let mut cells = three(repeat);
        cells[0].iter_mut().filter(|s| s.round % 4 == 3).for_each(|s| s.done_ns += 1_000_000);
        let mut part = part(0, repeat, &cells);
        part.cells[0].counted = Some(Tally { calls: 400, slept: 7, wall_ns: 1000, ..Tally::default() });
        let asleep = |index| Explained { index, asleep_ns: Some(900_000), on_cpu_ns: Some(3), ..Explained::default() };
        part.cells[0].worst = (600..800).map(asleep).collect();
        (part, cells)
    });
    let (_dir, folder) = folder(&experiment, &parts);
    let run = Run::from_folder(&folder, context()).unwrap();
    let cell = &run.cells[0];
    assert_eq!((cell.samples, cell.rounds), (2400, 12));
    assert!(cell.figures.done.as_ref().unwrap().summary.max < 100_000);
    assert_eq!(cell.tally.map(|t| (t.calls, t.slept)), Some((800, 14)));
    assert!(!cell.per_round.round.contains(&3) && !cell.per_round.round.contains(&7));
    assert!(run.cells[1].worst_counted.len() == 100 && cell.worst_counted.len() == 100);
    assert!(cell.worst_counted.iter().all(|w| w.value_ns > 1_000_000 && w.round % 4 == 3));
    let asleep = cell.worst_counted.iter().filter(|w| w.mostly == Cause::Asleep).count();
    let explained = cell.worst_counted.iter().filter(|w| (600..800).contains(&w.index)).count();
    assert!(asleep == explained && asleep > 10, "{asleep}");
    // Samples after such a round keep their row.
    let w = &cell.worst[0];
    assert_eq!(folder.samples(0, w.repeat).unwrap()[0][w.index as usize].done(), w.total_ns);
}

#[test]
fn counts_of_metered_cells_are_summed_over_repeats() {
    let counted = |to_gpu: f64| {
        let all = [("pcie_to_gpu_bytes", to_gpu), ("pcie_from_gpu_bytes", 50.0), ("energy_mj", 2000.0)];
        all.map(|(name, value)| (name.to_owned(), value)).to_vec()
    };
    let parts = [0, 1].map(|repeat| {
        let cells = three(repeat);
        let mut part = part(0, repeat, &cells);
        let metered =
            Metered { seconds: 1.25, transfers: 100, loads: Vec::new(), counted: counted(1e6), link_count: None };
        let late = "the counter of the link has 32 bits, and two readings were 70 ms apart";
        let counted_by = |by, why: Option<&str>| Some(LinkCount { by, looks: 27, why: why.map(str::to_string) });
        let first = if repeat == 0 {
            counted_by(Some(LinkBy::Counters), None)
        } else {
            counted_by(Some(LinkBy::Rates), Some(late))
        };
        part.cells[0].metered = Some(Metered { link_count: first, ..metered.clone() });
        // Too short for the energy.
        let by_counters = counted_by(Some(LinkBy::Counters), None);
        part.cells[2].metered = Some(Metered { seconds: 0.25, link_count: by_counters, ..metered.clone() });
        // One repeat lacks the value, so a sum would be incomplete.
        part.cells[1].metered = Some(Metered {
            counted: if repeat == 0 { counted(1.0) } else { Vec::new() },
            link_count: counted_by(None, Some("no NVML here")),
            ..metered
        });
        (part, cells)
    });
    let (_dir, folder) = folder(&text(""), &parts);
    let run = Run::from_folder(&folder, context()).unwrap();
    let metered = run.cells[0].metered.clone().unwrap();
    assert_eq!((metered.seconds, metered.transfers, metered.used.energy_j), (2.5, 200, Some(4.0)));
    let link = metered.used.link.unwrap();
    assert_eq!(link.to_gpu.payload_bytes, 200.0 * run.cells[0].bytes as f64);
    assert_eq!(
        (link.to_gpu.counted_bytes, link.from_gpu.counted_bytes, link.from_gpu.payload_bytes),
        (2e6, 100.0, 0.0)
    );
    assert_eq!(run.cells[1].metered.as_ref().map(|m| (m.transfers, m.used)), Some((200, Used::default())));
    let link = |n: usize| run.cells[n].metered.as_ref().and_then(|m| m.link_count.clone()).unwrap();
    let late = "the counter of the link has 32 bits, and two readings were 70 ms apart";
    assert_eq!(link(0), LinkCount { by: Some(LinkBy::Rates), looks: 54, why: Some(late.into()) });
    assert_eq!(link(1), LinkCount { by: None, looks: 54, why: Some("no NVML here".into()) });
    assert_eq!(link(2), LinkCount { by: Some(LinkBy::Counters), looks: 54, why: None });
    assert!(run.cells[2].metered.as_ref().is_some_and(|m| m.used.energy_j.is_none() && m.used.link.is_some()));
    validate(&run);
}

#[test]
fn missing_unavailable_or_failed_cells_are_reported() {
    let mut one = three(0);
    one[1].clear();
    let mut part = part(0, 0, &one);
    part.cells[1].status = Status::Unavailable("no BAR1 on this GPU".into());
    part.cells[2].status = Status::Failed("byte 7 is wrong".into());
    part.cells[0].stuck_between = Some(StuckBetween { times: 2, longest_ns: 1_250_000_000 });
    let asserts =
        "[[assert]]\nsubject = \"base\"\nat-most = \"1s\"\n[[assert]]\nsubject = \"fast\"\nat-most = \"1s\"\n";
    let (_dir, folder) = folder(&read(&format!("{}\n{asserts}", text("").to_toml())), &[(part, one)]);
    let failed = HashMap::from([((0, 1), "its process died: signal 9".to_owned())]);
    let run = Run::from_folder(&folder, Context { failed, ..context() }).unwrap();
    let missing = Missing { stage: 0, repeat: 1, why: "its process died: signal 9".into() };
    assert_eq!((run.complete, run.missing), (false, vec![missing]));
    let status: Vec<_> = run.cells.iter().map(|c| c.status.clone()).collect();
    assert_eq!(status[0], Status::Measured);
    assert_eq!(status[1], Status::Unavailable("no BAR1 on this GPU".into()));
    assert_eq!(status[2], Status::Failed("byte 7 is wrong".into()));
    assert!(run.cells[1].figures.done.is_none() && run.cells[1].worst.is_empty());
    assert_eq!(run.cells[0].samples, 1600);
    let stuck: Vec<_> = run.warnings.iter().filter(|w| w.contains("only when the loads rested")).collect();
    assert!(
        stuck.len() == 1 && stuck[0].contains("2 times") && stuck[0].contains("1250 ms: base in stage 0"),
        "{stuck:?}"
    );
    // A missing cell breaks no assert about it, but an assert only about missing cells has not held.
    let of_asserts: Vec<_> = run.asserts.iter().map(|a| (a.verdict, a.cells.len())).collect();
    assert_eq!(of_asserts, [(Verdict::Held, 1), (Verdict::NotJudged, 1)]);
    let nothing = Folder::create(&folder.path().with_file_name("none"), &text(""), false).unwrap();
    let interrupted = Some(Interrupted { at: Some((0, 0)) });
    let run = Run::from_folder(&nothing, Context { interrupted, ..context() }).unwrap();
    let why: Vec<&str> = run.missing.iter().map(|m| m.why.as_str()).collect();
    assert_eq!(why, ["the run was stopped while it was measured", "the run was stopped before it"]);
    let why = Status::Unavailable("the run was stopped while its stage was measured".into());
    assert_eq!(run.cells[0].status, why);
    assert!(run.stages[0].seconds.is_sign_positive());
    validate(&run);
    assert_eq!(run.summed_up_again(&nothing).unwrap(), run);
    let failed = HashMap::from([((0, 1), "its process died: signal 9".to_owned())]);
    let run = Run::from_folder(&nothing, Context { failed, ..context() }).unwrap();
    assert!(run.cells.iter().all(|c| c.status == Status::Failed("its process died: signal 9".into())));
    assert_eq!(run.summed_up_again(&nothing).unwrap(), run);
}

#[test]
fn asserts_are_judged_and_one_without_data_fails() {
    let asserts = r#"
[[assert]]
subject = "base"
metric = "p50"
at-most = "10us"
[[assert]]
metric = "p50"
at-most = "3us"
[[assert]]
subject = "fast"
metric = "p50"
at-most-times = "0.6 base"
[[assert]]
subject = "fast"
metric = "p99.9"
at-most = "1s"
[[assert]]
subject = "fast"
metric = "misses"
at-most = "0.1%"
[[assert]]
subject = "fast"
metric = "rate"
at-least = "1MB/s"
[[assert]]
subject = "fast"
metric = "max"
above-noise = "1us"
"#;
    let experiment = read(&format!("{}{asserts}", text("").to_toml()));
    let noise = Noise { readings: 10, max_ns: 20_000, ..Noise::default() };
    let parts = [0, 1].map(|repeat| {
        let cells = three(repeat);
        let mut part = part(0, repeat, &cells);
        part.noise = vec![Noise { max_ns: 5, ..noise }, noise];
        (part, cells)
    });
    let (_dir, folder) = folder(&experiment, &parts);
    let run = Run::from_folder(&folder, context()).unwrap();
    use Verdict::{Broken, Held, NotJudged};
    let verdicts: Vec<_> = run.asserts.iter().map(|a| a.verdict).collect();
    assert_eq!(verdicts, [Held, Broken, Held, NotJudged, Broken, Held, Held]);
    let of_all: Vec<_> = run.asserts[1].cells.iter().map(|c| c.verdict).collect();
    assert_eq!(of_all, [Held, Broken, Held], "8 bytes and 4096 bytes of base, fast");
    assert!(run.asserts[3].cells[0].why.as_ref().unwrap().contains("needs 10000 samples, and there are 3200"));
    assert_eq!(run.asserts[6].cells[0].bound, Some(21_000.0));
    assert!(!run.asserts_held());
    validate(&run);
}

#[test]
fn a_functional_run_reports_no_times() {
    let experiment = read(&format!("{}\n[[assert]]\nat-most = \"1ns\"\n", text("gpu = \"soft\"").to_toml()));
    let (_dir, folder) = both(&experiment);
    let run = Run::from_folder(&folder, context()).unwrap();
    assert!(run.functional && run.asserts_held());
    assert_eq!(run.asserts[0].verdict, Verdict::NotJudged);
}

#[test]
fn cpu_pressure_is_that_of_the_measured_time() {
    let pressure = |counted: [&[(&str, f64)]; 2]| {
        let parts = [0, 1].map(|repeat| {
            let cells = three(repeat);
            let mut part = part(0, repeat, &cells);
            part.counted = counted[repeat as usize].iter().map(|(name, value)| ((*name).into(), *value)).collect();
            (part, cells)
        });
        let (_dir, folder) = folder(&text(""), &parts);
        // A compile job ended before the run.
        let before = Context { environment: json!({ "facts": { "cpu.pressure": 95.0 } }), ..context() };
        let run = Run::from_folder(&folder, before).unwrap();
        validate(&run);
        assert_eq!(run.pressure(), run.pressure_of(&[0]));
        assert_eq!(run.pressure_of(&[1]), None, "there is no such stage");
        run.pressure()
    };
    let of = |waited: f64, wall: f64| [("wall_ms", wall), ("cpu_pressure_ms", waited)];
    assert_eq!(pressure([&of(0.0, 100.0), &of(0.0, 300.0)]), Some(0.0));
    assert_eq!(pressure([&of(100.0, 100.0), &of(0.0, 300.0)]), Some(0.25));
    // A part of an older doorbell, or a kernel that does not count it.
    assert_eq!(pressure([&[("wall_ms", 100.0)], &of(30.0, 300.0)]), Some(0.1));
    assert_eq!(pressure([&[("wall_ms", 100.0)], &[]]), None);
}

#[test]
fn loads_of_all_repeats_are_added_up() {
    let load = |transfers, seconds, on_cpu, failed: &[(&str, u32)]| Loaded {
        name: "beside".into(),
        what: "host->cuda->gpu0".into(),
        threads: 4,
        transfers,
        seconds,
        on_cpu,
        longest_ns: transfers,
        failed: failed.iter().map(|(w, n)| (w.to_string(), *n)).collect(),
        ..Loaded::default()
    };
    let parts = [load(100, 1.0, 1.0, &[("died", 1)]), load(300, 3.0, 2.0, &[("died", 1), ("wrong", 2)])];
    let parts = [0, 1].map(|repeat: usize| {
        let cells = three(repeat as u32);
        (Part { loads: vec![parts[repeat].clone()], ..part(0, repeat as u32, &cells) }, cells)
    });
    let (_dir, folder) = folder(&text(""), &parts);
    let run = Run::from_folder(&folder, context()).unwrap();
    let load = &run.stages[0].loads[0];
    assert_eq!((load.transfers, load.seconds, load.longest_ns, load.on_cpu), (400, 4.0, 300, 1.75));
    assert_eq!(load.failed, [("died".to_owned(), 2), ("wrong".to_owned(), 2)]);
    validate(&run);
}

#[test]
fn a_load_that_missed_its_rate_leaves_its_stage_without_figures() {
    let text = format!(
        "{}\n[[load]]\ncall = \"hog\"\nname = \"crowd\"\nmust-reach = \"1000/s\"\n\n[[assert]]\nat-most = \"1s\"\n",
        text("").to_toml()
    );
    let load = |transfers| Loaded { name: "crowd".into(), transfers, seconds: 1.0, ..Loaded::default() };
    let of = |loads: [Loaded; 2]| {
        let parts = [0, 1].map(|repeat: usize| {
            let cells = three(repeat as u32);
            (Part { loads: vec![loads[repeat].clone()], ..part(0, repeat as u32, &cells) }, cells)
        });
        let (_dir, folder) = folder(&read(&text), &parts);
        let run = Run::from_folder(&folder, context()).unwrap();
        validate(&run);
        run
    };
    let reached = of([load(1000), load(2000)]);
    assert!(reached.cells.iter().all(|c| c.status == Status::Measured && c.observed().is_some()));
    assert!(reached.asserts_held() && reached.stages[0].loads[0].missed.is_none());
    // One repeat is enough: rounds of all repeats count together.
    let missed = of([load(1000), load(310)]);
    for cell in &missed.cells {
        assert_eq!(cell.status, Status::Invalid("load crowd missed its rate: 310 of 1000 a second".into()));
        assert!(cell.observed().is_none() && cell.rate.is_none() && cell.ratio.is_none() && cell.worst.is_empty());
        assert!(cell.per_round.p50.is_empty() && cell.samples > 0);
    }
    assert!(!missed.asserts_held());
    let why = missed.asserts.last().unwrap().cells[0].why.as_deref().unwrap();
    assert!(why.contains("invalid: load crowd missed its rate"), "{why}");
    // Its achieved rate is reported anyway.
    let summed = &missed.stages[0].loads[0];
    assert_eq!((summed.transfers, summed.missed.as_deref()), (1310, Some("310 of 1000 a second")));
    // Cells cannot be measured with a load that does not exist.
    let unavailable = Loaded { unavailable: Some("hackbench is not installed".into()), ..load(0) };
    let absent = of([unavailable.clone(), unavailable]);
    let why = Status::Unavailable("the load crowd is not available: hackbench is not installed".into());
    assert!(absent.cells.iter().all(|c| c.status == why && c.observed().is_none()));
}

#[test]
fn the_largest_value_is_the_last_up_to_which_the_bound_holds() {
    let asked = |bound: &str, metric: &str| {
        let text = format!(
            "{}\n[[load]]\nroute = \"host->ce3->gpu0\"\nname = \"large\"\n[matrix]\nlarge.count = [0, 1]\n\
             large.bytes = \"64KiB..512KiB\"\n[[largest]]\naxis = \"large.bytes\"\nsubject = \"base\"\nmetric = \"{metric}\"\n{bound}\n",
            text("").to_toml()
        );
        // Without loads, and with pieces of 64, 128, 256 and 512 KiB: the last is faster again.
        let parts: Vec<(Part, [Vec<Sample>; 3])> = (0..5u32)
            .flat_map(|stage| [0, 1].map(|repeat| (stage, repeat)))
            .map(|(stage, repeat)| {
                let times = [1.0, 1.0, 2.0, 5.0, 1.5][stage as usize];
                let cells = [cell(repeat, times, 200, 1), cell(repeat, times, 200, 2), cell(repeat, 1.0, 200, 3)];
                (part(stage, repeat, &cells), cells)
            })
            .collect();
        let (_dir, folder) = folder(&read(&text), &parts);
        let run = Run::from_folder(&folder, context()).unwrap();
        validate(&run);
        run.largest
    };
    let found = asked("at-most = \"3us\"", "p50");
    // One answer for each size of the subject, and none for the stage without the load.
    assert_eq!(found.iter().map(|l| l.bytes).collect::<Vec<_>>(), [8, 4096]);
    let (holds, beyond) = (found[0].holds.as_ref().unwrap(), found[0].beyond.as_ref().unwrap());
    assert_eq!((holds.value.as_str(), holds.stage, beyond.value.as_str(), beyond.stage), ("128KiB", 2, "256KiB", 3));
    assert!(holds.metric.is_some_and(|ns| ns < 3000.0) && beyond.metric.is_some_and(|ns| ns > 3000.0), "{found:?}");
    let always = asked("at-most = \"1s\"", "max");
    assert_eq!((always[0].holds.as_ref().unwrap().value.as_str(), &always[0].beyond), ("512KiB", &None));
    let never = asked("at-most = \"1ns\"", "mean");
    assert_eq!((&never[0].holds, never[0].beyond.as_ref().unwrap().value.as_str()), (&None, "64KiB"));
    // An unknown value has not held.
    let few = asked("at-most = \"1s\"", "p99.99");
    assert!(few[0].beyond.as_ref().unwrap().why.as_ref().unwrap().contains("needs 100000 samples"), "{few:?}");
}

#[test]
fn a_part_of_another_experiment_is_an_error() {
    let cells = three(0);
    let (_dir, folder) = folder(&text(""), &[(part(3, 0, &cells), cells)]);
    let e = Run::from_folder(&folder, context()).unwrap_err().to_string();
    assert!(e.contains("0003-00") && e.contains("does not belong to the experiment"), "{e}");
}

#[test]
fn a_round_that_the_experiment_does_not_have_is_an_error() {
    let mut cells = three(0);
    cells[1][9].round = ROUNDS;
    let (_dir, folder) = folder(&text(""), &[(part(0, 0, &cells), cells)]);
    let e = Run::from_folder(&folder, context()).unwrap_err().to_string();
    assert!(e.contains("0000-00.parquet") && e.contains("round 8"), "{e}");
}

fn schema() -> jsonschema::Validator {
    let text = include_str!("../../../../docs/reference/run.schema.json");
    jsonschema::options().build(&serde_json::from_str(text).unwrap()).unwrap()
}

fn validate(run: &Run) {
    let value: Value = serde_json::from_slice(&run.to_json().unwrap()).unwrap();
    let wrong: Vec<_> = schema().iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn run_json_matches_its_schema_and_is_read_back_unchanged() {
    let mut experiment = text("counters-every = 4");
    experiment.subjects[0].observe = Observe::Submit;
    let more =
        "\n[compare]\nbaseline = \"base\"\n[[assert]]\nat-most = \"1s\"\n[[load]]\ncall = \"launch\"\nrate = \"5/s\"\n";
    let experiment = read(&format!("{}{more}", experiment.to_toml()));
    let (_dir, folder) = both(&experiment);
    assert!(!folder.has_run());
    let run = Run::from_folder(&folder, context()).unwrap();
    let submits = &run.cells[0];
    assert_eq!(submits.worst[0].value_ns, submits.figures.submit.as_ref().unwrap().summary.max);
    assert_eq!(submits.worst[0].value_ns, submits.worst[0].submit_ns);
    validate(&run);
    folder.write_run(&run).unwrap();
    assert_eq!(folder.run().unwrap(), run);
    // An older doorbell wrote less.
    let older = Run { best: Vec::new(), doorbell: "0.0.9".into(), ..run.clone() };
    let again = older.summed_up_again(&folder).unwrap();
    assert_eq!(again, Run { doorbell: "0.0.9".into(), ..run.clone() });

    let path = folder.path().join("run.json");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.lines().count() < 60, "a line for each cell, not for each number");
    let newer =
        text.replacen(SCHEMA, "doorbell.run/2", 1).replacen("\"doorbell\": \"0.1.0\"", "\"doorbell\": \"3.0.0\"", 1);
    std::fs::write(&path, newer).unwrap();
    let e = folder.run().unwrap_err();
    assert!(matches!(&e, Error::Version { .. }) && e.to_string().contains("run.json"), "{e}");
    assert!(e.hint().contains("doorbell 3.0.0"), "{}", e.hint());
    std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    assert!(folder.run().unwrap_err().to_string().contains("run.json"));
}

#[test]
fn commits_are_short_for_people() {
    let (_dir, folder) = folder(&text(""), &[]);
    let mut run = Run::from_folder(&folder, context()).unwrap();
    for (commit, short) in [
        ("0123abc", "0123abc"),
        ("0fcd25f588c62997ac3affa6ff836e97a5068678", "0fcd25f588c6"),
        ("0fcd25f588c62997ac3affa6ff836e97a5068678-changed", "0fcd25f588c6-changed"),
        ("0fcd25f588c6-changed", "0fcd25f588c6-changed"),
    ] {
        run.commit = Some(commit.into());
        assert_eq!(run.short_commit().as_deref(), Some(short));
    }
}

#[test]
fn the_schema_refuses_what_it_does_not_know() {
    let (_dir, folder) = both(&text(""));
    let run = Run::from_folder(&folder, context()).unwrap();
    let good: Value = serde_json::from_slice(&run.to_json().unwrap()).unwrap();
    let schema = schema();
    assert!(schema.is_valid(&good));
    let changes: [fn(&mut Value); 6] = [
        |v| v["schema"] = "doorbell.run/2".into(),
        |v| v["more"] = 1.into(),
        |v| v["cells"][0]["p50"] = 1.into(),
        |v| v["cells"][1]["figures"]["done"]["p50"] = "fast".into(),
        |v| v["cells"][0]["status"] = "lost".into(),
        |v| drop(v["cells"][2].as_object_mut().unwrap().remove("samples")),
    ];
    for (i, change) in changes.iter().enumerate() {
        let mut bad = good.clone();
        change(&mut bad);
        assert!(!schema.is_valid(&bad), "change {i}");
    }
}

/// 10 million samples in one cell, including an outlier of 100 us.
#[test]
#[ignore = "a minute; run by .ci/run"]
fn ten_million_samples_will_do() {
    let mut experiment = text("");
    experiment.subjects.pop();
    experiment.subjects[0].sizes = vec![8];
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), &experiment, false).unwrap();
    for repeat in 0..2 {
        let mut cells = [cell(repeat, 2.0, 625_000, 1)];
        if repeat == 1 {
            cells[0][4_321_987].done_ns += 100_000;
        }
        folder.write_part(&part(0, repeat, &cells), &cells).unwrap();
    }
    let run = Run::from_folder(&folder, context()).unwrap();
    let used = memory() >> 20;
    assert_eq!(run.cells[0].samples, 10_000_000);
    let w = &run.cells[0].worst[0];
    assert_eq!((w.repeat, w.index), (1, 4_321_987));
    assert!(w.total_ns > 100_000 && run.cells[0].worst[1].total_ns < 10_000);
    println!("{used} MiB");
    assert!(used < 2000, "{used} MiB");
}

/// Maximum resident memory so far.
fn memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

/// A sweep of three places in eight rounds, in two repeats: 100 samples a round, with the place's time plus one more nanosecond in each round.
#[test]
fn places_of_a_sweep_have_a_mean_each_and_single_costs_are_repaid() {
    let experiment = read(&format!(
        r#"
name = "made-up"
[run]
rounds = {ROUNDS}
repeats = 2
samples = 800
[[subject]]
name = "swept"
route = "device->dma->gpu0"
sizes = "4096"
addresses = "sweep(1MiB,3MiB)"
[[subject]]
name = "pin"
call = "pin"
sizes = "4096"
[[subject]]
name = "slow"
route = "device->staged->gpu0"
sizes = "4096,8192"
[[repay]]
once = "pin"
each = "swept"
against = "slow"
[[repay]]
once = "pin + pin"
each = "slow"
against = "swept"
"#
    ));
    let times = |ns: &dyn Fn(u32) -> u64| -> Vec<Sample> {
        let one = |round: u32, i: u64| sample(round, u64::from(round) * 1_000_000_000 + i * 100_000, ns(round));
        (0..ROUNDS).flat_map(|round| (0..100).map(move |i| one(round, i))).collect()
    };
    let swept = times(&|round| [2000, 5000, 1000][round as usize % 3] + u64::from(round));
    let cells = [swept, times(&|_| 9500), times(&|_| 3000), Vec::new()];
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), &experiment, false).unwrap();
    for repeat in 0..2 {
        folder.write_part(&part(0, repeat, &cells), &cells).unwrap();
    }
    let run = Run::from_folder(&folder, context()).unwrap();
    validate(&run);
    // Rounds 0, 3, 6; 1, 4, 7; 2, 5.
    let places = run.cells[0].places.as_ref().unwrap();
    assert_eq!(places.each_ns, [Some(2003.0), Some(5004.0), Some(1003.5)]);
    assert_eq!((places.step, places.count, places.measured), (1 << 20, 3, 3));
    assert_eq!((places.least_ns, places.least_at, places.most_ns, places.most_at), (1003.5, 2 << 20, 5004.0, 1 << 20));
    let mean = (2003.0 + 5004.0 + 1003.5) / 3.0;
    let variance = [2003.0, 5004.0, 1003.5].iter().map(|x: &f64| (x - mean).powi(2)).sum::<f64>() / 2.0;
    assert!((places.mean_ns - mean).abs() < 1e-6 && (places.sd_ns - variance.sqrt()).abs() < 1e-6, "{places:?}");
    assert!(run.cells[1..].iter().all(|cell| cell.places.is_none()));

    let each = run.cells[0].figures.done.as_ref().unwrap().summary.p50;
    let found: Vec<_> = run.repaid.iter().map(|r| (r.repay, r.bytes, r.once_ns, r.each_ns, r.after)).collect();
    let after = After::Transfers(9500u64.div_ceil(3000 - each));
    assert_eq!(
        found,
        [
            (0, 4096, Some(9500), Some(each), after),
            (0, 8192, None, None, After::Unknown),
            (1, 4096, Some(19_000), Some(3000), After::Never),
            (1, 8192, None, None, After::Unknown),
        ]
    );
}
