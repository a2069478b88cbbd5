//! `record --locks=waits`: the threads that held what others waited for, as `--locks` names them for the same program.
//!
//! The program is `locks/waits.c`, compiled here; each part of it defines who holds what, and for how long.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use test_support::{Source, finished};

/// The program with known waits. `None` without a C compiler, with the reason printed.
fn program(dir: &Path) -> Option<PathBuf> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locks/waits.c");
    match (Source { file: &file, compiler: "cc", flags: &["-w"] }).compile(dir) {
        Ok(program) => Some(program),
        Err(why) => test_support::skip!("{why}"),
    }
}

fn doorbell() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
}

struct Recorded {
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl Recorded {
    fn new() -> Option<Recorded> {
        let dir = tempfile::tempdir().unwrap();
        let program = program(dir.path())?;
        Some(Recorded { dir, program })
    }

    fn tape(&self, form: &str, part: &str) -> PathBuf {
        let tape = self.dir.path().join(format!("{part}{form}.doorbell"));
        let mut c = doorbell();
        c.args(["record", "-q", "--force", form, "--tap", "off", "--no-switches", "-o"]).arg(&tape).arg("--");
        let out = finished(c.arg(&self.program).arg(part), part);
        assert!(out.status.success(), "{part}: {}", String::from_utf8_lossy(&out.stderr));
        tape
    }

    fn locks(&self, form: &str, part: &str) -> Value {
        shown(&self.tape(form, part), "--locks")
    }
}

fn shown(tape: &Path, view: &str) -> Value {
    let out = finished(doorbell().args(["show", "--json", view]).arg(tape), "show");
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_slice(&out.stdout).expect("JSON")
}

fn rows<'a>(of: &'a Value, key: &str) -> &'a [Value] {
    of[key].as_array().map_or(&[][..], Vec::as_slice)
}

/// For each wait: the waiter, the lock, the outcome, and the holder that held it longest during the wait, with where
/// that took it. Not in order.
fn named(locks: &Value) -> Vec<String> {
    let line = |w: &Value| {
        let h = &rows(w, "holders")[0];
        format!("{} {} {} {} {}", w["thread"], w["lock"], w["result"], h["thread"], h["site"])
    };
    let mut all: Vec<String> = rows(locks, "waits").iter().map(line).collect();
    all.sort();
    all
}

#[test]
fn holders_are_those_that_all_operations_show() {
    let Some(r) = Recorded::new() else { return };
    for (part, waits) in [
        ("one", 1),
        ("three", 3),
        ("times-out", 1),
        ("recursion", 1),
        ("readers", 1),
        ("again", 1),
        ("forked", 2),
        ("never", 1),
    ] {
        let (all, waits_only) = (r.locks("--locks", part), r.locks("--locks=waits", part));
        assert_eq!(waits_only["waits_only"], true, "{part}");
        assert_eq!(rows(&waits_only, "waits").len(), waits, "{part}: {waits_only:#}");
        assert_eq!(named(&all), named(&waits_only), "{part}");
        for w in rows(&waits_only, "waits") {
            let (ns, h) = (w["wait_ns"].as_u64().unwrap(), &w["holders"][0]);
            // Held when the wait began, and therefore for most of the wait: the rest is a wake-up.
            assert_eq!(h["begin_unknown"], true, "{part}: {w:#}");
            assert!(h["hold_ns"].as_u64() >= h["of_wait_ns"].as_u64() || h["unfinished"] == true, "{part}: {w:#}");
            let others: u64 = rows(w, "holders").iter().map(|h| h["of_wait_ns"].as_u64().unwrap()).sum();
            assert!(others > ns / 2, "{part}: {w:#}");
        }
    }
}

#[test]
fn who_holds_it_next_has_exact_times() {
    let Some(r) = Recorded::new() else { return };
    let l = r.locks("--locks=waits", "three");
    let last = &rows(&l, "waits")[0];
    let holders = rows(last, "holders");
    assert_eq!(holders.len(), 3, "{last:#}");
    let (open, exact): (Vec<&Value>, Vec<&Value>) = holders.iter().partition(|h| h["begin_unknown"] == true);
    assert_eq!((open.len(), exact.len()), (1, 2));
    assert!(exact.iter().all(|h| h["hold_ns"].as_u64() > Some(5_000_000)), "{exact:#?}");
}

#[test]
fn free_locks_leave_no_event_and_are_not_counted_as_none() {
    let Some(r) = Recorded::new() else { return };
    let tape = r.tape("--locks=waits", "free");
    assert!(tape.metadata().unwrap().len() < 100_000, "200,000 pairs would be 8 MB");
    let text = finished(doorbell().args(["show", "--locks"]).arg(&tape), "show");
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("operations not counted, 0 contended") && text.contains("waits only"), "{text}");
    assert!(!text.contains("longest hold"), "{text}");
    assert_eq!(shown(&tape, "--summary")["locks"], "waits");
    for (command, what) in [(vec!["plan"], "a plan"), (vec!["diff"], "a comparison")] {
        let mut c = doorbell();
        c.args(&command).arg(&tape);
        if command == ["diff"] {
            c.arg(&tape);
        }
        let out = finished(&mut c, command[0]);
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert_eq!(out.status.code(), Some(2), "{said}");
        assert!(said.contains(&format!("{what} needs every operation of locks")), "{said}");
    }
}

/// Signals and posts are recorded with the waits, while a thread waits.
#[test]
fn conditions_and_semaphores_have_their_waits_and_who_ended_them() {
    let Some(r) = Recorded::new() else { return };
    for (part, wait, wake) in [("condition", "cond_wait", "cond_signal"), ("semaphore", "sem_wait", "sem_post")] {
        let tape = r.tape("--locks=waits", part);
        let out = finished(doorbell().args(["export", "--jsonl"]).arg(&tape), "export");
        let lines = String::from_utf8_lossy(&out.stdout).into_owned();
        let of = |operation: &str| -> Vec<Value> {
            let all = lines.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
            // (The hold of the mutex that ends with such a wait has its name, too.)
            all.filter(|v| v["operation"] == operation && v["hold_ns"].is_null()).collect()
        };
        assert_eq!((of(wait).len(), of(wake).len()), (1, 1), "{part}: {lines}");
        assert!(of(wait)[0]["wait_ns"].as_u64() > Some(5_000_000), "{part}");
    }
}

/// The program itself prints who held which lock when. Every named holder held the lock during the wait, and each long
/// wait has one.
#[test]
fn nobody_is_named_who_did_not_hold_the_lock() {
    let Some(r) = Recorded::new() else { return };
    let tape = r.dir.path().join("crowd.doorbell");
    let mut c = doorbell();
    c.args(["record", "-q", "--force", "--locks=waits", "--tap", "off", "--no-switches", "-o"]).arg(&tape).arg("--");
    let out = finished(c.arg(&r.program).arg("crowd"), "crowd");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    // Thread, lock, from, to, and when it requested the lock and had released it.
    let turns: Vec<Vec<u64>> =
        said.lines().map(|l| l.split(' ').map(|word| word.parse().expect("a number")).collect()).collect();
    assert_eq!(turns.len(), 6 * 400);
    let out = finished(doorbell().args(["export", "--jsonl"]).arg(&tape), "export");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let header: Value = serde_json::from_str(text.lines().next().expect("a header")).expect("JSON");
    let hz = header["tsc_hz"].as_f64().expect("a rate");
    let locks = shown(&tape, "--locks");
    let mut names: Vec<&str> = rows(&locks, "locks").iter().map(|l| l["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names.len(), 3, "{names:?}");
    let (mut named, mut long, mut doubtful) = (0, 0, 0);
    for w in rows(&locks, "waits") {
        let lock = names.iter().position(|n| Some(*n) == w["lock"].as_str()).expect("one of the three") as u64;
        let from: u64 = w["tsc"].as_str().unwrap().parse().unwrap();
        let ticks = |ns: &Value| (ns.as_f64().unwrap() * hz / 1e9) as u64;
        let to = from + ticks(&w["wait_ns"]);
        let holders = rows(w, "holders");
        long += usize::from(w["wait_ns"].as_u64() > Some(100_000));
        if holders.is_empty() {
            // The lock was released before the waiter counted itself, and the waiter did not run.
            let held = turns.iter().filter(|t| t[1] == lock && Some(t[0]) != w["tid"].as_u64());
            let share: u64 = held.map(|t| t[3].min(to).saturating_sub(t[2].max(from))).sum();
            assert!(share < (hz / 1e5) as u64, "others held it for {share} ticks: {w:#}");
        }
        for h in holders.iter().filter(|h| h["of_wait_ns"].as_u64() > Some(5_000)) {
            let held = |t: &&Vec<u64>| t[0] == h["tid"].as_u64().unwrap() && t[1] == lock;
            let during = |a: usize, b: usize| turns.iter().filter(held).any(|t| t[a] < to && t[b] > from);
            assert!(during(4, 5), "did not hold it: {h:#} {w:#}");
            // (Preempted between the lock and its reading of the clock.)
            doubtful += usize::from(!during(2, 3));
            named += 1;
        }
    }
    assert!(long > 50 && named > long / 2, "{long} long waits, {named} holders");
    assert!(doubtful <= named / 50, "{doubtful} of {named} did not hold it by their own clocks");
}
