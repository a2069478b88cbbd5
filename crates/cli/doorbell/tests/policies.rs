//! Programs whose locks follow other policies: their results must be the same as without.
//!
//! The programs are C, compiled here like other people's; without a C compiler the tests print that and pass.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use test_support::finished;

const POLICIES: [&str; 6] = ["stock", "ticket", "pi", "phase-fair", "boost", "pi,phase-fair"];

fn compiled(dir: &Path, name: &str) -> Option<PathBuf> {
    compiled_as(dir, name, name, &[])
}

fn compiled_as(dir: &Path, name: &str, to: &str, options: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/locks").join(name).with_extension("c");
    let program = dir.join(to);
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-Wall", "-pthread", "-o"]).arg(&program).arg(source).args(options);
    match cc.output() {
        Ok(out) => {
            assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
            Some(program)
        }
        Err(e) => test_support::skip!("no C compiler ({e})"),
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

/// A run's report.
fn reported(dir: &Path, policy: &str, program: &[&str], envs: &[(&str, &str)]) -> (Output, String) {
    let report = dir.join("report");
    let mut command = run(policy);
    command.args(["--force", "--out"]).arg(&report).arg("--").args(program).envs(envs.iter().copied());
    let out = finished(&mut command, &format!("{program:?} under {policy}"));
    (out, std::fs::read_to_string(report).unwrap_or_default())
}

/// The numbers before `what` in reports, added up.
fn number(report: &str, what: &str) -> u64 {
    let lines = report.lines().filter(|l| l.contains(what));
    lines.filter_map(|l| l.strip_prefix("doorbell: ")?.split(' ').next()?.parse::<u64>().ok()).sum()
}

/// Parts of the program with every function: each waits for some of the timeouts.
const PARTS: [&str; 4] = ["1", "2", "3", "4"];

#[test]
#[ignore = "2 s; run by .ci/run"]
fn every_function_returns_what_it_returns_without_policies() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), "semantics") else { return };
    let program = program.to_str().unwrap();
    // All in parallel: most of the time they wait for timeouts.
    std::thread::scope(|scope| {
        let plain = PARTS.map(|part| scope.spawn(move || said_by_itself(program, part)));
        let runs = POLICIES.map(|policy| {
            let parts = PARTS.map(|part| scope.spawn(move || said_under(program, part, policy)));
            (policy, parts)
        });
        let plain = plain.map(|run| run.join().unwrap());
        for (policy, parts) in runs {
            let mut report = String::new();
            for (part, plain) in parts.into_iter().zip(&plain) {
                let (said, about) = part.join().unwrap();
                says_the_same(plain, &said, policy);
                report += &about;
            }
            did_what_it_should(&report, policy);
        }
    });
}

fn said_by_itself(program: &str, part: &str) -> String {
    let said = text(&finished(Command::new(program).arg(part), "the program itself").stdout);
    assert!(said.ends_with("done\n"), "{said}");
    said
}

fn said_under(program: &str, part: &str, policy: &str) -> (String, String) {
    let dir = tempfile::tempdir().unwrap();
    let (out, report) = reported(dir.path(), policy, &[program, part], &[]);
    let (said, complained) = (text(&out.stdout), text(&out.stderr));
    assert_eq!(out.status.code(), Some(0), "{policy}: {said}{complained}");
    assert_eq!(complained, "", "{policy}");
    (said, report)
}

fn says_the_same(plain: &str, said: &str, policy: &str) {
    for (i, (a, b)) in plain.lines().zip(said.lines()).enumerate() {
        assert_eq!(a, b, "{policy}, line {}", i + 1);
    }
    assert_eq!(plain.lines().count(), said.lines().count(), "{policy}");
}

fn did_what_it_should(report: &str, policy: &str) {
    for one in policy.split(',') {
        assert!(number(report, &format!(" under {one}")) > 5, "{policy}: {report}");
    }
    if matches!(policy, "pi" | "ticket") {
        assert!(number(report, "kept their own protocol: shared between processes") >= 2, "{policy}: {report}");
        assert!(number(report, "kept their own protocol: robust") >= 2, "{policy}: {report}");
        assert!(number(report, "unlocks by threads that did not own the mutex") >= 3, "{policy}: {report}");
    }
}

/// Waits left by siglongjmp, where the waiter is in a queue: its place in the queue is freed with its stack.
#[test]
fn who_jumps_out_of_a_wait_is_waited_for_no_longer() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), "left") else { return };
    let plain = text(&finished(&mut Command::new(&program), "the program itself").stdout);
    assert!(plain.contains("unlocked by another 0, then 0"), "{plain}");
    std::thread::scope(|scope| {
        for policy in POLICIES {
            let (plain, program) = (&plain, &program);
            scope.spawn(move || {
                let said = text(&finished(run(policy).arg(program), policy).stdout);
                assert_eq!(said, *plain, "{policy}");
            });
        }
    });
    let said = text(&finished(run("phase-fair").arg(&program).arg("writers"), "writers").stdout);
    assert!(said.contains("writer 10: left 2 got 3") && said.contains("writer 16: left 1 got 4"), "{said}");
}

/// The kernel ends sleeps by its own clock, whatever the program's clock shows.
#[test]
fn a_clock_of_another_librarys_keeps_nobody_asleep() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), "clock") else { return };
    let clock = compiled_as(dir.path(), "clock", "clock.so", &["-shared", "-fPIC", "-DYEARS=30"]).unwrap();
    let plain = text(&finished(Command::new(&program).env("LD_PRELOAD", &clock), "the program itself").stdout);
    assert!(plain.as_str() > "year 2050", "{plain}");
    for policy in ["pi", "ticket"] {
        let out = finished(run(policy).arg(&program).env("LD_PRELOAD", &clock), policy);
        assert_eq!(text(&out.stdout), plain, "{policy}: {}", out.status);
    }
}

/// As in docs/results/protocols.md.
#[test]
fn what_a_free_mutex_holds_is_its_policy() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), "rest") else { return };
    let said = |bytes: &str| format!("alone:{bytes}\ntogether:{bytes}\ncleared:{bytes}\nn 1400\n");
    assert_eq!(text(&finished(&mut Command::new(&program), "the program itself").stdout), said(""));
    std::thread::scope(|scope| {
        for policy in POLICIES {
            let (program, bytes) = (&program, if policy.starts_with("pi") { " 16 22 24" } else { " 22" });
            scope.spawn(move || {
                assert_eq!(text(&finished(run(policy).arg(program), policy).stdout), said(bytes), "{policy}")
            });
        }
    });
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

#[test]
fn a_plan_goes_by_the_names_that_show_gives() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), "effects") else { return };
    let program = program.to_str().unwrap();
    // The name is taken from a tape.
    let tape = dir.path().join("tape");
    let mut record = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    record.args(["record", "--force", "--locks", "--gpu", "soft", "-q", "-o"]).arg(&tape).args(["--", program, "pi"]);
    assert_eq!(finished(&mut record, "record").status.code(), Some(0));
    let mut show = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let shown = finished(show.args(["show", "--locks", "--json"]).arg(&tape), "show");
    let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    let names: Vec<&str> = shown["locks"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|l| l["name"].as_str())
        .filter(|n| n.starts_with("effects+"))
        .collect();
    let [name] = names[..] else { panic!("one lock of its own: {names:?}") };
    let plan = dir.path().join("plan.toml");
    let word = |rules: &str| {
        std::fs::write(&plan, rules).unwrap();
        let (out, report) = reported(dir.path(), plan.to_str().unwrap(), &[program, "pi"], &[]);
        assert_eq!(out.status.code(), Some(0), "{}{report}", text_of(&out));
        (text(&out.stdout), number(&report, " under pi"))
    };
    let owner = ("the word is the owner\n".to_owned(), 1);
    let state = ("the word is a state\n".to_owned(), 0);
    assert_eq!(word(&format!("[[lock]]\nname = \"{name}\"\npolicy = \"pi\"\n")), owner);
    assert_eq!(word("[[lock]]\nmodule = \"effects\"\npolicy = \"pi\"\n"), owner);
    assert_eq!(word("[[lock]]\nmodule = \"libeffects\"\npolicy = \"pi\"\n"), state);
    assert_eq!(word("[[lock]]\nname = \"effects+0x8/mutex\"\npolicy = \"pi\"\n"), state);
    // The lock's own rule has priority over its module's.
    let both =
        format!("[[lock]]\nmodule = \"effects\"\npolicy = \"pi\"\n[[lock]]\nname = \"{name}\"\npolicy = \"stock\"\n");
    assert_eq!(word(&both), state);
}

#[test]
fn a_plan_from_a_tape_ends_the_starvation_that_the_tape_shows() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), "effects") else { return };
    let (tape, plan) = (dir.path().join("tape"), dir.path().join("plan.toml"));
    let mut record = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    record
        .args(["record", "--force", "--locks", "--gpu", "soft", "-q", "-o"])
        .arg(&tape)
        .arg("--")
        .arg(&program)
        .arg("phases");
    assert_eq!(text(&finished(&mut record, "record").stdout), "the writer starved\n");
    let mut planner = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let out = finished(planner.arg("plan").arg(&tape), "plan");
    let rules = text(&out.stdout);
    assert!(out.status.success() && rules.contains("policy = \"phase-fair\""), "{}", text_of(&out));
    std::fs::write(&plan, &rules).unwrap();
    let out = finished(run(plan.to_str().unwrap()).arg("--").arg(&program).arg("phases"), "phases under the plan");
    assert_eq!(text(&out.stdout), "the writer wrote\n", "{rules}");
    // The terminal and the page describe the wait in the same words, and name the same policy.
    let mut show = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    let shown = text(&finished(show.args(["show", "--locks"]).arg(&tape), "show").stdout);
    let said: Vec<&str> =
        shown.lines().map(str::trim).filter(|l| l.contains("overtook") || l.contains("helps: ")).collect();
    let [pattern, help, ..] = said[..] else { panic!("{shown}") };
    assert!(pattern.contains("readers overtook this writer: they asked for the lock later"), "{pattern}");
    assert!(help.contains("doorbell run --lock-policy phase-fair"), "{help}");
    let page = dir.path().join("tape.html");
    let mut report = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
    finished(report.arg("report").arg(&tape).arg("-o").arg(&page), "report");
    let page = std::fs::read_to_string(page).unwrap().replace("<code>", "`").replace("</code>", "`");
    assert!(page.contains(pattern) && page.contains(help), "{pattern} {help}");
}

fn text_of(out: &Output) -> String {
    format!("{}{}", text(&out.stdout), text(&out.stderr))
}

#[test]
fn a_wrong_plan_starts_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let plan = dir.path().join("plan.toml");
    std::fs::write(&plan, "# mine\nmutexes = \"pi\"\n[[lock]]\nname = \"app\"\npolicy = \"pi\"\n").unwrap();
    let refused = |policy: &str| {
        let out = finished(run(policy).args(["--", "echo", "started"]), policy);
        assert_eq!((out.status.code(), text(&out.stdout)), (Some(125), String::new()));
        text(&out.stderr)
    };
    let e = refused(plan.to_str().unwrap());
    assert!(e.contains("plan.toml:4: `app` is no lock's name") && e.contains("hint: name = "), "{e}");
    assert!(refused("./no.toml").contains("./no.toml: No such file"));
    let e = refused("pi,fast");
    assert!(e.contains("`fast` is no policy") && e.contains("hint: policies: pi, ticket"), "{e}");
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn each_policy_does_what_it_is_for() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), "effects") else { return };
    let said = |policy: &str, what: &str| {
        let out = finished(run(policy).arg("--").arg(&program).arg(what), &format!("{what} under {policy}"));
        assert_eq!(out.status.code(), Some(0), "{policy}, {what}: {}", text_of(&out));
        text(&out.stdout)
    };
    assert_eq!(said("ticket", "ticket"), "in turn 20 of 20\n");
    assert_eq!(said("stock", "pi"), "the word is a state\n");
    assert_eq!(said("pi", "pi"), "the word is the owner\n");
    // In parallel: they wait for timeouts.
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(said("stock", "phases"), "the writer starved\n"));
        scope.spawn(|| assert_eq!(said("phase-fair", "phases"), "the writer wrote\n"));
        for policy in ["stock", "boost", "phase-fair"] {
            let said = &said;
            let read = "the second reader read, the writer wrote afterwards\n";
            scope.spawn(move || assert_eq!(said(policy, "readers"), read, "{policy}"));
        }
        for (policy, expected) in
            [("stock", "not"), ("ticket", "not"), ("pi", "to its waiter"), ("boost", "to its waiter")]
        {
            let said = &said;
            scope.spawn(move || {
                let raised = said(policy, "raised");
                if raised.starts_with("skipped") {
                    test_support::skip_part!("{policy}: {}", raised.trim());
                    return;
                }
                assert_eq!(raised, format!("raised {expected}, after that as before\n"), "{policy}");
                let own = "a thread is born as its maker was\nits own will counts\n";
                assert_eq!(said(policy, "own"), own, "{policy}");
            });
        }
    });
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn many_threads_and_every_operation_leave_the_data_whole() {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), "stress") else { return };
    // In parallel: threads mostly wait for a lock that is handed over.
    std::thread::scope(|scope| {
        for policy in POLICIES {
            let program = &program;
            scope.spawn(move || {
                let mut command = run(policy);
                command.arg("--").arg(program).args(["64", "20000"]);
                let out = finished(&mut command, &format!("stress under {policy}"));
                assert_eq!(text_of(&out), "whole, enough changes\n", "{policy}: {}", out.status);
            });
        }
    });
}

fn a_thousand_threads(operations: [&str; 2]) {
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = compiled(dir.path(), "stress") else { return };
    for policy in POLICIES {
        for (threads, operations) in ["1000", "64"].into_iter().zip(operations) {
            let mut command = run(policy);
            command.arg("--").arg(&program).args([threads, operations]);
            let out = finished(&mut command, &format!("stress under {policy}"));
            assert_eq!(text_of(&out), "whole, enough changes\n", "{policy}, {threads}: {}", out.status);
        }
    }
}

#[test]
#[ignore = "1 million operations of 1,000 threads and 600,000 of 64 under each policy: 5 s; run by .ci/run"]
fn a_thousand_threads_change_what_each_lock_protects() {
    a_thousand_threads(["1000", "10000"]);
}

#[test]
#[ignore = "ten times as many: a minute; run by .ci/run --long"]
fn long_a_thousand_threads_change_what_each_lock_protects() {
    a_thousand_threads(["10000", "100000"]);
}
