//! The table of an invented run, wide, narrow and without times.

#[path = "../../../bench/run-folder/tests/made/mod.rs"]
mod made;

use made::{part, read, sample};
use run_folder::part::{BY_RATES, EndedBy, Explained, LinkBy, LinkCount, Loaded, Metered, Noise, Status, Tally};
use run_folder::run::{Arrivals, Bounded, Crossed, Lasted, Link, Rested, StageLasted};
use run_folder::{Context, Folder, Interrupted, Run, Sample};
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use terminal::table::Style;

const EXPERIMENT: &str = r#"
name = "made-up"
about = "nobody measured this"
[run]
rounds = 10
repeats = 2
samples = 12000
counters-every = 5
[matrix]
bytes = "8,4096"
"beside.count" = ["0", "4"]
[[subject]]
name = "cuda"
route = "host->cuda->gpu0"
[[subject]]
name = "host->bar1->gpu0"
route = "host->bar1->gpu0"
deadline = "5us"
[[subject]]
name = "launch"
call = "launch"
[[load]]
name = "beside"
route = "host->ce0->gpu0"
bytes = "4MiB"
[compare]
baseline = "cuda"
[[assert]]
subject = "host->bar1->gpu0"
metric = "p99"
at-most = "9us"
[[assert]]
subject = "cuda"
metric = "p50"
at-most = "6us"
[[assert]]
metric = "p99.99"
at-most = "1ms"
"#;

fn samples(repeat: u32, ns: f64, each: u64, seed: u64) -> Vec<Sample> {
    let mut random = fastrand::Rng::with_seed(seed * 7 + u64::from(repeat));
    let mut all = Vec::new();
    for round in 0..10 {
        for i in 0..each {
            let spike = if random.u32(0..200) == 0 { 1.5 } else { 1.0 };
            let ns = ns * spike * (1.0 + 0.1 * random.f64());
            all.push(sample(round, u64::from(round) * 1_000_000_000 + i * 50_000, ns as u64));
        }
    }
    all
}

/// The first stage's by counters, those of the others by rates.
fn link_count(stage: u32) -> LinkCount {
    match stage {
        0 => LinkCount { by: Some(LinkBy::Counters), looks: 27, why: None },
        _ => LinkCount { by: Some(LinkBy::Rates), looks: 9, why: Some("NVML: field 198 is refused".into()) },
    }
}

fn run(text: &str, repeats: u32) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), &read(text), false).unwrap();
    for stage in folder.stages() {
        let loaded = !stage.loads.is_empty();
        for repeat in 0..repeats {
            let slow = if loaded { 2.0 } else { 1.0 };
            let cell = |c: &experiment::Cell| {
                let (ns, each) = match c.subject.name.as_str() {
                    "cuda" => (6_000.0 + c.bytes as f64, 600),
                    "launch" => (3_000.0, 30),
                    _ if c.bytes > 8 => return Vec::new(),
                    _ => (2_400.0, 600),
                };
                let seed = u64::from(stage.number) * 10 + ns as u64;
                samples(repeat, ns * slow, each, seed)
            };
            let mut cells: Vec<_> = stage.cells.iter().map(cell).collect();
            let mut part = part(stage.number, repeat, &cells);
            if let Some(s) = cells[1].get_mut(321) {
                (s.ended_ns, s.done_ns) = (s.ended_ns + 1_000, s.done_ns + 120_000);
                part.cells[1].worst =
                    vec![Explained { index: 321, longest_gap_ns: Some(118_000), ..Explained::default() }];
            } else {
                part.cells[1].status = Status::Unavailable("BAR1 is too small".into());
            }
            // Round 4 has counters.
            let asleep =
                |index| Explained { index, on_cpu_ns: Some(100), asleep_ns: Some(9_000), ..Explained::default() };
            part.cells[2].worst = (4 * 30..5 * 30).map(asleep).collect();
            part.cells[2].counted =
                Some(Tally { calls: 60, wall_ns: 200_000, on_cpu_ns: 180_000, slept: 2, ..Tally::default() });
            // The GPU counts heads of packets too.
            let counts =
                [("pcie_to_gpu_bytes", 9_400_000.0), ("pcie_from_gpu_bytes", 64_000.0), ("energy_mj", 20_000.0)];
            let counted = counts.map(|(name, value)| (name.to_owned(), value)).to_vec();
            part.cells[0].metered = Some(Metered {
                seconds: 0.25,
                transfers: 2_000,
                loads: Vec::new(),
                counted,
                link_count: Some(link_count(stage.number)),
            });
            part.noise = vec![Noise { readings: 9, max_ns: 12_000 + u64::from(repeat), ..Noise::default() }; 2];
            if loaded {
                part.loads = vec![Loaded {
                    name: "beside".into(),
                    what: "host->ce0->gpu0".into(),
                    threads: 4,
                    bytes: 52_000_000_000 + u64::from(stage.number) * 1_000_000_000,
                    transfers: 12_397,
                    seconds: 1.0,
                    longest_ns: 900_000,
                    checked: 4,
                    failed: vec![("out of memory".into(), 1)],
                    ..Loaded::default()
                }];
            }
            folder.write_part(&part, &cells).unwrap();
        }
    }
    let facts = json!({
        "host.name": "node1", "gpu.name": "NVIDIA H200", "gpu.driver": "580.1", "gpu.link_generation": 5,
        "gpu.link_width": 16, "cpu.model": "Xeon", "kernel.release": "6.18"
    });
    let context = Context {
        commit: Some("0123abc".into()),
        started: "2026-11-22T18:00:00Z".into(),
        ended: "2026-11-22T18:01:00Z".into(),
        environment: json!({ "facts": facts }),
        warnings: vec!["the governor is powersave: cpupower frequency-set -g performance".into()],
        interrupted: Some(Interrupted::default()),
        ..Context::default()
    };
    Run::from_folder(&folder, context).unwrap()
}

fn text(run: &Run, width: Option<u16>) -> String {
    let mut out = Vec::new();
    let style = Style { colour: false, width };
    terminal::run::write(&mut out, &style, run, Some(Path::new("results/made-up"))).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_stage_whose_bytes_come_from_rates_is_marked() {
    let mut run = run(EXPERIMENT, 1);
    let crossed = Crossed { payload_bytes: 1e6, counted_bytes: 2e6 };
    run.stages.iter_mut().for_each(|s| s.used.link = Some(Link { to_gpu: crossed, from_gpu: crossed }));
    let by_rates = "to the GPU (by the GPU's rates, which lag), 1.91 MiB of it payload";
    let said = |run: &Run| text(run, None).matches(by_rates).count();
    assert!(said(&run) == 0 && text(&run, None).contains("to the GPU, 1.91 MiB of it payload"), "{}", text(&run, None));
    run.parts[0].notes.push(format!("pcie_to_gpu_bytes, pcie_from_gpu_bytes: {BY_RATES}: the counter has 32 bits"));
    assert_eq!(said(&run), 1, "{}", text(&run, None));
}

#[test]
fn a_pipe_has_every_column() {
    insta::assert_snapshot!(text(&run(EXPERIMENT, 2), None));
}

#[test]
fn a_terminal_has_those_that_it_has_room_for() {
    let run = run(EXPERIMENT, 2);
    for width in [80, 120] {
        let text = text(&run, Some(width));
        let table: Vec<&str> = text.lines().filter(|l| l.contains(" us  ") || l.contains("what  ")).collect();
        assert!(table.len() >= 8, "{text}");
        assert!(table.iter().all(|l| l.len() <= usize::from(width)), "{text}");
        insta::assert_snapshot!(format!("at_{width}_columns"), text);
    }
}

#[test]
fn stages_stand_side_by_side_where_a_column_can_be_read_down() {
    let text_of = EXPERIMENT.replace("\"8,4096\"", "\"8\"").replace("[\"0\", \"4\"]", "[\"0\", \"1\", \"2\", \"4\"]");
    let run = run(&text_of, 2);
    let of = |width| {
        let text = text(&run, width);
        let from = text.find("side by side").unwrap();
        text[from..].split("\n\n").next().unwrap().to_owned()
    };
    insta::assert_snapshot!("side_by_side", of(None));
    let narrow = of(Some(80));
    assert!(narrow.lines().all(|l| l.len() <= 80 || l.starts_with("left out")), "{narrow}");
    assert!(["p50", "left out"].iter().all(|t| narrow.contains(t)), "{narrow}");
}

#[test]
fn a_functional_run_has_no_times() {
    let text = text(&run(&EXPERIMENT.replace("repeats = 2", "repeats = 2\ngpu = \"soft\""), 2), None);
    let without_head = &text[text.find("note: the software GPU").unwrap()..];
    for unit in [" us", " ms", " ns", "GB/s"] {
        let bounds = ["at most", "at least"];
        let timed: Vec<_> =
            without_head.lines().filter(|l| l.contains(unit) && !bounds.iter().any(|b| l.contains(b))).collect();
        assert!(timed.is_empty(), "{timed:?}");
    }
    insta::assert_snapshot!(text);
}

#[test]
fn a_column_names_the_baselines_if_they_differ() {
    let own = EXPERIMENT.replace("call = \"launch\"\n", "call = \"launch\"\nbaseline = \"host->bar1->gpu0\"\n");
    let text = text(&run(&own, 2), Some(160));
    let head = text.lines().find(|l| l.contains("times") && l.contains("p50")).unwrap();
    assert!(head.contains(" times ") && !head.contains("times cuda") && head.contains("  of"), "{text}");
    let row = |name: &str| text.lines().find(|l| l.contains(&format!("  {name} "))).unwrap();
    assert!(row("host->bar1->gpu0").contains("~0.399 ") && row("host->bar1->gpu0").contains("  cuda  "), "{text}");
    assert!(row("launch").contains("1.25  ") && row("launch").contains("  host->bar1->gpu0  "), "{text}");
    assert!(text.contains("times: p50 over the baseline's p50"), "{text}");
}

#[test]
fn samples_that_were_cut_short_are_counted_and_it_is_said_how() {
    let mut run = run(EXPERIMENT, 1);
    assert!(!text(&run, None).contains("cut short"));
    run.cells[0].capped = 2;
    let of = |run: &Run| {
        let text = text(run, None);
        text.lines().find(|line| line.contains("cuda  ") && line.contains(" us")).unwrap().to_owned()
    };
    assert_eq!(of(&run).matches(">= ").count(), 1, "the maximum alone: {}", of(&run));
    let some = text(&run, None);
    assert!(some.contains("2 samples cut short: the loads rested until it ended"), "{some}");
    // This many are at the rank of p99, not of p50.
    run.cells[0].capped = run.cells[0].samples / 50;
    assert_eq!(of(&run).matches(">= ").count(), 2, "{}", of(&run));
    run.cells[0].capped = run.cells[0].samples;
    assert_eq!(of(&run).matches(">= ").count(), 3, "{}", of(&run));
    // If one value is known only from one side, so is the ratio.
    let mut bounded = |by| {
        run.cells[1].ratio.as_mut().unwrap().bounded = Some(by);
        let text = text(&run, None);
        text.lines().find(|line| line.contains("host->bar1->gpu0  ")).unwrap().to_owned()
    };
    assert!(
        bounded(Bounded::AtMost).split_whitespace().collect::<Vec<_>>().join(" ").contains("<= 0.399 -"),
        "{}",
        bounded(Bounded::AtMost)
    );
    assert!(bounded(Bounded::AtLeast).contains(">= 0.399") && bounded(Bounded::NotKnown).contains("~0.399"));
}

#[test]
fn the_head_of_a_table_has_the_ends_of_its_cells_and_deviations() {
    let mut run = run(&EXPERIMENT.replace("samples = 12000", "samples = 12000\nduration = \"30s\""), 2);
    assert!(!text(&run, None).contains("measured for"), "an older doorbell kept none of it");
    let rested = Some(Rested { rounds: 3, of: 16, seconds: 4.1 });
    let ended = BTreeMap::from([(EndedBy::Samples, 2), (EndedBy::Capped, 1)]);
    run.stages[0].lasted = Some(StageLasted { seconds: 3.2, ended, rested });
    run.cells[0].lasted = Some(Lasted { ended: EndedBy::Capped, seconds: 2.0, turns: 16, rested });
    let mut arrivals = Arrivals {
        wanted_per_second: 20_000.0,
        achieved_per_second: 15_385.0,
        gaps: 96,
        gap_seconds: 0.023,
        longest_gap_ns: 251_000,
        unmade: 0,
    };
    run.cells[1].arrivals = Some(arrivals.clone());
    let slow = text(&run, None);
    for line in [
        "measured for 3.20 s of the duration of 120 s; cells by what ended them: samples 2, a call that was cut short 1",
        "the loads rested, because a call was stuck: cuda 8 B in 3 of 16 rounds, 4.10 s",
        "host->bar1->gpu0 8 B: 15,385 arrivals a second of 20,000: their clock was stopped 96 times, for at most 251 us",
    ] {
        assert!(slow.contains(line), "{slow}");
    }
    (arrivals.achieved_per_second, arrivals.unmade) = (19_900.0, 7);
    run.cells[1].arrivals = Some(arrivals);
    let nearly = text(&run, None);
    assert!(
        nearly.contains("8 B: 7 arrivals due and never made") && !nearly.contains("a second of 20,000"),
        "{nearly}"
    );
}

#[test]
fn a_ratio_of_maxima_is_shown_without_an_interval() {
    let of_max =
        text(&run(&EXPERIMENT.replace("baseline = \"cuda\"", "baseline = \"cuda\"\nmetric = \"max\""), 2), None);
    assert!(of_max.contains("max over its max, in the same rounds; ~ may be 1; a max has no interval"), "{of_max}");
}

#[test]
fn missing_parts_are_reported_first() {
    let text = text(&run(EXPERIMENT, 1), None);
    let line = text.lines().nth(3).unwrap();
    assert_eq!(line, "not complete: 4 of 8 parts missing");
    assert!(text.contains("stage.repeat 0.1, 1.1, 2.1, 3.1: the run was stopped before it"), "{text}");
}

#[test]
fn the_text_means_the_same_without_colour() {
    let run = run(EXPERIMENT, 1);
    let mut out = Vec::new();
    terminal::run::write(&mut out, &Style { colour: true, width: None }, &run, None).unwrap();
    let mut plain = String::from_utf8(out).unwrap();
    for code in ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m"] {
        plain = plain.replace(code, "");
    }
    let mut out = Vec::new();
    terminal::run::write(&mut out, &Style::default(), &run, None).unwrap();
    assert_eq!(plain, String::from_utf8(out).unwrap());
}

/// A sweep of four places of which one was not measured, and pinning that is repaid at one size and never at the other.
#[test]
fn places_and_repaid_costs_have_tables() {
    let text = r#"
name = "made-up"
[run]
rounds = 4
samples = 400
[[subject]]
name = "swept"
route = "device->dma->gpu0"
sizes = "4096,1048576"
addresses = "sweep(64MiB,256MiB)"
[[subject]]
name = "pin"
call = "pin"
sizes = "4096,1048576"
[[subject]]
name = "staged"
route = "device->staged->gpu0"
sizes = "4096,1048576,8388608"
[[repay]]
once = "pin + pin"
each = "swept"
against = "staged"
"#;
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), &read(text), false).unwrap();
    let times = |rounds: u32, ns: &dyn Fn(u32) -> u64| -> Vec<Sample> {
        let one = |round: u32, i: u64| sample(round, u64::from(round) * 1_000_000_000 + i * 100_000, ns(round));
        (0..rounds).flat_map(|round| (0..100).map(move |i| one(round, i))).collect()
    };
    let flat = |ns: u64| times(4, &move |_| ns);
    let swept = |ns: u64| times(3, &move |round| ns + 10 * u64::from(round));
    let cells = [swept(2_000), swept(20_000), flat(6_500), flat(6_500), flat(3_000), flat(19_000), flat(90_000)];
    folder.write_part(&part(0, 0, &cells), &cells).unwrap();
    let run = Run::from_folder(&folder, Context::default()).unwrap();
    let mut out = Vec::new();
    terminal::run::write(&mut out, &Style::default(), &run, None).unwrap();
    let out = String::from_utf8(out).unwrap();
    let row = |words: &[&str]| {
        let squeezed = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(out.lines().any(|line| words.iter().all(|word| squeezed(line).contains(word))), "{words:?} in\n{out}");
    };
    row(&["by place, 64 MiB apart"]);
    row(&["4 KiB swept 3 of 4 places 2.01 us 10 ns 0.498 %", "2.00 us 0 B 2.02 us 128 MiB 1.01"]);
    row(&["pin + pin once, then swept for each transfer; otherwise staged"]);
    row(&["4 KiB 13.0 us 2.01 us 3.00 us repaid after 14 transfers"]);
    row(&["1 MiB 13.0 us 20.0 us 19.0 us never repaid"]);
    row(&["8 MiB - - 90.0 us not known"]);
}
