//! The text of an invented run whose commands were recorded: counts, places, where the time goes, lines and steps.

#[path = "../../../bench/run-folder/tests/made/mod.rs"]
mod made;

use made::{part, read};
use run_folder::commands::{Call, Commands, Moved, Recorded, UsedChannel};
use run_folder::part::Metered;
use run_folder::run::{Mostly, Span};
use run_folder::{Context, Folder, Run, Sample};
use terminal::table::Style;

const TEXT: &str = r#"
name = "made-up"
[run]
rounds = 8
samples = 80
[matrix]
run.record = ["no", "commands"]
[[subject]]
call = "graph(1)"
[[subject]]
call = "graph(10)"
[[subject]]
call = "graph(100)"
[[subject]]
name = "ce"
route = "host->ce2->gpu0"
sizes = ["8B", "1MiB"]
"#;

/// Call, fetch, engine and seeing, ns; for calls whose engine times are unknown the last three are one.
fn samples([call, fetch, engine, seeing]: [u64; 4], known: bool) -> Vec<Sample> {
    let one = |i: u64| {
        let at = 1_000 + 50_000 * i;
        let (submitted, started) = (at + call, at + call + fetch);
        let ended = started + engine;
        Sample {
            round: (i / 10) as u32,
            release_ns: at,
            call_ns: at,
            submitted_ns: submitted,
            started_ns: if known { started } else { 0 },
            ended_ns: if known { ended } else { 0 },
            // The slowest of each round is not in the middle half.
            done_ns: ended + seeing + if i.is_multiple_of(10) { 20_000 } else { 0 },
            capped: false,
        }
    };
    (0..80).map(one).collect()
}

/// Eighty equal calls, with one more lock in every fourth.
fn commands(pushbuffer_bytes: u64, executor: &str) -> Option<Commands> {
    let call = |i: u64| Call {
        doorbells: 1,
        entries: 1,
        pushbuffer_bytes,
        locks: 10 + u64::from(i.is_multiple_of(4)),
        until_doorbell_ns: Some(70),
        executors: [(executor.to_owned(), Moved { operations: 1, bytes: 0 })].into(),
        ..Call::default()
    };
    let channel = UsedChannel {
        engine: "COPY2".into(),
        gpfifo: "video".into(),
        userd: "video".into(),
        pushbuffer: "host".into(),
        semaphores: vec!["host".into()],
        doorbells: 80,
        entries: 80,
        pushbuffer_bytes: 80 * pushbuffer_bytes,
    };
    Commands::of(&(0..80).map(call).collect::<Vec<_>>(), vec![channel])
}

fn run() -> Run {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), &read(TEXT), false).unwrap();
    for stage in folder.stages() {
        // 2 us and 10 ns per kernel in the call; 500 ns of set-up and 20 us per MiB in the engine.
        let cells = vec![
            samples([2_010, 0, 3_000, 0], false),
            samples([2_100, 0, 4_000, 0], false),
            samples([3_000, 0, 13_000, 0], false),
            samples([100, 900, 500, 300], true),
            samples([100, 900, 20_500, 300], true),
        ];
        let mut part = part(stage.number, 0, &cells);
        if stage.run.record.is_no() {
            let counted = [("pcie_to_gpu_bytes", 240_000.0), ("pcie_from_gpu_bytes", 64_000.0)];
            let counted = counted.map(|(name, value)| (name.to_owned(), value)).to_vec();
            part.cells[3].metered =
                Some(Metered { seconds: 0.5, transfers: 1_000, loads: Vec::new(), counted, link_count: None });
        } else {
            part.recorded = Some(Recorded { tape: Folder::tape_name(1, 0), ..Recorded::default() });
            let all = [(100, "kernel"), (116, "kernel"), (196, "kernel"), (60, "COPY2"), (60, "COPY2")];
            part.cells.iter_mut().zip(all).for_each(|(cell, (bytes, by))| cell.commands = commands(bytes, by));
        }
        folder.write_part(&part, &cells).unwrap();
    }
    let run = Run::from_folder(&folder, Context { environment: serde_json::json!({}), ..Context::default() }).unwrap();
    assert!(serde_json::from_slice::<Run>(&run.to_json().unwrap()).is_ok());
    run
}

fn text(run: &Run) -> String {
    let mut out = Vec::new();
    terminal::run::write(&mut out, &Style::default(), run, None).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn calls_of_one_family_have_lines_and_steps() {
    let run = run();
    let [family] = &run.scaling[..] else { panic!("{:?}", run.scaling) };
    assert_eq!((family.family.as_str(), family.members.len(), family.point.len()), ("graph(N)", 3, 0));
    let numbers: Vec<_> = family.members.iter().map(|m| (m.number, m.call_ns, m.pushbuffer_bytes, m.locks)).collect();
    assert_eq!(numbers[0], (1, Some(2_010), Some(100), Some(10)));
    let slope = family.call_by_number.unwrap().slope;
    assert!((slope - 10.0).abs() < 1e-9, "{slope}");
    assert_eq!(
        family.pushbuffer_steps.iter().map(|s| (s.after, s.at, s.to)).collect::<Vec<_>>(),
        [(1, 10, 116), (10, 100, 196)]
    );
    assert!(family.doorbell_steps.is_empty());
    let text = text(&run);
    for part in
        ["graph(N) against N", "10.0 ns for each more", "2000 ns without any", "116 B to 196 B between N = 10 and 100"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn the_parts_of_a_budget_add_up_and_say_what_takes_most() {
    let run = run();
    let budget = |subject: &str, bytes: u64| {
        let cell = run.cells.iter().find(|c| c.stage == 0 && c.subject == subject && c.bytes == bytes).unwrap();
        cell.budget.clone().unwrap()
    };
    let small = budget("ce", 8);
    let parts: Vec<(Span, f64)> = small.parts.iter().map(|p| (p.name, p.mean_ns)).collect();
    assert_eq!(parts, [(Span::Call, 100.0), (Span::Fetch, 900.0), (Span::Engine, 500.0), (Span::Seeing, 300.0)]);
    assert_eq!((small.whole_ns, small.mostly), (1_800.0, Mostly::CommandPath));
    assert_eq!(budget("ce", 1 << 20).mostly, Mostly::Link);
    // When CUDA's engine worked is unknown.
    assert_eq!(budget("graph(1)", 0).mostly, Mostly::NotKnown);
    let text = text(&run);
    assert!(text.contains("command path") && text.contains("not told apart") && text.contains("900 ns"), "{text}");
}

#[test]
fn written_bytes_are_shown_next_to_metered_ones() {
    let text = text(&run());
    let rows: Vec<&str> = text.lines().filter(|l| l.contains("4.00") && l.contains("8.00")).collect();
    // The recorded cell has the counters of the unrecorded one: 240 bytes per transfer to the GPU, 64 from it.
    let small = rows.iter().find(|l| l.contains("8 B")).unwrap_or_else(|| panic!("{text}"));
    assert!(small.contains("60.0") && small.contains("240 B") && small.contains("64 B"), "{text}");
    for part in
        ["10 (10 .. 11)", "COPY2 1", "70 ns", "GPFIFO in GPU memory, USERD in GPU memory, pushbuffer in host memory"]
    {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
}
