//! Stages that are recorded, on the software GPU: what each call sent is known to the byte there.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use results::commands::{CommandsOfRun, Typical};
use results::{Folder, Run};
use std::path::Path;
use std::time::Duration;

fn bench() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.arg("bench").timeout(Duration::from_secs(120));
    command
}

const RECORDED: &str = r#"
[run]
gpu = "soft"
rounds = 4
samples = 40
repeats = 2
noise = "0s"
[[subject]]
route = "host->ce0->gpu0"
sizes = ["8B", "4KiB"]
[[subject]]
route = "host->inline->gpu0"
sizes = ["8B", "64B"]
[[subject]]
call = "lock"
[matrix]
run.record = ["no", "commands"]
"#;

fn run(folder: &Path, text: &str) -> Run {
    let file = folder.join("recorded.toml");
    std::fs::write(&file, text).unwrap();
    let out = folder.join("run");
    bench().arg(&file).arg("-o").arg(&out).assert().success().stdout(contains("what one call sent"));
    let run: serde_json::Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/run.schema.json");
    let schema = serde_json::from_slice(&std::fs::read(schema).unwrap()).unwrap();
    let wrong: Vec<String> =
        jsonschema::validator_for(&schema).unwrap().iter_errors(&run).map(|e| e.to_string()).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    Folder::open(&out).unwrap().run().unwrap()
}

fn commands<'r>(run: &'r Run, subject: &str, bytes: u64) -> &'r CommandsOfRun {
    let cell = run.cells.iter().find(|c| c.stage == 1 && c.subject == subject && c.bytes == bytes);
    cell.and_then(|c| c.commands.as_ref()).unwrap_or_else(|| panic!("{subject} {bytes}"))
}

/// The same in each of so many calls.
fn always(n: u64) -> Typical {
    Typical { min: n, median: n, max: n, mean: n as f64 }
}

#[test]
fn every_call_of_a_recorded_stage_has_its_doorbell_and_its_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path(), RECORDED);
    assert!(run.complete && run.cells.iter().filter(|c| c.stage == 0).all(|c| c.commands.is_none()), "{run:?}");
    // A copy of ours is 15 words; an inline one 19 with its notification, and its data behind them.
    for (subject, bytes, executor, operations, words) in [
        ("host->ce0->gpu0", 8, "GRAPHICS", 1, 15),
        ("host->ce0->gpu0", 4096, "GRAPHICS", 1, 15),
        ("host->inline->gpu0", 8, "inline", 2, 19 + 2),
        ("host->inline->gpu0", 64, "inline", 2, 19 + 16),
    ] {
        let found = commands(&run, subject, bytes);
        assert_eq!((found.calls, found.first.doorbells), (2 * 39, 1), "{subject} {bytes}");
        assert_eq!([found.doorbells, found.entries, found.pushbuffer_bytes], [always(1), always(1), always(words * 4)]);
        let inline = if executor == "inline" { bytes + 4 } else { 0 };
        let moved = if executor == "inline" { inline } else { bytes };
        assert_eq!((found.inline_bytes, found.locks), (always(inline), always(0)), "{subject} {bytes}");
        assert_eq!(found.executors.len(), 1, "{found:?}");
        let of = found.executors[executor];
        assert_eq!((of.operations, of.bytes), (always(operations), always(moved)), "{subject} {bytes}");
        let [channel] = &found.channels[..] else { panic!("{found:?}") };
        assert_eq!([&*channel.gpfifo, &*channel.userd, &*channel.pushbuffer], ["video", "video", "host"]);
        assert_eq!((channel.doorbells, channel.entries), (80, 80));
    }
    // A mutex that is taken and given back is one operation, and rings nothing.
    let lock = commands(&run, "lock", 0);
    assert_eq!((lock.locks, lock.doorbells, lock.channels.len()), (always(1), always(0), 0));
    // Every doorbell of the tape is in one of the sums.
    for part in run.parts.iter().filter(|p| p.stage == 1) {
        let recorded = part.recorded.as_ref().unwrap();
        assert!(recorded.not_joined.is_none() && recorded.clock_error_ns <= 1_000.0, "{recorded:?}");
        let d = recorded.doorbells;
        assert_eq!((d.in_calls, d.waiting, d.other_threads), (4 * 40, 0, 0));
        let tape = insight::Recording::open(&dir.path().join("run").join(&recorded.tape)).unwrap();
        assert_eq!(d.in_calls + d.untimed, insight::summary(&tape).unwrap().doorbells);
    }
}

#[test]
fn a_tape_that_is_gone_is_said_and_the_samples_stay() {
    let dir = tempfile::tempdir().unwrap();
    let text = RECORDED.replace("repeats = 2\n", "").replace("[matrix]\nrun.record = [\"no\", \"commands\"]\n", "");
    let text = text.replace("noise = \"0s\"\n", "noise = \"0s\"\nrecord = \"commands\"\n");
    run(dir.path(), &text);
    let out = dir.path().join("run");
    let folder = Folder::open(&out).unwrap();
    for mut part in folder.parts().unwrap() {
        part.recorded = None;
        part.cells.iter_mut().for_each(|cell| cell.commands = None);
        folder.replace_part(&part).unwrap();
    }
    std::fs::remove_file(out.join(Folder::tape_name(0, 0))).unwrap();
    // Nothing is measured again: the part is there.
    let gone = bench().args(["--resume", "-o"]).arg(&out).assert().success();
    gone.stdout(contains("not joined with its samples").and(contains("0000-00.doorbell")));
    let run = Folder::open(&out).unwrap().run().unwrap();
    assert!(run.cells.iter().all(|c| c.samples == 40 && c.commands.is_none()), "{run:?}");
}
