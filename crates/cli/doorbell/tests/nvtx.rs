//! NVTX ranges, recorded and shown. The programs are C, compiled here, with the tests' own small NVTX.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

fn built() -> Option<&'static Path> {
    static DIR: OnceLock<Result<tempfile::TempDir, String>> = OnceLock::new();
    let dir = DIR.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nvtx");
        for (source, args) in
            [("app.c", &["-pthread", "-o", "app"][..]), ("own.c", &["-shared", "-fPIC", "-o", "own.so"])]
        {
            let mut cc = Command::new("cc");
            cc.current_dir(dir.path()).args(["-O1", "-w"]).arg(sources.join(source)).args(args);
            let out = cc.output().map_err(|e| format!("no C compiler ({e})"))?;
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        }
        test_support::link_softcuda(dir.path())?;
        Ok(dir)
    });
    match dir {
        Ok(dir) => Some(dir.path()),
        Err(reason) => test_support::skip!("{reason}"),
    }
}

struct Recorded {
    printed: String,
    file: PathBuf,
}

/// Runs the program with a word under `doorbell record`.
fn recorded_with(word: &str, options: &[&str], set: &[(&str, &Path)]) -> Option<Recorded> {
    let dir = built()?;
    let file = dir.join(format!("{word}{}.doorbell", options.concat().replace([':', '@'], "-")));
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(["record", "--quiet", "--force", "--gpu", "soft", "-o"]).arg(&file).args(options);
    command.arg("--").arg(dir.join("app")).arg(word).env("LD_LIBRARY_PATH", dir).env_remove("NVTX_INJECTION64_PATH");
    let out = command.envs(set.iter().copied()).output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{word}: {}", String::from_utf8_lossy(&out.stderr));
    Some(Recorded { printed: String::from_utf8(out.stdout).unwrap(), file })
}

fn recorded(word: &str, options: &[&str]) -> Option<Recorded> {
    recorded_with(word, options, &[])
}

impl Recorded {
    fn doorbell(&self, words: &[&str]) -> Output {
        Command::new(assert_cmd::cargo::cargo_bin!("doorbell")).args(words).arg(&self.file).output().unwrap()
    }

    fn json(&self, words: &[&str]) -> Value {
        let out = self.doorbell(&[&["show", "--json"], words].concat());
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
        serde_json::from_slice(&out.stdout).unwrap()
    }

    /// Name, style, count and unfinished of each range, in the order of names.
    fn rows(&self) -> Vec<(String, String, u64, u64)> {
        let shown = self.json(&["--nvtx"]);
        let row = |r: &Value| {
            let text = |key: &str| r[key].as_str().unwrap_or_default().to_owned();
            let domain = r["domain"].as_str().map_or(String::new(), |d| format!("{d}:"));
            (domain + &text("text"), text("style"), r["count"].as_u64().unwrap(), r["unfinished"].as_u64().unwrap())
        };
        let mut rows: Vec<_> = shown["ranges"].as_array().unwrap().iter().map(row).collect();
        rows.sort();
        rows
    }

    fn of(&self, text: &str) -> Value {
        let shown = self.json(&["--nvtx"]);
        let rows = shown["ranges"].as_array().unwrap();
        rows.iter().find(|r| r["text"] == text).unwrap_or_else(|| panic!("no {text}: {shown}")).clone()
    }
}

fn row(name: &str, style: &str, count: u64, unfinished: u64) -> (String, String, u64, u64) {
    (name.into(), style.into(), count, unfinished)
}

#[test]
fn ranges_lie_in_each_other_and_the_program_gets_their_levels() {
    let Some(r) = recorded("nested", &["--nvtx"]) else { return };
    let round = " 0 1 2 2 1 0";
    assert_eq!(r.printed, format!("0{round}{round}{round} 0 -1 -1\n"));
    let cut = "x".repeat(256);
    let rows = [
        // Ranges without a text: an empty one, and two with none.
        row("", "push_pop", 1, 0),
        row("", "push_pop", 2, 0),
        row("done", "mark", 1, 0),
        row("epoch", "push_pop", 1, 0),
        row("inner", "push_pop", 3, 0),
        row("lib:done", "mark", 1, 0),
        row("lib:registered step", "push_pop", 3, 0),
        row("vorwärts", "push_pop", 3, 0),
        row(&cut, "push_pop", 1, 0),
    ];
    assert_eq!(r.rows(), rows);
    let inner = r.of("inner");
    assert_eq!((&inner["color"], &inner["category"]), (&"#336699".into(), &7.into()));
    assert!(inner["ns"].as_u64() >= Some(3_000_000) && inner["min_ns"].as_u64() >= Some(1_000_000), "{inner}");
    let epoch = r.of("epoch");
    assert!(
        epoch["ns"].as_u64() >= inner["ns"].as_u64() && epoch["p99_ns"].as_u64() <= epoch["max_ns"].as_u64(),
        "{epoch}"
    );
    assert_eq!((&epoch["calls"], &epoch["lock_waits"]), (&Value::Null, &Value::Null), "not recorded, not none");
    assert_eq!((&r.of(&cut)["cut"], &inner["cut"]), (&true.into(), &false.into()));
    let shown = r.json(&["--nvtx"]);
    assert_eq!(shown["watched"], serde_json::json!({"asked": true, "connected": true, "missed": false, "seen": 16}));
    assert_eq!((&shown["stray_ends"], &shown["left_out"]), (&2.into(), &0.into()));
    let few = r.json(&["--nvtx", "--range", "^lib:"]);
    assert_eq!(few["ranges"].as_array().unwrap().len(), 2, "{few}");
    let text = String::from_utf8(r.doorbell(&["show", "--nvtx"]).stdout).unwrap();
    assert!(text.contains("lib:registered step") && text.contains("vorwärts"), "{text}");
}

#[test]
fn threads_end_ranges_of_others_and_die_in_their_own() {
    let Some(r) = recorded("threads", &["--nvtx"]) else { return };
    assert_eq!(r.printed, "1\n");
    let mut rows = vec![
        row("across", "start_end", 1, 0),
        row("dies", "push_pop", 0, 1),
        row("left open", "start_end", 0, 1),
        row("outer of one that dies", "push_pop", 0, 1),
        row("shared", "push_pop", 400, 0),
    ];
    rows.extend((0..8).map(|i| row(&format!("thread {i}"), "push_pop", 50, 0)));
    assert_eq!(r.rows(), rows);
    assert_eq!((&r.of("shared")["threads"], &r.of("thread 3")["threads"]), (&8.into(), &1.into()));
}

#[test]
fn every_text_is_named_however_many_there_are() {
    let Some(r) = recorded("texts", &["--nvtx"]) else { return };
    assert_eq!(r.printed, "0\n");
    let rows = r.rows();
    assert_eq!(rows.len(), 1001);
    assert!(rows.iter().all(|(name, _, count, left)| (*count == 2) == name.starts_with("text ") && *count + *left > 0));
    // Each text is on the tape once.
    let size = r.file.metadata().unwrap().len();
    assert!(size < 300_000, "{size}");
    let Some(r) = recorded("manytexts", &["--nvtx", "--on-full", "wait"]) else { return };
    let rows = r.rows();
    let named = rows.iter().filter(|(name, _, count, _)| name.starts_with("text ") && *count == 2);
    assert_eq!((rows.len(), named.count()), (30_001, 30_000));
}

#[test]
fn a_forked_child_names_its_own() {
    let Some(r) = recorded("forks", &["--nvtx"]) else { return };
    assert_eq!(r.printed, "child 0 1 1 0 0\nparent 0\n");
    let all =
        [row("child", "push_pop", 1, 0), row("lib:registered", "push_pop", 2, 0), row("parent", "push_pop", 1, 0)];
    assert_eq!(r.rows(), all);
    let summary = r.json(&["--summary"]);
    let child = summary["processes"]
        .as_array()
        .unwrap()
        .iter()
        .find(|p| p["index"] == 1)
        .unwrap_or_else(|| panic!("{summary}"));
    let of_child = r.json(&["--nvtx", "--process", &child["pid"].to_string()]);
    let texts: Vec<_> = of_child["ranges"].as_array().unwrap().iter().map(|r| r["text"].as_str().unwrap()).collect();
    assert_eq!(texts.len(), 2, "{of_child}");
    assert!(texts.contains(&"registered") && texts.contains(&"child"), "{texts:?}");
}

#[test]
fn the_environment_and_errno_are_the_programs_own() {
    let Some(r) = recorded("environment", &["--calls"]) else { return };
    assert_eq!(r.printed, "nothing in a child\nerrno 77\n");
    assert_eq!(r.of("errno")["count"], 1);
}

#[test]
fn an_injection_library_of_the_programs_own_is_used_and_the_recording_says_so() {
    let Some(dir) = built() else { return };
    let own = dir.join("own.so");
    let Some(r) = recorded_with("own", &["--nvtx"], &[("NVTX_INJECTION64_PATH", &own)]) else { return };
    assert_eq!(r.printed, "own: 2 pushed, 2 popped\n");
    let shown = r.json(&["--nvtx"]);
    assert_eq!(shown["watched"], serde_json::json!({"asked": true, "connected": false, "missed": true, "seen": 0}));
    let summary = r.json(&["--summary"]);
    assert_eq!(summary["complete"], false);
    assert!(summary["notes"].to_string().contains("own.so"), "{}", summary["notes"]);
    let text = String::from_utf8(r.doorbell(&["show", "--nvtx"]).stdout).unwrap();
    assert!(text.contains("ranges were not watched"), "{text}");
}

#[test]
fn payloads_are_data_and_texts_are_names() {
    let payloads = |file: &Path| {
        let out =
            Command::new(assert_cmd::cargo::cargo_bin!("doorbell")).args(["export", "--jsonl"]).arg(file).output();
        let lines = String::from_utf8(out.unwrap().stdout).unwrap();
        let all = lines
            .lines()
            .filter_map(|l| serde_json::from_str::<Value>(l).unwrap()["payload"].as_str().map(str::to_owned));
        all.collect::<Vec<_>>()
    };
    let Some(r) = recorded("nested", &["--nvtx", "--calls"]) else { return };
    assert_eq!(payloads(&r.file), ["0", "1", "2"]);
    let Some(bare) = recorded("nested", &["--nvtx", "--no-data"]) else { return };
    assert_eq!(payloads(&bare.file), [""; 0]);
    let to = r.file.with_extension("redacted");
    let redact = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
        .args(["redact", "--names"])
        .args([&r.file, &to])
        .output();
    assert!(redact.unwrap().status.success());
    let redacted = Recorded { printed: String::new(), file: to };
    let (before, after) = (r.rows(), redacted.rows());
    let counts = |rows: &[(String, String, u64, u64)]| {
        let mut counts: Vec<_> = rows.iter().map(|r| (r.1.clone(), r.2, r.3)).collect();
        counts.sort();
        counts
    };
    assert_eq!(counts(&after), counts(&before));
    let is_substitute = |name: &str| name.is_empty() || name.split(':').all(|part| part.starts_with("range-"));
    assert!(after.iter().all(|r| is_substitute(&r.0)), "{after:?}");
    assert_eq!(after.iter().filter(|r| r.0.contains(':')).count(), 2, "{after:?}");
}

#[test]
fn what_nobody_asked_for_is_not_there() {
    for options in [&[][..], &["--calls", "--no-nvtx"]] {
        let Some(r) = recorded("own", options) else { return };
        assert_eq!(r.printed, "");
        let out = r.doorbell(&["show", "--nvtx"]);
        assert_eq!(out.status.code(), Some(2));
        assert!(
            String::from_utf8_lossy(&out.stderr).contains("ranges of NVTX were not recorded"),
            "{}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
    // Requested, but not used.
    let Some(r) = recorded("", &["--nvtx"]) else { return };
    let text = String::from_utf8(r.doorbell(&["show", "--nvtx"]).stdout).unwrap();
    assert!(text.starts_with("no range"), "{text}");
}

#[test]
fn what_was_sent_belongs_to_the_ranges_around_it() {
    let Some(r) = recorded("graphs", &["--calls"]) else { return };
    assert_eq!(r.printed, "0\n");
    let count = |text: &str| {
        let row = r.of(text);
        ["submissions", "calls", "copies", "copy_bytes"].map(|key| row[key].as_u64().unwrap())
    };
    assert_eq!(count("epoch"), [5, 10, 5, 5 << 12]);
    assert_eq!([count("step"), count("tail")], [[4, 8, 4, 4 << 12], [1, 2, 1, 1 << 12]]);
    // One by one, the longest first: the row of a name is their sum.
    let each = r.json(&["--nvtx", "--each", "--range", "^(epoch|step)$"])["ranges"].as_array().unwrap().clone();
    let sum = |text: &str, key: &str| {
        each.iter().filter(|row| row["text"] == text).map(|row| row[key].as_u64().unwrap()).sum::<u64>()
    };
    let sums = |text: &str| ["submissions", "calls", "copies", "copy_bytes"].map(|key| sum(text, key));
    assert_eq!((sums("epoch"), sums("step"), each.len()), (count("epoch"), count("step"), 5));
    assert!(each[0]["text"] == "epoch" && each.is_sorted_by_key(|row| std::cmp::Reverse(row["ns"].as_u64())));
    assert_eq!((&each[0]["work"], &each[0]["parts"], each[0].get("all_threads")), (&Value::Null, &Value::Null, None));
    let two = r.json(&["--nvtx", "--each", "--range", "^(epoch|step)$", "--limit", "2"]);
    assert_eq!(two["ranges"], serde_json::json!(each[..2]));
    let rows = |range: &str| r.json(&["--submissions", "--range", range]).as_array().unwrap().clone();
    assert_eq!((rows("epoch").len(), rows("^step$").len(), rows("tail").len()), (5, 4, 1));
    let of_step = rows("^step$");
    assert_eq!(of_step[0]["ranges"], serde_json::json!(["epoch", "step"]));
    assert!(of_step.iter().all(|row| row["call"]["name"] == "cuGraphLaunch"), "{of_step:?}");
    let out = r.doorbell(&["show", "--launches", "--range", "nowhere"]);
    let why = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(2) && why.contains("submissions in ranges: epoch, step, tail"), "{why}");
    // The same in every export.
    let lines = String::from_utf8(r.doorbell(&["export", "--jsonl"]).stdout).unwrap();
    let lines: Vec<Value> = lines.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let ranges: Vec<&Value> = lines.iter().filter(|l| l["type"] == "range").collect();
    let texts: Vec<&str> = ranges.iter().map(|l| l["text"].as_str().unwrap()).collect();
    assert_eq!(texts, ["step", "step", "step", "step", "epoch", "tail"]);
    let calls =
        lines.iter().filter(|l| l["type"] == "cuda_call" && l["ranges"] == serde_json::json!(["epoch", "step"]));
    assert_eq!(calls.count(), 8);
    assert!(ranges[0]["level"] == 1 && ranges[4]["level"] == 0 && ranges[4]["ns"].as_u64() > ranges[0]["ns"].as_u64());
    let trace: Value = serde_json::from_slice(&r.doorbell(&["export", "--kineto"]).stdout).unwrap();
    let annotations = trace["traceEvents"].as_array().unwrap().iter().filter(|e| e["cat"] == "user_annotation");
    assert_eq!(annotations.count(), 5);
}

#[test]
fn a_range_begins_and_ends_the_recording() {
    let once = |n: u64| move |name: &str| row(name, "push_pop", n, 0);
    let (three, one) = (once(3), once(1));
    // (The last end is recorded when the recording has paused: that range is over then.)
    let Some(r) = recorded("captured", &["--capture", "nvtx:step"]) else { return };
    assert_eq!(r.printed, "1\n");
    let rows = r.rows();
    for wanted in [
        three("in"),
        three("in lib"),
        one("one left"),
        one("started"),
        row("step", "push_pop", 6, 0),
        three("lib:step"),
    ] {
        assert!(rows.contains(&wanted), "{wanted:?} {rows:?}");
    }
    for outside in ["before", "between", "after", "dies"] {
        assert!(!rows.iter().any(|r| r.0 == outside), "{outside} {rows:?}");
    }
    assert_eq!(r.json(&["--summary"])["pauses"]["count"], 1 + 7);
    for (range, wanted, other) in [("nvtx:step@lib", "in lib", "in"), ("nvtx:step@", "in", "in lib")] {
        let Some(r) = recorded("captured", &["--capture", range]) else { return };
        let rows = r.rows();
        assert!(rows.contains(&three(wanted)) && !rows.iter().any(|r| r.0 == other), "{range} {rows:?}");
    }
    let Some(r) = recorded("captured", &["--capture", "nvtx:dies"]) else { return };
    assert_eq!(r.rows(), [row("dies", "push_pop", 0, 1)]);
}
