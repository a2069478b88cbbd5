//! A program that starts another in an unusual way, or becomes another: the other one runs as without doorbell, and the
//! recording has what it does or reports that it does not.

use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::Command;
use test_support::{Source, finished};

/// The programs: `becomes`, `who` that reports whether the agent is in it, and the same `who` for loaders that cannot load
/// the agent.
struct Programs {
    dir: tempfile::TempDir,
    becomes: PathBuf,
    who: PathBuf,
    others: Vec<PathBuf>,
}

impl Programs {
    fn new() -> Result<Programs, String> {
        let dir = tempfile::tempdir().expect("a directory");
        let file = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
        let compile = |name: &str, compiler, flags: &[&str], to: &str| {
            let dir = dir.path().join(to);
            std::fs::create_dir_all(&dir).expect("a directory");
            Source { file: &file(name), compiler, flags }.compile(&dir)
        };
        let becomes = compile("becomes.c", "cc", &["-w"], "")?;
        let who = compile("who.c", "cc", &["-w"], "dynamic")?;
        let others = [("cc", "-static"), ("musl-gcc", "-w")];
        let others =
            others.iter().filter_map(|(compiler, flag)| compile("who.c", compiler, &["-w", flag], compiler).ok());
        let others = others.collect();
        Ok(Programs { becomes, who, others, dir })
    }
}

/// Runs a command in a directory, bare and under doorbell in two ways: the output must be the same except for `loaded`.
/// Returns what the recorded one printed, and the summary of the recording.
fn same(dir: &Path, command: &[&str]) -> (String, Value) {
    let tape = dir.join("t.doorbell").display().to_string();
    let run = |words: &[&str]| {
        let out = finished(Command::new(words[0]).args(&words[1..]).current_dir(dir), &format!("{words:?}"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!("{}{}{:?}", text(&out.stdout), text(&out.stderr), out.status.code())
    };
    let doorbell = env!("CARGO_BIN_EXE_doorbell");
    let bare = run(command);
    let record = ["record", "--force", "--locks", "-q", "--gpu", "soft", "-o", &tape, "--"];
    let [policy, recorded] = [&["run", "--lock-policy", "pi", "--"][..], &record].map(|way| {
        let text = run(&[&[doorbell], way, command].concat());
        assert_eq!(text.replace("loaded=1", "loaded=0"), bare, "{way:?} {command:?}");
        text
    });
    assert_eq!(policy.contains("loaded=1"), recorded.contains("loaded=1"), "{command:?}");
    let shown = finished(Command::new(doorbell).args(["show", "--summary", "--json", &tape]), "show");
    (recorded, serde_json::from_slice(&shown.stdout).expect("JSON"))
}

/// True if this is among the reasons why the recording is not complete.
fn names(summary: &Value, what: &str) -> bool {
    summary["complete"] == false && summary["incomplete_because"].to_string().contains(what)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of this test's")
}

#[test]
fn a_program_is_looked_for_in_the_directory_that_its_spawn_changes_to() {
    let p = match Programs::new() {
        Ok(p) => p,
        Err(why) => test_support::skip!("{why}"),
    };
    let (child, parent) = (p.dir.path().join("child"), p.dir.path().join("parent"));
    [&child, &parent].into_iter().for_each(|dir| std::fs::create_dir(dir).unwrap());
    let place = |from: &Path, dir: &Path| _ = std::fs::copy(from, dir.join("rel")).unwrap();
    place(&p.who, &child);
    for how in ["chdir", "chdir-twice", "fchdir", "chdir-path"] {
        // (Each pair of names: the program that is started, and the one that the parent's directory has by that name.)
        let (said, s) = same(&parent, &[text(&p.becomes), how, "./rel", text(&child)]);
        assert!(said.contains("loaded=1 visible=0") && s["complete"] == true, "{how}: {said} {s:#}");
    }
    let (said, s) = same(&parent, &[text(&p.becomes), "fchdir-opened", "./rel", text(&child)]);
    assert!(said.contains("loaded=0") && names(&s, "could not be read"), "{said} {s:#}");
    place(&p.who, &parent);
    for other in &p.others {
        place(other, &child);
        for how in ["chdir", "fchdir", "chdir-path"] {
            let (said, s) = same(&parent, &[text(&p.becomes), how, "./rel", text(&child)]);
            assert!(said.contains("loaded=0 visible=0") && names(&s, "link"), "{how} {other:?}: {said} {s:#}");
        }
    }
}

#[test]
fn a_program_that_is_started_by_a_descriptor_of_its_path_alone_is_looked_at() {
    let p = match Programs::new() {
        Ok(p) => p,
        Err(why) => test_support::skip!("{why}"),
    };
    for how in ["o_path", "o_path-at"] {
        let (said, s) = same(p.dir.path(), &[text(&p.becomes), how, text(&p.who)]);
        assert!(said.contains("loaded=1 visible=0") && s["complete"] == true, "{how}: {said} {s:#}");
        for other in &p.others {
            let (said, s) = same(p.dir.path(), &[text(&p.becomes), how, text(other)]);
            assert!(said.contains("loaded=0 visible=0") && names(&s, "link"), "{how} {other:?}: {said} {s:#}");
        }
    }
}

#[test]
fn a_process_that_becomes_another_program_is_followed_or_said_to_be_lost() {
    let p = match Programs::new() {
        Ok(p) => p,
        Err(why) => test_support::skip!("{why}"),
    };
    for how in ["syscall", "syscall-at"] {
        let (said, s) = same(p.dir.path(), &[text(&p.becomes), how, text(&p.who)]);
        assert!(said.contains("loaded=1 visible=0") && s["complete"] == true, "{how}: {said} {s:#}");
    }
    let past = "it became another program by a system call of its own, past libc";
    let becomes = text(&p.becomes);
    let (said, s) = same(p.dir.path(), &[becomes, "raw", text(&p.who)]);
    assert!(said.contains("loaded=0 visible=0") && names(&s, past), "{said} {s:#}");
    // It runs for a while, with the same name as before. A child of the first program.
    let again = p.dir.path().join("again");
    std::fs::create_dir(&again).unwrap();
    let sleeps = again.join("becomes");
    std::fs::write(&sleeps, "#!/bin/sh\nsleep 2.5\n").unwrap();
    std::fs::set_permissions(&sleeps, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let line = format!("{becomes} raw {}; true", text(&sleeps));
    let (_, s) = same(p.dir.path(), &["sh", "-c", &line]);
    assert!(names(&s, past), "{s:#}");
    // A name alone says nothing.
    let (_, s) = same(p.dir.path(), &[becomes, "renamed", "."]);
    assert_eq!(s["complete"], true, "{s:#}");
}

#[test]
fn children_that_a_script_had_before_it_became_the_program_are_not_the_program_s() {
    let p = match Programs::new() {
        Ok(p) => p,
        Err(why) => test_support::skip!("{why}"),
    };
    let who = text(&p.who);
    for line in [
        format!("/bin/true; exec {who} x"),
        format!("x=$(/bin/echo 1); /bin/true | /bin/cat; (exit 3); exec {who} x"),
        format!("/bin/true & wait; exec env A=1 nice {who} x"),
    ] {
        let (said, s) = same(p.dir.path(), &["sh", "-c", &line]);
        assert!(said.contains("loaded=1") && s["complete"] == true, "{line}: {said} {s:#}");
    }
}

#[test]
fn a_doorbell_inside_another_works_and_the_outer_one_names_what_it_does_not_watch() {
    let p = match Programs::new() {
        Ok(p) => p,
        Err(why) => test_support::skip!("{why}"),
    };
    let (dir, doorbell) = (p.dir.path(), env!("CARGO_BIN_EXE_doorbell"));
    let run = |words: &[&str]| {
        let out = finished(Command::new(doorbell).args(words).current_dir(dir), &format!("{words:?}"));
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(out.status.code(), Some(7), "{words:?}: {}", text(&out.stderr));
        (text(&out.stdout), text(&out.stderr))
    };
    let summary = |tape: &str| -> Value {
        let shown =
            finished(Command::new(doorbell).args(["show", "--summary", "--json", tape]).current_dir(dir), "show");
        serde_json::from_slice(&shown.stdout).expect("JSON")
    };
    let outer = ["record", "-q", "--force", "--locks", "-o", "outer.doorbell", doorbell];
    let inner = ["record", "-q", "--locks", "-o", "inner.doorbell", text(&p.who), "x"];
    let (said, _) = run(&[&outer[..], &inner].concat());
    assert!(said.contains("loaded=1 visible=0"), "{said}");
    let (outer_has, inner_has) = (summary("outer.doorbell"), summary("inner.doorbell"));
    assert!(names(&outer_has, "another doorbell inside this one watches it"), "{outer_has:#}");
    assert_eq!((&inner_has["complete"], &inner_has["lost"]), (&true.into(), &0.into()), "{inner_has:#}");
    let policy = ["run", "--lock-policy", "ticket", "--report", text(&p.who), "x"];
    let (said, report) = run(&[&outer[..], &policy].concat());
    assert!(said.contains("loaded=1 visible=0"), "{said}");
    assert!(!report.contains("not reached"), "{report}");
    assert!(names(&summary("outer.doorbell"), "another doorbell"));
    // The same the other way round, and in itself.
    for inner in [&inner[..], &policy] {
        let inner = [inner, &["y"]].concat().join(" ").replace("-o inner", "--force -o inner");
        let words = ["run", "--lock-policy", "pi", "--report", "sh", "-c"];
        let line = format!("{doorbell} {inner}");
        let (said, report) = run(&[&words[..], &[&line]].concat());
        assert!(said.contains("loaded=1 visible=0") && report.contains("another doorbell"), "{said} {report}");
    }
}
