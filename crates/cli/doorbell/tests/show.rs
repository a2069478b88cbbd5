//! The command line as a user sees it.

#[path = "../../../explain/decode/tests/synthetic/mod.rs"]
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
    assert_eq!(rows(&["--graphs"]), 0);
    assert_eq!(rows(&["--channels"]), 2);
    assert_eq!(rows(&["--channels", "--channel", "1.0"]), 1);
    let v = json(&["--objects"], &path);
    assert_eq!(v["objects"].as_array().unwrap().len(), 14);
    let first = &json(&["--submissions"], &path)[2]["entries"][0]["commands"][4];
    assert_eq!((first["method"].as_str(), first["value"].as_u64()), (Some("LINE_LENGTH_IN"), Some(64 << 20)));
}

#[test]
fn filters_narrow_down_what_a_view_lists() {
    let (_dir, path) = written(one_of_everything());
    let rows = |args: &[&str]| json(args, &path).as_array().unwrap().clone();
    let all = rows(&["--copies"]);
    let engines = |v: &[Value]| v.iter().map(|r| r["engine"].as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let copies = rows(&["--copies", "--engine", "copy2"]);
    assert!(!copies.is_empty() && copies.len() < all.len() && engines(&copies).iter().all(|e| e == "COPY2"), "{all:?}");
    let thread = all[0]["tid"].to_string();
    assert!(rows(&["--copies", "--thread", &thread]).iter().all(|r| r["tid"] == all[0]["tid"]));
    let at = all[1]["seconds"].as_f64().unwrap();
    let between = format!("{at},{at}");
    assert_eq!(rows(&["--copies", "--between", &between]).len(), all.iter().filter(|r| r["seconds"] == at).count());
    assert_eq!(rows(&["--submissions", "--between", "-1s,1h"]).len(), rows(&["--submissions"]).len());
    let bytes: Vec<u64> = rows(&["--copies", "--sort", "bytes"]).iter().map(|r| r["bytes"].as_u64().unwrap()).collect();
    assert!(bytes.is_sorted_by(|a, b| a >= b) && bytes.len() == all.len(), "{bytes:?}");
    assert_eq!(rows(&["--copies", "--sort", "bytes", "--top", "1"])[0]["bytes"], 64 << 20);
    assert_eq!(rows(&["--channels", "--engine", "GRAPHICS"]).len(), 1);
}

#[test]
fn a_filter_that_a_view_cannot_apply_is_an_error_that_names_those_that_can() {
    let (_dir, path) = written(one_of_everything());
    let refused = |args: &[&str], texts: &[&str]| {
        let out = doorbell().arg("show").arg(&path).args(args).assert().code(2).stdout("");
        let err = String::from_utf8_lossy(&out.get_output().stderr).into_owned();
        assert!(texts.iter().all(|t| err.contains(t)), "{args:?}: {err}");
    };
    refused(&["--thread", "1"], &["--summary cannot apply --thread", "--submissions, --copies, --launches"]);
    refused(&["--locks", "--channel", "1"], &["--locks cannot apply --channel", "--channels"]);
    refused(&["--channels", "--between", "0,1"], &["--channels cannot apply --between"]);
    refused(&["--limit", "3"], &["--summary cannot apply --limit"]);
    refused(&["--submissions", "--sort", "bytes"], &["--submissions cannot apply --sort", "--copies"]);
    refused(&["--launches", "--sort", "bytes"], &["cannot be sorted by", "blocks, registers, shared"]);
    refused(&["--graphs", "--channel", "1"], &["--graphs cannot apply --channel", "--channels"]);
    refused(&["--graphs", "--sort", "bytes"], &["cannot be sorted by", "launches, nodes"]);
    refused(&["--copies", "--between", "2,1"], &["later"]);
    refused(&["--process", "77"], &["has no process 77"]);
}

#[test]
fn a_recording_of_several_processes_shows_their_tree_and_totals() {
    let (_dir, path) = written(synthetic::two_ranks());
    let out = doorbell().arg("show").arg(&path).assert().success();
    let text = String::from_utf8(out.get_output().stdout.clone()).unwrap();
    for line in ["4242 torchrun", "  5000 python3, rank 0 of 2 (torchrun)", "  5001 python3, rank 1 of 2 (torchrun)"] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let v = json(&[], &path);
    assert_eq!(
        (v["submissions"].as_u64(), v["complete"].as_bool(), v["processes"].as_array().unwrap().len()),
        (Some(15), Some(true), 3)
    );
    assert_eq!(v["schema"], "doorbell.summary/2");
    assert_eq!(json(&["--process", "5001"], &path)["submissions"], 10);
    let of = |pid: &str| json(&["--copies", "--process", pid], &path).as_array().unwrap().len();
    assert_eq!((of("5000"), of("5001"), of("4242")), (5, 10, 0));
}

#[test]
fn a_recording_of_several_ranks_has_each_of_them() {
    let (_dir, path) = written(synthetic::two_ranks());
    let v = json(&["--rank"], &path);
    assert_eq!(v["schema"], "doorbell.rank/1");
    let all = v["ranks"].as_array().unwrap();
    let of = |n: usize| (all[n]["rank"].as_u64(), all[n]["world_size"].as_u64(), all[n]["rows"][0]["count"].as_u64());
    assert_eq!((all.len(), of(0), of(1)), (2, (Some(0), Some(2), Some(5)), (Some(1), Some(2), Some(10))));
    doorbell().arg("show").arg(&path).arg("--rank").assert().success().stdout(contains("rank 1 of 2"));
}

#[test]
fn copies_are_those_that_the_summary_counts() {
    for name in ["copies", "launches"] {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../explain/decode/fixtures/h200-{name}.doorbell"));
        let s = json(&["--summary"], &path);
        let rows = json(&["--copies"], &path);
        let of = |mode: &str| rows.as_array().unwrap().iter().filter(|r| r["mode"] == mode).count() as u64;
        assert_eq!(s["copies"]["copy_engine"], of("copy_engine"), "{name}");
        assert_eq!(s["copies"]["inline"], of("inline"), "{name}");
        assert_eq!(s["fills"], of("fill"), "{name}");
    }
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
    // Cut in the end chunk, which is before the index.
    let index = bytes.windows(4).rposition(|w| w == b"CHNK").unwrap();
    std::fs::write(&path, &bytes[..index - 30]).unwrap();
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
    let said = format!("doorbell: wrote {}\n", out.display());
    doorbell().args(["export", "--jsonl"]).arg(&path).arg("-o").arg(&out).assert().success().stdout("").stderr(said);
    let text = std::fs::read_to_string(&out).unwrap();
    assert!(text.lines().all(|l| serde_json::from_str::<Value>(l).is_ok_and(|v| v["type"].is_string())));
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o600);
    doorbell().args(["export", "--jsonl"]).arg(&path).assert().success().stdout(text).stderr("");
    let quiet = ["export", "--jsonl", "--force", "--quiet", "-o"];
    doorbell().args(quiet).arg(&out).arg(&path).assert().success().stdout("").stderr("");
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
    // The trap needs only Linux on x86-64.
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

#[test]
fn graphs_of_the_driver_are_shown_with_what_is_not_understood() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../explain/decode/fixtures/h200-launches.doorbell");
    let out = doorbell().args(["show", fixture, "--graphs"]).assert().success();
    let text = String::from_utf8(out.get_output().stdout.clone()).unwrap();
    for line in [
        "upload: 2760 words, from submission 605 on; each launch after it: 29 words",
        "11 nodes (10 kernels), 10 edges, 1 group on 1 channel",
        "group 0: waits for the launch before; starts nodes 0 (INVALIDATE_PREFETCH_COPY_SCHEDULE), 1 (DECREMENT_DEPENDENCE)",
        "counter 0x204627fa4: counted up by node 10; 4 higher after each launch",
        "not understood: the QMD at 0x204c0c400 is used, but the upload does not write it",
        "hint: words may be missing",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    let out =
        doorbell().args(["show", fixture, "--graphs", "--json", "--sort", "nodes", "--limit", "1"]).assert().success();
    let rows: Vec<serde_json::Value> = serde_json::from_slice(&out.get_output().stdout).unwrap();
    assert_eq!((rows.len(), &rows[0]["recipe"]["kernels"]), (1, &serde_json::json!(10)));
    assert_eq!(rows[0]["launch"], serde_json::json!({ "submissions": 1, "words": 29 }));
}

#[test]
fn graphs_are_drawn_by_graphviz() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../../explain/decode/fixtures/h200-launches.doorbell");
    let out = doorbell().args(["show", fixture, "--graphs", "--dot"]).assert().success();
    let text = String::from_utf8(out.get_output().stdout.clone()).unwrap();
    assert_eq!(text.matches("digraph at_submission_").count(), 3);
    for line in [
        "label=\"group 0 on channel 0, waits for the launch before\"",
        "n1 [label=\"1: kernel\\n8 x 1 x 1 blocks\\n128 x 1 x 1 threads\\nDECREMENT_DEPENDENCE\", style=bold]",
        "n0 -> n1 [style=solid, label=\"DECREMENT_DEPENDENCE\"]",
        "n9 -> n10 [style=solid, label=\"SCHEDULE\"]",
        "not understood: the QMD at 0x204c0c400",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    assert_eq!(text.matches('{').count(), text.matches('}').count());
    doorbell().args(["show", fixture, "--dot"]).assert().code(2).stderr(contains("--graphs"));
    doorbell().args(["show", fixture, "--graphs", "--dot", "--json"]).assert().code(2);
    if let Ok(drawn) = std::process::Command::new("dot").arg("-V").output() {
        assert!(drawn.status.success());
        let svg = Command::new("dot").arg("-Tsvg").write_stdin(text).assert().success();
        assert!(String::from_utf8_lossy(&svg.get_output().stdout).contains("</svg>"));
    }
}

#[test]
fn a_filter_that_matches_nothing_is_an_error_that_lists_what_there_is() {
    let (_dir, path) = written(one_of_everything());
    for (args, words) in [
        (&["--copies", "--channel", "99"][..], &["nothing matches --channel 99", "channels: 0"][..]),
        (&["--submissions", "--channel", "0.7"], &["--channel 0.7", "channels: 0"]),
        (&["--channels", "--channel", "99"], &["--channel 99", "channels: 0"]),
        (&["--copies", "--engine", "COPY"], &["--engine COPY", "engines: "]),
        (&["--launches", "--thread", "1"], &["--thread 1", "threads that submitted: "]),
        (&["--submissions", "--between", "5000,6000"], &["--between 5000,6000", "submissions: from "]),
        (&["--copies", "--channel", "0", "--thread", "1"], &["--channel 0 --thread 1", "channels: 0", "threads"]),
        (&["--process", "1"], &["no process 1", "it has"]),
    ] {
        for more in [&[][..], &["--json"]] {
            let out = doorbell().arg("show").arg(&path).args(args).args(more).assert().code(2).stdout("");
            let said = String::from_utf8_lossy(&out.get_output().stderr).into_owned();
            assert!(words.iter().all(|word| said.contains(word)), "{args:?}: {said}");
        }
    }
    // A channel without copies is not an error.
    let nothing = json(&["--copies", "--channel", "1", "--between", "-100,1000"], &path);
    assert!(nothing.is_array());
}

#[test]
fn views_of_locks_and_the_plan_agree_that_none_were_recorded() {
    let (_dir, path) = written(one_of_everything());
    for args in [&["show", "--locks"][..], &["show", "--locks", "--json"], &["show", "--calls"], &["plan"]] {
        let out = doorbell().args(args).arg(&path).assert().code(2).stdout("");
        out.stderr(contains("were not recorded").and(contains("doorbell record --locks")));
    }
}

#[test]
fn without_a_file_the_newest_recording_of_the_folder_is_shown_and_named() {
    let (dir, path) = written(one_of_everything());
    let empty = tempfile::tempdir().unwrap();
    let out = doorbell().arg("show").current_dir(&empty).assert().code(2);
    out.stderr(contains("no recording").and(contains("doorbell record")));
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(600);
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    std::fs::copy(&path, dir.path().join("app.2.doorbell")).unwrap();
    std::fs::create_dir(dir.path().join("folder.doorbell")).unwrap();
    for command in ["show", "export --jsonl"] {
        let out = doorbell().args(command.split(' ')).current_dir(&dir).assert().success();
        out.stderr(contains("app.2.doorbell is the newest recording here"));
    }
}

#[test]
fn an_export_that_fails_leaves_nothing_that_blocks_the_next() {
    let (dir, path) = written(one_of_everything());
    let bytes = std::fs::read(&path).unwrap();
    let cut = dir.path().join("cut.doorbell");
    std::fs::write(&cut, &bytes[..bytes.len() / 2]).unwrap();
    for form in ["--jsonl", "--perfetto", "--kineto", "--parquet"] {
        let full = dir.path().join("full");
        // The file size limit has the effect of a full disk.
        let line = format!("ulimit -f 1; exec \"$0\" export {form} {} -o {}", path.display(), full.display());
        let program = assert_cmd::cargo::cargo_bin!("doorbell");
        let out = std::process::Command::new("bash").args(["-c", &line]).arg(program).output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert_eq!((out.status.code(), full.exists()), (Some(2), false), "{form}: {said}");
        assert_eq!(std::fs::read_dir(&dir).unwrap().count(), 2, "{form} left something");
        doorbell().args(["export", form]).arg(&path).arg("-o").arg(&full).assert().success();
        let _ = std::fs::remove_file(&full).or_else(|_| std::fs::remove_dir_all(&full));
    }
}

#[test]
fn an_export_has_one_form_and_parquet_a_folder() {
    let (dir, path) = written(one_of_everything());
    let at = |name: &str| dir.path().join(name);
    doorbell().arg("export").arg(&path).assert().code(2).stderr(contains("--perfetto|--kineto|--parquet|--jsonl"));
    doorbell()
        .args(["export", "--jsonl", "--kineto"])
        .arg(&path)
        .assert()
        .code(2)
        .stderr(contains("cannot be used with"));
    doorbell().args(["export", "--parquet"]).arg(&path).assert().code(2).stderr(contains("--out"));
    let out = doorbell().args(["export", "--kineto"]).arg(&path).assert().success();
    assert!(serde_json::from_slice::<Value>(&out.get_output().stdout).unwrap()["traceEvents"].is_array());
    let to = |form: &str, name: &str| {
        let mut c = doorbell();
        c.args(["export", form]).arg(&path).arg("-o").arg(at(name));
        c
    };
    to("--perfetto", "trace").assert().success().stdout("");
    // A trace packet in protobuf's encoding.
    assert_eq!(std::fs::read(at("trace")).unwrap()[0], 0x0a);
    to("--perfetto", "trace").assert().code(2).stderr(contains("the file exists"));
    to("--perfetto", "trace").arg("--force").assert().success();
    to("--parquet", "tables").assert().success().stdout("").stderr(contains("doorbell: wrote "));
    assert!(std::fs::read(at("tables/copies.parquet")).unwrap().starts_with(b"PAR1"));
    to("--parquet", "tables").assert().code(2).stderr(contains("exists").and(contains("hint:")));
    to("--parquet", "tables").arg("--force").assert().success();
    std::fs::write(at("tables/letter"), "dear").unwrap();
    to("--parquet", "tables").arg("--force").assert().code(2).stderr(contains("other files"));
    assert!(at("tables/letter").exists() && at("tables/copies.parquet").exists());
}

/// A command's output on a terminal of so many columns.
fn on_a_terminal(columns: u16, args: &[&str], path: &std::path::Path) -> String {
    use std::io::Read;
    use std::os::fd::{FromRawFd, OwnedFd};
    let (mut ours, mut theirs) = (0, 0);
    let size = libc::winsize { ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    // SAFETY: two descriptors to be written, a size to be read.
    let opened = unsafe {
        libc::openpty(&mut ours, &mut theirs, std::ptr::null_mut(), std::ptr::null_mut(), (&raw const size).cast_mut())
    };
    assert_eq!(opened, 0);
    // SAFETY: descriptors that this test opened above.
    let (mut ours, theirs) = unsafe { (std::fs::File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
    let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(args).arg(path).env_remove("COLUMNS").stdout(theirs);
    let mut child = command.spawn().unwrap();
    drop(command);
    let mut text = Vec::new();
    // The other end is closed: EIO.
    let _ = ours.read_to_end(&mut text);
    child.wait().unwrap();
    String::from_utf8_lossy(&text).replace("\r\n", "\n")
}

#[test]
fn words_are_whole_on_terminals_of_any_width() {
    let (_dir, path) = written(one_of_everything());
    let words = ["GRAPHICS", "HOPPER_CHANNEL_GPFIFO_A"];
    for columns in [120, 80, 40, 0] {
        let text = on_a_terminal(columns, &["show", "--channels", "--color", "never"], &path);
        for word in words {
            assert!(text.contains(word) || text.contains("left out: "), "{columns}: {word}\n{text}");
        }
        let widest = text.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(columns == 0 || widest <= usize::from(columns), "{columns}: {text}");
    }
    let module_load = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../explain/decode/fixtures/h100-module-load.doorbell");
    for columns in [100, 60, 50] {
        let text = on_a_terminal(columns, &["why", "--color", "never"], &module_load);
        assert!(text.contains("load code before the loop"), "{columns}: what to do is missing\n{text}");
    }
    let unknown = on_a_terminal(0, &["show", "--channels", "--color", "never"], &path);
    assert_eq!(unknown.lines().count(), 3, "a width of 0 is one that nobody knows: {unknown}");
}
