//! Large programs under each policy, if they are installed: their output is the same as without.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(240);
const POLICIES: [&str; 4] = ["ticket", "pi", "boost", "pi,phase-fair"];

fn output(mut command: Command, what: &str) -> String {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let id = child.id();
    let (done, out) = mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    let Ok(out) = out.recv_timeout(PATIENCE) else {
        let programs = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        for pid in programs.split_whitespace().chain([id.to_string().as_str()]).filter_map(|p| p.parse().ok()) {
            // SAFETY: a process that this test started and that still runs.
            unsafe { libc::kill(pid, libc::SIGKILL) };
        }
        panic!("{what}: still running after {PATIENCE:?}");
    };
    let out = out.unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{what}: {}: {said}{}", out.status, String::from_utf8_lossy(&out.stderr));
    said
}

fn runs(program: &str, file: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locks").join(file);
    let mut plain = Command::new(program);
    plain.arg(&file);
    let plain = output(plain, program);
    assert!(plain.len() > 5, "{program}: {plain}");
    std::thread::scope(|scope| {
        for policy in POLICIES {
            let (plain, file) = (&plain, &file);
            scope.spawn(move || runs_under(policy, program, file, plain));
        }
    });
}

fn runs_under(policy: &str, program: &str, file: &Path, plain: &str) {
    let report = tempfile::NamedTempFile::new().unwrap();
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command
        .args(["run", "--lock-policy", policy, "--force", "--out"])
        .arg(report.path())
        .args(["--", program])
        .arg(file);
    assert_eq!(output(command, &format!("{program} under {policy}")), plain, "{program} under {policy}");
    let report = std::fs::read_to_string(report.path()).unwrap();
    for one in policy.split(',') {
        let given = report.contains(&format!(" under {one}\n"));
        // (Not every one of them has both kinds.)
        assert!(given || one == "phase-fair", "{program} under {policy}: {report}");
    }
}

/// True if `program` can be started; prints it if not.
fn is_there(program: &str, version: &str) -> bool {
    let there = Command::new(program).arg(version).stdin(Stdio::null()).output().is_ok_and(|o| o.status.success());
    if !there {
        test_support::skip_part!("{program} is not installed");
    }
    there
}

#[test]
fn python() {
    if is_there("python3", "--version") {
        // The command python3 may be a script that starts the interpreter; only the script would then run under the
        // policy.
        let mut which = Command::new("python3");
        which.args(["-c", "import sys; print(sys.executable)"]);
        runs(output(which, "python3").trim(), "threads.py");
    }
}

#[test]
#[ignore = "a large program under each policy; run by .ci/run"]
fn node() {
    if is_there("node", "--version") {
        runs("node", "threads.js");
    }
}

#[test]
#[ignore = "a large program under each policy; run by .ci/run"]
fn java() {
    if is_there("java", "-version") {
        runs("java", "Threads.java");
    }
}

#[test]
fn redis() {
    if !is_there("redis-server", "--version") || !is_there("redis-benchmark", "--version") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("socket");
    for policy in POLICIES {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        command.args([
            "run",
            "--lock-policy",
            policy,
            "--",
            "redis-server",
            "--port",
            "0",
            "--save",
            "",
            // (They spin, so more threads than CPUs keep each other from running.)
            "--io-threads",
            "2",
        ]);
        let mut server = command.arg("--unixsocket").arg(&socket).stdout(Stdio::null()).spawn().unwrap();
        for _ in 0..200 {
            if socket.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let mut load = Command::new("redis-benchmark");
        load.arg("-s").arg(&socket).args(["-n", "20000", "-c", "20", "-t", "set,get,lpush", "-q"]);
        let said = output(load, &format!("redis-benchmark under {policy}"));
        assert!(said.contains("LPUSH"), "{said}");
        let mut end = Command::new("redis-cli");
        end.arg("-s").arg(&socket).arg("shutdown");
        output(end, "redis-cli");
        assert!(server.wait().unwrap().success(), "redis under {policy}");
    }
}
