//! A run that failed does not block the next: the same command again does the same as the first time.

use std::path::Path;
use std::process::{Command, Output};

fn doorbell(dir: &Path, line: &str) -> Output {
    let words: Vec<&str> = line.split(' ').collect();
    Command::new(env!("CARGO_BIN_EXE_doorbell")).args(words).current_dir(dir).output().unwrap()
}

/// Runs a command that fails with this status, twice. Then runs one that must succeed in the same place.
fn twice(line: &str, status: i32, then: &str) {
    let dir = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let out = doorbell(dir.path(), line);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(status), "{line}: {said}");
        assert!(!said.contains("exists"), "{line}: {said}");
    }
    let out = doorbell(dir.path(), then);
    assert!(out.status.success(), "{then}: {}", String::from_utf8_lossy(&out.stderr));
}

const QUICK: &str = "--gpu soft --set run.duration=2ms --set run.repeats=1 --set run.rounds=1";

#[test]
fn a_run_of_which_nothing_exists_here_can_be_repeated() {
    // The software GPU has no CUDA, and this experiment has only CUDA subjects.
    let cuda = format!("bench cuda.toml -o run {QUICK}");
    let dir = tempfile::tempdir().unwrap();
    let file = "name = \"cuda\"\n[[subject]]\nname = \"launch\"\ncall = \"launch\"\n";
    std::fs::write(dir.path().join("cuda.toml"), file).unwrap();
    for _ in 0..2 {
        let out = doorbell(dir.path(), &cuda);
        assert_eq!(out.status.code(), Some(77), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let out = doorbell(dir.path(), &format!("bench smoke -o run {QUICK}"));
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let out = doorbell(dir.path(), &format!("bench smoke -o run {QUICK}"));
    assert_eq!(out.status.code(), Some(2), "what was measured is not replaced");
}

#[test]
fn without_a_gpu_nothing_is_left() {
    if Path::new("/dev/nvidiactl").exists() {
        eprintln!("not tried: this machine has a GPU");
        return;
    }
    twice("bench smoke -o run", 77, &format!("bench smoke -o run {QUICK}"));
    twice("bench crossover --variant thresholds -o run", 77, &format!("bench smoke -o run {QUICK}"));
    twice("soak mixed -o run --for 2s", 77, "bench --list");
    twice("calibrate -o run.toml", 77, "bench --list");
    let dir = tempfile::tempdir().unwrap();
    for line in ["bench smoke -o run", "soak mixed -o run", "calibrate -o run"] {
        doorbell(dir.path(), line);
        assert!(dir.path().read_dir().unwrap().next().is_none(), "{line}");
    }
}

#[test]
fn what_would_run_is_said_without_a_gpu() {
    let dir = tempfile::tempdir().unwrap();
    for line in [
        "bench --routes",
        "bench --list",
        "calibrate --dry-run",
        "bench smoke --dry-run",
        "bench crossover --variant routes --dry-run",
        "bench seed-2013 --dry-run",
    ] {
        let out = doorbell(dir.path(), line);
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{line}: {}", String::from_utf8_lossy(&out.stderr));
        let longest =
            said.lines().filter(|_| line.ends_with("--dry-run")).map(|line| line.chars().count()).max().unwrap_or(0);
        // The reason why there is no GPU is one long sentence.
        assert!(longest < 200 || said.contains("no GPU"), "{line}: {longest}\n{said}");
    }
}
