//! `doorbell soak` as a user sees it, on the software GPU and with a simulated clock: what a soak leaves, however it ends.

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use run_folder::soak::Folder;
use run_folder::soak::account::{FaultKind, Soak};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

const SMALL: &str = r#"
about = "two ways"
[run]
gpu = "soft"
rounds = 2
samples = 12
noise = "0s"
[[subject]]
route = "host->ce0->gpu0"
name = "ce"
sizes = "64B"
[[subject]]
route = "host->inline->gpu0"
name = "inline"
sizes = "64B"
[compare]
baseline = "ce"
"#;

/// A folder in memory: each period is synced to the disk, for which a test would only wait.
fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn file(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("small.toml");
    std::fs::write(&path, text).unwrap();
    path
}

/// The arguments of a soak of so many hours, in which two laps make a period of ten minutes.
fn words(dir: &Path, text: &str, hours: &str) -> Vec<String> {
    let file = file(dir, text).to_string_lossy().into_owned();
    let out = dir.join("soak").to_string_lossy().into_owned();
    ["soak", &file, "--for", hours, "--every", "10m", "--simulate", "5m", "-o", &out].map(String::from).into()
}

fn doorbell(words: &[String]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(words).timeout(Duration::from_secs(120));
    command
}

fn start(words: &[String], more: &[(&str, String)]) -> Child {
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(words).envs(more.iter().map(|(k, v)| (k, v))).process_group(0);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: two numbers, of a process that this test started.
    unsafe { libc::kill(pid, signal) };
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn periods(out: &Path) -> usize {
    std::fs::read_dir(out.join("periods"))
        .map_or(0, |all| all.flatten().filter(|e| e.file_name().to_string_lossy().ends_with(".json")).count())
}

/// The process that measures for this one.
fn measuring(leader: &Child) -> Option<i32> {
    let children = std::fs::read_to_string(format!("/proc/{0}/task/{0}/children", leader.id())).ok()?;
    children.split_whitespace().next()?.parse().ok()
}

/// `soak.json`, which matches its schema.
fn account(out: &Path) -> Soak {
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs/reference/soak.schema.json");
    let schema = serde_json::from_slice(&std::fs::read(schema).unwrap()).unwrap();
    let text = std::fs::read(out.join("soak.json")).unwrap();
    let value = serde_json::from_slice(&text).unwrap();
    let wrong: Vec<String> = jsonschema::validator_for(&schema)
        .unwrap()
        .iter_errors(&value)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    run_folder::soak::folder::read_soak(out).unwrap()
}

#[test]
fn sigterm_leaves_a_complete_report_and_the_same_command_goes_on() {
    let dir = folder();
    let out = dir.path().join("soak");
    let socket = dir.path().join("notify");
    let systemd = UnixDatagram::bind(&socket).unwrap();
    systemd.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    // Reads until the last line.
    let heard = std::thread::spawn(move || {
        let (mut said, mut text) = (String::new(), [0u8; 512]);
        while !said.contains("STOPPING=1") {
            let n = systemd.recv(&mut text).unwrap();
            said += &format!("{}\n", String::from_utf8_lossy(&text[..n]));
        }
        said
    });
    let mut words = words(dir.path(), SMALL, "12h");
    let notify = [("NOTIFY_SOCKET", socket.to_string_lossy().into_owned()), ("WATCHDOG_USEC", "40000".into())];
    let mut child = start(&words, &notify);
    wait_for("no period came", || periods(&out) > 2);
    kill(child.id() as i32, libc::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let soak = account(&out);
    assert!(!soak.complete && soak.verdict.held && soak.functional && soak.simulated_clock, "{:?}", soak.faults);
    assert_eq!(soak.stopped_because.as_deref(), Some("it was told to stop"));
    assert!(soak.periods.len() >= 3 && soak.verdict.headline.ends_with("of 12 h"), "{}", soak.verdict.headline);
    assert!(soak.cells.iter().all(|c| c.count > 0 && c.checked >= c.count && c.bytes_per_second.is_none()));
    let said = heard.join().unwrap();
    for word in ["READY=1", "STATUS=period ", "WATCHDOG=1"] {
        assert!(said.contains(word), "{word}: {said}");
    }
    assert!(!said.contains("worst"), "an emulation has no times: {said}");
    // A little longer than it has measured, with the same command.
    let minutes = (soak.done_s / 60.0) as u64 + 20;
    words[3] = format!("{minutes}m");
    doorbell(&words).assert().success().stdout(contains("two ways").and(contains("not how fast")));
    let again = account(&out);
    assert!(again.complete && again.verdict.held && again.done_s == minutes as f64 * 60.0, "{:?}", again.verdict);
    assert_eq!((again.processes.len(), again.gaps.len(), &again.started), (2, 1, &soak.started));
    assert_eq!(again.gaps[0].why, "it was told to stop");
    // It is complete now: `--show` prints the same, and another experiment does not continue it.
    doorbell(&words).assert().code(2).stderr(contains("complete").and(contains("--show")));
    let show = ["soak", "--show", &words[9]].map(String::from);
    doorbell(&show).assert().success().stdout(contains(format!("all of {}", terminal::number::duration(again.done_s))));
    file(dir.path(), &SMALL.replace("64B", "128B"));
    doorbell(&words).assert().code(2).stderr(contains("another experiment"));
}

#[test]
fn what_is_asked_wrongly_is_said() {
    let dir = folder();
    let policies = format!("{SMALL}[matrix]\npolicy = [\"stock\", \"pi\"]\n");
    doorbell(&words(dir.path(), &policies, "1h")).assert().code(2).stderr(contains("one lock policy"));
    let none = dir.path().join("none").to_string_lossy().into_owned();
    doorbell(&["soak".into(), "--show".into(), none]).assert().code(2).stderr(contains("cannot be read"));
    doorbell(&["soak".into()]).assert().code(2).stderr(contains("no experiment"));
}

/// 72 periods on the software GPU, killed once with all its processes and interrupted once, with every kind of fault.
#[test]
#[ignore = "20 s; run by .ci/run"]
fn twelve_hours_with_a_restart_and_with_each_fault_found_by_its_name() {
    let dir = folder();
    let out = dir.path().join("soak");
    // Laps that are long enough for the load to get a CPU in each of them, on a machine with two busy CPUs. No pause of that
    // machine may count as a lost transfer, for which the process would be replaced.
    let longer = SMALL.replace("samples = 12", "samples = 1600\ntimeout = \"30s\"");
    let text = format!(
        "{longer}[[load]]\nname = \"crowd\"\nroute = \"host->inline->gpu0\"\nbytes = \"8B\"\nrate = \"2000/s\"\n"
    );
    let mut command = words(dir.path(), &text, "12h");
    // First without faults: killed with all its processes, and interrupted.
    let mut child = start(&command, &[]);
    wait_for("no period came", || periods(&out) > 10);
    kill(child.id() as i32, libc::SIGKILL);
    child.wait().unwrap();
    let before = periods(&out);
    let mut child = start(&command, &[]);
    wait_for("it does not go on", || periods(&out) > before + 10);
    kill(child.id() as i32, libc::SIGTERM);
    child.wait().unwrap();
    doorbell(&command).assert().success();
    let soak = account(&out);
    assert!(soak.complete && soak.verdict.held && soak.processes.len() == 3, "{:?}", soak.faults);
    assert!((72..=75).contains(&soak.periods.len()), "{}", soak.periods.len());
    let why: Vec<&str> = soak.gaps.iter().map(|gap| gap.why.as_str()).collect();
    assert_eq!(why, ["it was killed", "it was told to stop"]);
    assert!(soak.leaks.iter().all(|leak| !leak.leaking), "{:?}", soak.leaks);

    // Then with faults.
    command.push("--force".into());
    for planted in ["leak-memory", "leak-descriptor", "dead-load:100"] {
        command.extend(["--plant".into(), planted.into()]);
    }
    let mut soak = doorbell(&command);
    soak.env("DOORBELL_SOFTGPU_FAULT", "torn-copy:800").assert().code(1).stdout(contains("fault: leak"));
    let soak = account(&out);
    let of = |kind| soak.faults.iter().filter(move |fault| fault.kind == kind).map(|fault| fault.what.as_str());
    assert!(of(FaultKind::Corrupted).all(|what| what.contains("offset 63")), "{:?}", soak.faults);
    assert_eq!(of(FaultKind::Corrupted).count(), 1, "{:?}", soak.faults);
    assert!(of(FaultKind::DeadLoad).all(|what| what.contains("crowd")) && of(FaultKind::DeadLoad).count() >= 20);
    let leaks: String = of(FaultKind::Leak).collect();
    assert!(leaks.contains("rss_bytes") && leaks.contains("descriptors"), "{leaks}");
    assert!(soak.complete && !soak.verdict.held);
}

#[test]
#[ignore = "8 s; run by .ci/run"]
fn what_stands_still_or_dies_is_replaced_and_told_and_starves_the_watchdog() {
    let dir = folder();
    let out = dir.path().join("soak");
    let socket = dir.path().join("notify");
    let systemd = UnixDatagram::bind(&socket).unwrap();
    let mut command = words(dir.path(), SMALL, "12h");
    command.extend(["--stall-after", "1s"].map(String::from));
    let notify = [("NOTIFY_SOCKET", socket.to_string_lossy().into_owned()), ("WATCHDOG_USEC", "40000".into())];
    let mut child = start(&command, &notify);
    wait_for("no period came", || periods(&out) > 3);
    let process = measuring(&child).unwrap();
    kill(process, libc::SIGSTOP);
    systemd.set_nonblocking(true).unwrap();
    let (mut text, mut last, mut silence) = ([0u8; 512], Instant::now(), Duration::ZERO);
    // The new one is killed from outside.
    wait_for("no new process came", || {
        // Only an empty queue counts as silence: this thread may have been kept from its CPU.
        while systemd.recv(&mut text).is_ok() {
            last = Instant::now();
        }
        silence = silence.max(last.elapsed());
        measuring(&child).is_some_and(|new| new != process)
    });
    assert!(silence >= Duration::from_millis(500), "fed while nothing is measured: silent for {silence:?} at most");
    let went_on = periods(&out);
    wait_for("it does not go on", || periods(&out) > went_on + 2);
    kill(measuring(&child).unwrap(), libc::SIGKILL);
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let soak = account(&out);
    let kinds: Vec<FaultKind> = soak.faults.iter().map(|fault| fault.kind).collect();
    assert_eq!(kinds, [FaultKind::Stall, FaultKind::Died], "{:?}", soak.faults);
    assert!(soak.faults[0].what.contains("stalled") && soak.faults[1].what.contains("signal 9"));
    assert!(soak.complete && soak.processes.len() == 3 && soak.periods.len() >= 72);
}

#[test]
fn a_full_disk_is_said_and_the_soak_goes_on_with_room() {
    let dir = folder();
    let out = dir.path().join("soak");
    let lock = |n: u32| format!("[[subject]]\nname = \"lock {n}\"\ncall = \"lock(mutex)\"\n");
    let text = format!(
        "[run]\ngpu = \"none\"\nrounds = 2\nsamples = 20\nnoise = \"0s\"\n{}",
        (0..20).map(lock).collect::<String>()
    );
    let words = words(dir.path(), &text, "30m");
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(&words);
    // SAFETY: a system call with a number and a struct of numbers, between fork and exec.
    unsafe {
        command.pre_exec(|| {
            let limit = libc::rlimit { rlim_cur: 8 << 10, rlim_max: libc::RLIM_INFINITY };
            libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
            Ok(())
        });
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("0000.json: cannot be written") && text.contains("ulimit"), "{text}");
    assert_eq!(Folder::open(&out).unwrap().periods().unwrap().len(), 0);
    doorbell(&words).assert().success();
    let soak = account(&out);
    assert!(soak.complete && soak.processes.len() == 2, "{:?}", soak.processes);
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn processes_that_measure_nothing_end_a_soak() {
    let dir = folder();
    let text = SMALL.replace("rounds = 2", "rounds = 2\ntimeout = \"20ms\"");
    let words = words(dir.path(), &text, "1h");
    let mut lossy = doorbell(&words);
    let lossy = lossy.env("DOORBELL_SOFTGPU_FAULT", "dead-channel:2").assert().code(2);
    lossy.stderr(contains("in vain"));
}

/// A mutex that a load holds for 3 ms at a time: the first wait of a millisecond ends the soak, and its recording names the
/// holder.
const HUNT: &str = r#"
[run]
gpu = "soft"
rounds = 2
samples = 50
noise = "0s"
duration = "200ms"
[[subject]]
name = "take"
call = "lock(mutex)"
[[load]]
name = "hold"
call = "lock(mutex,hold=3ms)"
"#;

#[test]
fn the_first_sample_above_a_bound_keeps_its_recording_which_names_the_lock_and_its_holder() {
    let dir = folder();
    let (file, out) = (file(dir.path(), HUNT), dir.path().join("hunt"));
    let words = ["soak", &file.to_string_lossy(), "--for", "1m", "--every", "20s", "--stop-above", "1ms", "-o"];
    let mut words: Vec<String> = words.map(String::from).into();
    words.push(out.to_string_lossy().into_owned());
    doorbell(&words).assert().code(1).stdout(contains("above the bound: take").and(contains("held it for")));
    let soak = account(&out);
    let above = soak.above.expect("the sample above the bound");
    assert_eq!((above.recording.as_deref(), above.not_joined), (Some("above.doorbell"), None));
    let delay = above.delay.unwrap();
    let (waited, counter) = (&delay.waits[0], above.counter.unwrap());
    assert!(waited.ns >= 900_000 && waited.lock.ends_with("/mutex"), "{waited:?}");
    let holder = &waited.holders[0];
    assert!(holder.tid != counter.tid && holder.of_wait_ns >= 800_000 && !holder.site.is_empty(), "{holder:?}");
    assert!(out.join("above.doorbell").exists());
    // Without a recording the same bound ends it, too.
    words.extend(["--bare".into(), "--force".into()]);
    doorbell(&words).assert().code(1).stdout(contains("nothing was recorded"));
    let bare = account(&out).above.unwrap();
    assert!(bare.delay.is_none() && bare.recording.is_none() && !out.join("above.doorbell").exists());
}
