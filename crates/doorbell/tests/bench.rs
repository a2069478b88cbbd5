//! `doorbell bench EXPERIMENT` as a user meets it, on the software GPU: what a run leaves, and what is said where something
//! goes wrong.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

fn bench() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.arg("bench").timeout(Duration::from_secs(120));
    command
}

const SMALL: &str = r#"
about = "two ways, three sizes"
[run]
gpu = "soft"
rounds = 6
samples = 60
[[subject]]
route = "host->ce0->gpu0"
name = "ce"
[[subject]]
route = "host->inline->gpu0"
name = "inline"
[matrix]
bytes = "8B,64B,4KiB"
[verify]
every = 4
[compare]
baseline = "ce"
"#;

fn file(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("small.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn parts(folder: &Path) -> usize {
    std::fs::read_dir(folder.join("parts"))
        .map_or(0, |all| all.flatten().filter(|e| e.file_name().to_string_lossy().ends_with(".json")).count())
}

#[test]
fn a_run_is_a_folder_with_a_part_of_each_stage() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    bench().arg(file(dir.path(), SMALL)).arg("-o").arg(&out).assert().success();
    assert_eq!(parts(&out), 3);
    let read = results::Folder::open(&out).unwrap();
    for part in read.parts().unwrap() {
        assert_eq!(part.cells.len(), 2);
        assert!(part.cells.iter().all(|c| c.samples == 60 && c.compared.whole > 0), "{part:?}");
    }
    // What is there is not written over by accident, and not done again.
    bench().arg(file(dir.path(), SMALL)).arg("-o").arg(&out).assert().code(2).stderr(contains("--force"));
    bench().args(["--resume", "-o"]).arg(&out).assert().success();
    bench().arg(file(dir.path(), SMALL)).arg("--force").arg("-o").arg(&out).assert().success();
}

#[test]
fn the_plan_says_what_would_run() {
    let dir = tempfile::tempdir().unwrap();
    bench().arg(file(dir.path(), SMALL)).arg("--plan").assert().success().stdout(contains("bytes=4KiB"));
    for name in ["smoke", "crossover"] {
        bench().args([name, "--plan"]).assert().success();
    }
    bench().arg("--list").assert().success().stdout(contains("smoke").and(contains("crossover")));
}

#[test]
fn what_is_asked_wrongly_is_said_with_line_and_hint() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = SMALL.replace("rounds = 6", "round = 6");
    bench().arg(file(dir.path(), &wrong)).assert().code(2).stderr(contains("small.toml:5").and(contains("rounds")));
    bench().arg("nothing-like-it").assert().code(2).stderr(contains("--list"));
    bench().arg("no/such.toml").assert().code(2).stderr(contains("no/such.toml"));
    bench().args(["smoke", "--set", "run.runds=3"]).assert().code(2).stderr(contains("run.runds"));
    bench().assert().code(2).stderr(contains("no experiment"));
}

fn start(folder: &Path, out: &Path, text: &str) -> Child {
    std::process::Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
        .arg("bench")
        .arg(file(folder, text))
        .arg("-o")
        .arg(out)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_killed_run_goes_on_behind_its_last_part() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let long = SMALL.replace("samples = 60", "duration = \"400ms\"");
    let mut child = start(dir.path(), &out, &long);
    let until = Instant::now() + Duration::from_secs(60);
    while parts(&out) == 0 {
        assert!(Instant::now() < until, "no part came");
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let before = parts(&out);
    assert!(before >= 1);
    let first = std::fs::metadata(out.join("parts/0000-00.json")).unwrap().modified().unwrap();
    // Its process may live for a moment after it.
    let mut resumed = bench();
    resumed.args(["--resume", "-o"]).arg(&out);
    let until = Instant::now() + Duration::from_secs(30);
    while !resumed.output().unwrap().status.success() {
        assert!(Instant::now() < until, "{:?}", resumed.output());
    }
    assert_eq!(parts(&out), 3);
    assert_eq!(std::fs::metadata(out.join("parts/0000-00.json")).unwrap().modified().unwrap(), first);
}

#[test]
fn a_machine_without_a_gpu_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let real = SMALL.replace("gpu = \"soft\"", "gpu = \"real\"");
    if Path::new("/dev/nvidiactl").exists() {
        trial::skip!("this machine has a GPU");
    }
    bench().arg(file(dir.path(), &real)).assert().code(77).stderr(contains("no GPU").and(contains("doctor")));
}
