//! What cannot be recorded: one line that says what, each cause in it once, and one line that helps.

use assert_cmd::Command;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// The standard error of a recording that does not come about.
fn refused(command: &mut Command, status: i32) -> String {
    let out = command.assert().code(status).stdout("");
    String::from_utf8(out.get_output().stderr.clone()).unwrap()
}

fn record(out: &Path, program: &Path, status: i32) -> String {
    let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    refused(c.args(["record", "--gpu", "soft", "-o"]).arg(out).arg("--").arg(program), status)
}

/// Two lines, `error: ...` with `what` in it and `hint: ...` with `help`.
fn says(err: &str, what: &str, help: &str) {
    let lines: Vec<&str> = err.lines().collect();
    let [error, hint] = lines[..] else { panic!("{err}") };
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
    file(&p, b"hello\n", 0o755);
    says(&record(&out, &p, 126), "neither an ELF program nor a script", "sh FILE");
    file(&p, &elf(1), 0o755);
    says(&record(&out, &p, 126), "32-bit", "x86-64");
    file(&p, &elf(2), 0o755);
    // Only root can give a file away; else there is no such program to be made.
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
    says(&record(Path::new("/dev/full"), program, 125), "No space left", "free some space");
}

#[test]
fn a_file_size_limit_is_told_and_not_died_of() {
    let dir = tempfile::tempdir().unwrap();
    for command in ["record --gpu soft -o \"$1\"", "run --lock-policy ticket"] {
        let mut c = std::process::Command::new("bash");
        let line = format!("ulimit -f 1000; exec \"$0\" {command} -- true");
        c.args(["-c", &line]).arg(assert_cmd::cargo::cargo_bin!("doorbell")).arg(dir.path().join("t"));
        let out = c.output().unwrap();
        // Whoever may lift the limit for a moment is not stopped by it.
        if !out.status.success() {
            assert_eq!(out.status.code(), Some(125), "{command}: {:?}", out.status);
            let err = std::str::from_utf8(&out.stderr).unwrap();
            says(err, "the file size limit of 1024000 bytes", "ulimit -f unlimited");
        }
    }
}
