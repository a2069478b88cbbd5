//! Programs whose locks follow other policies: they must get what they would get without.
//!
//! The programs are C, compiled here, as other people's are; where there is no C compiler the tests say so and pass.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// Longer than anything here takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(150);

const POLICIES: [&str; 6] = ["stock", "ticket", "pi", "phase-fair", "boost", "pi,phase-fair"];

fn compiled(dir: &Path, name: &str) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locks").join(name).with_extension("c");
    let program = dir.join(name);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-pthread", "-o"]).arg(&program).arg(source);
    match cc.output() {
        Ok(out) => {
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            Some(program)
        }
        Err(e) => {
            println!("skipped: no C compiler ({e})");
            None
        }
    }
}

fn finished(command: &mut Command, what: &str) -> Output {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    let id = child.id();
    let (done, out) = mpsc::channel();
    std::thread::spawn(move || done.send(child.wait_with_output()));
    match out.recv_timeout(PATIENCE) {
        Ok(out) => out.unwrap(),
        Err(_) => {
            let programs = std::fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
            for pid in programs.split_whitespace().chain([id.to_string().as_str()]).filter_map(|p| p.parse().ok()) {
                // SAFETY: a process that this test started and that still runs.
                unsafe { libc::kill(pid, libc::SIGKILL) };
            }
            panic!("{what}: still running after {PATIENCE:?}");
        }
    }
}

fn run(policy: &str) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    command.args(["run", "--lock-policy", policy]).env_remove("DOORBELL_LOCK_POLICY");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a run said it did.
fn reported(dir: &Path, policy: &str, program: &[&str], envs: &[(&str, &str)]) -> (Output, String) {
    let report = dir.join("report");
    let mut command = run(policy);
    command.arg("--report").arg(&report).arg("--").args(program).envs(envs.iter().copied());
    let out = finished(&mut command, &format!("{program:?} under {policy}"));
    (out, std::fs::read_to_string(report).unwrap_or_default())
}

/// The number before `what` in a report.
fn number(report: &str, what: &str) -> u64 {
    let line = report.lines().find(|l| l.contains(what));
    line.and_then(|l| l.strip_prefix("doorbell: ")?.split(' ').next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn every_function_returns_what_it_returns_without_policies() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), "semantics") else { return };
    let plain = finished(&mut Command::new(&program), "the program itself");
    let plain = text(&plain.stdout);
    assert!(plain.ends_with("done\n"), "{plain}");
    for policy in POLICIES {
        let (out, report) = reported(dir.path(), policy, &[program.to_str().unwrap()], &[]);
        let (said, complained) = (text(&out.stdout), text(&out.stderr));
        assert_eq!(out.status.code(), Some(0), "{policy}: {said}{complained}");
        assert_eq!(complained, "", "{policy}");
        for (i, (a, b)) in plain.lines().zip(said.lines()).enumerate() {
            assert_eq!(a, b, "{policy}, line {}", i + 1);
        }
        assert_eq!(plain.lines().count(), said.lines().count(), "{policy}");
        for one in policy.split(',') {
            assert!(number(&report, &format!("locks under {one}")) > 5, "{policy}: {report}");
        }
        if matches!(policy, "pi" | "ticket") {
            assert!(report.contains("1 kept their own protocol: shared between processes"), "{policy}: {report}");
            assert!(report.contains("1 kept their own protocol: robust"), "{policy}: {report}");
            assert!(number(&report, "unlocks by threads that did not own the mutex") >= 3, "{policy}: {report}");
        }
    }
}

#[test]
fn the_switch_in_the_environment_leaves_locks_alone() {
    let dir = tempfile::tempdir().unwrap();
    let envs = [("DOORBELL_LOCK_POLICY", "off")];
    let (out, report) =
        reported(dir.path(), "pi", &["sh", "-c", "echo $LD_PRELOAD$DOORBELL_POLICY_BOARD; exit 3"], &envs);
    assert_eq!((out.status.code(), text(&out.stdout)), (Some(3), "\n".into()));
    assert_eq!(report, "doorbell: no lock was changed: DOORBELL_LOCK_POLICY=off\n");
}
