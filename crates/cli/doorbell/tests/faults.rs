//! Crashes and signal handlers while doorbells are tapped: a program ends or continues exactly as without doorbell.
//!
//! The program is this file's binary, started again (`plays_scenario`). It rings doorbells on the software GPU around calls
//! of `scenario` in `programs/signals.c`. Without doorbell it does the same with no GPU.

mod work;

use gpu::Pushbuffer;
use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;
use test_support::Source;
use work::{SAYS, Work};

/// Longer than a scenario takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

/// The library of scenarios; a reason without a C compiler.
fn library() -> Result<&'static Path, String> {
    static BUILT: OnceLock<Result<(tempfile::TempDir, PathBuf), String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let compiled = |name: &str, flags: &[&str]| {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
            Source { file: &file, compiler: "cc", flags }.compile(dir.path())
        };
        let library = compiled("signals.c", &["-shared", "-fPIC"])?;
        compiled("inherited.c", &[])?;
        Ok((dir, library))
    });
    built.as_ref().map(|(_, library)| library.as_path()).map_err(Clone::clone)
}

/// How a scenario ended, and what it printed.
#[derive(Debug, PartialEq)]
struct Ended {
    /// The status as a shell shows it.
    status: i32,
    said: Vec<String>,
}

fn ended(out: &Output) -> Ended {
    let said =
        String::from_utf8_lossy(&out.stdout).lines().filter_map(|l| Some(l.split_once(SAYS)?.1.into())).collect();
    Ended { status: out.status.code().unwrap_or_else(|| 128 + out.status.signal().unwrap_or(127)), said }
}

fn run(scenario: &str, library: &Path, tap: Option<&str>) -> Result<Ended, String> {
    let dir = tempfile::tempdir().unwrap();
    let mut command = match tap {
        None => Command::new(std::env::current_exe().unwrap()),
        Some(tap) => {
            let mut c = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
            // A strict software GPU has its own handler.
            c.env("DOORBELL_SOFTGPU", "poll").args(["record", "--force", "--gpu", "soft", "--tap", tap, "-q", "-o"]);
            c.arg(dir.path().join("t.doorbell")).arg("--").arg(std::env::current_exe().unwrap());
            c
        }
    };
    command.args(["plays_scenario", "--exact", "--ignored", "--nocapture"]);
    command
        .env("SCENARIO", scenario)
        .env("SCENARIOS", library)
        .env("INHERITED", library.with_file_name("inherited"))
        .env("GPU", if tap.is_some() { "1" } else { "0" });
    let out = test_support::finished_within(&mut command, PATIENCE, scenario);
    let mut ended = ended(&out.ok_or(format!("still running after {PATIENCE:?}"))?);
    if tap.is_some() && ended.status == 0 {
        // It ran to its end, so its submissions are on the tape.
        let rung = ended.said.pop().unwrap_or_default();
        let mut show = Command::new(assert_cmd::cargo::cargo_bin!("doorbell"));
        show.args(["show", "--summary", "--json"]).arg(dir.path().join("t.doorbell"));
        let summary: Value =
            serde_json::from_slice(&test_support::finished(&mut show, "show").stdout).map_err(|e| e.to_string())?;
        let on_tape = format!("entries {}", summary["entries"]);
        if (&on_tape, summary["lost"].as_u64()) != (&rung, Some(0)) {
            return Err(format!("{rung} were rung; on the tape {on_tape}, lost {}", summary["lost"]));
        }
    }
    Ok(ended)
}

fn difference(ended: &Ended, bare: &Ended) -> String {
    let at = ended.said.iter().zip(&bare.said).take_while(|(a, b)| a == b).count();
    let line = |of: &Ended| format!("{:?} as line {}, status {}", of.said.get(at), at + 1, of.status);
    format!("{}; bare {}", line(ended), line(bare))
}

/// Each scenario bare and under both taps.
fn as_bare(scenarios: &[&str]) {
    let library = match library() {
        Ok(library) => library,
        Err(reason) => test_support::skip!("{reason}"),
    };
    let mut wrong = Vec::new();
    for scenario in scenarios {
        let bare = run(scenario, library, None).expect("bare it ends");
        assert!(!bare.said.iter().any(|l| l.starts_with("no such")) && bare.status != 101, "{scenario}: {bare:?}");
        assert!(bare.status != 0 || bare.said.last().is_some_and(|l| l == "went on 1"), "{scenario}: {bare:?}");
        for tap in ["trap", "patch"] {
            match run(scenario, library, Some(tap)) {
                Ok(ended) if ended == bare => {}
                Ok(ended) => wrong.push(format!("{scenario} under {tap}: {}", difference(&ended, &bare))),
                Err(e) => wrong.push(format!("{scenario} under {tap}: {e}")),
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("; "));
}

#[test]
fn a_wild_pointer_ends_the_program() {
    as_bare(&["dies-null-read", "dies-null-write", "dies-fixed-page", "dies-jump", "trap"]);
}

#[test]
fn a_wild_pointer_that_is_no_address_ends_the_program() {
    as_bare(&["dies-wild-read", "dies-wild-write", "dies-wild-high"]);
}

#[test]
fn a_stack_overflow_ends_the_program_or_reaches_its_handler() {
    as_bare(&["overflow", "overflow-on-other-stack", "overflow-without-other-stack"]);
}

#[test]
fn a_program_recovers_from_its_faults() {
    as_bare(&["recovers", "garbage-collector", "raise"]);
}

#[test]
fn a_crash_handler_that_crashes_ends_the_program() {
    as_bare(&["crash-in-handler", "crash-in-handler-nodefer", "once", "blocked-fault"]);
}

#[test]
fn a_handler_runs_on_the_stack_that_it_asked_for() {
    as_bare(&["stacks"]);
}

#[test]
fn blocked_signals_are_pending_and_can_be_waited_for() {
    as_bare(&["pending"]);
}

#[test]
fn blocked_and_ignored_signals_are_inherited() {
    as_bare(&["inherited"]);
}

#[test]
fn a_vfork_child_changes_nothing_of_its_parents() {
    as_bare(&["vfork"]);
}

#[test]
fn handlers_come_late_and_through_every_call() {
    as_bare(&["late", "sysv", "sigset"]);
}

#[test]
fn a_handler_may_unblock_its_signal_and_send_itself_another() {
    as_bare(&["unblocks-itself", "sent-inside"]);
}

#[test]
fn masks_come_with_threads_and_programs_in_every_way() {
    as_bare(&["thread-mask", "spawn", "old-masks"]);
}

#[test]
fn whoever_waits_for_a_signal_gets_it() {
    as_bare(&["waits"]);
}

#[test]
fn what_was_installed_is_told_as_the_kernel_tells_it() {
    as_bare(&["actions"]);
}

// ---- the program

static WORK: Mutex<Option<(Work, gpu::Validated)>> = Mutex::new(None);

extern "C" fn ring() {
    if let Some((work, words)) = WORK.lock().unwrap().as_mut() {
        work.channel.submit(words).unwrap();
    }
}

#[test]
#[ignore = "a program for the tests above"]
fn plays_scenario() {
    let of = |name: &str| std::env::var(name).expect("started by a test");
    if of("GPU") == "1" {
        let mut work = Work::new();
        work.rounds(3);
        let mut words = Pushbuffer::new(work.channel.space(), 64).unwrap();
        words.copy(work.target.va(), work.source.va(), 64).unwrap();
        let words = words.validate(&work.channel).unwrap();
        *WORK.lock().unwrap() = Some((work, words));
    }
    let c = |name: &str| std::ffi::CString::new(of(name)).unwrap();
    let (library, scenario) = (c("SCENARIOS"), c("SCENARIO"));
    // SAFETY: the test's own library, whose function has this type.
    let status = unsafe {
        let library = libc::dlopen(library.as_ptr(), libc::RTLD_NOW);
        let play = libc::dlsym(library, c"scenario".as_ptr());
        assert!(!library.is_null() && !play.is_null());
        let play: extern "C" fn(*const libc::c_char, extern "C" fn()) -> i32 = std::mem::transmute(play);
        play(scenario.as_ptr(), ring)
    };
    assert_eq!(status, 0, "the scenario did not end the process");
    if let Some((work, _)) = WORK.lock().unwrap().take() {
        work.say_entries();
    }
}
