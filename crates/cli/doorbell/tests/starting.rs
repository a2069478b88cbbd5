//! Programs that start others in unusual ways: the program must not notice doorbell, and unwatched programs must be named.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use test_support::{Source, finished};

fn doorbell() -> &'static str {
    env!("CARGO_BIN_EXE_doorbell")
}

/// The program of `programs/odd.c`, compiled once.
fn odd() -> Result<(&'static str, &'static Path), String> {
    static BUILT: OnceLock<Result<(tempfile::TempDir, PathBuf), String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let dir = tempfile::tempdir().expect("a directory");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/odd.c");
        Source { file: &file, compiler: "cc", flags: &["-w"] }.compile(dir.path()).map(|program| (dir, program))
    });
    let (dir, program) = built.as_ref().map_err(String::clone)?;
    Ok((program.to_str().expect("a path of this test's"), dir.path()))
}

/// A program's output, and how it ends.
fn output(words: &[&str]) -> String {
    let out = finished(Command::new(words[0]).args(&words[1..]), words[0]);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}{:?}", text(&out.stdout), text(&out.stderr), out.status.code())
}

const RUN: [&str; 4] = ["run", "--lock-policy", "ticket", "--"];

/// Runs `before`, doorbell (in both ways) and `program`: the output must be the same as without doorbell. Returns the summary
/// of the recording.
fn same(before: &[&str], program: &[&str]) -> Value {
    let dir = tempfile::tempdir().expect("a directory");
    let tape = dir.path().join("tape.doorbell");
    let tape = tape.to_str().expect("a path of this test's");
    let bare = output(&[before, program].concat());
    let record = ["record", "--locks", "-q", "--gpu", "soft", "-o", tape, "--"];
    for way in [&RUN[..], &record] {
        assert_eq!(output(&[before, &[doorbell()], way, program].concat()), bare, "{way:?} {program:?}");
    }
    let shown = finished(Command::new(doorbell()).args(["show", "--summary", "--json", tape]), "show");
    serde_json::from_slice(&shown.stdout).expect("JSON")
}

/// True if this is among the reasons why the recording is not complete.
fn names(summary: &Value, what: &str) -> bool {
    summary["complete"] == false && summary["incomplete_because"].to_string().contains(what)
}

#[test]
fn an_environment_reaches_a_program_as_it_is() {
    let (odd, _) = match odd() {
        Ok(built) => built,
        Err(why) => test_support::skip!("{why}"),
    };
    same(&[odd, "env"], &["/usr/bin/env"]);
    same(&[], &[odd, "env", "/usr/bin/env"]);
    same(&[], &[odd, "bad"]);
}

#[test]
fn signals_reach_a_program_as_they_are() {
    let (odd, _) = match odd() {
        Ok(built) => built,
        Err(why) => test_support::skip!("{why}"),
    };
    let masks = ["grep", "-E", "SigIgn|SigBlk", "/proc/self/status"];
    same(&[], &masks);
    let before = ["env", "--ignore-signal=PIPE", "--block-signal=USR1"];
    if output(&[&before[..], &["true"]].concat()).contains("Some(0)") {
        same(&before, &masks);
    } else {
        test_support::skip_part!("this env does not block signals");
    }
    // (Without doorbell it would wait until a shell continues it.)
    for way in [&RUN[..], &["record", "--locks", "--force", "-q", "-o", "/dev/null", "--"]] {
        assert!(output(&[&[doorbell()], way, &[odd, "traced"]].concat()).ends_with("Some(5)"), "{way:?}");
    }
}

#[test]
fn shells_of_system_and_popen_start_every_kind_of_program() {
    let (odd, dir) = match odd() {
        Ok(built) => built,
        Err(why) => test_support::skip!("{why}"),
    };
    let s = same(
        &[],
        &[odd, "shell", "nosuchcommand; echo \"it's $0 $#\" $PPID | sed s/[0-9]*$//; env | grep -c DOORBELL; exit 3"],
    );
    assert_eq!(s["complete"], true, "{s:#}");
    same(&[], &[odd, "shell", "if then"]);
    same(&[], &[odd, "shell", "kill -9 $$"]);
    let file = dir.join("small.c");
    std::fs::write(&file, "#include <stdio.h>\nextern char **environ;\nint main() { int n = 0; while (environ[n]) n++; return printf(\"%d\\n\", n) == 0; }\n")
        .expect("it is written");
    for (compiler, flag, why) in [
        ("cc", "-static", "statically linked"),
        ("musl-gcc", "-w", "not linked against glibc"),
        ("cc", "-m32", "a 32-bit program"),
    ] {
        if flag == "-m32" && !has_headers_of_32_bits() {
            test_support::skip_part!("{compiler} {flag}: no headers of libc for it");
            continue;
        }
        let to = tempfile::tempdir().expect("a directory");
        let small = match (Source { file: &file, compiler, flags: &[flag] }).compile(to.path()) {
            Ok(program) => program,
            Err(e) => {
                test_support::skip_part!("{compiler} {flag}: {e}");
                continue;
            }
        };
        let small = small.to_str().expect("a path of this test's");
        let s = same(&[], &[odd, "shell", small]);
        assert!(names(&s, why), "{s:#}");
    }
}

#[test]
fn a_shell_is_started_once_and_as_libc_starts_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/shells.c");
    let program = match (Source { file: &file, compiler: "cc", flags: &["-w", "-pthread"] }).compile(dir.path()) {
        Ok(program) => program,
        Err(why) => test_support::skip!("{why}"),
    };
    let s = same(&[], &[program.to_str().expect("a path of this test's")]);
    assert_eq!(s["complete"], true, "{s:#}");
}

#[test]
fn the_agent_brings_no_library_with_it() {
    let maps = output(&[&[doorbell()], &RUN[..], &["cat", "/proc/self/maps"]].concat());
    assert!(maps.contains("libc.so.6") && !maps.contains("libgcc"), "{maps}");
}

/// KiB of the mappings in a process's smaps that its core file would have, except for those of files that can be read again.
fn in_a_core(smaps: &str) -> u64 {
    let (mut kib, mut size, mut dumped) = (0, 0, false);
    for line in smaps.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["Size:", n, ..] => size = n.parse().expect("a number"),
            ["VmFlags:", ref flags @ ..] if dumped && !flags.contains(&"dd") => kib += size,
            [range, rights, .., inode, path] if range.contains('-') && inode.parse::<u64>().is_ok() => {
                dumped = path.starts_with("/memfd:") && rights.contains('s');
            }
            [range, rights, ..] if range.contains('-') => dumped = rights.starts_with("rw"),
            _ => {}
        }
    }
    kib
}

#[test]
fn core_files_have_none_of_the_agents_tables_and_rings() {
    let words = ["cat", "/proc/self/smaps"];
    let bare = in_a_core(&output(&words));
    let record = ["record", "--locks", "--force", "-q", "-o", "/dev/null", "--"];
    for way in [&RUN[..], &record] {
        let with = in_a_core(&output(&[&[doorbell()], way, &words].concat()));
        println!("{way:?}: {with} KiB in a core file, bare {bare}");
        assert!(with < bare + 200, "{way:?}: {with} KiB in a core file, bare {bare}");
    }
}

#[test]
fn a_static_program_and_what_it_starts_see_their_own_environment_and_it_is_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/odd.c");
    let program = match (Source { file: &file, compiler: "cc", flags: &["-w", "-static"] }).compile(dir.path()) {
        Ok(program) => program,
        Err(why) => test_support::skip!("no static program: {why}"),
    };
    let program = program.to_str().expect("a path of this test's");
    for before in [&[][..], &["sh", "-c", "exec \"$@\"", "sh"]] {
        let s = same(&[], &[before, &[program, "start", "env"]].concat());
        assert!(names(&s, "(statically linked)"), "{s:#}");
    }
}

#[test]
fn a_program_that_loses_rights_at_its_start_says_nothing_and_is_named() {
    let program = ["setpriv", "--bounding-set", "-all", "sh", "-c", "echo $0"];
    if !output(&program).ends_with("Some(0)") {
        test_support::skip!("not root, or no setpriv: no rights to lose");
    }
    let s = same(&[], &program);
    assert!(names(&s, "fewer capabilities"), "{s:#}");
    let report = output(&[&[doorbell(), "run", "--lock-policy", "ticket", "--report"][..], &program].concat());
    assert!(report.contains("1 program not reached: started with fewer capabilities"), "{report}");
}

#[test]
fn a_program_whose_memory_is_limited_starts_without_the_agent() {
    let s = same(&[], &["sh", "-c", "ulimit -d 3000; sh -c 'echo started'"]);
    assert!(names(&s, "memory is limited"), "{s:#}");
}

#[test]
fn what_a_shell_leaves_in_the_background_says_nothing() {
    let dir = tempfile::tempdir().expect("a directory");
    let said = dir.path().join("said");
    let line = format!("for i in 1 2 3 4 5 6; do /bin/true 2>>{} & done", said.display());
    for _ in 0..8 {
        output(&[&[doorbell()], &RUN[..], &["sh", "-c", &line]].concat());
    }
    // (The last one may just have begun.)
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(std::fs::read_to_string(&said).expect("the jobs have opened it"), "");
}

#[test]
fn what_was_started_by_raw_system_calls_or_left_behind_is_not_called_complete() {
    let (odd, dir) = match odd() {
        Ok(built) => built,
        Err(why) => test_support::skip!("{why}"),
    };
    let s = same(&[], &[odd, "raw", "/bin/true"]);
    assert!(names(&s, "past libc"), "{s:#}");
    let done = dir.join("done");
    let s = same(&[], &[odd, "daemon", done.to_str().expect("a path of this test's")]);
    assert!(names(&s, "still ran"), "{s:#}");
    let begun = Instant::now();
    while !done.exists() {
        assert!(begun.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn of_many_children_that_are_forked_at_once_each_is_recorded() {
    let (odd, dir) = match odd() {
        Ok(built) => built,
        Err(why) => test_support::skip!("{why}"),
    };
    let tape = dir.join("forks.doorbell");
    let tape = tape.to_str().expect("a path of this test's");
    output(&[doorbell(), "record", "--locks", "--no-switches", "-q", "--force", "-o", tape, odd, "forks", "400"]);
    let shown = finished(Command::new(doorbell()).args(["show", "--summary", "--json", tape]), "show");
    let s: Value = serde_json::from_slice(&shown.stdout).expect("JSON");
    assert_eq!((&s["complete"], &s["processes"].as_array().map_or(0, Vec::len)), (&true.into(), &401), "{s:#}");
}

/// Prints how much later than without doorbell a child of a burst has its first lock, in turns. A figure, not a limit: on few
/// CPUs the children wait for one another.
#[test]
#[ignore = "5 s; run by .ci/run"]
fn how_late_the_first_lock_of_a_forked_child_is() {
    let (odd, _) = match odd() {
        Ok(built) => built,
        Err(why) => test_support::skip!("{why}"),
    };
    let mut late = Vec::new();
    for _ in 0..10 {
        let figures = |before: &[&str]| {
            let text = output(&[before, &[odd, "forks", "400"]].concat());
            let ms: Vec<f64> = text.split_whitespace().map_while(|t| t.parse().ok()).collect();
            (ms[0], ms[1])
        };
        let (bare, under) =
            (figures(&[]), figures(&[doorbell(), "record", "--locks", "-q", "--force", "-o", "/dev/null", "--"]));
        late.push((under.1 - bare.1, under.0 - bare.0));
    }
    late.sort_by(|a, b| a.0.total_cmp(&b.0));
    println!("first lock of 400 children at once, later than bare, ms (p99, p50) by turns: {late:.3?}");
}

fn has_headers_of_32_bits() -> bool {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("headers.c");
    std::fs::write(&file, "#include <stdio.h>\n").expect("it is written");
    Command::new("cc").args(["-m32", "-E", "-o", "/dev/null"]).arg(&file).output().is_ok_and(|out| out.status.success())
}
