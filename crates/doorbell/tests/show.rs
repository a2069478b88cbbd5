//! The command line as a user meets it.

#[path = "../../insight/tests/synthetic/mod.rs"]
mod synthetic;

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use serde_json::Value;
use std::path::PathBuf;
use synthetic::{Tape, one_of_everything};

fn doorbell() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
}

fn written(mut t: Tape) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    t.write(&path);
    (dir, path)
}

fn json(args: &[&str], path: &PathBuf) -> Value {
    let out = doorbell().arg("show").arg(path).args(args).arg("--json").assert().success();
    serde_json::from_slice(&out.get_output().stdout).unwrap()
}

#[test]
fn the_summary_in_json_has_numbers_for_numbers() {
    let (_dir, path) = written(one_of_everything());
    let v = json(&["--summary"], &path);
    let number = |p: &str| v.pointer(p).and_then(Value::as_u64).unwrap_or_else(|| panic!("{p} is no number"));
    assert_eq!(number("/submissions"), 7);
    assert_eq!(number("/entries"), 8);
    assert_eq!(number("/lost"), 0);
    assert_eq!(number("/command_bytes"), 4 * (144 + 1033 + 15 + 15 + 11 + 2 + 8));
    assert_eq!(number("/copies/copy_engine"), 2);
    assert_eq!(number("/copies/copy_engine_detail/bytes"), (64 << 20) + 4096);
    assert_eq!(number("/copies/inline"), 1);
    assert_eq!(number("/launches"), 1);
    assert_eq!(number("/channels"), 2);
    assert_eq!(v["channel_list"].as_array().unwrap().len(), 2);
    assert_eq!(v["launch_shapes"][0]["grid"], serde_json::json!([64, 2, 1]));
    assert_eq!(v, json(&[], &path), "the summary is the default");
}

#[test]
fn every_view_has_its_json() {
    let (_dir, path) = written(one_of_everything());
    let rows = |args: &[&str]| json(args, &path).as_array().unwrap().len();
    assert_eq!(rows(&["--submissions"]), 7);
    assert_eq!(rows(&["--submissions", "--limit", "2"]), 2);
    assert_eq!(rows(&["--copies"]), 4);
    assert_eq!(rows(&["--copies", "--channel", "0"]), 1);
    assert_eq!(rows(&["--launches"]), 1);
    assert_eq!(rows(&["--channels"]), 2);
    assert_eq!(rows(&["--channels", "--channel", "1.0"]), 1);
    let v = json(&["--objects"], &path);
    assert_eq!(v["objects"].as_array().unwrap().len(), 14);
    let first = &json(&["--submissions"], &path)[2]["entries"][0]["commands"][4];
    assert_eq!((first["method"].as_str(), first["value"].as_u64()), (Some("LINE_LENGTH_IN"), Some(64 << 20)));
}

#[test]
fn text_goes_to_a_pipe_without_escapes() {
    let (_dir, path) = written(one_of_everything());
    let out = doorbell().arg("show").arg(&path).env("CLICOLOR_FORCE", "1").assert().success();
    let text = String::from_utf8(out.get_output().stdout.clone()).unwrap();
    assert!(text.contains("copy engine 2") && !text.contains('\x1b'));
    doorbell().args(["show", "--submissions"]).arg(&path).assert().success().stdout(contains("= copy 64 MiB, host"));
}

#[test]
fn a_cut_tape_is_shown_up_to_the_cut_then_the_error_comes_with_its_offset() {
    let (_dir, path) = written(one_of_everything());
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 30]).unwrap();
    for args in [&["--summary"][..], &["--summary", "--json"], &["--copies"], &["--submissions", "--json"]] {
        let out = doorbell().arg("show").arg(&path).args(args).assert().code(2);
        let out = out.get_output();
        let (text, err) = (String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(text.contains("67108864") || text.contains("64 MiB"), "{args:?}: {text}");
        assert!(err.contains("at offset ") && err.contains("\nhint: "), "{err}");
        if args.contains(&"--json") {
            serde_json::from_slice::<Value>(&out.stdout).unwrap();
        }
    }
}

#[test]
fn errors_have_a_hint_and_status_2() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("nothing");
    doorbell().arg("show").arg(&missing).assert().code(2).stderr(contains("nothing").and(contains("\nhint: ")));
    let other = dir.path().join("other");
    std::fs::write(&other, "#!/bin/sh\n").unwrap();
    doorbell()
        .arg("show")
        .arg(&other)
        .assert()
        .code(2)
        .stderr(contains("not a doorbell recording").and(contains("hint:")));
    doorbell().arg("show").arg(dir.path()).assert().code(2).stderr(contains("hint: give a file, not a folder"));
    let mut newer = b"DOORBELL".to_vec();
    newer.extend([99, 0, 0, 0, 0, 0, 0, 0]);
    std::fs::write(&other, newer).unwrap();
    doorbell().arg("show").arg(&other).assert().code(2).stderr(contains("layout version 99").and(contains("hint:")));
    doorbell().arg("show").assert().code(2);
    doorbell().args(["show", "x", "--copies", "--launches"]).assert().code(2).stderr(contains("cannot be used with"));
    doorbell().args(["show", "x", "--channel", "a.b"]).assert().code(2).stderr(contains("no number"));
}

#[test]
fn a_reader_that_stops_reading_is_no_error() {
    let mut t = Tape::new();
    t.context(1);
    t.channel(1, 0, 0x5c00_1001, 9, 64);
    for _ in 0..5000 {
        t.submit(1, 0, &[&synthetic::copy_64_mib()]);
    }
    let (_dir, path) = written(t);
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin!("doorbell"))
        .args(["show", "--submissions"])
        .arg(&path)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    use std::io::Read;
    let mut first = [0; 100];
    let mut pipe = child.stdout.take().unwrap();
    pipe.read_exact(&mut first).unwrap();
    drop(pipe);
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert!(out.stderr.is_empty());
}

#[test]
fn the_export_goes_to_a_private_file_or_to_the_pipe() {
    let (dir, path) = written(one_of_everything());
    let out = dir.path().join("out.jsonl");
    doorbell().args(["export", "--jsonl"]).arg(&path).arg("-o").arg(&out).assert().success().stdout("");
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.lines().all(|l| serde_json::from_str::<Value>(l).is_ok_and(|v| v["type"].is_string())));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    doorbell().args(["export", "--jsonl"]).arg(&path).assert().success().stdout(text);
    let nowhere = dir.path().join("no/such/dir");
    doorbell()
        .args(["export", "--jsonl"])
        .arg(&path)
        .arg("-o")
        .arg(&nowhere)
        .assert()
        .code(2)
        .stderr(contains("cannot be created").and(contains("hint:")));
}

#[test]
fn the_doctor_gives_a_reason_for_each_no_and_status_77_where_recording_is_impossible() {
    let out = doorbell().args(["doctor", "--json"]).output().unwrap();
    let v: Value = serde_json::from_slice(&out.stdout).unwrap();
    let checks = v["checks"].as_array().unwrap();
    assert!(checks.len() >= 10);
    for c in checks {
        let explained = c["verdict"] != "no" || c["reason"].as_str().is_some_and(|r| !r.is_empty());
        assert!(explained, "{c}");
    }
    let required_no = checks.iter().any(|c| c["required"] == true && c["verdict"] != "yes");
    assert_eq!(v["possible"].as_bool(), Some(!required_no));
    assert_eq!(out.status.code(), Some(if required_no { 77 } else { 0 }));
    // The trap needs nothing but Linux on x86-64.
    let trap = checks.iter().find(|c| c["name"] == "tap: trap").unwrap();
    assert_eq!(trap["verdict"], "yes", "{trap}");
    let text = doorbell().arg("doctor").output().unwrap();
    assert_eq!(text.status.code(), out.status.code());
}

#[test]
fn every_shell_gets_its_completions_and_every_command_its_examples() {
    for shell in ["bash", "zsh", "fish"] {
        doorbell().args(["completions", shell]).assert().success().stdout(contains("submissions"));
    }
    for command in ["show", "export", "doctor", "completions"] {
        doorbell().args([command, "--help"]).assert().success().stdout(contains("Examples:"));
    }
    doorbell().arg("--version").assert().success();
    doorbell().arg("nonsense").assert().code(2);
}
