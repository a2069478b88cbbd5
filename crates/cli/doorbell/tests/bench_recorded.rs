//! Stages that are recorded, on the software GPU, where the commands of each call are known to the byte.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use run_folder::commands::{CommandsOfRun, Typical};
use run_folder::{Folder, Run};
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
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/run.schema.json");
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
    // doorbell's copy has 15 words. An inline one has 19 words, its notification included, and then its data.
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
        assert_eq!([&*channel.gpfifo, &*channel.userd, &*channel.pushbuffer], ["video", "video", "video"]);
        assert_eq!((channel.doorbells, channel.entries), (80, 80));
    }
    // A mutex that is locked and unlocked is one operation, and rings no doorbell.
    let lock = commands(&run, "lock", 0);
    assert_eq!((lock.locks, lock.doorbells, lock.channels.len()), (always(1), always(0), 0));
    // Every doorbell of the tape is in one of the sums.
    for part in run.parts.iter().filter(|p| p.stage == 1) {
        let recorded = part.recorded.as_ref().unwrap();
        assert!(recorded.not_joined.is_none() && recorded.clock_error_ns <= 1_000.0, "{recorded:?}");
        let d = recorded.doorbells;
        assert_eq!((d.in_calls, d.waiting, d.other_threads), (4 * 40, 0, 0));
        let tape = decode::Recording::open(&dir.path().join("run").join(&recorded.tape)).unwrap();
        assert_eq!(d.in_calls + d.untimed, decode::summary(&tape).unwrap().doorbells);
    }
}

/// As another driver might send it: two segments instead of one, from a ring in GPU memory.
#[test]
fn two_recorded_runs_are_compared_by_what_their_calls_send() {
    let dir = tempfile::tempdir().unwrap();
    let one = RECORDED.replace(r#"["no", "commands"]"#, r#"["commands"]"#).replace("repeats = 2", "repeats = 1");
    run(dir.path(), &one);
    let (run, other) = (dir.path().join("run"), dir.path().join("other.json"));
    let mut json: serde_json::Value = serde_json::from_slice(&std::fs::read(run.join("run.json")).unwrap()).unwrap();
    let cells = json["cells"].as_array_mut().unwrap();
    let cell = cells.iter_mut().find(|c| c["subject"] == "host->ce0->gpu0" && c["bytes"] == 4096).unwrap();
    cell["commands"]["entries"] = serde_json::json!({ "min": 2, "median": 2, "max": 2, "mean": 2.0 });
    let was = cell["commands"]["channels"][0]["gpfifo"].as_str().unwrap().to_owned();
    let is = if was == "video" { "host" } else { "video" };
    cell["commands"]["channels"][0]["gpfifo"] = is.into();
    std::fs::write(&other, json.to_string()).unwrap();
    let compare = |b: &Path| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        command.arg("compare").arg(run.join("run.json")).arg(b);
        command
    };
    compare(&run.join("run.json")).assert().success().stdout(contains("the same in 5 recorded cells"));
    let text = compare(&other).assert().success().get_output().stdout.clone();
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("GPFIFO entries") && text.contains("GPFIFO of GRAPHICS"), "{text}");
    let json = compare(&other).arg("--json").assert().success().get_output().stdout.clone();
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let all = json["commands"].as_array().unwrap();
    let differing: Vec<_> = all.iter().filter(|c| !c["differing"].as_array().unwrap().is_empty()).collect();
    assert_eq!((differing.len(), &differing[0]["cell"]["bytes"]), (1, &serde_json::json!(4096)));
    assert_eq!(differing[0]["differing"][1]["b"], serde_json::json!([is]));
}

#[test]
fn a_tape_that_is_gone_is_said_and_the_samples_stay() {
    let dir = tempfile::tempdir().unwrap();
    let text = RECORDED
        .replace("repeats = 2\n", "repeats = 1\n")
        .replace("[matrix]\nrun.record = [\"no\", \"commands\"]\n", "");
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
    // No part is measured again, because it exists.
    let gone = bench().args(["--resume", "-o"]).arg(&out).assert().success();
    gone.stdout(contains("not joined with its samples").and(contains("0000-00.doorbell")));
    let run = Folder::open(&out).unwrap().run().unwrap();
    assert!(run.cells.iter().all(|c| c.samples == 40 && c.commands.is_none()), "{run:?}");
}

/// Writes the profile that route `auto` follows: one route up to so many bytes, and the next route above that.
fn write_profile(path: &Path, ways: &[(Option<u64>, &str)]) {
    use submit::route_choice::{Direction, Facts, Key, Metric, Places, Plan, Profile, Range};
    let mut from = 1;
    let range = |(to, route): &(Option<u64>, &str)| {
        let range = Range { from, to: *to, route: (*route).into(), by: Metric::P50 };
        from = to.map_or(0, |to| to + 1);
        range
    };
    let ranges = ways.iter().map(range).collect();
    let (memory, load) = ("pinned".into(), Key::IDLE.into());
    let key = Key { direction: Direction::ToGpu, memory, places: Places::Same, batch: 1, metric: Metric::P50, load };
    let plans = vec![Plan { key, ranges, points: Vec::new(), undecided: Vec::new() }];
    let facts: Facts = submit::route_choice::Facts::of_this_machine(true, None);
    Profile { functional: true, taken: "2001-01-01T00:00:00Z".into(), facts, plans }.save(path).unwrap();
}

#[test]
#[ignore = "4 s; run by .ci/run"]
fn planted_borders_are_seen_to_the_byte() {
    let dir = tempfile::tempdir().unwrap();
    let profile = dir.path().join("profile.toml");
    let (ce, inline) = ("host->ce2->gpu0", "host->inline->gpu0");
    write_profile(&profile, &[(Some(37), ce), (Some(301), inline), (Some(778), ce), (None, "host->ce3->gpu0")]);
    let text = "[run]\ngpu = \"soft\"\nrecord = \"commands\"\nrounds = 1\nsamples = 2\nrepeats = 1\nnoise = \"0s\"\n[verify]\nevery = 1\n\
                [[subject]]\nroute = \"host->auto->gpu0\"\nsizes = [\"4B\", \"37B..38B/1B\", \"301B..302B/1B\", \"778B..779B/1B\"]\n";
    let file = dir.path().join("borders.toml");
    std::fs::write(&file, text).unwrap();
    let out = dir.path().join("out");
    bench().arg(&file).arg("-o").arg(&out).env(submit::route_choice::VARIABLE, &profile).assert().success();
    let run = Folder::open(&out).unwrap().run().unwrap();
    let by = |cell: &run_folder::run::CellOfRun| {
        let executors = &cell.commands.as_ref().unwrap().executors;
        let moved = executors.iter().find(|(_, moved)| moved.bytes.median >= cell.bytes).unwrap();
        (cell.bytes, moved.0.clone())
    };
    let all: Vec<_> = run.cells.iter().map(by).collect();
    let expected =
        [(4, "COPY2"), (37, "COPY2"), (38, "inline"), (301, "inline"), (302, "COPY2"), (778, "COPY2"), (779, "COPY3")];
    assert_eq!(all, expected.map(|(bytes, by)| (bytes, by.to_owned())));
}
