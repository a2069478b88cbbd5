//! A program that cannot be recorded: one line with the error, each cause in it once, and one line with a hint.

use assert_cmd::Command;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The standard error of a recording that fails.
fn refused(command: &mut Command, status: i32) -> String {
    let out = command.assert().code(status).stdout("");
    String::from_utf8(out.get_output().stderr.clone()).unwrap()
}

fn record(out: &Path, program: &Path, status: i32) -> String {
    let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    refused(c.args(["record", "--gpu", "soft", "-o"]).arg(out).arg("--").arg(program), status)
}

/// Two lines, `error: ...` with `what` in it and `hint: ...` with `help`; then, maybe, that the program runs.
fn says(err: &str, what: &str, help: &str) {
    let lines: Vec<&str> = err.lines().collect();
    let (error, hint) = match lines[..] {
        [error, hint] | [error, hint, "doorbell: the program runs without doorbell"] => (error, hint),
        _ => panic!("{err}"),
    };
    assert!(error.starts_with("error: ") && hint.starts_with("hint: "), "{err}");
    assert!(error.contains(what) && hint.contains(help), "{err}");
    assert!(error.matches("(os error ").count() <= 1, "{err}");
}

fn file(path: &Path, bytes: &[u8], mode: u32) {
    std::fs::write(path, bytes).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// An ELF header without program headers.
fn elf(class: u8) -> Vec<u8> {
    let mut b = vec![0; 64];
    b[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
    b[18] = 62;
    b
}

#[test]
fn programs_that_cannot_be_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let (out, p) = (dir.path().join("t"), dir.path().join("program"));
    says(&record(&out, Path::new("no-such-program"), 127), "no-such-program: no such program", "PATH");
    says(&record(&out, dir.path(), 126), "a directory", "in it");
    file(&p, b"#!/bin/sh\n", 0o644);
    says(&record(&out, &p, 126), "not executable", "chmod +x");
    file(&p, b"\x01hello\n", 0o755);
    says(&record(&out, &p, 126), "neither an ELF program nor a script", "sh FILE");
    file(&p, &elf(1), 0o755);
    says(&record(&out, &p, 126), "32-bit", "x86-64");
    file(&p, &elf(2), 0o755);
    // Only root can give a file away; other users cannot make such a program.
    if std::os::unix::fs::chown(&p, Some(65534), None).is_ok() {
        std::fs::set_permissions(&p, std::fs::Permissions::from_mode(0o4755)).unwrap();
        says(&record(&out, &p, 126), "set-user-ID", "record a copy");
    }
    assert!(!out.exists());
}

#[test]
fn a_tape_that_cannot_be_written() {
    let dir = tempfile::tempdir().unwrap();
    let program = Path::new("/bin/true");
    says(&record(&dir.path().join("no/t"), program, 125), "no/t: cannot be created: No such file", "-o FILE");
    says(&record(dir.path(), program, 125), "a directory", "give a file");
    // (What doorbell lacks is no reason for a program not to run.)
    says(&record(Path::new("/dev/full"), program, 0), "No space left", "free some space");
}

#[test]
fn a_full_disk_has_its_hint_whatever_is_written() {
    let tape = concat!(env!("CARGO_MANIFEST_DIR"), "/../../explain/decode/fixtures/h100-module-load.doorbell");
    for line in ["show --submissions", "show --json --copies", "show --objects", "export --jsonl", "why"] {
        let mut c = Command::new("sh");
        let out = c.args(["-c", &format!("exec \"$0\" {line} \"$1\" > /dev/full")]);
        let out = out.arg(assert_cmd::cargo::cargo_bin!("doorbell")).arg(tape);
        says(&refused(out, 2), "No space left", "free some space");
    }
}

#[test]
fn a_file_size_limit_is_told_and_not_died_of() {
    let dir = tempfile::tempdir().unwrap();
    for command in ["record --gpu soft -o \"$1\"", "run --lock-policy ticket"] {
        let mut c = std::process::Command::new("bash");
        let line = format!("ulimit -f 1000; exec \"$0\" {command} -- true");
        c.args(["-c", &line]).arg(assert_cmd::cargo::cargo_bin!("doorbell")).arg(dir.path().join("t"));
        let out = c.output().unwrap();
        // A user who may raise the limit is not stopped by it.
        if !out.status.success() {
            assert_eq!(out.status.code(), Some(125), "{command}: {:?}", out.status);
            let err = std::str::from_utf8(&out.stderr).unwrap();
            says(err, "the file size limit of 1024000 bytes", "ulimit -f unlimited");
        }
    }
}

/// Records 100 children that each take a lock, and shows the recording, in one shell. Returns all output.
fn stopped_early(before: &[&str], prepare: &str, options: &str) -> Result<String, String> {
    let dir = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/forks.c");
    let program = test_support::Source { file: &source, compiler: "cc", flags: &["-w"] }.compile(dir.path())?;
    let out = dir.path().join("out");
    std::fs::create_dir(&out).unwrap();
    let line = format!(
        "{prepare}; \"$1\" record --locks {options} -o \"$3/t\" -- \"$2\" 100 && \"$1\" show --summary \"$3/t\" && \"$1\" show --locks \"$3/t\""
    );
    let shell =
        [before, &["sh", "-c", &line, "sh", assert_cmd::cargo::cargo_bin!("doorbell").to_str().unwrap()]].concat();
    let mut c = std::process::Command::new(shell[0]);
    let done = c.args(&shell[1..]).arg(&program).arg(&out).output().map_err(|e| format!("{}: {e}", shell[0]))?;
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{said}");
    Ok(said)
}

#[test]
fn a_recording_that_stopped_early_is_not_blamed_on_the_rings() {
    let told = |said: &str, why: &str| {
        assert!(said.contains(&format!("recording stopped early: {why}")), "{said}");
        assert!(said.contains("occurred after the recording had stopped"), "{said}");
        assert!(!said.contains("fit into the rings") && !said.contains("--ring"), "{said}");
    };
    match stopped_early(&[], ":", "--max-size 32KiB") {
        Ok(said) => told(&said, "the size limit was reached"),
        Err(why) => test_support::skip!("{why}"),
    }
    // (Mounting needs root, or a namespace in which a user may be root.)
    let mount = "mount -t tmpfs -o size=60k doorbell \"$3\"";
    let space: Option<&[&str]> = [&["unshare", "-m"][..], &["unshare", "-rm"]].into_iter().find(|before| {
        let mut c = std::process::Command::new(before[0]);
        c.args(&before[1..]).args(["sh", "-c", "mount -t tmpfs doorbell /tmp"]);
        c.output().is_ok_and(|o| o.status.success())
    });
    match space.map(|before| stopped_early(before, mount, "")) {
        Some(Ok(said)) => told(&said, "the disk is full"),
        Some(Err(why)) => test_support::skip_part!("{why}"),
        None => test_support::skip_part!("no small file system to be had without root"),
    }
}

#[test]
fn a_recording_into_the_null_device_is_not_to_be_shown() {
    let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let err = refused(c.args(["record", "--locks", "-o", "/dev/null", "--", "true"]), 0);
    assert!(err.contains("wrote /dev/null") && !err.contains("doorbell show"), "{err}");
}

#[test]
fn a_report_of_a_run_that_changed_nothing_is_one_line() {
    let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let err = refused(c.args(["run", "--lock-policy", "phase-fair", "--report", "--", "true"]), 0);
    assert!(err.starts_with("doorbell: nothing was changed: ") && err.lines().count() == 1, "{err}");
}
