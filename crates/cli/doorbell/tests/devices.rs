//! The shipped experiments on devices, short and small, on the software GPU: everything in them works and every byte is right.

use assert_cmd::Command;
use serde_json::Value;
use std::time::Duration;

fn run(name: &str, sets: &[&str]) -> Value {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(["bench"]).args(name.split(' ')).arg("--json").timeout(Duration::from_secs(120));
    for set in ["run.gpu=soft", "run.repeats=1", "run.noise=0s"].iter().chain(sets) {
        command.args(["--set", set]);
    }
    let output = command.assert().success().get_output().stdout.clone();
    serde_json::from_slice(&output).unwrap()
}

/// Each cell that the software GPU supports is measured, and compared if it moves bytes.
fn all_right(run: &Value, without: &[&str]) {
    let cells = run["cells"].as_array().unwrap();
    assert!(!cells.is_empty());
    for cell in cells {
        let name = cell["subject"].as_str().unwrap();
        if without.contains(&name) {
            assert!(cell["status"]["unavailable"].as_str().unwrap().contains("no CUDA"), "{cell}");
            continue;
        }
        let compared = cell["checked"]["whole"].as_u64().unwrap();
        assert!(cell["status"] == "measured" && (compared > 0 || name.starts_with("unpin")), "{cell}");
    }
}

#[test]
fn the_three_paths() {
    let run = run("device", &["run.samples=20", "run.rounds=10", "matrix.bytes=64KiB"]);
    all_right(&run, &[]);
    assert!(run["cells"].as_array().unwrap().iter().all(|cell| cell["tally"]["calls"] == 4), "the CPU's time is read");
}

#[test]
fn a_sweep_is_at_every_place() {
    let sweep = ["run.samples=16", "run.rounds=8", "matrix.addresses=sweep(1MiB,8MiB)"];
    let run = run("device --variant sweep", &sweep);
    all_right(&run, &[]);
    for cell in run["cells"].as_array().unwrap() {
        let places = &cell["places"];
        assert_eq!((&places["count"], &places["measured"], &places["step"]), (&8.into(), &8.into(), &(1 << 20).into()));
    }
}

#[test]
fn frames_and_pins() {
    all_right(&run("device --variant rotation", &["run.samples=20", "matrix.bytes=64KiB"]), &[]);
    let run = run("device --variant pinning", &["run.samples=10", "matrix.bytes=64KiB"]);
    all_right(&run, &["register", "unregister"]);
    let after: Vec<&Value> = run["repaid"].as_array().unwrap().iter().map(|repaid| &repaid["after"]).collect();
    assert_eq!(after.len(), 3);
    assert!(after[1]["transfers"] == 1 && *after[2] == "unknown", "{after:?}");
}
