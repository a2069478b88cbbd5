//! `doorbell sample` as a user sees it.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;

fn doorbell() -> Command {
    let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    c.timeout(std::time::Duration::from_secs(120));
    c
}

fn stdout(args: &[&str]) -> String {
    let out = doorbell().args(args).assert().success();
    String::from_utf8(out.get_output().stdout.clone()).unwrap()
}

#[test]
fn the_list_names_every_sample() {
    let text = stdout(&["sample", "--list"]);
    assert_eq!(text.lines().count(), sample_programs::SAMPLES.len());
    for (line, s) in text.lines().zip(sample_programs::SAMPLES) {
        assert!(line.starts_with(s.name) && line.contains(s.about) && line.contains(s.count), "{line}");
    }
    let json = stdout(&["sample", "--list", "--json"]);
    let names: Vec<String> =
        json.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["name"].as_str().unwrap().into()).collect();
    assert_eq!(names, sample_programs::names());
}

#[test]
fn an_unknown_name_lists_the_names_before_anything_runs() {
    let out = doorbell().args(["sample", "launches", "nothing", "--gpu", "soft"]).assert().code(2).stdout("");
    out.stderr(contains("no sample is called nothing").and(contains("copies, launches")).and(contains("\nhint: ")));
    doorbell().arg("sample").assert().code(2).stderr(contains("NAME"));
}

#[test]
fn the_last_line_is_a_checksum_that_only_seed_and_count_change() {
    let last = |args: &[&str]| {
        let all = [&["sample", "launches", "--gpu", "soft"], args].concat();
        stdout(&all).lines().last().unwrap().to_owned()
    };
    let first = last(&[]);
    assert!(first.starts_with("checksum launches seed 1: "), "{first}");
    assert_eq!(first, last(&[]));
    assert_eq!(first, last(&["--duration", "0.2s"]), "repetitions give the same");
    let other = last(&["--seed", "2"]);
    assert!(other.starts_with("checksum launches seed 2: "), "{other}");
    assert_ne!(first.rsplit(' ').next(), other.rsplit(' ').next());
    assert_ne!(first, last(&["--count", "3"]));
}

#[test]
fn json_is_one_object_a_sample() {
    let text = stdout(&["sample", "launches", "channels", "--gpu", "soft", "--count", "50", "--json"]);
    let rows: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(rows.len(), 2);
    assert_eq!((rows[0]["sample"].as_str(), rows[1]["sample"].as_str()), (Some("launches"), Some("channels")));
    assert_eq!(rows[1]["facts"]["channels"].as_u64(), Some(51));
    assert_eq!(rows[0]["facts"]["launches"].as_u64(), Some(250));
    assert!(rows.iter().all(|r| r["checksum"].as_str().is_some_and(|c| c.len() == 16)));
}

#[test]
fn what_cannot_run_says_why_with_status_77() {
    let graphs = doorbell().args(["sample", "graphs", "--gpu", "soft"]).assert().code(77);
    graphs.stderr(contains("graphs needs libcuda"));
    match cuda::Cuda::load() {
        Ok(_) => test_support::skip_part!("there is a libcuda"),
        Err(_) => {
            let real = doorbell().args(["sample", "copies"]).assert().code(77).stdout("");
            real.stderr(contains("CUDA is not available").and(contains("hint: `--gpu soft`")));
        }
    }
}

#[test]
fn shapes_of_graphs_are_listed_and_chosen_by_name() {
    let text = stdout(&["sample", "graphs", "--list"]);
    let names: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(names, sample_programs::shapes());
    let json = stdout(&["sample", "--list", "graphs", "--json"]);
    let last: Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
    assert_eq!((last["name"].as_str(), last["number"].as_u64()), (names.last().copied(), Some(names.len() as u64)));
    // A wrong name is an error before anything else is checked.
    let wrong = doorbell().args(["sample", "graphs", "--only", "one,square"]).assert().code(2).stdout("");
    wrong.stderr(contains("no shape of graphs is called square").and(contains("diamond, fork")));
    let other = doorbell().args(["sample", "launches", "--gpu", "soft", "--only", "one"]).assert().code(2);
    other.stderr(contains("a part of this sample: one makes no sense"));
}

#[test]
fn impossible_options_are_errors() {
    for args in [["--duration", "-1s"], ["--duration", "nan"], ["--count", "999999999999"]] {
        let out = doorbell().args(["sample", "spin", "--gpu", "soft"]).args(args).assert().code(2);
        out.stderr(contains("error: "));
    }
}

/// It could only restart with the software GPU, which would end the recording without a message.
#[test]
fn in_a_recording_without_the_software_gpu_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let program = assert_cmd::cargo::cargo_bin!("doorbell");
    let out = doorbell()
        .args(["record", "--force", "--unverified-driver", "-o"])
        .arg(dir.path().join("t.doorbell"))
        .arg("--")
        .arg(program)
        .args(["sample", "launches", "--gpu", "soft"])
        .assert()
        .code(2);
    out.stderr(contains("this recording has no software GPU").and(contains("record --gpu soft")));
}

#[test]
fn another_preload_is_no_obstacle() {
    let out = doorbell()
        .env("LD_PRELOAD", "/nonexistent/other.so")
        .args(["sample", "launches", "--gpu", "soft"])
        .assert()
        .success();
    out.stdout(contains("checksum launches"));
}

#[test]
fn the_help_has_examples() {
    for command in ["sample", "demo"] {
        doorbell().args([command, "--help"]).assert().success().stdout(contains("Examples:"));
    }
}
