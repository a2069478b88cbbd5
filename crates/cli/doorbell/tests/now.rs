//! `doorbell why --now`, and `why` of recordings: programs whose threads wait for one another, and programs that only look like that.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use test_support::{finished, program_with_cuda};

/// The most that a look may take.
const LIMIT: Duration = Duration::from_secs(2);

fn doorbell(dir: &Path) -> Command {
    let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    c.current_dir(dir).env("LD_LIBRARY_PATH", dir).env("XDG_RUNTIME_DIR", dir.join("run"));
    c
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: a process that this test has started and not waited for.
    unsafe { libc::kill(pid, signal) };
}

/// A folder with the program, a library with CUDA's name, and the folder for sockets. `Err` without a C compiler.
fn built() -> Result<tempfile::TempDir, String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    program_with_cuda(&sources.join("calls/libcuda.c"), &sources.join("now/app.c"))
}

macro_rules! built {
    () => {
        match built() {
            Ok(dir) => dir,
            Err(why) => test_support::skip!("{why}"),
        }
    };
}

/// A recorded program, which has printed its line.
struct Recorded<'a> {
    dir: &'a Path,
    recorder: Child,
    pid: i32,
}

impl<'a> Recorded<'a> {
    fn start(dir: &'a Path, options: &[&str], arguments: &[&str]) -> Recorded<'a> {
        let mut record = doorbell(dir);
        record.args(["record", "--quiet", "--force", "--tap", "off", "-o", "a.doorbell"]).args(options);
        record.args(["--", "./app"]).args(arguments);
        let mut recorder = record.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(recorder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let pid = test_support::children(recorder.id() as i32).first().copied().unwrap_or(0);
        Recorded { dir, recorder, pid }
    }

    fn look(&self, words: &[&str]) -> (Output, Duration) {
        let begun = Instant::now();
        let out = finished(doorbell(self.dir).args(["why", "--now", &self.pid.to_string()]).args(words), "why --now");
        (out, begun.elapsed())
    }

    fn now(&self) -> Value {
        let (out, _) = self.look(&["--json"]);
        assert!(out.status.success(), "{}", text(&out.stderr));
        let now: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert_eq!((&now["schema"], &now["pid"]), (&"doorbell.now/1".into(), &self.pid.into()), "{now:#}");
        now
    }
}

impl Drop for Recorded<'_> {
    fn drop(&mut self) {
        kill(self.recorder.id() as i32, libc::SIGCONT);
        test_support::kill_tree(self.recorder.id() as i32);
        let _ = self.recorder.wait();
    }
}

fn names(now: &Value, path: &Value) -> Vec<String> {
    let of = |tid: &Value| now["threads"].as_array().unwrap().iter().find(|t| t["tid"] == *tid).map(|t| &t["thread"]);
    let all = path["tids"].as_array().unwrap().iter();
    all.map(|tid| of(tid).and_then(Value::as_str).unwrap_or("?").to_owned()).collect()
}

fn len(list: &Value) -> usize {
    list.as_array().unwrap().len()
}

fn answer(now: &Value) -> Vec<&str> {
    now["answer"].as_array().unwrap().iter().filter_map(Value::as_str).collect()
}

const KINDS: [&[&str]; 4] =
    [&["--locks"], &["--locks=waits", "--calls"], &["--locks", "--calls", "--last", "5s"], &["--dormant", "--locks"]];

#[test]
fn a_cycle_of_two_mutexes() {
    let dir = built!();
    for kind in KINDS {
        let r = Recorded::start(dir.path(), kind, &["mutexes"]);
        let now = r.now();
        assert_eq!((len(&now["cycles"]), len(&now["chains"])), (1, 0), "{kind:?} {now:#}");
        let mut of = names(&now, &now["cycles"][0]);
        of.sort();
        assert_eq!(of, ["reader", "writer"]);
        let (out, took) = r.look(&[]);
        let shown = text(&out.stdout);
        assert!(shown.starts_with("cycle: thread ") && shown.contains("ms for app+0x"), "{shown}");
        assert!(shown.contains(" (writer)") && shown.contains("/mutex, which thread "), "{shown}");
        assert!(took < LIMIT, "{took:?}");
    }
}

#[test]
fn a_cycle_of_three_with_a_rwlock() {
    let dir = built!();
    for kind in KINDS {
        let r = Recorded::start(dir.path(), kind, &["rwlock"]);
        let now = r.now();
        if kind.contains(&"--dormant") {
            // Readers are only counted by the lock, and in a pause they are not recorded: no thread is named for that.
            assert_eq!((len(&now["cycles"]), &now["chains"][0]["end"]), (0, &"unknown_holder".into()), "{now:#}");
            assert_eq!(names(&now, &now["chains"][0]), ["reader", "third", "writer"]);
            continue;
        }
        assert_eq!((len(&now["cycles"]), len(&now["cycles"][0]["tids"])), (1, 3), "{kind:?} {now:#}");
        let text = now["cycles"][0]["text"].as_str().unwrap();
        assert!(text.contains("to write app+0x") && text.contains("(reader) holds to read"), "{text}");
    }
}

#[test]
fn a_call_that_does_not_return_is_where_a_chain_ends() {
    let dir = built!();
    let r = Recorded::start(dir.path(), &["--locks"], &["call"]);
    let now = r.now();
    assert_eq!((len(&now["cycles"]), &now["chains"][0]["end"]), (0, &"call".into()), "{now:#}");
    assert_eq!(names(&now, &now["chains"][0]), ["waiter", "caller"]);
    assert!(answer(&now)[0].contains("thread ") && answer(&now)[0].contains(" is in cuLaunchKernel for "), "{now:#}");
    let caller = now["threads"].as_array().unwrap().iter().find(|t| t["thread"] == "caller").unwrap();
    assert_eq!((&caller["call"]["stream"], &caller["keeps_waiting"]), (&"0x77".into(), &1.into()));
    if !caller["system_call"].is_null() {
        assert_eq!(caller["system_call"], "pause");
    }
    // Without locks the call alone is seen.
    drop(r);
    let now = Recorded::start(dir.path(), &["--calls"], &["call"]).now();
    assert!(answer(&now)[0].contains("(caller) is in cuLaunchKernel for "), "{now:#}");
    assert!(now["not_followed"].to_string().contains("locks (record --locks)"), "{now:#}");
}

#[test]
fn a_thread_that_ended_with_a_lock() {
    let dir = built!();
    for kind in KINDS {
        let now = Recorded::start(dir.path(), kind, &["left"]).now();
        assert_eq!(now["chains"][0]["end"], "ended", "{kind:?} {now:#}");
        assert!(answer(&now)[0].ends_with("has ended without giving it back"), "{now:#}");
    }
}

/// The first thread has a lock, and waits for the end of a thread that waits for it.
#[test]
fn a_cycle_through_pthread_join() {
    let dir = built!();
    for kind in KINDS {
        let now = Recorded::start(dir.path(), kind, &["join"]).now();
        let waits = now["threads"].as_array().unwrap().iter().find(|t| t["thread"] == "waiter").unwrap();
        if waits["system_call"].is_null() {
            test_support::skip!("this kernel does not report the system calls of threads");
        }
        assert_eq!(len(&now["cycles"]), 1, "{kind:?} {now:#}");
        assert!(answer(&now)[0].contains("waits for the end of thread "), "{now:#}");
    }
}

#[test]
fn a_stopped_program_and_a_stopped_recorder() {
    let dir = built!();
    let r = Recorded::start(dir.path(), &["--locks"], &["call"]);
    kill(r.pid, libc::SIGSTOP);
    let begun = Instant::now();
    let now = loop {
        let now = r.now();
        if len(&now["stopped"]) == 1 || begun.elapsed() > Duration::from_secs(20) {
            break now;
        }
    };
    assert_eq!(answer(&now)[0], format!("process {} is stopped (SIGSTOP)", r.pid), "{now:#}");
    assert_eq!((&now["chains"][0]["end"], len(&now["cycles"])), (&"stopped".into(), 0), "{now:#}");
    kill(r.pid, libc::SIGCONT);
    kill(r.recorder.id() as i32, libc::SIGSTOP);
    let (out, took) = r.look(&[]);
    let why = text(&out.stderr);
    assert!(out.status.code() == Some(2) && why.contains("does not answer: is it stopped?"), "{why}");
    assert!(took < LIMIT * 2, "{took:?}");
}

/// The program ends at some time in the first or second look, between them, or before.
#[test]
fn a_dying_program_gives_an_answer_or_an_error() {
    let dir = built!();
    let (mut answers, mut errors, mut times) = (0, 0, Vec::new());
    for i in 0..50 {
        let (life, kind) = ((i * 7919 % 250_000).to_string(), KINDS[i % KINDS.len()]);
        let r = Recorded::start(dir.path(), kind, &["busy", &life, "aborts"][..2 + i % 2]);
        std::thread::sleep(Duration::from_millis(i as u64 % 5 * 10));
        let (out, took) = r.look(&["--json"]);
        times.push(took);
        if out.status.success() {
            let now: Value = serde_json::from_slice(&out.stdout).unwrap();
            assert_eq!(len(&now["cycles"]), 0, "{now:#}");
            answers += 1;
        } else {
            let why = text(&out.stderr);
            let is_clear = ["there is no process", "is not recorded by doorbell", "is gone", "has ended"];
            assert!(out.status.code() == Some(2) && is_clear.iter().any(|part| why.contains(part)), "{why}");
            errors += 1;
        }
    }
    times.sort();
    println!("{answers} answers, {errors} errors, at most {:?}", times[49]);
    assert!(times[25] < LIMIT && times[49] < LIMIT * 5, "{times:?}");
}

#[test]
fn a_healthy_program_in_which_threads_wait_has_no_cycle() {
    let dir = built!();
    let mut times = Vec::new();
    for (kind, mode) in KINDS.iter().flat_map(|kind| [(kind, "busy"), (kind, "crosses")]) {
        let r = Recorded::start(dir.path(), kind, &[mode]);
        let mut waited = 0;
        for _ in 0..5 {
            let begun = Instant::now();
            let now = r.now();
            times.push(begun.elapsed());
            assert_eq!(len(&now["cycles"]), 0, "{kind:?} {now:#}");
            let of_all = now["short_waits"].as_u64().unwrap() as usize + len(&now["chains"]);
            waited += usize::from(of_all > 0);
            let said = answer(&now);
            assert!(said[0].starts_with("nobody waits") || said[0].starts_with("chain: "), "{now:#}");
        }
        println!("{kind:?} {mode}: {waited} of 5 looks saw a wait");
        assert!(waited > 2, "{kind:?} {mode}: {waited}");
    }
    times.sort();
    let (half, worst) = (times[times.len() / 2], times[times.len() - 1]);
    println!("half of {} looks took {half:?} or less, at most {worst:?}", times.len());
    assert!(half < LIMIT && worst < LIMIT * 5);
}

/// `why` of a saved or whole recording.
fn why(file: &Path) -> Value {
    let dir = file.parent().unwrap();
    let out = finished(doorbell(dir).args(["why", "--json"]).arg(file), "why");
    assert!(out.status.success(), "{}: {}", file.display(), text(&out.stderr));
    serde_json::from_slice(&out.stdout).unwrap()
}

/// The recordings in the folder, each complete.
fn files(dir: &Path) -> Vec<String> {
    let names = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    let mut all: Vec<String> = names.filter(|name| name.contains(".doorbell")).collect();
    assert!(all.iter().all(|name| name.ends_with(".doorbell")), "{all:?}");
    all.sort();
    for name in &all {
        let out = finished(doorbell(dir).args(["show", "--json"]).arg(name), "show");
        let shown: Value = serde_json::from_slice(&out.stdout).unwrap();
        assert!(out.status.success() && shown["damage"].is_null() && !shown["end"].is_null(), "{shown:#}");
    }
    all
}

fn until_there_is(file: &Path) {
    let begun = Instant::now();
    while !file.metadata().is_ok_and(|m| m.len() > 0) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{} was not saved", file.display());
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The only cycle of a recording, whose first answer begins so.
fn has_cycle(file: &Path, when: &str) {
    let why = why(file);
    let now = &why["moment"]["now"];
    assert_eq!((len(&now["cycles"]), &why["moment"]["when"]), (1, &when.into()), "{why:#}");
    let mut of = names(now, &now["cycles"][0]);
    of.sort();
    assert_eq!(of, ["reader", "writer"]);
    let out = finished(doorbell(file.parent().unwrap()).arg("why").arg(file), "why");
    let said = text(&out.stdout).replace('\n', " ");
    for part in [&format!("{when}: cycle: thread "), "(reader)", "(writer)", "/mutex, which thread "] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

const HANG: [&str; 4] = ["--last", "30s", "--save-when", "hang > 1s"];

#[test]
fn a_hang_saves_one_file_that_names_the_cycle() {
    for how in [&["--locks"][..], &["--locks=waits", "--calls"]] {
        let dir = built!();
        let file = dir.path().join("a.doorbell");
        let mut r = Recorded::start(dir.path(), &[how, &HANG].concat(), &["mutexes"]);
        until_there_is(&file);
        has_cycle(&file, "at the moment of saving (hang > 1s)");
        let report = finished(doorbell(dir.path()).args(["report", "a.doorbell", "-o", "a.html"]), "report");
        assert!(report.status.success(), "{}", text(&report.stderr));
        let page = std::fs::read_to_string(dir.path().join("a.html")).unwrap();
        assert!(
            page.contains("Who waited for whom at the moment of saving") && page.contains("class=\"l bad strong\"")
        );
        // (Long enough for another file, if it were begun.)
        std::thread::sleep(Duration::from_secs(12));
        assert_eq!(files(dir.path()), ["a.doorbell"]);
        // A request has looks, too. A crash has what the threads did when the program ended.
        let save = finished(doorbell(dir.path()).args(["save", &r.pid.to_string()]), "save");
        assert!(save.status.success(), "{}", text(&save.stderr));
        has_cycle(&dir.path().join("a.2.doorbell"), "at the moment of saving (doorbell save)");
        kill(r.pid, libc::SIGABRT);
        r.recorder.wait().unwrap();
        has_cycle(&dir.path().join("a.3.doorbell"), "when the recording ended");
        assert_eq!(files(dir.path()).len(), 3);
    }
}

#[test]
fn a_call_that_does_not_return_is_a_hang() {
    let dir = built!();
    let _recorded = Recorded::start(dir.path(), &[&["--calls"], &HANG[..]].concat(), &["call"]);
    let file = dir.path().join("a.doorbell");
    until_there_is(&file);
    let why = why(&file);
    assert!(
        why["saved_because"].as_str().unwrap().starts_with("hang > 1s: cuLaunchKernel has not returned"),
        "{why:#}"
    );
    assert!(answer(&why["moment"]["now"])[0].contains("(caller) is in cuLaunchKernel for "), "{why:#}");
}

#[test]
fn top_shows_the_longest_wait() {
    let dir = built!();
    let of = |option: &str, mode: &str| {
        let r = Recorded::start(dir.path(), &[option], &[mode]);
        let top = |words: &[&str]| {
            let mut top = doorbell(dir.path());
            top.args(["top", &r.pid.to_string(), "--for", "3s"]).args(words);
            text(&finished(&mut top, "top").stdout)
        };
        let json = top(&["--json"]);
        let last: Value = serde_json::from_str(json.lines().last().unwrap()).unwrap();
        (last["longest_wait"].clone(), top(&[]))
    };
    let (wait, shown) = of("--calls", "call");
    assert_eq!((&wait["name"], &wait["thread"]), (&"cuLaunchKernel".into(), &"caller".into()), "{wait}");
    assert!(wait["ms"].as_f64() > Some(1000.0), "{wait}");
    assert!(shown.contains("longest wait now: thread ") && shown.contains(" s in cuLaunchKernel"), "{shown}");
    let (wait, _) = of("--locks", "mutexes");
    assert!(wait["name"].as_str().unwrap().starts_with("mutex 0x"), "{wait}");
}

#[test]
fn threads_that_wait_for_one_another_for_short_times_are_no_hang() {
    let dir = built!();
    let mut r =
        Recorded::start(dir.path(), &["--locks", "--last", "30s", "--save-when", "hang > 3s"], &["busy", "5000000"]);
    r.recorder.wait().unwrap();
    assert_eq!(files(dir.path()), [""; 0]);
}

/// The program dies before, between and after the looks.
#[test]
fn a_program_that_is_killed_while_its_hang_is_saved_leaves_whole_files() {
    for ms in [0, 40, 80, 120, 160, 200, 240, 280] {
        let dir = built!();
        let mut r =
            Recorded::start(dir.path(), &["--locks", "--last", "30s", "--save-when", "hang > 600ms"], &["mutexes"]);
        std::thread::sleep(Duration::from_millis(350 + ms));
        kill(r.pid, libc::SIGKILL);
        r.recorder.wait().unwrap();
        for name in files(dir.path()) {
            let why = why(&dir.path().join(&name));
            assert_eq!(len(&why["moment"]["now"]["cycles"]), 1, "{name} {why:#}");
        }
    }
}

#[test]
fn a_whole_recording_has_the_cycle_in_which_its_program_was_killed() {
    for kind in [&["--locks"][..], &["--locks=waits", "--calls"]] {
        let dir = built!();
        let mut r = Recorded::start(dir.path(), kind, &["mutexes"]);
        kill(r.pid, libc::SIGKILL);
        r.recorder.wait().unwrap();
        has_cycle(&dir.path().join("a.doorbell"), "when the recording ended");
        // A thread that had ended with a lock, and one that never got it.
        let mut r = Recorded::start(dir.path(), kind, &["left"]);
        std::thread::sleep(Duration::from_millis(1500));
        kill(r.pid, libc::SIGKILL);
        r.recorder.wait().unwrap();
        let why = why(&dir.path().join("a.doorbell"));
        assert_eq!(why["moment"]["now"]["chains"][0]["end"], "ended", "{why:#}");
    }
}

#[test]
fn errors_are_clear_and_name_what_is_recorded() {
    let dir = built!();
    let refused = |words: &[&str]| {
        let out = finished(doorbell(dir.path()).arg("why").args(words), "why");
        assert_eq!(out.status.code(), Some(2), "{words:?}");
        text(&out.stderr)
    };
    // (Root finds the recordings of tests that run at the same time.)
    let without_number = || {
        let out = finished(doorbell(dir.path()).args(["why", "--now"]), "why --now");
        let said = text(&out.stdout) + &text(&out.stderr);
        (said.contains("`doorbell why --now PID` shows one"), said)
    };
    let (is_list, said) = without_number();
    assert!(is_list || said.contains("no program of this user is being recorded"), "{said}");
    let r = Recorded::start(dir.path(), &["--locks"], &["mutexes"]);
    let own = std::process::id().to_string();
    let why = refused(&["--now", &own]);
    assert!(why.contains("is not recorded by doorbell") && why.contains(&format!("{} (./app)", r.pid)), "{why}");
    assert!(refused(&["--now", "999999999"]).contains("there is no process 999999999"));
    for option in [&["--worst", "3"][..], &["--starting"], &["--call", "cuInit"], &["--thread", "1"]] {
        let why = refused(&[&["--now", &own], option].concat());
        assert!(why.contains("cannot be used with"), "{why}");
    }
    // Without a number: the only one that is recorded.
    let (is_list, said) = without_number();
    assert!(is_list || said.starts_with("cycle: "), "{said}");
}
