//! `doorbell compare` on folders of synthetic runs.

use assert_cmd::Command;
use run_folder::{Compared, Context, Folder, Part, PartCell, Run, Sample, Status};
use std::fs;
use std::path::{Path, PathBuf};

const ROUNDS: u32 = 10;
const REPEATS: u32 = 6;
const SAMPLES: u32 = 60;

const EXPERIMENT: &str = r#"
about = "nobody measured this"

[run]
seed = 7
rounds = 10
repeats = 6
samples = 600
counters-every = 5

[[subject]]
name = "copy"
route = "host->ce0->gpu0"
sizes = ["8B", "4KiB"]

[[subject]]
name = "cuda"
route = "host->cuda->gpu0"
sizes = ["8B", "4KiB"]

[compare]
baseline = "cuda"
"#;

/// A run: the `copy` of 4 KiB is `times` as slow as before.
struct Made {
    times: f64,
    seed: u64,
    driver: &'static str,
    copy: Status,
    experiment: String,
}

impl Made {
    fn new(times: f64, seed: u64) -> Made {
        Made { times, seed, driver: "580.1", copy: Status::Measured, experiment: EXPERIMENT.into() }
    }

    fn cells(&self, random: &mut fastrand::Rng) -> Vec<Vec<Sample>> {
        let mut cells = vec![Vec::new(); 4];
        for round in 0..ROUNDS {
            for (cell, samples) in cells.iter_mut().enumerate() {
                // Rounds with counters are ten times as slow, and are left out.
                let counters = if (round + 1) % 5 == 0 { 10.0 } else { 1.0 };
                let median = [2e3, 4e3 * self.times, 6e3, 9e3][cell] * counters;
                for _ in 0..SAMPLES {
                    let at = samples.last().map_or(1_000_000, |s: &Sample| s.done_ns + 100);
                    let ns = (median * (1.0 - 0.02 * (1.0 - random.f64()).ln())) as u64;
                    samples.push(Sample {
                        round,
                        release_ns: at,
                        call_ns: at,
                        submitted_ns: at + ns / 10,
                        started_ns: 0,
                        ended_ns: 0,
                        done_ns: at + ns,
                        capped: false,
                    });
                }
            }
        }
        if self.copy != Status::Measured {
            cells[0].clear();
            cells[1].clear();
        }
        cells
    }

    fn part(&self, repeat: u32, cells: &[Vec<Sample>]) -> Part {
        let cell = |(i, samples): (usize, &Vec<Sample>)| PartCell {
            about: format!("cell {i}"),
            status: if i < 2 { self.copy.clone() } else { Status::Measured },
            samples: samples.len() as u64,
            compared: Compared { whole: 3, guards: true },
            worst: Vec::new(),
            counted: None,
            metered: None,
            stuck_between: None,
            turns: Vec::new(),
            commands: None,
        };
        Part {
            stage: 0,
            repeat,
            began: "2026-11-22T18:00:00Z".into(),
            seconds: 1.5,
            cpu: Some(1),
            class: "other".into(),
            throttled: 0,
            cells: cells.iter().enumerate().map(cell).collect(),
            loads: Vec::new(),
            noise: Vec::new(),
            clock_error_ns: None,
            counted: Vec::new(),
            notes: Vec::new(),
            counter: None,
            recorded: None,
        }
    }

    fn write(&self, path: &Path) -> PathBuf {
        let experiment = experiment::read(&self.experiment, "made.toml", &[]).unwrap_or_else(|e| panic!("{e}"));
        let folder = Folder::create(path, &experiment, false).unwrap();
        let mut random = fastrand::Rng::with_seed(self.seed);
        for repeat in 0..REPEATS {
            let cells = self.cells(&mut random);
            folder.write_part(&self.part(repeat, &cells), &cells).unwrap();
        }
        let mut environment = environment::Environment::default();
        environment.set("gpu.driver", self.driver);
        let context = Context {
            commit: None,
            command: vec![],
            started: "2026-11-22T18:00:00Z".into(),
            ended: "2026-11-22T18:01:00Z".into(),
            environment: serde_json::to_value(&environment).unwrap(),
            warnings: vec![],
            failed: Default::default(),
            interrupted: None,
        };
        folder.write_run(&Run::from_folder(&folder, context).unwrap()).unwrap();
        path.to_owned()
    }
}

struct Done {
    status: i32,
    out: String,
    err: String,
}

fn compare(dir: &Path, words: &[&str]) -> Done {
    let done = Command::cargo_bin("doorbell").unwrap().arg("compare").args(words).current_dir(dir).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    Done { status: done.status.code().unwrap(), out: text(&done.stdout), err: text(&done.stderr) }
}

fn json(done: &Done) -> serde_json::Value {
    serde_json::from_str(&done.out).unwrap_or_else(|e| panic!("{e}: {} {}", done.out, done.err))
}

#[test]
fn equal_runs_pass_and_a_slowdown_fails_with_its_cell() {
    let dir = tempfile::tempdir().unwrap();
    Made::new(1.0, 1).write(&dir.path().join("a"));
    Made::new(1.0, 2).write(&dir.path().join("same"));
    Made::new(1.08, 3).write(&dir.path().join("slow"));

    let same = compare(dir.path(), &["a", "same"]);
    assert_eq!(same.status, 0, "{}{}", same.out, same.err);
    assert!(same.out.ends_with("  equal: 12 of 12 figures decided: 12 equal\n") && same.err.is_empty(), "{}", same.out);

    let slow = compare(dir.path(), &["a", "slow", "--json"]);
    assert_eq!(slow.status, 1, "{}", slow.err);
    let found = json(&slow);
    assert_eq!((&found["due"], &found["decided"], &found["fails"]), (&12.into(), &12.into(), &true.into()));
    let rows = found["rows"].as_array().unwrap();
    let fails: Vec<_> = rows.iter().filter(|r| r["fails"] == true).collect();
    assert_eq!(fails.len(), 2, "p50 and mean of one cell: {}", slow.out);
    for row in fails {
        assert_eq!((&row["cell"]["subject"], &row["cell"]["bytes"]), (&"copy".into(), &4096.into()));
        let ratio = row["ratio"].as_f64().unwrap();
        assert!((1.06..1.10).contains(&ratio), "{row}");
    }

    let back = compare(dir.path(), &["slow", "a"]);
    assert!(back.status == 0 && back.out.contains("2 faster"), "{}", back.out);
    assert_eq!(compare(dir.path(), &["a", "slow", "--fail-above", "20%"]).status, 0);
    assert_eq!(compare(dir.path(), &["a", "slow", "--metric", "mean", "--fail-above=7%"]).status, 1);
    assert_eq!(compare(dir.path(), &["a", "slow", "--metric", "p99"]).status, 0, "a tail's limit is five times that");
    assert_eq!(compare(dir.path(), &["a", "slow", "--metric", "p99", "--fail-above-tail", "5%"]).status, 1);
    // Nothing is equal to within 0.
    let exact = compare(dir.path(), &["a", "same", "--fail-above", "0%"]);
    assert!(exact.status == 0 && exact.out.contains("  unclear: 0 of 12 figures decided"), "{}", exact.out);
    assert_eq!(compare(dir.path(), &["a", "same", "--fail-above", "0%", "--fail-undecided"]).status, 1);
}

/// Runs in which something was planted that once passed, or nothing that once failed.
#[test]
fn planted_runs_get_the_verdicts_that_are_due() {
    let dir = tempfile::tempdir().unwrap();
    let packed = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/compare/pairs.tar.gz");
    let done = std::process::Command::new("tar").args(["-xzf", packed, "-C"]).arg(dir.path()).status().unwrap();
    assert!(done.success());
    let dir = dir.path().join("repro");
    for (pair, status, overall) in [
        // 27 of 60 rounds three times as long, then 36.
        ("shares", 0, "unclear"),
        ("shares30", 0, "unclear"),
        // 4 of 60 rounds ten times as long.
        ("few", 0, "unclear"),
        ("fewtail", 0, "unclear"),
        // The p50 is 10 % shorter, the p99 60 % longer.
        ("faster", 0, "unclear"),
        // Five rounds are left of a cell that takes 100 times as long.
        ("lastfew", 1, "regression"),
        // All samples 15 % longer.
        ("zero", 1, "regression"),
        // Nothing differs.
        ("false", 0, "unclear"),
        ("one", 0, "unclear"),
        // Samples twice as long; a compiler ran before the second run.
        ("pressure", 1, "regression"),
    ] {
        let done = compare(&dir, &[&format!("{pair}-a"), &format!("{pair}-b"), "--json"]);
        let found = json(&done);
        assert_eq!((done.status, found["verdict"].as_str()), (status, Some(overall)), "{pair}: {}", done.out);
    }
    let nodes: Vec<String> = (0..8).map(|n| format!("node{n}")).collect();
    let words: Vec<&str> = ["--nodes"].into_iter().chain(nodes.iter().map(String::as_str)).collect();
    let machines = compare(&dir, &words);
    assert_eq!(machines.status, 0, "no outlier without an interval: {}", machines.out);
}

#[test]
fn junit_and_markdown_are_written_whether_it_passes_or_not() {
    let dir = tempfile::tempdir().unwrap();
    Made::new(1.0, 1).write(&dir.path().join("a"));
    Made::new(1.2, 2).write(&dir.path().join("b"));
    let words = ["a", "b", "--junit", "gate.xml", "--markdown", "gate.md"];
    assert_eq!(compare(dir.path(), &words).status, 1);
    let read = |name: &str| fs::read_to_string(dir.path().join(name)).unwrap();
    assert!(read("gate.xml").contains(r#"tests="12" skipped="0" errors="0" failures="2""#), "{}", read("gate.xml"));
    assert!(read("gate.md").contains("| **regression** |") && read("gate.md").starts_with("### b against a\n"));
    // A second time, which passes: the old files are replaced.
    assert_eq!(compare(dir.path(), &["a", "a", "--junit", "gate.xml", "--markdown", "gate.md"]).status, 0);
    assert!(read("gate.xml").contains(r#"failures="0""#) && !read("gate.md").contains("regression**"));
    let nowhere = compare(dir.path(), &["a", "b", "--junit", "no/gate.xml"]);
    assert!(nowhere.status == 2 && nowhere.err.contains("no/gate.xml was not written"), "{}", nowhere.err);
}

#[test]
fn a_cell_that_failed_in_the_second_run_fails_and_one_that_does_not_exist_there_does_not() {
    let dir = tempfile::tempdir().unwrap();
    Made::new(1.0, 1).write(&dir.path().join("a"));
    Made { copy: Status::Failed("the engine stopped".into()), ..Made::new(1.0, 2) }.write(&dir.path().join("failed"));
    Made { copy: Status::Unavailable("no CE 0".into()), ..Made::new(1.0, 3) }.write(&dir.path().join("without"));
    let failed = compare(dir.path(), &["a", "failed"]);
    assert!(failed.status == 1 && failed.out.contains("lost: the engine stopped"), "{}", failed.out);
    assert!(failed.out.contains("2 lost cells"), "{}", failed.out);
    let without = compare(dir.path(), &["a", "without"]);
    assert!(without.status == 0 && without.out.contains("only in A: no CE 0"), "{}", without.out);
    assert!(without.out.contains("  unclear: 6 of 8 figures decided"), "{}", without.out);
    let back = compare(dir.path(), &["failed", "a"]);
    assert!(back.status == 0 && back.out.contains("only in B"), "{}", back.out);
}

#[test]
fn another_driver_and_another_experiment_are_said() {
    let dir = tempfile::tempdir().unwrap();
    Made::new(1.0, 1).write(&dir.path().join("a"));
    let other = EXPERIMENT.replace("seed = 7", "seed = 8");
    Made { driver: "590.2", experiment: other, ..Made::new(1.0, 2) }.write(&dir.path().join("b"));
    let done = compare(dir.path(), &["a", "b"]);
    assert_eq!(done.status, 0, "{}", done.err);
    assert!(done.out.contains("gpu.driver: 580.1 in A, 590.2 in B"), "{}", done.out);
    assert!(done.out.contains("gpu.driver is another one"), "{}", done.out);
    assert!(done.out.contains("the experiments are not the same: run.seed is 7 there and 8 now"), "{}", done.out);
}

#[test]
fn a_run_json_by_itself_has_medians_of_rounds() {
    let dir = tempfile::tempdir().unwrap();
    Made::new(1.0, 1).write(&dir.path().join("a"));
    Made::new(1.1, 2).write(&dir.path().join("b"));
    // Inside its folder it is treated as the folder.
    let inside = compare(dir.path(), &["a/run.json", "b/run.json", "--json"]);
    assert_eq!((inside.status, json(&inside)["due"].as_u64()), (1, Some(12)), "{}", inside.err);
    fs::copy(dir.path().join("b/run.json"), dir.path().join("b.json")).unwrap();
    let alone = compare(dir.path(), &["a", "b.json", "--json"]);
    let found = json(&alone);
    assert_eq!((alone.status, found["due"].as_u64()), (1, Some(4)), "{}", alone.out);
    assert!(found["warnings"][0].as_str().unwrap().contains("b.json: its samples are not there"), "{found}");
    let tails = compare(dir.path(), &["a", "b.json", "--metric", "p99"]);
    assert!(tails.status == 2 && tails.err.contains("hint: give the folders"), "{}", tails.err);
}

#[test]
fn what_is_no_run_is_an_error_with_a_hint() {
    let dir = tempfile::tempdir().unwrap();
    let a = Made::new(1.0, 1).write(&dir.path().join("a"));
    fs::create_dir(dir.path().join("empty")).unwrap();
    fs::write(dir.path().join("odd.json"), "{\"schema\":\"other/1\"}").unwrap();
    for (words, what) in [
        (["a", "nowhere"], "nowhere"),
        (["a", "empty"], "no experiment"),
        (["odd.json", "a"], "its schema is \"other/1\""),
        (["a", "a/experiment.toml"], "no run.json"),
    ] {
        let done = compare(dir.path(), &words);
        assert!(done.status == 2 && done.err.contains("error: ") && done.err.contains(what), "{words:?}: {}", done.err);
        assert!(done.err.contains("hint: "), "{words:?}: {}", done.err);
    }
    fs::remove_file(a.join("run.json")).unwrap();
    let unfinished = compare(dir.path(), &["a", "a"]);
    assert!(unfinished.status == 2 && unfinished.err.contains("--resume` finishes it"), "{}", unfinished.err);
    assert_eq!(compare(dir.path(), &["a"]).status, 2);
    assert_eq!(compare(dir.path(), &["a", "a", "--fail-above", "5"]).status, 2);
    assert_eq!(compare(dir.path(), &["a", "a", "--metric", "max"]).status, 2);
}

#[test]
fn a_number_that_is_none_is_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let a = Made::new(1.0, 1).write(&dir.path().join("a"));
    Made::new(1.0, 2).write(&dir.path().join("b"));
    let path = a.join("run.json");
    let whole = fs::read_to_string(&path).unwrap();
    let (before, rest) = whole.split_once("\"mean\": ").unwrap();
    let (_, after) = rest.split_once(',').unwrap();
    let place = format!("line {}, column ", before.lines().count());
    for (number, what) in [("NaN", "NaN is no number in JSON"), ("1e999", "out of range"), ("null", "expected f64")] {
        let text = format!("{before}\"mean\": {number},{after}");
        fs::write(&path, &text).unwrap();
        fs::write(dir.path().join("alone.json"), text).unwrap();
        for given in ["a", "alone.json"] {
            let done = compare(dir.path(), &[given, "b"]);
            let file = if given == "a" { "a/run.json" } else { given };
            assert!(done.status == 2 && done.err.contains(file) && done.err.contains(what), "{}", done.err);
            assert!(done.err.contains(&place), "{place}: {}", done.err);
            // (A value that JSON allows is refused only after the whole figure was read.)
            assert!(number == "null" || done.err.contains("\"mean\": "), "{}", done.err);
            assert!(!done.err.contains("--resume"), "{}", done.err);
        }
    }
}

#[test]
fn a_repeat_that_one_run_lacks_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let _a = Made::new(1.0, 1).write(&dir.path().join("a"));
    let b = Made::new(1.0, 2).write(&dir.path().join("b"));
    let warnings = |of: [&str; 2]| {
        let done = compare(dir.path(), &[of[0], of[1], "--json"]);
        serde_json::from_str::<serde_json::Value>(&done.out).unwrap()["warnings"].to_string()
    };
    assert!(!warnings(["a", "b"]).contains("repeat"), "{}", warnings(["a", "b"]));
    fs::remove_file(b.join("parts/0000-01.json")).unwrap();
    let told = warnings(["a", "b"]);
    assert!(
        told.contains("b: repeat 1 has no samples of 4 of 4 cells that are compared") && !told.contains("a: "),
        "{told}"
    );
    // The same for a run.json alone.
    let run = run_folder::Run::from_folder(&Folder::open(&b).unwrap(), Context::default()).unwrap();
    fs::write(dir.path().join("b.json"), run.to_json().unwrap()).unwrap();
    assert!(warnings(["a", "b.json"]).contains("b.json: repeat 1 has no samples"), "{}", warnings(["a", "b.json"]));
}

#[test]
fn the_odd_machine_of_many_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for n in 0..6 {
        let times = if n == 4 { 1.5 } else { 1.0 };
        Made::new(times, 10 + n).write(&dir.path().join(format!("node{n}")));
    }
    let nodes = |count: usize| -> Vec<String> { (0..count).map(|n| format!("node{n}")).collect() };
    let words = |count| -> Vec<String> { ["--nodes".to_owned()].into_iter().chain(nodes(count)).collect() };
    let run = |words: &[String], more: &[&str]| {
        let all: Vec<&str> = words.iter().map(String::as_str).chain(more.iter().copied()).collect();
        compare(dir.path(), &all)
    };
    let done = run(&words(6), &["--json"]);
    assert_eq!(done.status, 1, "{}", done.err);
    let found = json(&done);
    for figure in found["figures"].as_array().unwrap() {
        let odd: Vec<_> = figure["standings"].as_array().unwrap().iter().filter(|s| s["outlier"] == true).collect();
        let is_odd = figure["cell"]["subject"] == "copy" && figure["cell"]["bytes"] == 4096;
        assert_eq!(odd.len(), usize::from(is_odd), "{figure}");
        assert!(odd.iter().all(|s| s["machine"] == "node4"), "{figure}");
    }
    let table = run(&words(6), &[]);
    assert!(table.out.contains("3 outliers in 12 figures") && table.out.contains("outlier"), "{}", table.out);
    assert_eq!(run(&words(4), &[]).status, 0, "none of the first four is odd");
    let tape = dir.path().join("a.doorbell");
    std::fs::write(&tape, "").unwrap();
    let run_of = nodes(1).remove(0);
    let mixed_up = |command: &str, path: &std::ffi::OsStr| {
        let mut doorbell = Command::cargo_bin("doorbell").unwrap();
        let out = doorbell.arg(command).args([path, path]).current_dir(dir.path()).output().unwrap();
        (out.status.code(), String::from_utf8(out.stderr).unwrap())
    };
    let (status, said) = mixed_up("compare", tape.as_os_str());
    assert!(status == Some(2) && said.contains("`doorbell diff`"), "{said}");
    let (status, said) = mixed_up("diff", run_of.as_ref());
    assert!(status == Some(2) && said.contains("`doorbell compare`"), "{said}");
    let few = run(&words(3), &[]);
    assert!(few.status == 2 && few.err.contains("3 machines, and 4 are needed"), "{}", few.err);
}
