//! Recording from inside a container and from outside: other namespaces, another root directory, another user. Unwatched
//! programs are named, and no two processes are mistaken for one.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tape::file::{End, Item, Process, Reader};
use test_support::{Source, finished};

const NOBODY: &str = "65534";

/// A folder that every user can reach, with doorbell, a program that prints whether it has the agent, and a folder for the
/// agent.
struct Rig {
    dir: tempfile::TempDir,
    doorbell: PathBuf,
    who: String,
    agent_dir: String,
}

/// The result of a recording.
struct Recorded {
    text: String,
    status: Option<i32>,
    end: Option<End>,
    processes: Vec<Process>,
}

fn compile(dir: &Path, name: &str) -> Result<PathBuf, String> {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
    Source { file: &file, compiler: "cc", flags: &["-w"] }.compile(dir)
}

impl Rig {
    fn new() -> Result<Rig, String> {
        let dir = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
        // (As /tmp is: others may put files there, and not rename those of others.)
        let everybody = Permissions::from_mode(0o1777);
        fs::set_permissions(dir.path(), everybody.clone()).unwrap();
        let agent_dir = dir.path().join("agent");
        fs::create_dir(&agent_dir).unwrap();
        fs::set_permissions(&agent_dir, everybody).unwrap();
        let (own, doorbell) = (assert_cmd::cargo::cargo_bin!("doorbell"), dir.path().join("doorbell"));
        fs::hard_link(own, &doorbell).or_else(|_| fs::copy(own, &doorbell).map(drop)).unwrap();
        let who = compile(dir.path(), "who.c")?.display().to_string();
        Ok(Rig { doorbell, who, agent_dir: agent_dir.display().to_string(), dir })
    }

    /// `around doorbell record OPTIONS command`.
    fn record(&self, around: &[&str], options: &[&str], command: &[&str]) -> Recorded {
        let tape = self.dir.path().join("t");
        let _ = fs::remove_file(&tape);
        let doorbell = self.doorbell.display().to_string();
        let words = [around, &[&doorbell, "record", "--gpu", "soft", "-o", "t"], options, command].concat();
        let out = finished(Command::new(words[0]).args(&words[1..]).current_dir(self.dir.path()), "a recording");
        let (mut end, mut processes) = (None, Vec::new());
        let mut reader = Reader::open(&tape).ok();
        while let Some(item) = reader.as_mut().and_then(|r| r.item().unwrap()) {
            match item {
                Item::End(e) => end = Some(*e),
                Item::Process(p) => processes.push(*p),
                _ => {}
            }
        }
        let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
        assert!(!text.contains("ERROR: ld.so"), "{words:?}: {text}");
        Recorded { text, status: out.status.code(), end, processes }
    }

    fn is_whole(&self, r: &Recorded, what: &[&str]) {
        assert!(r.end.as_ref().is_some_and(|e| e.complete), "{what:?}: {}{:?}", r.text, r.end);
        assert_eq!(fs::read_dir(&self.agent_dir).unwrap().count(), 0, "{what:?}: files are left");
    }
}

/// Whether this machine allows this at all.
fn works(words: &[&str]) -> bool {
    let out = Command::new(words[0]).args(&words[1..]).output();
    out.is_ok_and(|out| out.status.success()) || {
        test_support::skip_part!("{words:?} does not work here");
        false
    }
}

fn is_root() -> bool {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() == 0 }
}

const ENTERS: &[&[&str]] = &[
    &["unshare", "-U"],
    &["unshare", "-r", "-n", "-m", "-p", "-f", "--mount-proc"],
    &["setpriv", "--reuid", NOBODY, "--clear-groups"],
    &["setpriv", "--bounding-set", "-all"],
];

#[test]
fn a_program_that_enters_namespaces_or_becomes_another_user_is_recorded_by_files_or_named() {
    let rig = match Rig::new() {
        Ok(rig) => rig,
        Err(why) => test_support::skip!("{why}"),
    };
    let agent_dir = ["--agent-dir", &rig.agent_dir];
    for way in ENTERS.iter().filter(|way| works(&[way, &["true"][..]].concat())) {
        let program = [way, &[rig.who.as_str()][..]].concat();
        let with = rig.record(&[], &agent_dir, &program);
        assert!(with.text.contains("loaded=1 visible=0") && with.status == Some(7), "{program:?}: {}", with.text);
        rig.is_whole(&with, &program);
        let without = rig.record(&[], &[], &program);
        assert!(
            without.text.contains("loaded=0 visible=0") && without.status == Some(7),
            "{program:?}: {}",
            without.text
        );
        let names = without.text.contains(&format!("not watched: {} (", rig.who));
        assert!(names && without.text.contains("hint: start doorbell inside"), "{program:?}: {}", without.text);
        assert!(without.text.contains("--agent-dir"), "{program:?}: {}", without.text);
    }
    // Programs started there are followed, too, and their GPU work is on the tape.
    let sample = format!("{0} sample launches --gpu soft; {0} sample launches --gpu soft", rig.doorbell.display());
    let program = [ENTERS[1], &["sh", "-c", &sample]].concat();
    if works(&[ENTERS[1], &["true"]].concat()) {
        let r = rig.record(&[], &agent_dir, &program);
        rig.is_whole(&r, &program);
        let end = r.end.unwrap();
        assert!(end.trapped + end.tapped > 100 && end.processes >= 2, "{end:?}");
        let pids: BTreeSet<i32> = r.processes.iter().map(|p| p.pid).collect();
        // (One that has ended before it is found has its inner number, negative.)
        assert!(pids.len() == r.processes.len() && !pids.contains(&0), "{:?}", r.processes);
    }
}

#[test]
fn two_processes_of_one_number_in_two_namespaces_are_two() {
    let dir = tempfile::tempdir().unwrap();
    let (rig, enters) = match Rig::new().and_then(|rig| Ok((rig, compile(dir.path(), "enters.c")?))) {
        Ok(both) => both,
        Err(why) => test_support::skip!("{why}"),
    };
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let (enters, empty) = (enters.display().to_string(), empty.display().to_string());
    for program in [&[enters.as_str()][..], &[&enters, &empty]] {
        let r = rig.record(&[], &["--locks"], program);
        if r.status == Some(77) {
            test_support::skip!("no pid namespace may be entered here");
        }
        assert!(r.text.starts_with("1\n1\n"), "{program:?}: {}", r.text);
        rig.is_whole(&r, program);
        let pids: BTreeSet<i32> = r.processes.iter().map(|p| p.pid).collect();
        assert!(pids.len() == r.processes.len() && pids.len() >= 2 && pids.iter().all(|p| *p > 1), "{:?}", r.processes);
        let mut show = Command::new(&rig.doorbell);
        let shown = show.args(["show", "t", "--locks", "--json"]).current_dir(rig.dir.path()).output().unwrap();
        let shown: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
        assert_eq!(shown["operations"]["mutex_lock"], 3000, "{program:?}: {:#}", shown["operations"]);
        assert_eq!(shown["locks"][0]["instances"], 2, "{program:?}");
    }
}

/// A root directory with its own loader and libc, and the program in it.
fn root(rig: &Rig) -> Result<PathBuf, String> {
    let root = rig.dir.path().join("root");
    let ldd = Command::new("ldd").arg(&rig.who).output().map_err(|e| format!("ldd: {e}"))?;
    let text = String::from_utf8_lossy(&ldd.stdout).into_owned();
    let libraries = text.split_whitespace().filter(|word| word.starts_with('/'));
    // Libraries that the agent needs, too.
    let more = ["/lib/x86_64-linux-gnu/libgcc_s.so.1", "/lib/x86_64-linux-gnu/libm.so.6"];
    for file in libraries.chain([rig.who.as_str()]).chain(more.into_iter().filter(|f| Path::new(f).exists())) {
        let to = root.join(file.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(file, &to).map_err(|e| format!("{file}: {e}"))?;
    }
    for folder in ["proc", rig.agent_dir.trim_start_matches('/')] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    Ok(root)
}

#[test]
fn a_program_of_another_root_directory_is_recorded_by_files_that_are_there_or_named() {
    let rig = match Rig::new() {
        Ok(rig) => rig,
        Err(why) => test_support::skip!("{why}"),
    };
    if !is_root() || !works(&["unshare", "-m", "true"]) {
        test_support::skip!("only root may mount and chroot");
    }
    let root = match root(&rig) {
        Ok(root) => root.display().to_string(),
        Err(why) => test_support::skip!("{why}"),
    };
    let mount = format!("mount -t proc proc {root}/proc && mount --bind {0} {root}{0}", rig.agent_dir);
    let agent = format!("{} && exec \"$@\"", mount);
    let inside = ["unshare", "-m", "sh", "-c", &agent, "sh"];
    let program = ["chroot", &root, &rig.who];
    let with = rig.record(&inside, &["--agent-dir", &rig.agent_dir], &program);
    assert!(with.text.contains("loaded=1 visible=0") && with.status == Some(7), "{}", with.text);
    rig.is_whole(&with, &program);
    // Without those files: the program runs, and is named.
    let without = rig.record(&[], &[], &program);
    assert!(without.text.contains("loaded=0 visible=0") && without.status == Some(7), "{}", without.text);
    assert!(
        without.text.contains(&format!("not watched: {} (doorbell's files cannot be opened", rig.who)),
        "{}",
        without.text
    );
    // Nor is it there under another path.
    let elsewhere = rig.record(&[], &["--agent-dir", &rig.agent_dir], &program);
    assert!(elsewhere.text.contains("not watched: ") && elsewhere.status == Some(7), "{}", elsewhere.text);
}

#[test]
fn doorbell_records_inside_of_namespaces_and_without_root() {
    let rig = match Rig::new() {
        Ok(rig) => rig,
        Err(why) => test_support::skip!("{why}"),
    };
    let all = ["unshare", "-r", "-n", "-m", "-p", "-f", "--mount-proc"];
    let rootless = [&["setpriv", "--reuid", NOBODY, "--clear-groups"][..], &all].concat();
    for around in [&all[..], &rootless, &["unshare", "-U"]] {
        if around[0] == "setpriv" && !is_root() || !works(&[around, &["true"]].concat()) {
            continue;
        }
        let r = rig.record(around, &[], &[&rig.who]);
        assert!(r.text.contains("loaded=1 visible=0") && r.status == Some(7), "{around:?}: {}", r.text);
        rig.is_whole(&r, around);
    }
}

#[test]
fn without_its_own_proc_the_program_runs_alone_and_the_mount_is_named() {
    let rig = match Rig::new() {
        Ok(rig) => rig,
        Err(why) => test_support::skip!("{why}"),
    };
    let other = ["unshare", "-r", "-p", "-f"];
    let none = ["unshare", "-r", "-m", "sh", "-c", "mount -t tmpfs none /proc && exec \"$@\"", "sh"];
    let cases = [(&other[..], "error: /proc is of another pid namespace: "), (&none, "error: /proc is not mounted")];
    for (around, error) in cases.into_iter().filter(|(around, _)| works(&[around, &["true"][..]].concat())) {
        let r = rig.record(around, &[], &[&rig.who]);
        assert!(r.text.contains(error) && r.text.contains("hint: mount"), "{around:?}: {}", r.text);
        assert!(r.text.contains("the program runs without doorbell"), "{around:?}: {}", r.text);
        assert!(r.status == Some(7) && r.end.is_none() && !r.text.contains("loaded=1"), "{around:?}: {}", r.text);
    }
}

#[test]
fn a_folder_that_cannot_hold_the_agent_is_an_error() {
    let rig = match Rig::new() {
        Ok(rig) => rig,
        Err(why) => test_support::skip!("{why}"),
    };
    for wrong in ["/nowhere", "/dev/null"] {
        let r = rig.record(&[], &["--agent-dir", wrong], &[&rig.who]);
        let text = format!("error: {wrong}: cannot hold the agent: ");
        assert!(
            r.text.contains(&text) && r.text.contains("hint: --agent-dir takes") && r.status == Some(125),
            "{}",
            r.text
        );
    }
}

#[test]
fn calls_that_containers_forbid_are_not_needed() {
    let dir = tempfile::tempdir().unwrap();
    let (rig, confined) = match Rig::new().and_then(|rig| Ok((rig, compile(dir.path(), "confined.c")?))) {
        Ok(both) => both,
        Err(why) => test_support::skip!("{why}"),
    };
    let (around, doorbell) = (confined.display().to_string(), rig.doorbell.display().to_string());
    let program = [doorbell.as_str(), "sample", "launches", "--gpu", "soft"];
    let r = rig.record(&[&around], &["--locks"], &program);
    if r.status == Some(77) {
        test_support::skip!("no filter may be installed here");
    }
    rig.is_whole(&r, &program);
    assert!(r.status == Some(0) && r.end.unwrap().trapped > 50, "{}", r.text);
}
