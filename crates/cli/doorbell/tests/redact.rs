//! `doorbell redact` as a user sees it. Crate `redact` describes what it removes.

#[path = "../../../explain/decode/tests/synthetic/mod.rs"]
mod synthetic;

use assert_cmd::Command;
use predicates::prelude::*;
use predicates::str::contains;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use synthetic::one_of_everything;

fn doorbell(args: &[&str], paths: &[&Path]) -> assert_cmd::assert::Assert {
    Command::new(assert_cmd::cargo::cargo_bin!("doorbell")).args(args).args(paths).assert()
}

fn written() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (a, b) = (dir.path().join("a.doorbell"), dir.path().join("b.doorbell"));
    let mut t = one_of_everything();
    t.header.args = Some(vec!["./app".into(), "--key=PLANTED".into()]);
    t.header.host = "PLANTED".into();
    t.write(&a);
    (dir, a, b)
}

fn has(path: &Path, text: &str) -> bool {
    fs::read(path).unwrap().windows(text.len()).any(|w| w == text.as_bytes())
}

#[test]
fn a_shared_recording_shows_the_same_tables() {
    let (_dir, a, b) = written();
    doorbell(&["redact"], &[&a, &b])
        .success()
        .stdout("")
        .stderr(contains("data, names, arguments, paths, environment"));
    assert!(has(&a, "PLANTED") && !has(&b, "PLANTED"));
    assert_eq!(fs::metadata(&b).unwrap().permissions().mode() & 0o777, 0o600);
    for view in ["--copies", "--launches", "--channels", "--submissions"] {
        let table = |path: &Path| doorbell(&["show", view], &[path]).success().get_output().stdout.clone();
        // (Values of methods are data.)
        assert!(view == "--submissions" || table(&a) == table(&b), "{view}");
    }
    doorbell(&["show", "--summary"], &[&b]).success();
}

#[test]
fn nothing_is_overwritten_and_nothing_is_half_written() {
    let (dir, a, b) = written();
    fs::write(&b, "old").unwrap();
    doorbell(&["redact"], &[&a, &b]).code(2).stderr(contains("exists").and(contains("--force")));
    assert_eq!(fs::read(&b).unwrap(), b"old");
    doorbell(&["redact", "--force", "--arguments"], &[&a, &b]).success();
    assert!(has(&b, "PLANTED") && !has(&b, "--key="), "the machine's name was to stay");
    doorbell(&["redact", "--force"], &[&a, &a]).success();
    assert!(!has(&a, "PLANTED"), "in place");
    let nothing = dir.path().join("c.doorbell");
    fs::write(&b, "no recording").unwrap();
    doorbell(&["redact"], &[&b, &nothing]).code(2).stderr(contains("not a doorbell recording"));
    doorbell(&["redact"], &[&a, Path::new("/dev/null")]).code(2).stderr(contains("a pipe or a device"));
    let mut names: Vec<_> = fs::read_dir(dir.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a.doorbell", "b.doorbell"]);
}

#[test]
fn a_recording_that_was_cut_ends_with_two() {
    let (_dir, a, b) = written();
    let whole = fs::read(&a).unwrap();
    fs::write(&a, &whole[..whole.len() / 2]).unwrap();
    doorbell(&["redact"], &[&a, &b]).code(2).stderr(contains("everything before it was read"));
    assert!(!has(&b, "PLANTED"));
    doorbell(&["show"], &[&b]).success();
}
