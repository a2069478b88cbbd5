//! A program that cannot be recorded is reported before a process is started or a file is written.

use recorder::{Options, Program, ProgramError, RecordError, Tap, record};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// An ELF header and, if a loader is named, a PT_INTERP program header `gap` bytes after it.
fn elf(class: u8, machine: u16, loader: Option<&str>, gap: usize) -> Vec<u8> {
    let mut b = vec![0; 64 + gap];
    b[..7].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, 1, 1]);
    b[16..18].copy_from_slice(&2u16.to_le_bytes());
    b[18..20].copy_from_slice(&machine.to_le_bytes());
    b[32..40].copy_from_slice(&(64 + gap as u64).to_le_bytes());
    b[54..56].copy_from_slice(&56u16.to_le_bytes());
    b[56..58].copy_from_slice(&2u16.to_le_bytes());
    let header = |kind: u32, offset: u64, len: u64| {
        let mut h = [0; 56];
        h[..4].copy_from_slice(&kind.to_le_bytes());
        h[8..16].copy_from_slice(&offset.to_le_bytes());
        h[32..40].copy_from_slice(&len.to_le_bytes());
        h
    };
    let end = (64 + gap + 112) as u64;
    b.extend(header(1, 0, 64));
    let loader = loader.unwrap_or_default();
    b.extend(header(if loader.is_empty() { 2 } else { 3 }, end, loader.len() as u64));
    b.extend(loader.as_bytes());
    b
}

const GLIBC: &str = "/lib64/ld-linux-x86-64.so.2\0";

struct Case {
    dir: TempDir,
}

impl Case {
    fn new() -> Case {
        Case { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        path
    }

    fn find(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<Program, ProgramError> {
        Program::find(self.file(name, bytes, 0o755).as_os_str())
    }
}

fn options(command: Vec<OsString>, out: &Path) -> Options<'static> {
    Options {
        command,
        out: out.into(),
        tap: Tap::Auto,
        wait_on_full: false,
        locks: recorder::Locks::Off,
        switches: false,
        calls: false,
        python: false,
        gpu_times: false,
        nvtx: false,
        fixes: 0,
        compiler: 0,
        ring_bytes: 1 << 20,
        memory: Some(256 << 20),
        force: false,
        agent_dir: None,
        wait: false,
        no_data: false,
        no_args: false,
        limit: None,
        rotation: None,
        last: None,
        tell: None,
        capture: recorder::Capture::Always,
        agent: b"none",
        soft: None,
        version: "test",
    }
}

#[test]
fn each_kind_of_file_is_told_apart() {
    let c = Case::new();
    assert!(matches!(Program::find("/no/such/program".as_ref()), Err(ProgramError::NotFound(_))));
    assert!(matches!(Program::find("no-such-program-in-the-path".as_ref()), Err(ProgramError::NotFound(_))));
    assert!(matches!(Program::find(c.dir.path().as_os_str()), Err(ProgramError::Directory(_))));
    let data = c.file("data", elf(2, 62, Some(GLIBC), 0), 0o644);
    assert!(matches!(Program::find(data.as_os_str()), Err(ProgramError::NotExecutable(_))));
    assert!(c.find("good", elf(2, 62, Some(GLIBC), 0)).is_ok());
    assert!(c.find("headers at its end", elf(2, 62, Some(GLIBC), 300_000)).is_ok());
    assert!(
        c.find("static", elf(2, 62, None, 0)).unwrap().is_static
            && !c.find("good", elf(2, 62, Some(GLIBC), 0)).unwrap().is_static
    );
    assert!(matches!(c.find("32", elf(1, 3, Some(GLIBC), 0)), Err(ProgramError::ThirtyTwoBit(_))));
    assert!(matches!(c.find("arm", elf(2, 183, Some(GLIBC), 0)), Err(ProgramError::Foreign(_))));
    let musl = elf(2, 62, Some("/lib/ld-musl-x86_64.so.1\0"), 0);
    assert!(matches!(c.find("musl", musl), Err(ProgramError::Musl(_))));
    let script = c.find("text", "echo hello").unwrap();
    assert_eq!((script.path, script.first_args), ("/bin/sh".into(), vec![c.path("text").into()]));
    assert!(matches!(c.find("empty", ""), Err(ProgramError::NotAProgram(_))));
    for cut in 0..64 {
        assert!(c.find("cut", &elf(2, 62, Some(GLIBC), 0)[..cut]).is_err(), "cut at {cut}");
    }
}

#[test]
fn a_script_is_what_its_interpreter_is() {
    let c = Case::new();
    let fixed = c.file("static", elf(2, 62, None, 0), 0o755);
    let good = c.file("good", elf(2, 62, Some(GLIBC), 0), 0o755);
    let script = |interpreter: &Path| format!("#! {} -x\nhello\n", interpreter.display());
    assert!(c.find("a", script(&fixed)).unwrap().is_static);
    let foreign = c.file("foreign", elf(2, 183, Some(GLIBC), 0), 0o755);
    assert!(matches!(c.find("f", script(&foreign)), Err(ProgramError::Foreign(p)) if p == foreign));
    let found = c.find("b", script(&good)).unwrap();
    assert_eq!((found.path, found.first_args.len()), (c.path("b"), 0));
    assert!(matches!(c.find("c", "#!/no/such/interpreter\n"), Err(ProgramError::NotFound(_))));
    assert!(matches!(c.find("d", "#!\n"), Err(ProgramError::NotAProgram(_))));
    // A script that is its own interpreter never ends.
    let itself = c.path("e");
    assert!(matches!(c.find("e", script(&itself)), Err(ProgramError::NotAProgram(_))));
}

#[test]
fn a_script_that_asks_env_is_started_by_its_interpreter() {
    let c = Case::new();
    let found = c.find("s", "#!/usr/bin/env sh\nexit 6\n").unwrap();
    assert!(found.path.ends_with("sh"));
    assert_eq!((found.arg0, found.first_args), (Some("sh".into()), vec![c.path("s").into_os_string()]));
    assert!(matches!(c.find("t", "#!/usr/bin/env no-such-interpreter\n"), Err(ProgramError::NotFound(_))));
    // Options that only env understands are left to it.
    assert_eq!(c.find("u", "#!/usr/bin/env -S sh -e\n").unwrap().path, c.path("u"));

    let text = format!(
        "#!/usr/bin/env sh\n[ \"$1\" = 'an argument' ] && [ \"$0\" = '{}' ] && exit 6\n",
        c.path("v").display()
    );
    let script = c.file("v", text, 0o755);
    let o = record(&options(vec![script.into(), "an argument".into()], &c.path("tape"))).unwrap();
    assert_eq!(o.status.code(), Some(6));
    assert!(!o.end.agent && o.end.trouble.iter().any(|t| t.contains("never reported in")));
}

/// A program that leaves a mark.
fn marking(c: &Case) -> Vec<OsString> {
    vec!["/bin/sh".into(), "-c".into(), format!(": > {}", c.path("mark").display()).into()]
}

#[test]
fn without_a_program_there_is_no_tape() {
    let c = Case::new();
    let foreign = c.file("foreign", elf(2, 183, Some(GLIBC), 0), 0o755);
    for command in [vec![], vec!["/no/such/program".into()], vec![foreign.into_os_string()]] {
        assert!(matches!(record(&options(command, &c.path("t"))), Err(RecordError::Program(_))));
        assert!(!c.path("t").exists());
    }
    // An older tape stays, too.
    let old = c.file("old", "an old tape", 0o600);
    assert!(record(&options(vec!["/no/such/program".into()], &old)).is_err());
    assert_eq!(std::fs::read(&old).unwrap(), b"an old tape");
}

#[test]
fn without_a_tape_the_program_is_not_started() {
    let c = Case::new();
    for out in [c.path("no/such/directory/t"), c.dir.path().into(), "/dev/full".into()] {
        let e = record(&options(marking(&c), &out)).unwrap_err();
        assert!(matches!(e, RecordError::Tape(_)), "{e}");
        assert!(e.to_string().contains(out.to_str().unwrap()));
        let chain = std::iter::successors(Some(&e as &dyn std::error::Error), |e| e.source());
        let said: Vec<String> = chain.map(ToString::to_string).collect();
        assert_eq!(said.join(": ").matches("(os error ").count(), 1, "{said:?}");
        assert!(!c.path("mark").exists());
    }
    assert!(Path::new("/dev/full").metadata().unwrap().file_type().is_char_device());
    assert!(record(&options(marking(&c), &c.path("t"))).is_ok());
    assert!(c.path("mark").exists());
}

#[test]
fn the_tape_does_not_replace_the_program() {
    let c = Case::new();
    let script = c.file("s", "#!/bin/sh\nexit 0\n", 0o755);
    let e = record(&options(vec![script.clone().into()], &script)).unwrap_err();
    assert!(matches!(e, RecordError::IsProgram(_)), "{e}");
    assert_eq!(std::fs::read(&script).unwrap(), b"#!/bin/sh\nexit 0\n");
}

#[test]
fn a_program_that_cannot_be_started_leaves_nothing_behind_and_takes_nothing_away() {
    let c = Case::new();
    // Longer than the maximum of one argument (MAX_ARG_STRLEN).
    let command = || vec!["/bin/sh".into(), OsString::from("x".repeat(1 << 20))];
    assert!(matches!(record(&options(command(), &c.path("t"))), Err(RecordError::Start { .. })));
    assert!(!c.path("t").exists());
    let fifo = c.path("fifo");
    let name = std::ffi::CString::new(fifo.as_os_str().as_bytes()).unwrap();
    // SAFETY: a NUL-terminated path.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || std::fs::read(fifo).unwrap().len()
    });
    assert!(matches!(record(&options(command(), &fifo)), Err(RecordError::Start { .. })));
    assert!(reader.join().unwrap() > 16);
    assert!(fifo.symlink_metadata().unwrap().file_type().is_fifo());
}

#[test]
fn a_tape_on_a_pipe_holds_everything() {
    let c = Case::new();
    let fifo = c.path("fifo");
    let name = std::ffi::CString::new(fifo.as_os_str().as_bytes()).unwrap();
    // SAFETY: a NUL-terminated path.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    let (reader, copy) = (fifo.clone(), c.path("copy"));
    let reader = std::thread::spawn(move || std::fs::write(copy, std::fs::read(reader).unwrap()).unwrap());
    let o = record(&options(vec!["/bin/sh".into(), "-c".into(), "exit 2".into()], &fifo)).unwrap();
    reader.join().unwrap();
    assert_eq!(o.status.code(), Some(2));
    let mut tape = tape::file::Reader::open(&c.path("copy")).unwrap();
    let mut end = None;
    while let Some(item) = tape.item().unwrap() {
        if let tape::file::Item::End(e) = item {
            end = Some(*e);
        }
    }
    assert_eq!(end, Some(o.end));
}
