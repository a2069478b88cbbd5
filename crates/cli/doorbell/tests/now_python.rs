//! What the recorder's answer to `now` has of Python programs: who has Python's lock, compared with what the program itself writes
//! into shared memory while it has it.

use recorder::control::messages::{Answer, Request};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tape::live::{LiveGil, LiveProcess};
use test_support::{Source, finished, private_folder};

/// The programs that `python3` and `python3.N` in the path stand for.
fn pythons() -> BTreeSet<PathBuf> {
    let ask = ["-c", "import sys; print(sys.executable)"];
    let names = std::iter::once("python3".to_owned()).chain((7..20).map(|n| format!("python3.{n}")));
    let of = |name: String| {
        let out = Command::new(name).args(ask).output().ok().filter(|out| out.status.success())?;
        std::fs::canonicalize(String::from_utf8(out.stdout).ok()?.trim()).ok()
    };
    names.filter_map(of).collect()
}

struct Program {
    dir: tempfile::TempDir,
    recorder: Child,
    pid: i32,
}

impl Program {
    fn start(python: &Path, mode: &str, options: &[&str]) -> Result<Program, String> {
        let dir = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/now_python");
        let (c, script) = (source.join("hold.c"), source.join("gil.py"));
        let cuda = source.join("libcuda.c");
        let cuda = Source { file: &cuda, compiler: "cc", flags: &["-O2", "-pthread"] };
        let cuda = cuda.compile_library(dir.path(), "libcuda.so.1")?;
        let library = Source { file: &c, compiler: "cc", flags: &["-O2", cuda.to_str().unwrap()] };
        let library = library.compile_library(dir.path(), "libhold.so")?;
        let run = private_folder(dir.path(), "run");
        std::fs::write(dir.path().join("shared"), [0; 4096]).unwrap();
        let mut record = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        record.current_dir(dir.path()).env("XDG_RUNTIME_DIR", &run).env("LD_LIBRARY_PATH", dir.path());
        record.args(["record", "--quiet", "--force", "--tap", "off", "-o", "a.doorbell"]).args(options);
        record.arg("--").arg(python).arg(script).arg(mode).arg(library).arg("shared");
        let mut recorder = record.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(recorder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let pid = test_support::children(recorder.id() as i32).first().copied().unwrap_or(0);
        let program = Program { dir, recorder, pid };
        if line == "ready\n" { Ok(program) } else { Err(format!("{} does not run", python.display())) }
    }

    /// What the program has written.
    fn shared(&self) -> [u64; 5] {
        let mut words = [[0; 8]; 5];
        let file = std::fs::File::open(self.dir.path().join("shared")).unwrap();
        file.read_exact_at(words.as_flattened_mut(), 0).unwrap();
        words.map(u64::from_le_bytes)
    }

    /// The thread that has the lock for as long as the number of its turn is the same.
    fn holder(&self) -> Option<(u64, i32)> {
        let [turn, tid, ..] = self.shared();
        (turn % 4 == 2).then_some((turn, tid as i32))
    }

    fn ask(&self, request: &Request) -> Answer {
        let socket = self.dir.path().join(format!("run/doorbell/{}.sock", self.pid));
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(request.line().as_bytes()).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn why(&self, words: &[&str]) -> String {
        let mut why = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        why.args(["why", "--now", &self.pid.to_string(), "--stacks"]).args(words);
        let out = finished(why.env("XDG_RUNTIME_DIR", self.dir.path().join("run")), "why --now --stacks");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    }

    fn look(&self) -> LiveProcess {
        let mut all = self.ask(&Request::Now).now.unwrap().processes;
        all.retain(|p| p.pid == self.pid);
        all.pop().unwrap_or_default()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        test_support::kill_tree(self.recorder.id() as i32);
        let _ = self.recorder.wait();
    }
}

fn waiters(p: &LiveProcess, gil: &LiveGil) -> usize {
    p.threads.iter().filter_map(|t| t.waits).filter(|w| w.address == gil.condition).count()
}

#[test]
fn the_thread_that_keeps_pythons_lock_is_named() {
    for python in pythons() {
        for options in [&["--locks"][..], &["--locks=waits", "--calls", "--last", "5s"]] {
            let program = match Program::start(&python, "hang", options) {
                Ok(program) => program,
                Err(why) => test_support::skip!("{why}"),
            };
            let begun = Instant::now();
            // (Each wait ends after 5 ms, and the next begins. A look between two of them has one waiter less.)
            let (p, gil) = loop {
                let held = program.holder().is_some();
                let p = program.look();
                match p.python.first().copied().filter(|_| held) {
                    Some(gil) if gil.holder != 0 && waiters(&p, &gil) >= 3 => break (p, gil),
                    _ if begun.elapsed() > Duration::from_secs(10) => panic!("{python:?} {options:?} {p:#?}"),
                    _ => {}
                }
            };
            let (_, tid) = program.holder().unwrap();
            assert_eq!((p.python.len(), gil.holder, gil.is_locked), (1, tid, true), "{python:?} {p:#?}");
            assert!(p.threads.iter().any(|t| t.tid == tid), "{p:#?}");
            let again = program.look();
            assert_eq!(again.python, [gil], "{python:?}: it did not change hands");
        }
    }
}

#[test]
fn in_a_healthy_program_no_other_thread_is_named() {
    for python in pythons() {
        let program = match Program::start(&python, "busy", &["--locks"]) {
            Ok(program) => program,
            Err(why) => test_support::skip!("{why}"),
        };
        let (mut exact, mut named, mut free) = (0, 0, 0);
        for _ in 0..200 {
            let before = program.holder();
            let p = program.look();
            let after = program.holder();
            let Some(gil) = p.python.first() else { continue };
            named += usize::from(gil.holder != 0);
            free += usize::from(!gil.is_locked);
            assert!(gil.is_locked || gil.holder == 0, "{p:#?}");
            if let Some((_, tid)) = before.filter(|_| before == after) {
                exact += 1;
                assert!(gil.is_locked && [tid, 0].contains(&gil.holder), "{tid}: {p:#?}");
            }
        }
        println!("{python:?}: {named} of 200 looks named a holder, in {free} it was free, {exact} could be compared");
        assert!(named > 20 && exact > 10, "{python:?}: {named} named, {exact} compared");
    }
}

/// One host function needs the lock, which the thread that launched it keeps; one sleeps; one has returned.
#[test]
fn threads_in_host_functions_are_named() {
    for python in pythons() {
        for options in [&["--locks", "--calls"][..], &["--calls"]] {
            let program = match Program::start(&python, "host", options) {
                Ok(program) => program,
                Err(why) => test_support::skip!("{why}"),
            };
            let begun = Instant::now();
            let in_functions = |p: &LiveProcess| -> Vec<(i32, u64)> {
                p.threads.iter().filter_map(|t| Some((t.tid, t.host_function?))).collect()
            };
            loop {
                let [_, holder, sleeps, sleeper, idle] = program.shared();
                let p = program.look();
                let of = in_functions(&p);
                assert!(of.iter().all(|(tid, _)| *tid != idle as i32 || idle == 0), "it has returned: {p:#?}");
                if [holder, sleeper, idle].contains(&0) || of.len() < 2 {
                    assert!(begun.elapsed() < Duration::from_secs(10), "{python:?} {options:?} {p:#?}");
                    continue;
                }
                assert!(of.contains(&(sleeper as i32, sleeps)) && of.len() == 2, "{of:x?} {p:#?}");
                let waiter = of.iter().find(|(tid, _)| *tid != sleeper as i32).unwrap().0;
                assert_ne!(waiter, holder as i32);
                if let Some(gil) = p.python.first().filter(|g| g.holder != 0) {
                    assert_eq!(gil.holder, holder as i32, "{p:#?}");
                    let waits = p.threads.iter().find(|t| t.tid == waiter).and_then(|t| t.waits);
                    assert!(waits.is_none_or(|w| w.address == gil.condition), "{p:#?}");
                    break;
                } else if options.len() == 1 {
                    break;
                }
                assert!(begun.elapsed() < Duration::from_secs(10), "{python:?} {options:?} {p:#?}");
            }
        }
    }
}

#[test]
fn the_stacks_of_threads_that_wait_are_shown_also_of_a_stopped_program() {
    let Some(python) = pythons().pop_first() else { test_support::skip!("there is no python3") };
    let program = match Program::start(&python, "hang", &["--locks"]) {
        Ok(program) => program,
        Err(why) => test_support::skip!("{why}"),
    };
    let begun = Instant::now();
    while program.holder().is_none() || waiting(&program.look()) < 3 {
        assert!(begun.elapsed() < Duration::from_secs(10), "{:#?}", program.look());
    }
    let (_, holder) = program.holder().unwrap();
    let check = || {
        let stacks = program.ask(&Request::Stacks).stacks.unwrap();
        let is_whole = |s: &tape::live::LiveStack| s.frames.len() > 5 && s.frames.iter().all(|f| f.is_certain);
        assert!(stacks.iter().filter(|s| is_whole(s)).count() >= 4, "{stacks:#x?}");
        let of_holder = stacks.iter().find(|s| s.tid == holder).unwrap();
        assert!(is_whole(of_holder), "{of_holder:x?}");
        let now: serde_json::Value = serde_json::from_str(&program.why(&["--json"])).unwrap();
        let threads = now["threads"].as_array().unwrap().iter().filter(|t| t["stack"].is_array());
        let of_python = |f: &serde_json::Value| tape::live::is_of_python(f["place"].as_str().unwrap());
        let frames = |t: &serde_json::Value| t["stack"].as_array().unwrap().clone();
        let right =
            |t: &&serde_json::Value| frames(t).iter().any(of_python) && frames(t).iter().all(|f| f["certain"] == true);
        assert!(threads.filter(right).count() >= 1, "{now:#}");
    };
    check();
    let text = program.why(&[]);
    assert!(text.contains(") is in\n  ") && !text.contains("some may be old"), "{text}");
    // SAFETY: a process that this test has started and not waited for.
    unsafe { libc::kill(program.pid, libc::SIGSTOP) };
    let state = || std::fs::read_to_string(format!("/proc/{}/stat", program.pid)).unwrap();
    let is_stopped = || state().rsplit(')').next().unwrap().trim().starts_with('T');
    while !is_stopped() {
        assert!(begun.elapsed() < Duration::from_secs(20), "{}", state());
    }
    (0..5).for_each(|_| check());
    assert!(is_stopped(), "{}", state());
}

fn waiting(p: &LiveProcess) -> usize {
    p.python.first().map_or(0, |gil| waiters(p, gil))
}
