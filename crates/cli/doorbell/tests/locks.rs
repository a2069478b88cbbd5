//! Programs whose locks are recorded: their results are the same as without, and the tape has their operations.
//!
//! The programs are the C files in `locks/`, compiled here. Each prints the results of its calls and how many it
//! made.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use test_support::{Source, finished};

fn text(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// The program of this name, compiled. `None` without a C compiler, with the reason printed.
fn program(dir: &Path, name: &str) -> Option<PathBuf> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locks").join(format!("{name}.c"));
    match (Source { file: &file, compiler: "cc", flags: &["-w"] }).compile(dir) {
        Ok(program) => Some(program),
        Err(why) => test_support::skip!("{why}"),
    }
}

fn doorbell() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
}

fn recorded(tape: &Path, command: &[&str]) -> Output {
    let mut c = doorbell();
    c.args(["record", "--force", "--locks", "--tap", "off", "--on-full", "wait", "--ring", "1MiB", "-o"])
        .arg(tape)
        .arg("--")
        .args(command);
    finished(&mut c, command[0])
}

fn shown_as(tape: &Path, options: &[&str]) -> Value {
    let out = finished(doorbell().args(["show", "--json"]).args(options).arg(tape), "show");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

/// The numbers of the recorded processes, the program's first.
fn processes(tape: &Path) -> Vec<String> {
    let summary = shown_as(tape, &["--summary"]);
    let rows = summary["processes"].as_array().expect("rows");
    rows.iter().map(|p| p["pid"].to_string()).collect()
}

/// The locks of one process.
fn shown_of(tape: &Path, pid: &str) -> Value {
    shown_as(tape, &["--locks", "--process", pid])
}

/// The locks of the program itself.
fn shown(tape: &Path) -> Value {
    shown_of(tape, &processes(tape)[0])
}

struct Run {
    dir: tempfile::TempDir,
    bare: Output,
    out: Output,
    locks: Value,
}

impl Run {
    /// Runs a program bare and recorded.
    fn of(name: &str) -> Option<Run> {
        let dir = tempfile::tempdir().unwrap();
        let program = program(dir.path(), name)?;
        let tape = dir.path().join("tape.doorbell");
        let bare = finished(&mut Command::new(&program), name);
        let out = recorded(&tape, &[program.to_str().unwrap()]);
        Some(Run { bare, out, locks: shown(&tape), dir })
    }

    fn said(&self, what: &str) -> i64 {
        let text = text(&self.out);
        let number = text.lines().find_map(|l| l.strip_prefix(what)?.trim().parse().ok());
        number.unwrap_or_else(|| panic!("it did not say {what}: {text}"))
    }

    fn same_output(&self) {
        assert_eq!(self.bare.status.code(), self.out.status.code());
        let (bare, out) = (text(&self.bare), text(&self.out));
        for (a, b) in bare.lines().zip(out.lines()) {
            assert_eq!(a, b, "bare, and recorded");
        }
        assert_eq!(bare.lines().count(), out.lines().count());
    }

    /// The tape has the operations that the program counted.
    fn same_counts(&self) {
        self.counts_but(&[]);
    }

    fn counts_but(&self, not: &[&str]) {
        assert_eq!(self.locks["lost_events"], 0);
        let text = text(&self.out);
        let counted: BTreeMap<&str, u64> = text
            .lines()
            .filter_map(|l| l.strip_prefix("count ")?.split_once(' '))
            .map(|(name, n)| (name, n.parse().unwrap()))
            .filter(|(name, n)| *n > 0 && !not.contains(name))
            .collect();
        assert!(!counted.is_empty(), "{text}");
        let operations = self.locks["operations"].as_object().unwrap();
        let on_tape: BTreeMap<&str, u64> = operations
            .iter()
            .map(|(name, n)| (name.as_str(), n.as_u64().unwrap()))
            .filter(|(name, _)| !not.contains(name))
            .collect();
        assert_eq!(on_tape, counted);
    }

    fn rows(&self, of: &str) -> &[Value] {
        self.locks[of].as_array().map_or(&[], Vec::as_slice)
    }
}

#[test]
fn every_function_gives_what_it_gives_and_is_counted() {
    let Some(r) = Run::of("functions") else { return };
    assert_eq!(r.out.status.code(), Some(3), "{}", text(&r.out));
    // The number of spurious wake-ups is not specified.
    let counts = |l: &str| l.starts_with("count ") && !l.contains(" cond_wait ");
    let lines =
        |o: &Output| text(o).lines().filter(|l| !counts(l) && !l.contains("cond_wait")).map(str::to_owned).collect();
    let (bare, out): (Vec<String>, Vec<String>) = (lines(&r.bare), lines(&r.out));
    for (a, b) in bare.iter().zip(&out) {
        assert_eq!(a, b, "bare, and recorded");
    }
    assert_eq!(bare.len(), out.len());
    r.same_counts();
    let attributes: Vec<&str> =
        r.rows("locks").iter().flat_map(|l| l["attributes"].as_array().unwrap()).filter_map(Value::as_str).collect();
    for a in
        ["recursive", "errorcheck", "adaptive", "robust", "priority inheritance", "priority ceiling", "process-shared"]
    {
        assert!(attributes.contains(&a), "{a} is not among {attributes:?}");
    }
}

#[test]
fn a_storm_of_threads_loses_nothing() {
    let Some(r) = Run::of("storm") else { return };
    assert_eq!(r.out.status.code(), Some(0));
    assert_eq!(text(&r.bare).lines().next(), text(&r.out).lines().next(), "what the locks guard");
    r.same_counts();
    assert_eq!(r.rows("cycles"), [] as [Value; 0]);
    let ordered: u64 = r.rows("order").iter().filter_map(|o| o["count"].as_u64()).sum();
    assert!(ordered > 0);
    // Each waiter waited for a holder, which may have released before the clock was read.
    let waits = r.rows("waits");
    let known = waits.iter().filter(|w| !w["holders"].as_array().unwrap().is_empty()).count();
    assert!(known * 10 + 20 >= waits.len() * 9, "{known} of {}", waits.len());
    for w in waits {
        let shares = w["holders"].as_array().unwrap().iter().filter_map(|h| h["of_wait_ns"].as_u64());
        assert!(shares.max().unwrap_or(0) <= w["wait_ns"].as_u64().unwrap(), "{w}");
    }
}

#[test]
fn a_wait_names_its_holder() {
    let Some(r) = Run::of("holder") else { return };
    r.same_counts();
    let (holder, waiter) = (r.said("holder "), r.said("waiter "));
    let waits = r.rows("waits");
    for (what, class) in [("mutex_lock", "/mutex"), ("rwlock_rdlock", "/rwlock")] {
        let w = waits.iter().find(|w| w["operation"] == what && w["tid"] == waiter);
        let w = w.unwrap_or_else(|| panic!("no wait of {what} in {waits:?}"));
        assert!(w["wait_ns"].as_u64().unwrap() > 1_000_000, "{w}");
        let lock = w["lock"].as_str().unwrap();
        assert!(lock.starts_with("holder+0x") && lock.ends_with(class), "{w}");
        assert!(w["site"].as_str().unwrap().starts_with("holder+0x"), "{w}");
        let h = &w["holders"][0];
        assert_eq!((h["tid"].as_i64(), h["thread"].as_str()), (Some(holder), Some("keeper")), "{w}");
        assert!(h["site"].as_str().unwrap().starts_with("holder+0x"), "{w}");
        assert!(h["of_wait_ns"].as_u64() <= w["wait_ns"].as_u64());
    }
    assert_eq!(r.locks["contended"], 2);
    let out = finished(doorbell().args(["export", "--jsonl"]).arg(r.dir.path().join("tape.doorbell")), "export");
    let rows: Vec<Value> = text(&out).lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let of = |tid: i64, op: &str| {
        let is = |l: &&Value| l["type"] == "lock" && l["tid"].as_i64() == Some(tid) && l["operation"] == op;
        rows.iter().find(is).unwrap_or_else(|| panic!("no {op} of {tid}")).clone()
    };
    let (kept, waited) = (of(holder, "mutex_lock"), of(waiter, "mutex_lock"));
    assert_eq!((kept["lock"].as_str(), kept["wait_ns"].as_u64()), (waited["lock"].as_str(), Some(0)));
    // It slept so long with the lock. The other released it immediately, or as soon as it had a CPU.
    assert!(kept["hold_ns"].as_u64() >= Some(100_000_000), "{kept}");
    assert!(waited["wait_ns"].as_u64() > Some(1_000_000) && waited["hold_ns"].is_u64(), "{waited}");
    assert!(kept["release_site"].as_str().unwrap().starts_with("holder+0x") && kept["ended"] == "unlock", "{kept}");
}

#[test]
fn names_are_the_same_in_every_run() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path(), "storm") else { return };
    let names = |n: u32| -> Vec<String> {
        let tape = dir.path().join(format!("{n}.doorbell"));
        recorded(&tape, &[program.to_str().unwrap()]);
        let mut names: Vec<String> =
            shown(&tape)["locks"].as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap().into()).collect();
        names.sort();
        names
    };
    let first = names(1);
    assert!(first.iter().all(|n| n.starts_with("storm+0x")), "{first:?}");
    assert_eq!(first, names(2));
}

#[test]
fn two_runs_are_alike_and_two_programs_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let tape = |n: &str| dir.path().join(n);
    let Some(storm) = program(dir.path(), "storm") else { return };
    recorded(&tape("a"), &[storm.to_str().unwrap()]);
    recorded(&tape("b"), &[storm.to_str().unwrap()]);
    let holder = program(dir.path(), "holder").unwrap();
    recorded(&tape("c"), &[holder.to_str().unwrap()]);
    let diff = |a: &str, b: &str, more: &[&str]| {
        let out = finished(doorbell().arg("diff").arg(tape(a)).arg(tape(b)).args(more), "diff");
        (out.status.code(), text(&out), String::from_utf8_lossy(&out.stderr).into_owned())
    };
    // How often a try succeeds differs from run to run.
    let (status, said, _) = diff("a", "b", &["--tolerance", "25%"]);
    assert_eq!(status, Some(0), "{said}");
    let (status, said, _) = diff("a", "c", &["--json"]);
    assert_eq!(status, Some(1), "{said}");
    let d: Value = serde_json::from_str(&said).unwrap();
    let of = |change: &str| d["locks"].as_array().unwrap().iter().filter(|l| l["change"] == change).count();
    assert!(d["equal"] == false && of("gone") > 5 && of("changed") == 0, "{d}");
    let (status, said, _) = diff("a", "c", &["--top", "2"]);
    assert!(status == Some(1) && said.contains("gone") && said.contains("more (--top)"), "{said}");
    let (status, _, said) = diff("a", "nowhere", &[]);
    assert!(status == Some(2) && said.contains("nowhere"), "{said}");
}

#[test]
fn calls_are_told_with_their_locks_and_what_they_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let source = |n: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locks").join(n);
    let cc = |args: &[&str]| Command::new("cc").current_dir(dir.path()).args(["-O1", "-pthread"]).args(args).output();
    let (library, app) = (source("cuda.c"), source("calls.c"));
    let library = ["-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", "libcuda.so.1", library.to_str().unwrap()];
    let app = ["-o", "calls", app.to_str().unwrap(), "libcuda.so.1", "-Wl,-rpath,$ORIGIN"];
    for args in [&library[..], &app] {
        let Ok(out) = cc(args) else { test_support::skip!("no C compiler (cc)") };
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    }
    let tape = dir.path().join("t.doorbell");
    let out = recorded(&tape, &[dir.path().join("calls").to_str().unwrap()]);
    let large: u64 = text(&out).trim().strip_prefix("large ").unwrap().parse().unwrap();
    let l = shown(&tape);
    let calls = &l["calls"];
    let of = |kind: &str, what: &str| calls["totals"][kind][what].as_u64().unwrap();
    assert_eq!((of("launch", "calls"), of("launch", "read_locks"), of("launch", "mutex_locks")), (300, 300, 300));
    assert_eq!((of("async copy", "calls"), of("async copy", "write_locks")), (100 + large, 100 + large));
    assert_eq!(
        (of("async copy", "mutex_locks"), of("async copy", "bytes")),
        (100 + 17 * large, 409_600 + (large << 20))
    );
    let row = |call: &str, size: Value| {
        let rows = calls["calls"].as_array().unwrap();
        rows.iter()
            .find(|r| r["call"] == call && r["size"] == size)
            .unwrap_or_else(|| panic!("{call} in {calls}"))
            .clone()
    };
    let pattern = |r: &Value| -> Vec<(String, u64, f64)> {
        let locks = r["patterns"][0]["locks"].as_array().unwrap();
        let one = |e: &Value| {
            (e["mode"].as_str().unwrap().into(), e["depth"].as_u64().unwrap(), e["times"].as_f64().unwrap())
        };
        locks.iter().map(one).collect()
    };
    let launch = row("cuLaunchKernel", Value::Null);
    assert_eq!(launch["patterns"][0]["calls"], 300);
    assert_eq!(pattern(&launch), [("read".into(), 0, 1.0), ("mutex".into(), 1, 1.0)]);
    assert_eq!(
        pattern(&row("cuMemcpyHtoDAsync", "to 1 MiB".into())),
        [("mutex".into(), 0, 17.0), ("write".into(), 0, 1.0)]
    );
    row("cuMemcpyHtoDAsync", "to 4 KiB".into());
    let shared = calls["shared"].as_array().unwrap();
    assert_eq!(shared.len(), 1, "{shared:?}");
    assert!(
        shared[0]["lock"].as_str().unwrap().starts_with("libcuda+0x") && shared[0]["by"].as_array().unwrap().len() == 2
    );
    // A launch waited for a copy that slept with the lock.
    let seen = l["switches"]["scope"] != "none";
    let launched = |w: &&Value| {
        let h = &w["holders"][0];
        let slept = h["off_cpu"]["off_ns"].as_u64() > h["off_cpu"]["preempted_ns"].as_u64();
        let waited = w["inside"] == "cuLaunchKernel" && w["wait_ns"].as_u64() > Some(5_000_000);
        waited && h["inside"] == "cuMemcpyHtoDAsync" && slept == seen
    };
    let w = l["waits"].as_array().unwrap().iter().find(launched).unwrap_or_else(|| panic!("{}", l["waits"]));
    let longest = launch["max_ns"].as_u64().unwrap();
    assert!(longest >= w["wait_ns"].as_u64().unwrap() && launch["p50_ns"].as_u64() < Some(longest));
    if seen {
        // Waits are reported as waits; time asleep with the lock is off CPU in the copy.
        let copy = row("cuMemcpyHtoDAsync", "to 1 MiB".into());
        assert!(copy["off_cpu_ns"].as_u64() > Some(large * 20_000_000), "{copy}");
    } else {
        test_support::skip_part!("no context switches: {}", l["switches"]["reason"]);
    }
    let said = text(&finished(doorbell().args(["show", "--calls"]).arg(&tape), "show"));
    assert!(
        said.contains("cuLaunchKernel: 300 of 300 calls") && said.contains("that more than one of the calls takes"),
        "{said}"
    );
    let out = finished(doorbell().args(["export", "--jsonl"]).arg(&tape), "export");
    let count =
        |kind: &str| text(&out).lines().filter(|l| l.starts_with(&format!("{{\"type\":\"{kind}\""))).count() as u64;
    assert_eq!(count("cuda_call"), 400 + large);
    assert_eq!(count("switch"), l["switches"]["count"].as_u64().unwrap());
}

#[test]
fn threads_that_end_late_and_forked_children_do_no_harm() {
    let Some(r) = Run::of("ends") else { return };
    r.same_output();
    // Three waits were cancelled: their callers never returned to be counted.
    r.counts_but(&[]);
    // The child took 1,000 mutexes, in a separate process.
    let tape = r.dir.path().join("tape.doorbell");
    let all = processes(&tape);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(shown_of(&tape, &all[1])["operations"]["mutex_lock"], 1000);
    let foreign: u64 = r.rows("locks").iter().filter_map(|l| l["foreign_unlocks"].as_u64()).sum();
    assert_eq!(foreign, 0, "an unlock behind a cancelled wait is the thread's own");
}

#[test]
fn a_deadlock_is_on_the_tape_of_a_killed_program() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path(), "stuck") else { return };
    let tape = dir.path().join("stuck.doorbell");
    let out = recorded(&tape, &[program.to_str().unwrap()]);
    assert_eq!(out.status.code(), Some(128 + 9));
    let locks = shown(&tape);
    let left = locks["left"].as_array().unwrap();
    let count = |waiting: bool| left.iter().filter(|l| l["waiting"] == waiting).count();
    assert_eq!((count(false), count(true)), (2, 2), "{left:?}");
    let cycles = locks["cycles"].as_array().unwrap();
    assert_eq!(cycles.len(), 1);
    assert_eq!((cycles[0]["edges"].as_array().unwrap().len(), &cycles[0]["one_thread"]), (2, &Value::Bool(false)));
    let waits = locks["waits"].as_array().unwrap();
    assert_eq!(waits.len(), 2);
    for w in waits {
        assert!(w["unfinished"] == true && w["holders"][0]["unfinished"] == true, "{w}");
    }
    assert_ne!(waits[0]["tid"], waits[1]["tid"]);
    assert_eq!(waits[0]["holders"][0]["tid"], waits[1]["tid"]);
}

#[test]
fn an_inversion_is_seen_by_real_priorities() {
    let Some(r) = Run::of("inversion") else { return };
    if r.bare.status.code() == Some(77) {
        test_support::skip!("SCHED_FIFO is refused here");
    }
    assert_eq!(r.out.status.code(), Some(0), "{}", text(&r.out));
    r.same_counts();
    let found = r.rows("inversions");
    assert_eq!(found.len(), 1, "{found:?}");
    let i = &found[0];
    assert_eq!((i["tid"].as_i64(), i["sched"].as_str()), (Some(r.said("high ")), Some("SCHED_RR 20")));
    assert_eq!(
        (i["holder"]["tid"].as_i64(), i["holder_sched"].as_str()),
        (Some(r.said("low ")), Some("SCHED_FIFO 10"))
    );
    // The holder sleeps.
    let seen = r.locks["switches"]["scope"] != "none";
    if !seen {
        test_support::skip_part!("no context switches: {}", r.locks["switches"]["reason"]);
    }
    assert_eq!((&i["inheritance_helps"], i["why"].as_str().unwrap().contains("slept")), (&(!seen).into(), seen), "{i}");
}

#[test]
fn who_kept_a_holder_from_its_cpu_is_named() {
    let Some(r) = Run::of("preempted") else { return };
    if r.bare.status.code() == Some(77) {
        test_support::skip!("SCHED_FIFO is refused here");
    }
    if r.locks["switches"]["scope"] != "all_cpus" {
        let (low, why) = (r.said("low "), &r.locks["switches"]["reason"]);
        assert!(low > 0 && why.as_str().is_some_and(|w| !w.is_empty()), "{}", r.locks["switches"]);
        test_support::skip!("no context switches of all CPUs: {why}");
    }
    assert_eq!(r.locks["switches"]["lost"], 0);
    r.same_counts();
    let (low, middle, high) = (r.said("low "), r.said("middle "), r.said("high "));
    let wait = r.rows("waits").iter().find(|w| w["tid"] == high).expect("the wait");
    let holder = &wait["holders"][0];
    let off = &holder["off_cpu"];
    assert_eq!((&holder["tid"], &off["by_tid"], &off["by"]), (&low.into(), &middle.into(), &"hog".into()), "{wait}");
    assert!(off["preempted_ns"].as_u64() > Some(50_000_000) && off["off_ns"].as_u64() >= off["preempted_ns"].as_u64());
    assert!(wait["off_cpu"]["off_ns"].as_u64() > Some(50_000_000) && wait["ready_ns"].as_u64() < Some(50_000_000));
    let i = &r.rows("inversions")[0];
    assert_eq!((&i["tid"], &i["inheritance_helps"]), (&high.into(), &true.into()), "{i}");
    // (Null if the thread had ended before it was queried.)
    assert!(i["by_sched"] == "SCHED_FIFO 15" || i["by_sched"].is_null(), "{i}");
    let out = finished(doorbell().args(["show", "--locks"]).arg(r.dir.path().join("tape.doorbell")), "show");
    assert!(text(&out).contains(&format!("preempted by thread {middle} (hog)")), "{}", text(&out));
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn a_handler_may_post_at_any_moment() {
    let Some(r) = Run::of("signals") else { return };
    assert_eq!(r.said("posts "), 1, "{}", text(&r.out));
    let count = |what: &str| r.locks["operations"][what].as_u64().unwrap_or(0);
    // Signals that arrived while the thread wrote an event are counted as lost.
    let lost = r.locks["lost_events"].as_u64().unwrap();
    assert_eq!(count("mutex_lock"), r.said("count mutex_lock ") as u64);
    assert_eq!(count("sem_post") + lost, r.said("count sem_post ") as u64);
}

#[test]
fn a_tape_without_locks_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let tape = dir.path().join("plain.doorbell");
    let out =
        finished(doorbell().args(["record", "--force", "--gpu", "soft", "-o"]).arg(&tape).args(["--", "true"]), "true");
    assert!(out.status.success());
    let out = finished(doorbell().args(["show", "--locks"]).arg(&tape), "show");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{said}");
    assert!(said.contains("locks were not recorded") && said.contains("record --locks"), "{said}");
}

#[test]
fn with_no_args_the_programs_name_is_nowhere() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path(), "holder") else { return };
    let tape = dir.path().join("t.doorbell");
    let mut c = doorbell();
    c.args(["record", "--force", "--locks", "--no-args", "-o"]).arg(&tape).arg("--").arg(&program);
    finished(&mut c, "holder");
    let bytes = std::fs::read(&tape).unwrap();
    for secret in [&b"holder"[..], b"keeper"] {
        assert!(!bytes.windows(secret.len()).any(|w| w == secret), "{}", String::from_utf8_lossy(secret));
    }
    assert!(shown(&tape)["locks"][0]["name"].as_str().unwrap().starts_with("program+0x"));
}

/// A large program, bare and recorded; skipped if it is not installed.
fn survives(name: &str, arguments: &[&str]) {
    if Command::new(name).args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
        test_support::skip!("{name} is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let tape = dir.path().join("t.doorbell");
    let bare = finished(Command::new(name).args(arguments), name);
    assert!(bare.status.success(), "{name} itself: {}", String::from_utf8_lossy(&bare.stderr));
    let command: Vec<&str> = std::iter::once(name).chain(arguments.iter().copied()).collect();
    let out = recorded(&tape, &command);
    assert_eq!(out.status.code(), bare.status.code(), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(text(&out), text(&bare), "{name}");
    let operations: u64 = shown(&tape)["operations"].as_object().unwrap().values().filter_map(Value::as_u64).sum();
    assert!(operations > 100, "{name}: {operations}");
}

#[test]
fn python_survives() {
    // The program in the path may be a script that starts another one.
    let Ok(out) = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output() else {
        test_support::skip!("python3 is not installed");
    };
    let script = "
import threading, queue, hashlib
from concurrent.futures import ThreadPoolExecutor
q = queue.Queue()
def work(k):
    for i in range(500):
        q.put(k * i)
    return hashlib.sha256(bytes(100000)).hexdigest()
with ThreadPoolExecutor(16) as pool:
    digests = set(pool.map(work, range(32)))
print(sum(q.get() for _ in range(32 * 500)), digests)
";
    survives(text(&out).trim(), &["-c", script]);
}

#[test]
#[ignore = "a large program; run by .ci/run"]
fn node_survives() {
    let script = "
const { Worker, isMainThread, parentPort } = require('worker_threads');
const zlib = require('zlib');
let n = 0, sum = 0;
for (let i = 0; i < 4; i++) {
  const w = new Worker(`const { parentPort } = require('worker_threads'); let s = 0;
    for (let i = 0; i < 1e6; i++) s += i % 7; parentPort.postMessage(s);`, { eval: true });
  w.on('message', s => { sum += s; });
  w.on('exit', () => { if (++n === 4) zlib.gzip(Buffer.alloc(1e6), (e, b) => console.log(sum, b.length)); });
}";
    survives("node", &["-e", script]);
}

#[test]
#[ignore = "a large program; run by .ci/run"]
fn java_survives() {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("Storm.java");
    let text = "
import java.util.*; import java.util.concurrent.*; import java.util.stream.*;
class Storm {
  public static void main(String[] a) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(16);
    Map<Integer, Long> m = new ConcurrentHashMap<>();
    List<Future<?>> f = new ArrayList<>();
    for (int i = 0; i < 64; i++) { int k = i; f.add(pool.submit(() -> {
      byte[][] garbage = new byte[100][];
      for (int n = 0; n < 20000; n++) { garbage[n % 100] = new byte[1000]; synchronized (m) { m.merge(n % 10, (long) k, Long::sum); } } })); }
    for (Future<?> x : f) x.get();
    pool.shutdown(); pool.awaitTermination(60, TimeUnit.SECONDS); System.gc();
    System.out.println(m.values().stream().mapToLong(x -> x).sum());
  }
}";
    std::fs::write(&source, text).unwrap();
    // A runtime without the compiler in it runs no source.
    let compiler = Command::new("java").args(["--list-modules"]).output();
    if !compiler.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains("jdk.compiler")) {
        test_support::skip!("no Java with its compiler");
    }
    survives("java", &["-Xmx256m", source.to_str().unwrap()]);
}

/// The commands of redis's own benchmark.
fn redis(port: u16) -> Option<[Command; 2]> {
    let mut benchmark = Command::new("redis-benchmark");
    benchmark.args(["-p", &port.to_string(), "-n", "5000", "-c", "20", "-q", "-t", "set,get,lpush,sadd"]);
    let mut end = Command::new("redis-cli");
    end.args(["-p", &port.to_string(), "shutdown", "nosave"]);
    let there = |name: &str| Command::new(name).arg("--version").output().is_ok();
    ["redis-server", "redis-benchmark", "redis-cli"].iter().all(|n| there(n)).then_some([benchmark, end])
}

#[test]
fn redis_survives_its_benchmark() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let Some([mut benchmark, mut end]) = redis(port) else {
        test_support::skip!("redis is not installed");
    };
    let dir = tempfile::tempdir().unwrap();
    let tape = dir.path().join("t.doorbell");
    let mut server = doorbell();
    server
        .current_dir(dir.path())
        .args(["record", "--force", "--locks", "--tap", "off", "--on-full", "wait", "-o"])
        .arg(&tape);
    let threads = ["--save", "", "--io-threads", "4", "--appendonly", "yes", "--appendfsync", "always"];
    server.args(["--", "redis-server", "--port", &port.to_string()]).args(threads);
    let server = std::thread::spawn(move || finished(&mut server, "redis-server"));
    for _ in 0..600 {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let out = finished(&mut benchmark, "redis-benchmark");
    finished(&mut end, "redis-cli");
    let server = server.join().unwrap();
    assert!(out.status.success() && text(&out).contains("LPUSH"), "{}", text(&out));
    assert_eq!(server.status.code(), Some(0), "{}", text(&server));
    let locks = shown(&tape);
    assert!(locks["operations"]["mutex_lock"].as_u64() > Some(100), "{}", locks["operations"]);
}

/// Locks that bypass the agent's names are never reported as unused.
#[test]
fn a_library_with_a_scope_of_its_own_makes_the_recording_incomplete() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = program(dir.path(), "scopes") else { return };
    let (source, library) = (dir.path().join("library.c"), dir.path().join("library.so"));
    let text = "#include <pthread.h>\nstatic pthread_mutex_t m;\n\
        int locks(void) { for (int i = 0; i < 7; i++) { pthread_mutex_lock(&m); pthread_mutex_unlock(&m); } return 7; }\n";
    std::fs::write(&source, text).unwrap();
    let made = Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(&source).status().unwrap();
    assert!(made.success());
    let tape = dir.path().join("t.doorbell");
    for (how, locks, complete) in [("plain", 8, true), ("deepbind", 1, false), ("dlmopen", 1, false)] {
        let out = recorded(&tape, &[program.to_str().unwrap(), library.to_str().unwrap(), how]);
        assert_eq!((out.status.code(), text_of_first_line(&out)), (Some(0), "locked 7".to_owned()), "{how}");
        let shown = shown(&tape);
        assert_eq!(shown["operations"]["mutex_lock"], locks, "{how}");
        assert_eq!(shown["complete"], complete, "{how}: {}", shown["incomplete_because"]);
        let named = shown["incomplete_because"].to_string().contains("RTLD_DEEPBIND, dlmopen");
        assert_eq!(named, !complete, "{how}: {}", shown["incomplete_because"]);
    }
}

fn text_of_first_line(out: &Output) -> String {
    text(out).lines().next().unwrap_or_default().to_owned()
}
