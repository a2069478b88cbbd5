//! A recorder with few rights.

mod fake;

use fake::{Region, options, program, read};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const NOBODY: u32 = 65534;

#[test]
#[ignore = "a role of the other tests"]
fn plays_the_program() {
    let mut ring = Region::attach().claim().unwrap();
    assert!(ring.note("it runs"));
    let of = |name: &str| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        status.lines().find_map(|l| l.strip_prefix(name)).unwrap().trim().to_owned()
    };
    // The program does not have the recorder's rights.
    if fake::told().first().is_some_and(|t| t == "without rights") {
        assert_eq!((of("CapEff:"), of("CapPrm:")), ("0".repeat(16), "0".repeat(16)));
    }
    std::process::exit(3);
}

/// Arguments: the tape, the program's file, and the program's arguments.
#[test]
#[ignore = "a role of the other tests"]
fn plays_the_recorder() {
    let told = fake::told();
    let mut command = program(&told[2..].iter().map(String::as_str).collect::<Vec<_>>());
    command[0] = (&told[1]).into();
    let mut o = options(command, Path::new(&told[0]));
    (o.locks, o.switches) = (recorder::Locks::All, true);
    let o = recorder::record(&o).unwrap_or_else(|e| panic!("{e}"));
    std::process::exit(o.status.code().unwrap_or(99));
}

/// This test's program under another name, executable by every user.
fn copy(dir: &Path, name: &str) -> PathBuf {
    let to = dir.join(name);
    // By another process: a child that another test forks also has this process's files open for writing, and no process may
    // execute such a file.
    assert!(Command::new("cp").arg(std::env::current_exe().unwrap()).arg(&to).status().unwrap().success());
    std::fs::set_permissions(&to, std::fs::Permissions::from_mode(0o755)).unwrap();
    to
}

/// The recorder, as user nobody, from this file; `None` if this process may not become nobody.
fn as_nobody(dir: &Path, recorder: &Path, program: &Path) -> Option<Command> {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        test_support::skip_part!("only root can become another user");
        return None;
    }
    std::fs::set_permissions(dir, std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut c = Command::new(recorder);
    c.args(["--ignored", "--exact", "plays_the_recorder", "--nocapture"]);
    c.arg(dir.join("t")).arg(program).arg("without rights").uid(NOBODY).gid(NOBODY).current_dir(dir);
    Some(c)
}

#[test]
fn an_ordinary_user_records() {
    let dir = tempfile::Builder::new().tempdir_in("/tmp").unwrap();
    let (recorder, program) = (copy(dir.path(), "recorder"), copy(dir.path(), "program"));
    let Some(mut c) = as_nobody(dir.path(), &recorder, &program) else { return };
    assert_eq!(c.status().unwrap().code(), Some(3));
    assert_eq!(read(&dir.path().join("t")).notes, ["it runs"]);
}

/// Little address space (`ulimit -v`) and little memory to lock (`ulimit -l`) are enough, because unused memory is not
/// mapped.
#[test]
fn small_limits_of_memory_are_enough() {
    let dir = tempfile::tempdir().unwrap();
    let limits = [(libc::RLIMIT_AS, 400 << 20), (libc::RLIMIT_MEMLOCK, 64 << 10)];
    let exe = std::env::current_exe().unwrap();
    let mut c = Command::new(&exe);
    c.args(["--ignored", "--exact", "plays_the_recorder", "--nocapture"])
        .arg(dir.path().join("t"))
        .arg(exe)
        .arg("limits");
    // SAFETY: setrlimit may be called between fork and exec.
    unsafe {
        c.pre_exec(move || {
            for (what, most) in limits {
                let l = libc::rlimit { rlim_cur: most, rlim_max: most };
                assert_eq!(libc::setrlimit(what, &l), 0);
            }
            Ok(())
        })
    };
    assert_eq!(c.status().unwrap().code(), Some(3));
    let t = read(&dir.path().join("t"));
    assert_eq!((t.notes, t.end.map(|e| e.complete)), (vec!["it runs".to_owned()], Some(true)));
}
