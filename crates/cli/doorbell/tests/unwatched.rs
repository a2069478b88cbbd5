//! Unwatched events are unknown, and never count as "none".

use std::path::Path;
use std::process::Command;

/// The summary of a recording of this program.
fn recorded(dir: &Path, program: &[&str]) -> serde_json::Value {
    let own = env!("CARGO_BIN_EXE_doorbell");
    let out = Command::new(own)
        .args(["record", "--gpu", "soft", "-o", "r.doorbell", "--force"])
        .args(program)
        .current_dir(dir)
        .output();
    let said = String::from_utf8_lossy(&out.unwrap().stderr).into_owned();
    assert!(!said.contains("ERROR: ld.so"), "{said}");
    let shown = Command::new(own).args(["show", "r.doorbell", "--json"]).current_dir(dir).output().unwrap();
    let summary: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap_or_else(|e| panic!("{e}: {said}"));
    if summary["complete"] == false {
        assert!(said.contains("not complete: not watched: ") && said.contains("hint: start doorbell inside"), "{said}");
    }
    summary
}

fn is_unknown(summary: &serde_json::Value) {
    let nothing = summary["nothing"].as_str().unwrap_or_default();
    assert!(nothing.starts_with("unknown: ") && nothing.contains("doorbell record"), "{summary:#}");
    assert_eq!(summary["complete"], false, "{summary:#}");
}

/// Whether this program can do this here.
fn works(program: &[&str]) -> bool {
    Command::new(program[0]).args(&program[1..]).output().is_ok_and(|out| out.status.success())
}

#[test]
fn a_program_that_cannot_load_the_agent_is_unknown() {
    let dir = tempfile::tempdir().unwrap();
    // No descriptor is left for the loader; rights are lost at the exec, or before it.
    is_unknown(&recorded(dir.path(), &["sh", "-c", "ulimit -n 3; sleep 0"]));
    for program in [&["setpriv", "--bounding-set", "-all", "sleep", "0"][..], &["unshare", "-U", "sleep", "0"]] {
        if works(program) {
            is_unknown(&recorded(dir.path(), program));
        } else {
            eprintln!("not tried: {program:?} does not work here");
        }
    }
}

#[test]
fn programs_that_were_watched_and_did_nothing_used_no_gpu() {
    let dir = tempfile::tempdir().unwrap();
    for line in [
        "sleep 0; true",
        "nosuchcommand; env sleep 0",
        "sh -c 'exec sleep 0' & wait",
        "(sleep 0; sh -c 'sleep 0 | cat')",
    ] {
        let summary = recorded(dir.path(), &["sh", "-c", line]);
        assert_eq!(summary["nothing"], "no doorbell was rung: the program used no GPU", "{line}: {summary:#}");
        assert_eq!(summary["complete"], true, "{line}: {summary:#}");
    }
}

#[test]
fn the_hint_names_the_file_that_was_written() {
    let dir = tempfile::tempdir().unwrap();
    let doorbell = |words: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_doorbell")).args(words).current_dir(dir.path()).output().unwrap();
        String::from_utf8_lossy(&out.stderr).into_owned()
    };
    for name in ["true.doorbell", "true.2.doorbell", "true.3.doorbell"] {
        let said = doorbell(&["record", "--gpu", "soft", "true"]);
        assert!(said.contains(&format!("`doorbell show {name}` explains it")), "{said}");
        assert!(doorbell(&["show"]).contains(&format!("{name} is the newest recording here")), "{name}");
    }
}
