//! Loads that are processes: a load in a separate process, and other programs. They run during the measurement, and all their
//! processes end with it, whatever ended it.

use assert_cmd::Command;
use serde_json::Value;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

fn file(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("loads.toml");
    std::fs::write(&path, text).unwrap();
    path
}

fn run(folder: &Path, text: &str) -> Value {
    let out = folder.join("run");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.arg("bench").arg(file(folder, text)).arg("-o").arg(&out).arg("--force").timeout(Duration::from_secs(60));
    command.assert().success();
    serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap()
}

#[test]
fn a_load_works_in_a_process_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let text = |gpu: &str, subject: &str, load: &str| {
        format!(
            "[run]\ngpu = \"{gpu}\"\nrepeats = 1\nrounds = 2\nduration = \"100ms\"\nnoise = \"0s\"\n[[subject]]\n{subject}\n[[load]]\n{load}\n\
             name = \"other\"\nprocess = \"own\"\nmust-reach = \"1/s\"\n"
        )
    };
    let hogs = run(dir.path(), &text("none", "call = \"lock(mutex)\"", "call = \"triad\"\nbytes = 100000\ncount = 2"));
    let load = &hogs["stages"][0]["loads"][0];
    assert_eq!((load["threads"].as_u64(), load["failed"].as_array().map(Vec::len)), (Some(2), Some(0)), "{load}");
    assert!(load["transfers"].as_u64() > Some(0) && load["bytes"].as_u64() > Some(100_000), "{load}");
    assert_eq!((hogs["cells"][0]["status"].as_str(), load["checked"].as_u64()), (Some("measured"), Some(2)), "{load}");
    // Its own software GPU, and its own bytes.
    let copies = run(
        dir.path(),
        &text("soft", "route = \"host->ce0->gpu0\"\nsizes = \"64B\"", "route = \"host->ce1->gpu0\"\nbytes = 4096"),
    );
    let load = &copies["stages"][0]["loads"][0];
    assert!(load["bytes"].as_u64() >= Some(4096) && load["checked"].as_u64() == Some(1), "{load}");
    // A missing program is reported from there.
    let none = run(
        dir.path(),
        &text("soft", "route = \"host->ce0->gpu0\"\nsizes = \"64B\"", "call = \"launch\"")
            .replace("must-reach = \"1/s\"\n", ""),
    );
    let why = none["stages"][0]["loads"][0]["unavailable"].as_str().unwrap_or_default();
    assert!(why.contains("no CUDA"), "{none}");
}

/// Processes with this mark in their environment.
fn marked(mark: &str) -> Vec<(i32, String)> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<i32>() else { continue };
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|b| *b == 0).any(|one| one == format!("LOADS_TEST={mark}").as_bytes()) {
            let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            all.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    all
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nothing_is_left_of_loads_when_the_measurement_is_killed() {
    let hackbench = std::env::split_paths(&std::env::var_os("PATH").unwrap()).any(|p| p.join("hackbench").is_file());
    let dir = tempfile::tempdir().unwrap();
    let mut text = "[run]\ngpu = \"none\"\nrepeats = 1\nrounds = 2\nduration = \"60s\"\nnoise = \"0s\"\n[[subject]]\ncall = \"lock(mutex)\"\n\
                    [[load]]\nname = \"other\"\ncall = \"hog\"\nprocess = \"own\"\n[[load]]\ncall = \"file\"\nbytes = 4096\n"
        .to_owned();
    if hackbench {
        text += "[[load]]\ncall = \"hackbench(1)\"\n";
    }
    let mark = format!("{}", std::process::id());
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.arg("bench").arg(file(dir.path(), &text)).arg("-o").arg(dir.path().join("run"));
    command.env("LOADS_TEST", &mark).env("TMPDIR", dir.path()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut bench = command.process_group(0).spawn().unwrap();
    let there = |what: &str| marked(&mark).iter().any(|(_, line)| line.contains(what));
    wait_for("the loads run", || there("--load") && (!hackbench || there("hackbench")));
    let child = marked(&mark).into_iter().find(|(_, line)| line.contains("--child")).unwrap().0;
    // SAFETY: kills the process that measures, which this test has started.
    unsafe { libc::kill(child, libc::SIGKILL) };
    bench.kill().unwrap();
    bench.wait().unwrap();
    wait_for("all are gone", || marked(&mark).is_empty());
    let left: Vec<_> = std::fs::read_dir(dir.path()).unwrap().flatten().map(|e| e.file_name()).collect();
    assert!(
        left.iter().all(|name| name == "run" || name == "loads.toml" || name.to_string_lossy().starts_with(".tmp")),
        "{left:?}"
    );
}
