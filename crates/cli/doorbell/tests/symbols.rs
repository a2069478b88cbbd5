//! Functions, variables and lines instead of addresses, for programs that are compiled here.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use test_support::finished;

/// A folder with programs in it, and their recordings.
struct Programs(tempfile::TempDir);

impl Programs {
    /// `None` without a C compiler, with the reason printed.
    fn new() -> Option<Programs> {
        if Command::new("cc").arg("--version").output().is_err() {
            test_support::skip!("no C compiler (cc)");
        }
        Some(Programs(tempfile::tempdir().unwrap()))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, command: &str, args: &[&str]) -> Output {
        let mut c = Command::new(command);
        let out = finished(c.args(args).current_dir(self.0.path()), command);
        assert!(out.status.success(), "{command} {args:?}: {}", String::from_utf8_lossy(&out.stderr));
        out
    }

    /// Copies a file of `symbols/` here and compiles it.
    fn compile(&self, source: &str, args: &[&str]) {
        let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/symbols").join(source);
        fs::copy(from, self.path(source)).unwrap();
        let compiler = if source.ends_with(".cc") { "c++" } else { "cc" };
        self.run(compiler, &[&["-O1", "-pthread", source], args].concat());
    }

    fn queue(&self, args: &[&str]) {
        self.compile("queue.c", &[&["-DSTEP=1", "-Wl,--build-id", "-o", "queue"], args].concat());
    }

    fn record(&self, program: &str) -> String {
        let options = ["record", "--quiet", "--force", "--locks", "--tap", "off", "-o", "tape.doorbell", "--", program];
        self.doorbell(&options)
    }

    /// The command's output.
    fn doorbell(&self, args: &[&str]) -> String {
        let out = self.run(assert_cmd::cargo::cargo_bin!("doorbell").to_str().unwrap(), args);
        String::from_utf8(out.stdout).unwrap()
    }

    fn text(&self) -> String {
        self.doorbell(&["show", "--locks", "tape.doorbell"])
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.doorbell(&["show", "--locks", "--json", "tape.doorbell"])).unwrap()
    }

    /// A lock's name and place in JSON: the keys of other files.
    fn keys(&self) -> (String, String) {
        let json = self.json();
        let lock = &json["locks"][0];
        let text = |key: &str| lock[key].as_str().unwrap().to_owned();
        (text("name"), text("longest_hold_site"))
    }
}

#[track_caller]
fn has(text: &str, all: &[&str]) {
    all.iter().for_each(|part| assert!(text.contains(part), "no {part:?} in\n{text}"));
}

#[track_caller]
fn lacks(text: &str, all: &[&str]) {
    all.iter().for_each(|part| assert!(!text.contains(part), "{part:?} in\n{text}"));
}

#[test]
fn a_lock_has_the_name_of_its_variable_and_a_caller_its_function_and_line() {
    let Some(p) = Programs::new() else { return };
    for how in ["-pie", "-no-pie"] {
        p.queue(&["-g", how]);
        p.record("./queue");
        has(&p.text(), &["queue_lock (queue+0x", "push_work at queue.c:4"]);
        // Keys do not change.
        let (name, site) = p.keys();
        assert!(
            name.starts_with("queue+0x") && name.ends_with("/mutex") && site.starts_with("queue+0x"),
            "{name} {site}"
        );
        let symbols = &p.json()["symbols"];
        let (variable, call) = (&symbols[name.trim_end_matches("/mutex")], &symbols[&site]);
        assert_eq!((&variable["name"], &variable["line"]), (&Value::from("queue_lock"), &Value::Null));
        assert_eq!((&call["name"], &call["line"], &call["refused"]), (&"push_work".into(), &4.into(), &Value::Null));
        assert!(call["file"].as_str().unwrap().ends_with("queue.c"), "{call}");
    }
    fs::copy(p.path("tape.doorbell"), p.path("again.doorbell")).unwrap();
    let diff = p.doorbell(&["diff", "tape.doorbell", "again.doorbell", "--json"]);
    lacks(&diff, &["push_work"]);
    has(&diff, &["queue+0x"]);
}

#[test]
fn a_stripped_program_has_the_names_of_its_debug_file() {
    let Some(p) = Programs::new() else { return };
    p.queue(&["-g"]);
    p.run("objcopy", &["--only-keep-debug", "queue", "queue.debug"]);
    p.run("strip", &["queue"]);
    p.record("./queue");
    // Debug file next to the program, found by the build id.
    has(&p.text(), &["queue_lock (queue+0x", "push_work at queue.c:4"]);
    // By the name that the program stores for it.
    fs::create_dir(p.path(".debug")).unwrap();
    p.run("objcopy", &["--add-gnu-debuglink=queue.debug", "queue"]);
    fs::rename(p.path("queue.debug"), p.path(".debug/queue.debug")).unwrap();
    has(&p.text(), &["push_work at queue.c:4"]);
    // A debug file of another build.
    p.run("objcopy", &["--only-keep-debug", "queue", "queue.debug"]);
    p.queue(&["-g", "-DSTEP=2"]);
    p.run("objcopy", &["--only-keep-debug", "queue", ".debug/queue.debug"]);
    fs::remove_file(p.path("queue")).unwrap();
    lacks(&p.text(), &["push_work", "queue_lock"]);
}

#[test]
fn without_debug_information_there_is_the_function_alone() {
    let Some(p) = Programs::new() else { return };
    p.queue(&[]);
    p.record("./queue");
    has(&p.text(), &["queue_lock (queue+0x", " push_work"]);
    lacks(&p.text(), &["push_work at"]);
    // Exported names only.
    p.run("strip", &["queue"]);
    let text = p.text();
    lacks(&text, &["push_work", "queue_lock"]);
    has(&text, &["queue+0x"]);
}

#[test]
fn a_program_that_was_built_anew_is_not_used() {
    let Some(p) = Programs::new() else { return };
    for id in ["-Wl,--build-id", "-Wl,--build-id=none"] {
        p.queue(&["-g", id]);
        p.record("./queue");
        has(&p.text(), &["push_work at queue.c:4"]);
        p.queue(&["-g", id, "-DSTEP=2"]);
        let text = p.text();
        has(&text, &["queue+0x", " since)"]);
        lacks(&text, &["push_work", "queue_lock"]);
        fs::remove_file(p.path("queue")).unwrap();
        lacks(&p.text(), &["since)", "push_work"]);
    }
}

#[test]
fn names_of_cpp_are_demangled_and_lines_are_the_programs_own() {
    let Some(p) = Programs::new() else { return };
    if Command::new("c++").arg("--version").output().is_err() {
        test_support::skip!("no C++ compiler (c++)");
    }
    p.compile("queue.cc", &["-g", "-o", "queue"]);
    p.record("./queue");
    has(&p.text(), &["work::queue_lock (queue+0x", "work::Queue::push<long> at queue.cc:6"]);
}

#[test]
fn a_library_where_another_one_was_is_told_from_it() {
    let Some(p) = Programs::new() else { return };
    for (library, name) in [("libone.so", "in_one"), ("libtwo.so", "in_two")] {
        p.compile("libone.c", &["-g", "-shared", "-fPIC", &format!("-DNAME={name}"), "-o", library]);
    }
    p.compile("loads.c", &["-o", "loads"]);
    let out = p.record("./loads");
    assert_eq!(out, "the same address\n");
    let lines = p.doorbell(&["export", "--jsonl", "tape.doorbell"]);
    let rows: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let of = |kind: &str| rows.iter().filter(|row| row["type"] == kind).collect::<Vec<_>>();
    // The calls that took a lock, in order: all of one library, then all of the other.
    let function = |site: &Value| of("symbol").iter().find(|row| row["place"] == *site).map(|row| row["name"].clone());
    let called: Vec<_> =
        of("lock").iter().filter(|row| row["ended"] == "unlock").map(|row| function(&row["site"])).collect();
    let expected = ["in_one", "in_two"].map(|name| vec![Some(Value::from(name)); 100]).concat();
    assert_eq!(called, expected);
}

#[test]
fn a_redacted_recording_names_no_function() {
    let Some(p) = Programs::new() else { return };
    p.queue(&["-g"]);
    p.record("./queue");
    let id = p.run("readelf", &["-n", "queue"]);
    let id = String::from_utf8(id.stdout).unwrap();
    let id = id.lines().find_map(|l| l.trim().strip_prefix("Build ID: ")).unwrap().to_owned();
    let id: Vec<u8> = (0..id.len()).step_by(2).map(|i| u8::from_str_radix(&id[i..i + 2], 16).unwrap()).collect();
    let holds = |tape: &str| {
        let mut reader = tape::file::Reader::open(&p.path(tape)).unwrap();
        let mut events = Vec::new();
        while let Some(item) = reader.item().unwrap() {
            if let tape::file::Item::Events { bytes, .. } = item {
                events.extend(bytes);
            }
        }
        events.windows(id.len()).any(|w| w == id)
    };
    assert!(holds("tape.doorbell"));
    p.doorbell(&["redact", "--paths", "tape.doorbell", "paths.doorbell"]);
    assert!(holds("paths.doorbell"), "the name of the file stays, too");
    p.doorbell(&["redact", "tape.doorbell", "shared.doorbell"]);
    assert!(!holds("shared.doorbell"));
    let text = p.doorbell(&["show", "--locks", "shared.doorbell"]);
    lacks(&text, &["push_work", "queue"]);
    has(&text, &["program-1+0x"]);
}
