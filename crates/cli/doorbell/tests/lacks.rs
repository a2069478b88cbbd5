//! Whatever doorbell lacks or meets, the program runs as without it and keeps its own exit status. The recording says what is
//! missing.

use std::fs::{self, File, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tape::file::{End, Item, Reader};
use test_support::{Source, finished};

/// The status of `busy`.
const OWN: Option<i32> = Some(7);

fn doorbell() -> &'static str {
    env!("CARGO_BIN_EXE_doorbell")
}

/// The programs, compiled once, in a folder that every user can reach.
fn program(name: &str) -> Result<String, String> {
    static BUILT: OnceLock<Result<tempfile::TempDir, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let dir = folder();
        for name in ["busy.c", "wild.c", "orphans.c"] {
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name);
            Source { file: &file, compiler: "cc", flags: &["-w", "-O1", "-pthread"] }.compile(dir.path())?;
        }
        Ok(dir)
    });
    built.as_ref().map(|dir| dir.path().join(name).display().to_string()).map_err(String::clone)
}

macro_rules! program {
    ($name:literal) => {
        match program($name) {
            Ok(path) => path,
            Err(why) => test_support::skip!("{why}"),
        }
    };
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o1777)).unwrap();
    dir
}

/// A shell in `dir`, where $DOORBELL is doorbell.
fn shell(dir: &Path, script: &str) -> Output {
    let mut sh = Command::new("sh");
    finished(sh.args(["-c", script]).current_dir(dir).env("DOORBELL", doorbell()), script)
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

fn works(script: &str) -> bool {
    Command::new("sh").args(["-c", script]).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

fn end(tape: &Path) -> Option<End> {
    let mut reader = Reader::open(tape).ok()?;
    while let Ok(Some(item)) = reader.item() {
        if let Item::End(e) = item {
            return Some(*e);
        }
    }
    None
}

/// Docker gives a container 64 MB in /dev/shm. No ring may be handed out that does not fit.
#[test]
fn a_small_file_system_for_the_agent_costs_events_and_no_process() {
    let busy = program!("busy");
    if !works("unshare -m mount -t tmpfs none /mnt") {
        test_support::skip!("no file system may be mounted here");
    }
    let dir = folder();
    fs::create_dir(dir.path().join("shm")).unwrap();
    for (size, threads) in [("40m", 8), ("12m", 4), ("9m", 1)] {
        let inside = format!(
            "mount -t tmpfs -o mode=755,size={size} none shm && $DOORBELL record --force --locks --agent-dir $PWD/shm -o a.doorbell \
             {busy} {threads} 300000; echo status $?; ls -A shm"
        );
        let out = shell(dir.path(), &format!("exec unshare -m sh -c '{inside}'"));
        let text = text(&out);
        assert!(text.contains("ok\n") && text.contains("status 7"), "{size}: {text}");
        assert!(text.trim_end().ends_with("status 7") || text.contains("doorbell: "), "{size}: files are left: {text}");
        let end = end(&dir.path().join("a.doorbell")).unwrap_or_else(|| panic!("{size}: no end: {text}"));
        assert!(!end.complete && end.exit_code == OWN, "{size}: {end:?}");
    }
    // Not even the agent fits.
    let inside = format!(
        "mount -t tmpfs -o mode=755,size=256k none shm && $DOORBELL record --force --locks --agent-dir $PWD/shm -o b.doorbell {busy}; echo status $?"
    );
    let out = text(&shell(dir.path(), &format!("exec unshare -m sh -c '{inside}'")));
    assert!(out.contains("status 7") && out.contains("runs without doorbell"), "{out}");
    assert!(!dir.path().join("b.doorbell").exists());
}

#[test]
fn a_program_runs_to_its_end_where_doorbell_can_start_no_thread() {
    let busy = program!("busy");
    let as_another = "setpriv --reuid=65533 --regid=65533 --clear-groups";
    if !works(&format!("{as_another} true")) {
        test_support::skip!("no other user may be taken here");
    }
    let dir = folder();
    let own = dir.path().join("doorbell");
    fs::hard_link(doorbell(), &own).or_else(|_| fs::copy(doorbell(), &own).map(drop)).unwrap();
    for limit in ["prlimit --nproc=1", "prlimit --nproc=2", "prlimit --nproc=3", "prlimit --nproc=4"] {
        for way in ["record --force --locks -o a.doorbell", "run --lock-policy pi"] {
            let out = shell(dir.path(), &format!("{limit} {as_another} ./doorbell {way} {busy} 0"));
            assert_eq!(out.status.code(), OWN, "{limit} {way}: {}", text(&out));
        }
    }
    // Nor where its address space is small.
    for kib in [150_000, 250_000, 400_000, 1_000_000] {
        for way in ["record --force --locks -o a.doorbell", "run --lock-policy pi"] {
            let out = shell(dir.path(), &format!("ulimit -v {kib}; exec $DOORBELL {way} {busy} 4 200000"));
            assert_eq!(out.status.code(), OWN, "{kib} KiB {way}: {}", text(&out));
        }
    }
}

/// A control group with a limit of memory, removed when this is dropped.
struct Group(PathBuf);

impl Group {
    fn new(bytes: u64) -> Option<Group> {
        let name = format!("doorbell-test-{}", std::process::id());
        [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")].iter().find_map(
            |(root, file)| {
                let group = Group(Path::new(root).join(&name));
                fs::create_dir(&group.0).ok()?;
                fs::write(group.0.join(file), bytes.to_string()).ok()?;
                Some(group)
            },
        )
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// The limit is the program's as well, and the kernel ends the largest process.
#[test]
fn a_small_limit_of_memory_ends_neither_doorbell_nor_the_program() {
    let busy = program!("busy");
    let Some(group) = Group::new(100_000_000) else { test_support::skip!("no control group may be made here") };
    let dir = folder();
    let enters = format!("echo $$ >{}/cgroup.procs", group.0.display());
    let out = shell(dir.path(), &format!("{enters} && exec $DOORBELL record --locks -o a.doorbell {busy} 20 300000"));
    assert_eq!(out.status.code(), OWN, "{}", text(&out));
    let end = end(&dir.path().join("a.doorbell")).expect("an end");
    assert_eq!(end.exit_code, OWN, "{end:?}");
}

/// Ranks of a job that have one name, and a job that is started again.
#[test]
fn a_name_that_is_taken_keeps_no_program_from_running() {
    let dir = folder();
    let job = "for r in 1 2 3; do SLURM_JOB_ID=9 $DOORBELL record --calls -o 'j-%q{SLURM_JOB_ID}.doorbell' sh -c 'exit 5' & \
               p=\"$p $!\"; done; for p in $p; do wait $p; echo status $?; done";
    let out = text(&shell(dir.path(), job));
    assert_eq!(out.matches("status 5").count(), 3, "{out}");
    for name in ["j-9.doorbell", "j-9.2.doorbell", "j-9.3.doorbell"] {
        assert!(end(&dir.path().join(name)).is_some() && out.contains(&format!("wrote {name}")), "{name}: {out}");
    }
    assert!(out.contains("j-9.doorbell exists"), "{out}");
    fs::write(dir.path().join("r.txt"), "old").unwrap();
    let out = shell(dir.path(), "exec $DOORBELL run --lock-policy pi -o r.txt sh -c 'exit 5'");
    assert_eq!(out.status.code(), Some(5), "{}", text(&out));
    assert!(text(&out).contains("r.2.txt") && dir.path().join("r.2.txt").exists());
    assert_eq!(fs::read(dir.path().join("r.txt")).unwrap(), b"old");
}

#[test]
fn messages_that_cannot_be_written_change_no_exit_status() {
    let dir = folder();
    let program = "sh -c 'exit 5'";
    for way in [
        "run --lock-policy pi --report",
        "record --force --calls -o a.doorbell",
        "record --force --calls --last 1MiB --save-when exit -o b.doorbell",
        "record --calls -o a.doorbell",
    ] {
        // (The last one is a pipe whose reader is gone.)
        for script in ["COMMAND 2>/dev/full", "COMMAND 2>&-", "sleep 0.1; COMMAND 2>&1"] {
            let script = script.replace("COMMAND", &format!("$DOORBELL {way} {program}"));
            let _ = shell(dir.path(), &format!("{{ {script}; echo $? >status; }} | true"));
            assert_eq!(fs::read_to_string(dir.path().join("status")).unwrap().trim(), "5", "{script}");
        }
    }
}

/// The messages of several ranks do not mix within a line.
#[test]
fn each_message_is_written_at_once() {
    let dir = folder();
    for (way, least) in [
        ("run --lock-policy pi --report sh -c 'exit 5'", 1),
        ("record --force --calls -o a.doorbell sh -c 'exit 5'", 2),
        ("record --force --calls --last 1MiB --save-when exit -o b.doorbell sh -c 'exit 5'", 2),
        ("show no.doorbell", 2),
    ] {
        // Each write arrives as a datagram.
        let (stderr, messages) = UnixDatagram::pair().unwrap();
        let script = format!("\"$DOORBELL\" {way}");
        let mut command = Command::new("sh");
        command.args(["-c", &script]).env("DOORBELL", doorbell()).current_dir(dir.path());
        command.stdout(Stdio::null()).stderr(OwnedFd::from(stderr)).status().unwrap();
        drop(command);
        messages.set_nonblocking(true).unwrap();
        let mut buffer = [0; 4096];
        let mut count = 0;
        while let Ok(n @ 1..) = messages.recv(&mut buffer) {
            let message = String::from_utf8_lossy(&buffer[..n]).into_owned();
            assert!(message.ends_with('\n'), "{way}: {message:?}");
            count += 1;
        }
        assert!(count >= least, "{way}: {count} messages");
    }
}

/// A process that has printed a line.
struct Running(std::process::Child);

impl Running {
    fn new(dir: &Path, words: &[&str]) -> Running {
        let out = File::create(dir.join("out")).unwrap();
        let mut command = Command::new(doorbell());
        // (In a group whose parent is outside of it: the kernel does not stop a group that nobody could continue.)
        command.args(words).current_dir(dir).process_group(0);
        let child = command.stdout(out.try_clone().unwrap()).stderr(out).spawn().unwrap();
        until("a line", || fs::read_to_string(dir.join("out")).unwrap().contains("up"));
        Running(child)
    }

    fn signal(&self, signal: i32) {
        // SAFETY: a child that was not waited for.
        unsafe { libc::kill(self.0.id() as i32, signal) };
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.signal(libc::SIGTERM);
        self.signal(libc::SIGCONT);
        let _ = self.0.wait();
    }
}

fn until(what: &str, is: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Jobs checkpoint on SIGUSR1.
#[test]
fn a_flight_recorder_takes_no_signal_that_the_program_handles() {
    let handles = "trap 'echo checkpoint; exit 6' USR1; echo up; while :; do sleep 0.05; done";
    let plain = "echo up; sleep 5 & wait";
    for (options, program, status, saved) in [
        (&["--last", "1MiB"][..], handles, Some(6), 1),
        (&["--last", "1MiB"], plain, None, 1),
        (&["--last", "1MiB", "--save-signal", "none"], plain, Some(128 + libc::SIGUSR1), 1),
        (&["--last", "1MiB", "--save-signal", "USR2"], plain, Some(128 + libc::SIGUSR1), 1),
    ] {
        let dir = folder();
        let words = [&["record", "--calls"][..], options, &["-o", "a.doorbell", "sh", "-c", program]].concat();
        let mut r = Running::new(dir.path(), &words);
        let said = || fs::read_to_string(dir.path().join("out")).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        r.signal(libc::SIGUSR1);
        match status {
            // (It is saved because the program ends with a status of its own.)
            Some(status) => assert_eq!(r.0.wait().unwrap().code(), Some(status), "{options:?} {program}"),
            // (The line follows the file.)
            None => {
                until("a file and its line", || dir.path().join("a.doorbell").exists() && said().contains("(SIGUSR1"))
            }
        }
        let said = said();
        assert_eq!(said.contains("checkpoint"), program == handles, "{said}");
        assert_eq!(said.contains("(SIGUSR1"), status.is_none(), "{said}");
        let files = fs::read_dir(dir.path()).unwrap().filter(|e| e.as_ref().unwrap().file_name() != "out");
        assert_eq!(files.count(), saved, "{options:?}: {said}");
    }
}

/// A batch system signals what it started, which is doorbell.
#[test]
fn signals_of_a_launcher_reach_the_program() {
    let program = "for s in XCPU ALRM PROF VTALRM CONT IO ABRT 36 64; do trap \"echo got $s\" $s; done\n\
                   trap 'echo got TERM; exit 6' TERM; echo up; while :; do sleep 0.02; done";
    let sent = [
        ("XCPU", libc::SIGXCPU),
        ("ALRM", libc::SIGALRM),
        ("PROF", libc::SIGPROF),
        ("VTALRM", libc::SIGVTALRM),
        ("CONT", libc::SIGCONT),
        ("IO", libc::SIGIO),
        ("ABRT", libc::SIGABRT),
        ("36", 36),
        ("64", 64),
        ("TERM", libc::SIGTERM),
    ];
    for way in [&["record", "--calls", "-o", "a.doorbell"][..], &["run", "--lock-policy", "pi"]] {
        let dir = folder();
        let mut r = Running::new(dir.path(), &[way, &["bash", "-c", program]].concat());
        for (name, signal) in sent {
            r.signal(signal);
            let got = format!("got {name}\n");
            until(&got, || fs::read_to_string(dir.path().join("out")).unwrap().contains(&got));
        }
        assert_eq!(r.0.wait().unwrap().code(), Some(6), "{way:?}");
    }
}

/// The program and doorbell stop and go on together.
#[test]
fn a_stop_and_its_end_reach_the_program() {
    let dir = folder();
    let r = Running::new(
        dir.path(),
        &["record", "--calls", "-o", "a.doorbell", "bash", "-c", "echo $$; echo up; while :; do sleep 0.02; done"],
    );
    let said = fs::read_to_string(dir.path().join("out")).unwrap();
    let program = said.lines().find(|l| l.parse::<u32>().is_ok()).unwrap().to_string();
    let stopped = |pid: &str| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().trim_start().starts_with('T')
    };
    let recorder = r.0.id().to_string();
    r.signal(libc::SIGTSTP);
    until("both stop", || stopped(&program) && stopped(&recorder));
    r.signal(libc::SIGCONT);
    until("both go on", || !stopped(&program) && !stopped(&recorder));
}

/// The kernel warns, and then kills, the process whose time is over: doorbell's is not the program's.
#[test]
#[ignore = "6 s; run by .ci/run"]
fn doorbells_own_limit_of_time_ends_only_the_recording() {
    let busy = program!("busy");
    let dir = folder();
    let program = format!(
        "[ $(ulimit -St) = 2 ] || exit 9; until grep -q CPU out || [ $((n=n+1)) = 99 ]; do {busy} 2 100000; done; exit 7"
    );
    let script = format!(
        "ulimit -t 2; $DOORBELL record --locks --force -o a.doorbell sh -c '{program}' >out 2>&1; \
         status=$?; cat out; exit $status"
    );
    let out = shell(dir.path(), &script);
    assert_eq!(out.status.code(), OWN, "{}", text(&out));
    assert!(text(&out).contains("limit of CPU time"), "{}", text(&out));
}

/// Another user who opens the library to write, in the moment before it is whole, could change what the program runs.
#[test]
fn files_of_an_agent_dir_are_never_writable_by_others_except_the_shared_memory() {
    let dir = folder();
    for _ in 0..5 {
        let mut command = Command::new("sh");
        command.args(["-c", "umask 0; exec \"$@\"", "sh", doorbell(), "record", "--force", "--quiet", "--locks"]);
        command.args(["-o", "a.doorbell", "--agent-dir", ".", "true"]).current_dir(dir.path());
        let mut child = command.spawn().unwrap();
        while child.try_wait().unwrap().is_none() {
            let entries = fs::read_dir(dir.path()).unwrap().flatten();
            for entry in entries.filter(|e| e.file_name().to_string_lossy().starts_with("doorbell-")) {
                let mode = |path: PathBuf| path.metadata().map_or(0, |m| m.permissions().mode());
                // (Its only other users are those who know the random name in it.)
                assert_eq!(mode(entry.path()) & 0o066, 0, "{}", entry.path().display());
                for inner in fs::read_dir(entry.path()).into_iter().flatten().flatten() {
                    let path = inner.path().join("doorbell-agent.so");
                    assert_eq!(mode(path.clone()) & 0o022, 0, "{}", path.display());
                }
            }
        }
    }
    fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
    let out = shell(dir.path(), "exec $DOORBELL record --locks --agent-dir . -o b.doorbell true");
    assert!(text(&out).contains("others may rename"), "{}", text(&out));
}

/// A user whom the folder lets in makes the file of the shared memory shorter.
#[test]
fn memory_that_is_taken_away_ends_no_recorder_and_leaves_no_file() {
    let busy = program!("busy");
    let dir = folder();
    fs::create_dir(dir.path().join("agent")).unwrap();
    let mut command = Command::new(doorbell());
    command.args(["record", "--quiet", "--locks", "-o", "a.doorbell", "--agent-dir", "agent", &busy, "2", "100000000"]);
    let mut child = command.current_dir(dir.path()).spawn().unwrap();
    let region = || {
        let only = |path: PathBuf| Some(fs::read_dir(path).ok()?.flatten().next()?.path());
        Some(only(only(dir.path().join("agent"))?)?.join("doorbell-region")).filter(|path| path.exists())
    };
    until("the shared memory", || region().is_some());
    std::thread::sleep(Duration::from_millis(500));
    File::options().write(true).open(region().unwrap()).unwrap().set_len(0).unwrap();
    let status = child.wait().unwrap();
    // (The program itself touches pages that are gone.)
    assert_eq!((status.signal(), status.code()), (None, Some(128 + libc::SIGBUS)));
    assert_eq!(fs::read_dir(dir.path().join("agent")).unwrap().count(), 0, "files are left");
    let end = end(&dir.path().join("a.doorbell")).expect("an end");
    assert!(end.incomplete_because.iter().any(|r| r.contains("was gone")), "{:?}", end.incomplete_because);
}

#[test]
fn wild_stores_into_the_shared_memory_end_no_recorder() {
    let wild = program!("wild");
    let dir = folder();
    for seed in ["5", "14"] {
        let out = finished(
            Command::new(doorbell())
                .args(["record", "--force", "--locks", "-o", "a.doorbell", &wild, seed])
                .current_dir(dir.path()),
            "a recording",
        );
        let text = text(&out);
        assert!(out.status.signal().is_none() && !text.contains("18446744073709551615"), "{seed}: {text}");
        let end = end(&dir.path().join("a.doorbell")).unwrap_or_else(|| panic!("{seed}: no end: {text}"));
        assert!(end.exit_code == out.status.code() || end.signal.is_some(), "{seed}: {end:?}");
    }
}

#[test]
fn as_process_1_doorbell_reaps_orphans() {
    let orphans = program!("orphans");
    if !works("unshare -pf --mount-proc true") {
        test_support::skip!("no pid namespace may be made here");
    }
    let dir = folder();
    for way in ["record --locks -o a.doorbell", "run --lock-policy pi"] {
        let out = shell(dir.path(), &format!("exec unshare -pf --mount-proc $DOORBELL {way} {orphans}"));
        assert_eq!(out.status.code(), Some(0), "{way}: zombies: {}", text(&out));
    }
}

/// What std opens for doorbell is not passed on.
#[test]
fn descriptors_that_were_closed_are_closed_in_the_program() {
    let dir = folder();
    let program = "sh -c 'ls /proc/self/fd >o.txt'";
    let fds = |before: &str| {
        let _ = shell(dir.path(), &format!("exec {before} {program} <&- 2>&-"));
        fs::read_to_string(dir.path().join("o.txt")).unwrap()
    };
    let bare = fds("env");
    for way in ["record -q --force -o a.doorbell", "run --lock-policy pi"] {
        assert_eq!(fds(&format!("$DOORBELL {way}")), bare, "{way}");
    }
}

#[test]
fn a_recording_that_is_lost_on_the_way_is_named_and_the_status_is_the_programs() {
    let dir = folder();
    let out = shell(dir.path(), "exec $DOORBELL record --calls -o a.doorbell sh -c 'rm a.doorbell; exit 5'");
    assert_eq!(out.status.code(), Some(5), "{}", text(&out));
    assert!(text(&out).contains("a.doorbell was removed while it was written"), "{}", text(&out));
    // The reader of a pipe leaves.
    let busy = program!("busy");
    // (It may already wait when doorbell opens the pipe, also by a link, or come later.)
    for (before, name) in [("", "p"), ("sleep 0.3;", "p"), ("sleep 0.3; ln -s p link;", "link")] {
        let head = "rm -f p; mkfifo p; head -c 100 p >/dev/null &";
        let script = format!("{head} {before} exec $DOORBELL record --locks -o {name} {busy} 2 200000");
        let out = shell(dir.path(), &script);
        assert_eq!(out.status.code(), OWN, "{name} {}", text(&out));
        assert!(text(&out).contains("Broken pipe"), "{name} {}", text(&out));
    }
}

#[test]
fn a_recorder_that_is_ended_before_its_program_starts_leaves_no_empty_file() {
    let dir = folder();
    let tape = dir.path().join("a.doorbell");
    for _ in 0..20 {
        let mut command = Command::new(doorbell());
        command.args(["record", "--locks", "-o", "a.doorbell", "sleep", "2"]).current_dir(dir.path());
        let mut child = command.stderr(Stdio::null()).spawn().unwrap();
        while !tape.exists() {
            std::hint::spin_loop();
        }
        // SAFETY: a child that was not waited for.
        unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
        child.wait().unwrap();
        assert!(tape.metadata().is_ok_and(|m| m.len() > 0) || !tape.exists(), "an empty file is left");
        let _ = fs::remove_file(&tape);
    }
}
