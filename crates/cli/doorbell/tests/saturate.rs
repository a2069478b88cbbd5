//! `doorbell bench saturate` as a user sees it, on the software GPU.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A few cells of a few milliseconds.
const QUICK: [&str; 8] = [
    "run.duration=2ms",
    "run.repeats=1",
    "run.warm-up=20",
    "run.buffer=64KiB",
    "peak.bytes=16KiB",
    "matrix.bytes=512B",
    "matrix.devices=1",
    "matrix.target=gpu",
];

fn doorbell(words: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.arg("bench").args(words).timeout(Duration::from_secs(120));
    command
}

fn quick(sets: &[&str]) -> Vec<String> {
    let words = ["saturate", "small", "--gpu", "soft"].map(String::from);
    words.into_iter().chain(sets.iter().flat_map(|set| ["--set".to_owned(), (*set).into()])).collect()
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn is_of_schema(value: &Value, name: &str) {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference").join(name);
    let validator = jsonschema::validator_for(&json(&schema)).unwrap();
    let errors: Vec<String> = validator.iter_errors(value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:?}");
}

/// The text must have no rate and no time of an emulation.
fn no_rates(text: &str) {
    for unit in ["GB/s", "IOPS", " us ", " ms ", " ns "] {
        assert!(!text.contains(unit), "{unit}: {text}");
    }
}

#[test]
fn a_run_leaves_its_folder_and_shows_it_without_a_rate() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let out = out.to_str().unwrap();
    let words = quick(&QUICK);
    let words: Vec<&str> = words.iter().map(String::as_str).chain(["-o", out]).collect();
    let ran =
        doorbell(&words).assert().success().stdout(contains("functional").and(contains("512 B to gpu, 1 thread")));
    no_rates(&String::from_utf8_lossy(&ran.get_output().stdout));
    let account = json(&Path::new(out).join("saturate.json"));
    is_of_schema(&account, "saturate.schema.json");
    assert!(account["functional"] == true && account["complete"] == true);
    for cell in account["cells"].as_array().unwrap() {
        assert!(
            cell["checked"]["wrong"] == 0 && cell["submitted"].as_u64() > Some(0) && cell["figures"].is_null(),
            "{cell}"
        );
    }
    // The run exists: it can be shown, and a page can be made of it.
    doorbell(&words).assert().code(2).stderr(contains("there is a run already").and(contains("--force")));
    doorbell(&["saturate", "--show", out, "--json"]).assert().success().stdout(contains("doorbell.saturate/2"));
    let page = dir.path().join("page.html");
    let mut report = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    report.args(["report", out, "-o", page.to_str().unwrap()]).assert().success();
    assert!(std::fs::read_to_string(page).unwrap().contains("never how fast"));
}

#[test]
fn what_cannot_be_read_or_measured_says_what_helps() {
    doorbell(&["saturate", "nothing"]).assert().code(2).stderr(contains("there is no plan"));
    doorbell(&["saturate", "small", "--set", "matrix.depth=0"]).assert().code(2).stderr(contains("matrix.depth"));
    doorbell(&["saturate", "small", "--set", "source.kind=nvme"]).assert().code(2).stderr(contains("source.drives"));
    let word = ["saturate", "small", "--i-mean-to-overwrite", "0000:04:00.0"];
    doorbell(&word).assert().code(2).stderr(contains("the plan writes to no drive"));
    let writes = ["saturate", "small", "--set", "matrix.operation=write"];
    doorbell(&writes).assert().code(2).stderr(contains("only drives"));
    doorbell(&["saturate", "files"])
        .assert()
        .code(2)
        .stderr(contains("source.file is empty").and(contains("--set source.file")));
    let missing = ["saturate", "files", "--gpu", "soft", "--set", "source.file=/none/data.bin"];
    doorbell(&missing).assert().code(2).stderr(contains("/none/data.bin").and(contains("check the path")));
    doorbell(&["saturate", "--list", "--json"]).assert().success().stdout(contains("\"paper\""));
}

#[test]
#[ignore = "4 s: a run is killed and goes on; run by .ci/run"]
fn a_killed_run_goes_on_behind_its_last_part() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let sets = [&QUICK[..1], &["run.repeats=20"], &QUICK[2..]].concat();
    let mut words = vec!["bench".to_owned()];
    words.extend(quick(&sets));
    words.extend(["-o".into(), out.to_string_lossy().into_owned()]);
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
        .args(&words)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let parts = || std::fs::read_dir(out.join("parts")).map_or(0, |all| all.count());
    let begun = Instant::now();
    while parts() < 3 {
        assert!(begun.elapsed() < Duration::from_secs(60) && child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let before: Vec<Value> = std::fs::read_dir(out.join("parts"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"))
        .map(|path| json(&path))
        .collect();
    assert!(before.len() < 60, "it was not killed in time");
    doorbell(&["saturate", "-o", out.to_str().unwrap(), "--resume"]).assert().success();
    let account = json(&out.join("saturate.json"));
    assert!(
        account["complete"] == true && account["cells"].as_array().unwrap().iter().all(|cell| cell["repeats"] == 20)
    );
    // The existing parts stayed as they were.
    for part in before {
        let path = out.join("parts").join(format!(
            "{:03}-{:04}.json",
            part["repeat"].as_u64().unwrap(),
            part["number"].as_u64().unwrap()
        ));
        assert_eq!(json(&path), part);
    }
}
