//! A guide's story without a GPU: a thread that never gets a lock. Three commands find it, name the holder of the
//! lock, and fix it.

use std::path::Path;
use std::process::{Command, Output};

fn doorbell(dir: &Path, args: &[&str]) -> Output {
    let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    c.current_dir(dir).args(args).env_remove("DOORBELL_LOCK_POLICY");
    test_support::finished(&mut c, &args.join(" "))
}

fn text(out: &Output) -> String {
    assert!(out.status.success(), "{}: {}", out.status, String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

fn fact(said: &str, name: &str) -> u64 {
    let line = said.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": "));
    line.and_then(|n| n.parse().ok()).unwrap_or_else(|| panic!("no {name} in {said}"))
}

#[test]
fn three_commands_end_a_starvation() {
    let dir = tempfile::tempdir().unwrap();
    let here = |args: &[&str]| doorbell(dir.path(), args);
    let program = assert_cmd::cargo::cargo_bin!("doorbell").display().to_string();
    let app = |duration| [&program, "sample", "starve", "--gpu", "soft", "--threads", "16", "--duration", duration];

    let record = ["record", "--locks", "--on-full", "wait", "-o", "a.doorbell"];
    let starved = text(&here(&[&record[..], &app("2s")].concat()));
    assert_eq!(fact(&starved, "launching threads"), 16);
    // (A creation before all threads launch does not starve.)
    assert!(fact(&starved, "streams created") <= 2, "{starved}");
    assert!(fact(&starved, "longest creation, us") > 1_000_000, "{starved}");

    let shown = text(&here(&["show", "--locks", "a.doorbell"]));
    let wait = shown.lines().find(|l| l.contains("waited") && l.contains("(rwlock_wrlock)")).unwrap_or_default();
    // (The lock also has its variable's name, unless the command is stripped.)
    for part in ["readers overtook this writer", " held ", "doorbell+0x"] {
        assert!(wait.contains("waited") && shown.contains(part), "{part}: {shown}");
    }

    let plan = text(&here(&["plan", "a.doorbell"]));
    assert!(plan.contains("policy = \"phase-fair\""), "{plan}");
    text(&here(&["plan", "a.doorbell", "-o", "plan.toml"]));
    assert_eq!(std::fs::read_to_string(dir.path().join("plan.toml")).unwrap(), plan);

    let fixed = text(&here(&[&["run", "--lock-policy", "plan.toml"][..], &app("500ms")].concat()));
    assert!(fact(&fixed, "streams created") > 20, "{fixed}{plan}");
    let checksum = |said: &str| said.lines().find(|l| l.starts_with("checksum")).unwrap().to_owned();
    assert_eq!(checksum(&fixed), checksum(&starved), "the program computes the same");
}
