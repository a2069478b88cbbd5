//! Pauses: what is on the tape, and what is reported about the rest.

use serde_json::Value;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use test_support::Source;

fn doorbell(arguments: &[&str]) -> Output {
    let out = Command::new(assert_cmd::cargo::cargo_bin!("doorbell")).args(arguments).output().unwrap();
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    out
}

fn show(view: &[&str], file: &str) -> Value {
    serde_json::from_slice(&doorbell(&[&["show", "--json"], view, &[file]].concat()).stdout).unwrap()
}

/// The program, with a library of CUDA's name in the same folder. `Err` without a C compiler.
fn built(dir: &Path) -> Result<(), String> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let (library, app) = (sources.join("calls/libcuda.c"), sources.join("pauses/app.c"));
    let library = Source { file: &library, compiler: "cc", flags: &[] }.compile_library(dir, "libcuda.so.1")?;
    Source { file: &app, compiler: "cc", flags: &[library.to_str().unwrap()] }.compile(dir)?;
    Ok(())
}

/// Records the program; returns the file.
fn recorded(dir: &Path, options: &[&str], words: &[&str]) -> String {
    let file = dir.join("a.doorbell").to_str().unwrap().to_owned();
    let app = dir.join("app").to_str().unwrap().to_owned();
    let all =
        [&["record", "--quiet", "--force", "--locks", "--tap", "off", "-o", &file], options, &["--", &app], words];
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let out = command.args(all.concat()).env("LD_LIBRARY_PATH", dir).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(String::from_utf8_lossy(&out.stdout), "1\n");
    file
}

/// How often each lock was taken, how the hold ended, and how many kernels were launched.
fn seen(file: &str) -> (Vec<(String, String)>, usize) {
    let lines = String::from_utf8(doorbell(&["export", "--jsonl", file]).stdout).unwrap();
    let lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let of = |kind: &str| lines.iter().filter(|l| l["type"] == kind).cloned().collect::<Vec<_>>();
    let named = |l: &Value| l["site"].as_str().unwrap_or_default().starts_with("app+");
    let locks = of("lock").into_iter().filter(named);
    let locks = locks.map(|l| (l["lock"].to_string(), l["ended"].as_str().unwrap_or("none").to_owned())).collect();
    (locks, of("cuda_call").iter().filter(|l| l["call"] == "cuLaunchKernel").count())
}

#[test]
fn nothing_of_a_pause_is_on_the_tape_and_a_lock_held_across_it_says_so() {
    let dir = tempfile::tempdir().unwrap();
    if let Err(why) = built(dir.path()) {
        test_support::skip!("{why}");
    }
    for (options, words) in [
        (&[][..], &["call"][..]),
        (&["--capture", "call"], &["call", "paused"]),
        (&["--capture", "profiler"], &["profiler", "paused"]),
    ] {
        let file = recorded(dir.path(), options, words);
        let (locks, launches) = seen(&file);
        assert_eq!(launches, 5 + 11, "{options:?}");
        let ends = |how: &str| locks.iter().filter(|(_, ended)| ended == how).count();
        // One more: `across`, taken and released after the pause.
        assert_eq!((ends("unlock"), ends("pause"), locks.len()), (5 + 11 + 1, 1, 18), "{options:?} {locks:?}");
        let s = show(&[], &file);
        let pauses = if words.len() > 1 { 2 } else { 1 };
        assert_eq!((&s["pauses"]["count"], &s["pauses"]["doorbells"]), (&pauses.into(), &0.into()), "{options:?}");
        assert!(s["pauses"]["seconds"].as_f64().unwrap() > 0.0);
        assert_eq!(s["complete"], false);
        assert!(s["incomplete_because"].to_string().contains("with pauses"), "{s}");
    }
    // Profiler functions have no effect unless they were requested.
    let file = recorded(dir.path(), &[], &["profiler"]);
    assert_eq!((seen(&file).1, &show(&[], &file)["pauses"]), (23, &Value::Null));
}

#[test]
fn doorbells_of_pauses_are_counted_and_what_follows_them_is_understood() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.doorbell").to_str().unwrap().to_owned();
    let command = assert_cmd::cargo::cargo_bin!("doorbell");
    let run = |options: &[&str], pause: bool| {
        let _ = std::fs::remove_file(&file);
        let mut record = Command::new(command);
        record
            .args(["record", "--quiet", "--force", "--gpu", "soft", "-o", &file])
            .args(options)
            .arg("--")
            .arg(command);
        record.args(["sample", "threads", "--gpu", "soft", "--count", "2000"]).stdout(Stdio::piped());
        let mut child = record.spawn().unwrap();
        let id = child.id() as i32;
        // SAFETY: a signal that doorbell handles, to a child of this test that has not been waited for.
        let say = || unsafe { libc::kill(id, libc::SIGUSR2) };
        while pause && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(3));
            if std::fs::metadata(&file).is_ok_and(|m| m.len() > 4096) {
                say();
            }
        }
        let out = child.wait_with_output().unwrap();
        assert!(out.status.success(), "{}", out.status);
        (show(&[], &file), out.stdout)
    };
    let (whole, printed) = run(&[], false);
    let (paused, same) = run(&["--capture", "signal"], true);
    assert_eq!(printed, same);
    let number = |s: &Value, key: &str| s[key].as_u64().unwrap();
    let (rang, unseen) = (number(&paused, "doorbells"), number(&paused["pauses"], "doorbells"));
    assert!(rang > 0 && unseen > 0 && number(&paused["pauses"], "count") > 1, "{}", paused["pauses"]);
    assert_eq!(rang + unseen, number(&whole, "doorbells"), "{}", paused["pauses"]);
    assert_eq!((&paused["lost"], &paused["problems"]["bad_headers"]), (&0.into(), &0.into()), "{paused}");
    assert_eq!(paused["lost_detail"]["rings_missing"], 0);
    assert_eq!(paused["incomplete_because"].as_array().unwrap().len(), 1, "{}", paused["incomplete_because"]);
}

#[test]
fn python_asks_and_says_by_libdoorbell() {
    // Built with the workspace.
    let library = std::env::current_exe().unwrap().with_file_name("libdoorbell.so");
    if !library.exists() || !test_support::installed("python3") {
        test_support::skip!("no python3, or no libdoorbell.so beside the tests (`cargo test --workspace`)");
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a.doorbell").to_str().unwrap().to_owned();
    let program = "import doorbell\nwith doorbell.record('x'): print(doorbell.recording())\nprint(doorbell.pause(), doorbell.resume())";
    let run = |recorded: bool| {
        let doorbell = assert_cmd::cargo::cargo_bin!("doorbell").to_str().unwrap().to_owned();
        let python = ["python3", "-c", program].map(str::to_owned);
        let words = if recorded { &["record", "-q", "--locks", "--no-switches", "-o", &file, "--"][..] } else { &[] };
        let mut command = Command::new(if recorded { &doorbell } else { &python[0] });
        command.args(words).args(python.iter().skip(usize::from(!recorded)));
        command
            .env("PYTHONPATH", Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../python"))
            .env("DOORBELL_LIB", &library);
        command.output().unwrap()
    };
    let out = run(true);
    assert_eq!(String::from_utf8_lossy(&out.stdout), "True\nTrue True\n", "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(show(&[], &file)["pauses"]["count"], 1);
    let out = run(false);
    assert!(String::from_utf8_lossy(&out.stderr).contains("a running program cannot begin to be recorded"));
}
