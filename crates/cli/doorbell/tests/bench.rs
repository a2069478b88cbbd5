//! `doorbell bench EXPERIMENT` as a user sees it, on the software GPU: the files that a run leaves, and the messages when
//! something fails.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant, SystemTime};

fn bench() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.arg("bench").timeout(Duration::from_secs(120));
    command
}

const SMALL: &str = r#"
about = "two ways, three sizes"
[run]
gpu = "soft"
repeats = 1
rounds = 6
samples = 60
noise = "10ms"
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
    let read = run_folder::Folder::open(&out).unwrap();
    for part in read.parts().unwrap() {
        assert_eq!(part.cells.len(), 2);
        assert!(part.cells.iter().all(|c| c.samples == 60 && c.compared.whole > 0), "{part:?}");
    }
    assert_eq!(whole_parts(&out), 3);
    let run = run_json(&out);
    assert!(run["complete"] == true && run["cells"].as_array().unwrap().len() == 6, "{run}");
    // It is printed again from its folder, or from run.json alone, and stays as it is.
    let before = std::fs::read(out.join("run.json")).unwrap();
    let shown = bench().arg("--show").arg(&out).assert().success().stdout(contains("two ways, three sizes"));
    assert!(shown.get_output().stderr.is_empty());
    let shown = bench().args(["--json", "--show"]).arg(&out).assert().success();
    assert_eq!(shown.get_output().stdout, before);
    std::fs::remove_dir_all(out.join("plots")).unwrap();
    bench().args(["--plots", "--show"]).arg(&out).assert().success();
    assert!(out.join("plots").is_dir() && std::fs::read(out.join("run.json")).unwrap() == before);
    let alone = dir.path().join("alone.json");
    std::fs::copy(out.join("run.json"), &alone).unwrap();
    bench().args(["--json", "--show"]).arg(&alone).assert().success();
    bench().args(["--plots", "--show"]).arg(&alone).assert().success();
    assert!(dir.path().join("plots").is_dir());
    let asserts = dir.path().join("asserts.toml");
    std::fs::write(&asserts, format!("{SMALL}[[assert]]\nsubject = \"inline\"\nwithin-best = \"5%\"\n")).unwrap();
    let judged = bench().args(["--asserts"]).arg(&asserts).arg("--show").arg(&alone).assert().success();
    judged.stdout(contains("not judged: 1 assert"));
    // An existing run is not overwritten by accident, and not repeated.
    bench().arg(file(dir.path(), SMALL)).arg("-o").arg(&out).assert().code(2).stderr(contains("--force"));
    bench().args(["--resume", "-o"]).arg(&out).assert().success();
    bench().arg(file(dir.path(), SMALL)).arg("--force").arg("-o").arg(&out).assert().success();
}

/// Two calls that need no GPU.
const CALLS: &str = "[run]\ngpu = \"none\"\nrounds = 20\nsamples = 100\nnoise = \"50ms\"\n[[subject]]\ncall = \"lock(mutex)\"\n\
                     [[subject]]\ncall = \"nothing\"\n";

#[test]
fn five_processes_share_a_run_unless_it_says_how_often_it_is_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let measured = |name: &str, sets: &[&str]| {
        let out = dir.path().join(name);
        let mut command = bench();
        command.arg(file(dir.path(), CALLS)).arg("-o").arg(&out);
        command.args(sets.iter().flat_map(|set| ["--set", set])).assert().success();
        (parts(&out), run_folder::Folder::open(&out).unwrap().run().unwrap())
    };
    let (parts, run) = measured("shared", &[]);
    assert_eq!((parts, run.experiment.run.rounds, run.experiment.run.samples), (5, 4, Some(20)));
    assert!(run.cells.iter().all(|cell| (cell.samples, cell.rounds) == (100, 20)), "{run:?}");
    assert!(run.pressure().is_some() || !Path::new("/proc/pressure/cpu").exists(), "{:?}", run.parts);
    // The same file can continue it.
    let resumed = ["--resume", "-o"];
    bench().arg(file(dir.path(), CALLS)).args(resumed).arg(dir.path().join("shared")).assert().success();
    let (parts, run) = measured("one", &["run.repeats=1"]);
    assert_eq!((parts, run.experiment.run.rounds, run.experiment.run.samples), (1, 20, Some(100)));
    // A folder of a doorbell that wrote no `repeats` was measured by one process.
    let out = dir.path().join("one");
    let stored = std::fs::read_to_string(out.join("experiment.toml")).unwrap();
    std::fs::write(out.join("experiment.toml"), stored.replace("repeats = 1\n", "")).unwrap();
    let shown = bench().args(["--json", "--show"]).arg(&out).assert().success();
    let shown: Value = serde_json::from_slice(&shown.get_output().stdout).unwrap();
    assert!(shown["complete"] == true && shown["cells"][0]["samples"] == 100, "{shown}");
    bench().args(resumed).arg(&out).assert().success();
    assert_eq!(self::parts(&out), 1);
}

#[test]
fn the_plan_says_what_would_run() {
    let dir = tempfile::tempdir().unwrap();
    bench().arg(file(dir.path(), SMALL)).arg("--dry-run").assert().success().stdout(contains("bytes=4KiB"));
    let shared = bench().arg(file(dir.path(), CALLS)).arg("--dry-run").assert().success();
    shared.stdout(contains("2 cells in 1 stage of 5 processes").and(contains("at most 200 samples")));
    // Names are looked up before anything runs: of subjects, of loads, and of what the matrix puts in their place.
    let load = "[[load]]\ncall = \"hog\"\n[matrix]\nhog.call = [\"hog\", \"hug\"]\n";
    for (text, wrong) in [
        (CALLS.replace("lock(mutex)", "lock(mutx)"), "`lock(mutx)`: call `lock(mutx)`"),
        (SMALL.replace("host->inline->gpu0", "host->inlin->gpu0"), "`inline`: route `host->inlin->gpu0`"),
        (format!("{CALLS}{load}"), "`hog`: call `hug`"),
    ] {
        for more in [&["--dry-run"][..], &[]] {
            let refused = bench().arg(file(dir.path(), &text)).args(more).assert().code(2);
            refused.stderr(contains(wrong).and(contains("small.toml")).and(contains("--routes")));
        }
    }
    // So is what the machine and the folder do not allow.
    let cpus = CALLS.replace("[run]\n", "[run]\nrepeats = 1\ncpus = \"4095\"\n");
    let out = dir.path().join("taken");
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("notes.txt"), "x").unwrap();
    for (text, to, wrong) in
        [(&cpus, "new", "may not run on CPU 4095"), (&CALLS.to_owned(), "taken", "the folder is not empty")]
    {
        for more in [&["--dry-run"][..], &[]] {
            let mut command = bench();
            command.arg(file(dir.path(), text)).args(more).arg("-o").arg(dir.path().join(to));
            let refused = command.assert().code(2);
            let out = refused.get_output();
            let said = String::from_utf8_lossy(&[&out.stdout[..], &out.stderr[..]].concat()).into_owned();
            assert!(said.contains(wrong), "{more:?}: {said}");
        }
    }
    for name in ["smoke", "crossover"] {
        bench().args([name, "--dry-run"]).assert().success();
    }
    bench().arg("--list").assert().success().stdout(contains("smoke").and(contains("crossover")));
}

#[test]
fn the_headline_measures_what_needs_no_cuda_and_names_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let mut headline = bench();
    headline.args(["headline", "--gpu", "soft", "--set", "run.duration=200ms", "--set", "run.noise=0s"]);
    headline.args(["--set", "run.repeats=1", "--set", "run.rounds=6", "--set", "run.patience="]).arg("-o").arg(&out);
    headline.assert().success().stdout(contains("EXTREME-compile"));
    let run = run_folder::Folder::open(&out).unwrap().run().unwrap();
    assert_eq!(run.cells.len(), 40);
    for cell in &run.cells {
        let needs = |name: &str| cell.subject == name;
        match &cell.status {
            run_folder::Status::Measured => {
                assert!(cell.samples > 0 && cell.checked.whole > 0 && cell.rate.is_some(), "{}", cell.subject);
            }
            run_folder::Status::Unavailable(why) => {
                assert!(
                    why.contains("the software GPU has no CUDA") || why.contains("DOORBELL_PYTHON"),
                    "{}: {why}",
                    cell.subject
                );
                assert!(!needs("copy: doorbell") && !needs("copy: stores"), "{why}");
            }
            other => panic!("{}: {other:?}", cell.subject),
        }
    }
}

#[test]
fn every_route_is_measured_or_says_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let mut matrix = bench();
    matrix.args([
        "crossover",
        "--variant",
        "routes",
        "--gpu",
        "soft",
        "--set",
        "matrix.bytes=4B,4KiB",
        "--set",
        "run.samples=20",
        "--set",
        "run.repeats=1",
    ]);
    matrix.env("DOORBELL_PROFILE", dir.path().join("none.toml"));
    matrix.args(["--set", "run.noise=0s"]).arg("-o").arg(&out).assert().success();
    let run = run_folder::Folder::open(&out).unwrap().run().unwrap();
    for cell in &run.cells {
        let route = cell.what.text();
        assert!(workload::routes::parse(route).is_ok(), "{route}");
        match &cell.status {
            run_folder::Status::Measured => assert!(cell.checked.whole > 0, "{route}"),
            run_folder::Status::Unavailable(why) => {
                let known = ["has no CUDA", "there is no profile", "a piece has at least one byte"];
                assert!(known.iter().any(|known| why.contains(known)), "{route}: {why}");
            }
            run_folder::Status::Failed(why) | run_folder::Status::Invalid(why) => panic!("{route}: {why}"),
        }
    }
    let measured = run.cells.iter().filter(|c| c.status == run_folder::Status::Measured).count();
    assert!(measured >= 40, "{measured} of {}", run.cells.len());
}

#[test]
fn what_is_asked_wrongly_is_said_with_line_and_hint() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = SMALL.replace("rounds = 6", "round = 6");
    bench().arg(file(dir.path(), &wrong)).assert().code(2).stderr(contains("small.toml:6").and(contains("rounds")));
    bench().arg("nothing-like-it").assert().code(2).stderr(contains("--list"));
    bench().arg("no/such.toml").assert().code(2).stderr(contains("no/such.toml"));
    bench().args(["smoke", "--set", "run.runds=3"]).assert().code(2).stderr(contains("run.runds"));
    bench().assert().code(2).stderr(contains("no experiment"));
}

/// `run.json`, which matches its schema.
fn run_json(out: &Path) -> Value {
    let read = |path: &Path| -> Value { serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap() };
    let schema = read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/run.schema.json"));
    let run = read(&out.join("run.json"));
    let wrong: Vec<_> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(&run)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    run
}

/// The statuses of the cells, by subject.
fn statuses(run: &Value, subject: &str) -> Vec<String> {
    let cells = run["cells"].as_array().unwrap().iter().filter(|c| c["subject"] == subject);
    cells.map(|c| c["status"].to_string()).collect()
}

/// Every part is whole and has its samples. Returns their number.
fn whole_parts(out: &Path) -> usize {
    let folder = run_folder::Folder::open(out).unwrap();
    let parts = folder.parts().unwrap();
    for part in &parts {
        let samples = folder.samples(part.stage, part.repeat).unwrap();
        let expected: Vec<u64> = part.cells.iter().map(|c| c.samples).collect();
        assert_eq!(samples.iter().map(|s| s.len() as u64).collect::<Vec<_>>(), expected);
    }
    parts.len()
}

const LONG: Duration = Duration::from_secs(60);

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A run in a separate process group.
fn start(folder: &Path, out: &Path, text: &str) -> Child {
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.arg("bench").arg(file(folder, text)).arg("-o").arg(out);
    spawn(&mut command)
}

fn spawn(command: &mut std::process::Command) -> Child {
    command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
}

/// The process that measures for this one, if there is one now.
fn measuring(parent: &Child) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", parent.id())).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: two numbers, of a process or a group that this test started.
    let sent = unsafe { libc::kill(pid, signal) } == 0;
    let error = std::io::Error::last_os_error();
    assert!(sent || error.raw_os_error() == Some(libc::ESRCH), "{error}");
}

fn first_part(out: &Path) -> SystemTime {
    std::fs::metadata(out.join("parts/0000-00.json")).unwrap().modified().unwrap()
}

/// Continues a run. The process of one that was killed may live for a moment after it.
fn resume(out: &Path) {
    let mut resumed = bench();
    resumed.args(["--resume", "-o"]).arg(out);
    let until = Instant::now() + LONG;
    loop {
        let output = resumed.output().unwrap();
        if output.status.success() {
            return;
        }
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(err.contains("still measures") && Instant::now() < until, "{output:?}");
    }
}

fn long() -> String {
    SMALL.replace("samples = 60", "duration = \"500ms\"")
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn a_killed_run_goes_on_behind_its_last_part() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let mut child = start(dir.path(), &out, &long());
    wait_for("no part came", || parts(&out) > 0);
    child.kill().unwrap();
    child.wait().unwrap();
    let first = first_part(&out);
    resume(&out);
    assert_eq!((whole_parts(&out), first_part(&out)), (3, first));
    assert_eq!(run_json(&out)["complete"], true);
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn ctrl_c_keeps_what_is_finished_and_the_run_goes_on_later() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    // On a busy machine the signal may arrive after the measurement, or between two stages.
    let (run, first) = test_support::measured(|| {
        let _ = std::fs::remove_dir_all(&out);
        let mut child = start(dir.path(), &out, &long());
        wait_for("no part came", || parts(&out) > 0);
        let first = first_part(&out);
        // `timeout` sends its signal twice: to its child, and to the child's process group.
        kill(child.id() as i32, libc::SIGINT);
        std::thread::sleep(Duration::from_millis(3));
        kill(-(child.id() as i32), libc::SIGINT);
        let status = child.wait().unwrap();
        let run = run_json(&out);
        let amid = why_missing(&run).first().is_some_and(|why| why == "the run was stopped while it was measured");
        if !amid {
            return Err(format!("{status}: {}", run["missing"]));
        }
        assert_eq!(status.code(), Some(130), "{status}");
        Ok((run, first))
    });
    let left = 3 - whole_parts(&out);
    assert!(left > 0 && run["complete"] == false, "{left} left");
    assert_eq!(why_missing(&run).len(), left);
    assert!(why_missing(&run)[1..].iter().all(|why| why == "the run was stopped before it"), "{}", run["missing"]);
    resume(&out);
    assert_eq!((whole_parts(&out), first_part(&out)), (3, first));
    assert_eq!(run_json(&out)["complete"], true);
}

fn why_missing(run: &Value) -> Vec<String> {
    run["missing"].as_array().unwrap().iter().map(|m| m["why"].as_str().unwrap().to_owned()).collect()
}

/// Stops a run whose process survives a kill, like one that is in a call of the GPU's driver. `None` if such a process
/// cannot be made on this machine.
fn stop_beside_a_process_that_stays(again: bool) -> Option<()> {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let text = SMALL.replace("samples = 60", "duration = \"250ms\"").replace("8B,64B,4KiB", "8B..4KiB");
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.arg("bench").arg(file(dir.path(), &text)).arg("-o").arg(&out);
    command.process_group(0).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    wait_for("no part came", || parts(&out) > 0);
    let measures = measuring(&child).unwrap();
    // A traced process does not disappear before its tracer has waited for it, which this test does at its end.
    // SAFETY: plain numbers. The call does not stop the process, and the process does not access this one's memory.
    if unsafe { libc::ptrace(libc::PTRACE_SEIZE, measures, 0, 0) } != 0 {
        kill(-(child.id() as i32), libc::SIGKILL);
        child.wait().unwrap();
        return None;
    }
    let stopped = Instant::now();
    kill(child.id() as i32, libc::SIGINT);
    if again {
        // Long enough to count as a separate signal.
        std::thread::sleep(Duration::from_millis(400));
        kill(child.id() as i32, libc::SIGINT);
    }
    let limit = if again { Duration::from_secs(5) } else { Duration::from_secs(15) };
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if stopped.elapsed() > limit {
            child.kill().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut at = 0;
    // SAFETY: a process that this thread traces, and a place for its status.
    while unsafe { libc::waitpid(measures, &mut at, libc::__WALL) } == measures && libc::WIFSTOPPED(at) {
        kill(measures, libc::SIGKILL);
    }
    let status = status.expect("the run waits for its process for ever");
    let err = std::io::read_to_string(child.stderr.take().unwrap()).unwrap();
    assert_eq!(status.code(), Some(130), "{status}: {err}");
    assert!(err.contains("waiting for") && err.contains(&format!("process {measures}")), "{err}");
    let run = run_json(&out);
    assert!(whole_parts(&out) > 0 && run["complete"] == false, "{}", run["missing"]);
    let stopped = why_missing(&run).iter().filter(|why| *why == "the run was stopped while it was measured").count();
    assert_eq!(stopped, 1, "{}", run["missing"]);
    Some(())
}

#[test]
#[ignore = "2 to 4 s; run by .ci/run"]
fn a_second_ctrl_c_waits_for_nothing_and_keeps_what_is_finished() {
    if stop_beside_a_process_that_stays(true).is_none() {
        test_support::skip!("no process may be traced here");
    }
}

#[test]
#[ignore = "waits out both limits, 6 s; run by .ci/run"]
fn ctrl_c_ends_a_run_whose_process_does_not_end() {
    if stop_beside_a_process_that_stays(false).is_none() {
        test_support::skip!("no process may be traced here");
    }
}

#[test]
fn ctrl_c_before_anything_is_measured_leaves_a_run_that_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    test_support::measured(|| {
        let _ = std::fs::remove_dir_all(&out);
        let mut child = start(dir.path(), &out, &long());
        wait_for("no folder came", || out.join("experiment.toml").exists());
        kill(-(child.id() as i32), libc::SIGINT);
        let status = child.wait().unwrap();
        if whole_parts(&out) > 0 {
            return Err(format!("{status}: the signal came when something was measured"));
        }
        assert_eq!(status.code(), Some(130), "{status}");
        let run = run_json(&out);
        assert_eq!((run["complete"].as_bool(), run["missing"].as_array().map(Vec::len)), (Some(false), Some(3)));
        Ok(())
    });
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn a_process_that_dies_costs_its_stage_and_is_measured_again() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    // A kill between two stages loses no stage: then try again.
    let text = (0..20).find_map(|_| {
        let _ = std::fs::remove_dir_all(&out);
        let child = start(dir.path(), &out, &long());
        wait_for("no part came", || parts(&out) > 0);
        std::thread::sleep(Duration::from_millis(100));
        measuring(&child).inspect(|&pid| kill(pid, libc::SIGKILL));
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(matches!(output.status.code(), Some(0 | 2)), "{}: {text}", output.status);
        (output.status.code() == Some(2)).then_some(text)
    });
    let text = text.expect("never in the midst of a stage");
    assert!(text.contains("not complete: 1 of 3 parts missing") && text.contains("signal 9"), "{text}");
    let run = run_json(&out);
    assert_eq!(whole_parts(&out), 2);
    for subject in ["ce", "inline"] {
        let failed = statuses(&run, subject).iter().filter(|s| s.contains("signal 9")).count();
        assert_eq!(failed, 1, "{}", run["cells"]);
    }
    resume(&out);
    assert_eq!(whole_parts(&out), 3);
    let run = run_json(&out);
    assert!(run["complete"] == true && statuses(&run, "ce").iter().all(|s| s == "\"measured\""), "{run}");
}

#[test]
#[ignore = "kills a run eight times; run by .ci/run"]
fn killed_at_any_moment_every_part_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let many =
        SMALL.replace("samples = 60", "samples = 2000\nduration = \"60ms\"").replace("repeats = 1", "repeats = 3");
    let program = assert_cmd::cargo::cargo_bin!("doorbell");
    let seed = fastrand::u64(..);
    let mut random = fastrand::Rng::with_seed(seed);
    let mut there = 0;
    for turn in 0..8 {
        let mut command = std::process::Command::new(program);
        command.arg("bench").arg("-o").arg(&out);
        // If it was killed before it had stored the experiment, there is nothing to resume.
        match out.join("experiment.toml").exists() {
            true => command.arg("--resume"),
            false => command.arg(file(dir.path(), &many)),
        };
        let mut child = spawn(&mut command);
        let moment = |random: &mut fastrand::Rng| Duration::from_micros(random.u64(1_000..350_000));
        std::thread::sleep(moment(&mut random));
        if random.bool() {
            measuring(&child).inspect(|&pid| kill(pid, libc::SIGKILL));
            std::thread::sleep(moment(&mut random));
        }
        child.kill().unwrap();
        let status = child.wait().unwrap();
        assert!(status.signal() == Some(libc::SIGKILL) || matches!(status.code(), Some(0 | 2)), "{status}");
        if out.join("experiment.toml").exists() {
            let now = whole_parts(&out);
            assert!(now >= there, "turn {turn}, seed {seed}: {now} parts, and there were {there}");
            there = now;
        }
    }
    if !out.join("experiment.toml").exists() {
        bench().arg(file(dir.path(), &many)).arg("-o").arg(&out).assert().success();
    }
    resume(&out);
    assert_eq!(whole_parts(&out), 9, "seed {seed}");
    assert_eq!(run_json(&out)["complete"], true);
}

#[test]
#[ignore = "starts a process under each of three policies; run by .ci/run"]
fn each_lock_policy_has_a_process_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let text = SMALL.replace("bytes = \"8B,64B,4KiB\"", "bytes = \"8B,64B\"\npolicy = [\"stock\", \"pi\", \"traced\"]");
    bench().arg(file(dir.path(), &text)).arg("-o").arg(&out).assert().success();
    assert_eq!(whole_parts(&out), 6);
    let run = run_json(&out);
    assert_eq!(statuses(&run, "ce"), ["\"measured\""; 6]);
    // The policy's account (empty: the software GPU has no pthread lock), and the recording.
    assert!(out.join("policy-pi-00.txt").exists());
    assert!(std::fs::metadata(out.join("traced-00.doorbell")).unwrap().len() > 0);
}

/// A disk of 300 KiB, on which some parts have room and the others have not; then a larger one. Needs a private mount.
const FULL: &str = r#"
set -u
mount -t tmpfs -o size=300k none "$2" || exit 99
"$0" bench "$1" -o "$2/run" >/dev/null 2>"$3/err"
echo "full $?"
find "$2/run" -type f | sed "s|$2/run/||" | sort
mount -o remount,size=64m "$2" || exit 99
"$0" bench --resume -o "$2/run" >/dev/null
echo "space $?"
cp -r "$2/run" "$3/run"
"#;

#[test]
#[ignore = "fills a disk and measures twelve stages; run by .ci/run"]
fn on_a_full_disk_the_run_ends_with_a_hint_and_goes_on_when_there_is_space() {
    let dir = tempfile::tempdir().unwrap();
    let disk = dir.path().join("disk");
    std::fs::create_dir(&disk).unwrap();
    // A part takes 50 KiB, and up to 100 KiB if the machine is busy: times that vary take more room.
    let sizes: Vec<String> = (3..15).map(|power| format!("{}B", 1 << power)).collect();
    let larger = SMALL.replace("samples = 60", "samples = 2500").replace("8B,64B,4KiB", &sizes.join(","));
    let mut command = std::process::Command::new("unshare");
    command.args(["-rm", "sh", "-c", FULL]).arg(assert_cmd::cargo::cargo_bin!("doorbell"));
    let output = command.arg(file(dir.path(), &larger)).arg(&disk).arg(dir.path()).output();
    let output = match output {
        Ok(output) if output.status.success() => String::from_utf8(output.stdout).unwrap(),
        other => test_support::skip!("a disk of its own cannot be mounted here: {other:?}"),
    };
    let err = std::fs::read_to_string(dir.path().join("err")).unwrap();
    let lines: Vec<&str> = output.lines().collect();
    let [first, there @ .., last] = &lines[..] else { panic!("{output}") };
    assert_eq!((*first, *last), ("full 2", "space 0"), "{err}");
    let errors: Vec<&str> = err.lines().filter(|l| !l.starts_with("warning")).collect();
    let [error, hint] = errors[..] else { panic!("{err}") };
    assert!(error.starts_with("error: ") && error.contains("No space left"), "{err}");
    assert!(hint.starts_with("hint: free some space") && hint.contains("--resume"), "{err}");
    // The stored parts have all their samples, the others have no file.
    let parts = there.iter().filter(|f| f.starts_with("parts/")).count() as u32;
    assert!((1..12).contains(&parts), "{there:?}");
    let mut expected = vec![".lock".into(), "experiment.toml".into()];
    expected.extend((0..parts).map(|n| format!("parts/{n:04}-00.json")));
    expected.extend((0..parts).map(|n| format!("samples/{n:04}-00.parquet")));
    assert_eq!(there, expected);
    let out = dir.path().join("run");
    assert_eq!(whole_parts(&out), 12);
    assert_eq!(run_json(&out)["complete"], true);
}

#[test]
#[ignore = "2 to 4 s; run by .ci/run"]
fn a_route_that_dies_fails_and_the_others_are_measured() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let text = format!("{SMALL}[[subject]]\nroute = \"host->bar1->gpu0\"\nname = \"bar1\"\n");
    let mut command = bench();
    command.arg(file(dir.path(), &text)).arg("-o").arg(&out);
    // After its warm-up, in the middle of its samples.
    command.env("DOORBELL_SOFTGPU_FAULT", "dead-channel:100");
    command.assert().code(2).stdout(contains("FAILED").and(contains("Xid")).and(contains("bar1")));
    let run = run_json(&out);
    for subject in ["ce", "inline"] {
        assert!(statuses(&run, subject).iter().all(|s| s.contains("error 31")), "{:?}", statuses(&run, subject));
    }
    assert_eq!(statuses(&run, "bar1"), ["\"measured\""; 3]);
    assert_eq!(run["complete"], true);
    // The failed part was measured: it is a result, and is not repeated.
    bench().args(["--resume", "-o"]).arg(&out).assert().code(2);
}

#[test]
#[ignore = "2 to 4 s; run by .ci/run"]
fn a_load_that_dies_is_said_beside_what_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let text = "[run]\ngpu = \"soft\"\nrepeats = 1\nrounds = 4\nsamples = 200\nduration = \"300ms\"\n[[subject]]\nname = \"bar1\"\n\
                route = \"host->bar1->gpu0\"\nsizes = [\"64B\"]\n[[load]]\nroute = \"host->ce0->gpu0\"\ncount = 2\nbytes = 4096\n";
    let dies = |text: &str, out: &Path| {
        let mut command = bench();
        command.arg(file(dir.path(), text)).arg("-o").arg(out).env("DOORBELL_SOFTGPU_FAULT", "dead-channel:30");
        command.assert().code(2).stdout(contains("2 threads FAILED: the channel was killed by error 31"));
        run_json(out)
    };
    // A load that must reach a rate leaves no figures when it dies.
    let held = dies(&format!("{text}must-reach = \"1/s\"\n"), &dir.path().join("held"));
    assert!(statuses(&held, "bar1")[0].contains("load host->ce0->gpu0 failed"), "{}", held["cells"]);
    let run = dies(text, &out);
    assert_eq!(statuses(&run, "bar1"), ["\"measured\""]);
    assert!(run["stages"][0]["loads"][0]["failed"].to_string().contains("error 31"), "{}", run["stages"]);
}

#[test]
fn routes_calls_and_experiments_are_listed() {
    let json = |args: &[&str]| -> Value {
        let out = bench().args(args).assert().success();
        serde_json::from_slice(&out.get_output().stdout).unwrap()
    };
    let names = |list: &Value| -> Vec<String> {
        list.as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap().to_owned()).collect()
    };
    let listed = json(&["--routes", "--gpu", "soft", "--json"]);
    let routes = names(&listed["routes"]);
    assert!(["host->ce0->gpu0", "host->inline->gpu0"].iter().all(|r| routes.contains(&(*r).to_owned())), "{routes:?}");
    let why =
        |name: &str| &listed["routes"].as_array().unwrap().iter().find(|l| l["name"] == name).unwrap()["unavailable"];
    assert!(why("host->ce0->gpu0").is_null());
    assert!(why("host->cuda->gpu0").as_str().unwrap().contains("no CUDA"));
    assert_eq!(names(&listed["calls"]), workload::calls().iter().map(|c| c.name).collect::<Vec<_>>());
    let text = bench().args(["--routes", "--gpu", "soft"]).assert().success();
    text.stdout(
        contains("host->ce0->gpu0").and(contains("graph(KERNELS,polled,ours,")).and(contains("cuStreamCreate")),
    );

    let experiments = json(&["--list", "--json"])["experiments"].clone();
    assert_eq!(names(&experiments), experiment::shipped().iter().map(|s| s.name).collect::<Vec<_>>());
    assert!(experiments.as_array().unwrap().iter().all(|e| e["seconds"].as_f64().unwrap() > 0.0), "{experiments}");
    let files = experiments.as_array().unwrap();
    for (listed, shipped) in files.iter().zip(experiment::shipped()) {
        let variants = experiment::variants(shipped.text, shipped.name).unwrap();
        assert_eq!(names(&listed["variants"]), variants.into_iter().map(|v| v.name).collect::<Vec<_>>());
    }
    bench().arg("--list").assert().success().stdout(contains("takes about"));
}

/// A run of a variant has the variant's name, is printed with it, and resumes as that variant.
#[test]
fn a_variant_of_an_experiment_is_run_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let text = format!("{SMALL}\n[variant.short]\nabout = \"fewer\"\n[variant.short.run]\nrounds = 3\nsamples = 30\n");
    let path = file(dir.path(), &text);
    let short = |variant: &str| {
        let mut command = bench();
        command.arg(&path).args(["--variant", variant]);
        command
    };
    short("long").assert().code(2).stderr(contains("there is no variant \"long\"").and(contains("`short`")));
    bench().args(["smoke", "--variant", "short"]).assert().code(2).stderr(contains("has no variants"));
    short("short").arg("--dry-run").assert().success().stdout(contains("at most"));
    short("short").arg("-o").arg(&out).assert().success();
    let run = run_json(&out);
    assert_eq!((&run["experiment"]["variant"], &run["experiment"]["run"]["rounds"]), (&"short".into(), &3.into()));
    assert!(std::fs::read_to_string(out.join("experiment.toml")).unwrap().contains("variant = \"short\""));
    short("short").arg("-o").arg(&out).arg("--resume").assert().success();
    let other = bench().arg(&path).arg("-o").arg(&out).arg("--resume").assert().code(2);
    other.stderr(contains("of another experiment"));
    bench().arg("--show").arg(&out).assert().success();
}

#[test]
fn a_machine_without_a_gpu_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let real = SMALL.replace("gpu = \"soft\"", "gpu = \"real\"");
    if Path::new("/dev/nvidiactl").exists() {
        test_support::skip!("this machine has a GPU");
    }
    bench().arg(file(dir.path(), &real)).assert().code(77).stderr(contains("no GPU").and(contains("doctor")));
}

/// A hog takes a millisecond: it never reaches 2,000 a second, and always reaches one a minute.
#[test]
fn a_load_that_misses_its_rate_leaves_no_figures() {
    let dir = tempfile::tempdir().unwrap();
    let run = |must_reach: &str, name: &str| {
        let out = dir.path().join(name);
        let text = format!(
            "[run]\ngpu = \"none\"\nrepeats = 1\nrounds = 6\nduration = \"100ms\"\nnoise = \"0s\"\n[[subject]]\ncall = \"lock(mutex)\"\n\
             [[load]]\nname = \"burner\"\ncall = \"hog\"\nmust-reach = \"{must_reach}\"\n[[assert]]\nat-most = \"10s\"\n"
        );
        let assert = bench().arg(file(dir.path(), &text)).arg("-o").arg(&out).assert();
        (assert, run_json(&out))
    };
    let (assert, json) = run("1/min", "reached");
    assert.success().stdout(contains("held").and(contains("INVALID").not()));
    assert_eq!(statuses(&json, "lock(mutex)"), ["\"measured\""]);
    let (assert, json) = run("2000/s", "missed");
    assert.code(1).stdout(contains("INVALID").and(contains("load burner missed its rate")).and(contains("held").not()));
    assert!(json["cells"][0]["status"]["invalid"].to_string().contains("of 2000 a second"), "{}", json["cells"][0]);
    assert!(
        json["cells"][0]["figures"]["done"].is_null() && json["stages"][0]["loads"][0]["transfers"].as_u64() > Some(0)
    );
}

/// Locks need no GPU, and their policies apply to them. A subject that needs a GPU is reported as that.
#[test]
fn locks_are_measured_without_a_gpu_under_each_policy() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let text = r#"
[run]
gpu = "none"
repeats = 1
rounds = 2
samples = 200
duration = "2s"
noise = "0s"
[matrix]
policy = ["stock", "pi+phase-fair"]
[[subject]]
call = "lock(mutex)"
arrival = "paced(200us)"
[[subject]]
call = "lock(rwlock-write)"
[[subject]]
call = "launch"
[[load]]
name = "holder"
call = "lock(mutex,hold=20us)"
rate = "500/s"
[compare]
baseline = "stock"
"#;
    bench().arg(file(dir.path(), text)).arg("-o").arg(&out).assert().success().stdout(contains("lock(mutex)"));
    let run = run_json(&out);
    assert_eq!((run["complete"].as_bool(), run["functional"].as_bool()), (Some(true), Some(false)), "{run}");
    for subject in ["lock(mutex)", "lock(rwlock-write)"] {
        assert_eq!(statuses(&run, subject), ["\"measured\"", "\"measured\""], "{}", run["cells"]);
    }
    assert!(statuses(&run, "launch").iter().all(|s| s.contains("uses no GPU")), "{}", run["cells"]);
    assert!(run["stages"].as_array().unwrap().iter().all(|s| s["loads"][0]["transfers"].as_u64() > Some(0)), "{run}");
    // Both locks of the experiment follow their policies: a mutex under `pi`, a rwlock under `phase-fair`.
    let done = std::fs::read_to_string(out.join("policy-pi+phase-fair-00.txt")).unwrap();
    assert!(done.contains("1 lock under pi") && done.contains("1 lock under phase-fair"), "{done}");
}

/// A card that masters the bus replaces a copy engine: the bytes that it moves are right, and no rate is printed.
#[test]
#[ignore = "starts QEMU, some seconds; run by .ci/run"]
fn a_device_may_be_a_card_that_is_emulated() {
    if !test_support::installed("qemu-system-x86_64") {
        test_support::skip!("qemu-system-x86_64 is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let sets = [
        "matrix.bytes=4KiB",
        "run.repeats=1",
        "run.rounds=2",
        "run.samples=4",
        "run.counters-every=0",
        "run.noise=10ms",
    ];
    let mut command = bench();
    command.args(["device", "--device", "edu", "-o"]).arg(&out);
    command.args(sets.iter().flat_map(|set| ["--set", set]));
    command.assert().success().stdout(contains("right, bytes around untouched").and(contains("times are left out")));
    let run: Value = serde_json::from_slice(&std::fs::read(out.join("run.json")).unwrap()).unwrap();
    assert_eq!((&run["functional"], &run["experiment"]["run"]["device"]), (&true.into(), &"edu".into()));
    let cells = run["cells"].as_array().unwrap();
    assert!(
        cells.len() == 12 && cells.iter().all(|cell| cell.to_string().contains("QEMU's edu at 0000:")),
        "{cells:#?}"
    );
    let refused = bench().args(["device", "--device", "edu", "--gpu", "real"]).assert().failure();
    refused.stderr(contains("reaches the software GPU alone"));
    bench().args(["device", "--device", "fpga"]).assert().failure().stderr(contains("`xdma@0000:04:00.0`"));
}
