//! Can a program be recorded at all? This is found out before it is started: a preload needs a dynamic 64-bit program.

use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Why a program cannot be recorded. As with [`tape::file::TapeError`], each text is a complete message.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("{0}: no such program")]
    NotFound(PathBuf),
    #[error("{0}: a directory")]
    Directory(PathBuf),
    #[error("{0}: not executable")]
    NotExecutable(PathBuf),
    #[error("{path}: {cause}")]
    Io { path: PathBuf, cause: io::Error },
    #[error("{0}: linked against musl, into which a library for glibc cannot be preloaded")]
    Musl(PathBuf),
    #[error("{0}: a 32-bit program; only x86-64 programs can be recorded")]
    ThirtyTwoBit(PathBuf),
    #[error("{0}: a program for another processor; only x86-64 programs can be recorded")]
    Foreign(PathBuf),
    #[error("{0}: neither an ELF program nor a script")]
    NotAProgram(PathBuf),
    #[error("{0}: set-user-ID, set-group-ID or with capabilities of its own, so the loader ignores preloads")]
    SetUid(PathBuf),
}

/// A program that can be recorded.
#[derive(Debug)]
pub struct Program {
    /// The file that is started: the program as found; for a script that uses `env` to find its interpreter, the
    /// interpreter (otherwise `env` would be recorded, and the program that it executes would not).
    pub path: PathBuf,
    /// Its argument 0, if that differs from the name that was given.
    pub arg0: Option<OsString>,
    /// Arguments before those of the command line.
    pub first_args: Vec<OsString>,
    /// It takes no preload, but the processes that it starts are followed (busybox as a shell).
    pub is_static: bool,
}

impl Program {
    /// Finds `name` as the shell would and examines it. A script is judged by its interpreter.
    pub fn find(name: &OsStr) -> Result<Program, ProgramError> {
        examine(&named(name)?, 0)
    }
}

/// The path of the file with this name: from the PATH, unless the name is a path.
fn named(name: &OsStr) -> Result<PathBuf, ProgramError> {
    if name.as_bytes().contains(&b'/') {
        return Ok(name.into());
    }
    in_path(name).ok_or_else(|| ProgramError::NotFound(name.into()))
}

fn in_path(name: &OsStr) -> Option<PathBuf> {
    let dirs = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&dirs).map(|d| d.join(name)).find(|p| is_executable(p))
}

/// A file that this process may execute.
fn is_executable(p: &Path) -> bool {
    let Ok(name) = CString::new(p.as_os_str().as_bytes()) else { return false };
    // SAFETY: a NUL-terminated path.
    let may = unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), libc::X_OK, libc::AT_EACCESS) } == 0;
    may && p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn examine(path: &Path, depth: u32) -> Result<Program, ProgramError> {
    let io_err = |cause: io::Error| match cause.kind() {
        io::ErrorKind::NotFound => ProgramError::NotFound(path.into()),
        _ => ProgramError::Io { path: path.into(), cause },
    };
    let meta = path.metadata().map_err(io_err)?;
    if meta.is_dir() {
        return Err(ProgramError::Directory(path.into()));
    }
    if !is_executable(path) {
        return Err(ProgramError::NotExecutable(path.into()));
    }
    let file = File::open(path).map_err(io_err)?;
    let mut head = Vec::new();
    (&file).take(4096).read_to_end(&mut head).map_err(io_err)?;
    let plain = |is_static| Program { path: path.into(), arg0: None, first_args: Vec::new(), is_static };
    if !head.starts_with(b"#!") {
        if raises_privileges(path, &meta) {
            return Err(ProgramError::SetUid(path.into()));
        }
        // As shells and execvp do: text without a first line for the kernel is a script of the shell.
        if depth == 0 && is_text(&head) {
            let shell = examine(Path::new("/bin/sh"), depth + 1)?;
            return Ok(Program { arg0: Some("sh".into()), first_args: vec![path.into()], ..shell });
        }
        return elf(path, &file, &head).map(plain);
    }
    // Linux ignores a script's own set-user-ID bit.
    let line = head.get(2..).unwrap_or(&[]).split(|&b| b == b'\n').next().unwrap_or(&[]).trim_ascii();
    let (word, rest) = line.split_at(line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len()));
    if depth > 4 || word.is_empty() {
        return Err(ProgramError::NotAProgram(path.into()));
    }
    let interpreter = Path::new(OsStr::from_bytes(word));
    let asked = OsStr::from_bytes(rest.trim_ascii());
    let name_only = !asked.is_empty()
        && !asked.as_bytes().starts_with(b"-")
        && !asked.as_bytes().iter().any(|&b| b.is_ascii_whitespace() || b == b'=');
    if depth == 0 && interpreter.file_name() == Some(OsStr::new("env")) && name_only {
        let found = examine(&named(asked)?, depth + 1)?;
        return Ok(Program { arg0: Some(asked.into()), first_args: vec![path.into()], ..found });
    }
    Ok(plain(examine(interpreter, depth + 1)?.is_static))
}

fn is_text(head: &[u8]) -> bool {
    let line = head.split(|&b| b == b'\n').next().unwrap_or(&[]);
    !line.is_empty() && !line.iter().any(|b| b.is_ascii_control() && !b.is_ascii_whitespace())
}

/// Executing it would change the user or the rights. Then the loader takes no preload from a path.
fn raises_privileges(path: &Path, meta: &std::fs::Metadata) -> bool {
    // SAFETY: no arguments.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let mode = meta.permissions().mode();
    let capabilities = || {
        let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return false };
        let attribute = c"security.capability".as_ptr();
        // SAFETY: NUL-terminated names. The call returns only the size.
        unsafe { libc::getxattr(name.as_ptr(), attribute, std::ptr::null_mut(), 0) > 0 }
    };
    (mode & 0o4000 != 0 && meta.uid() != user)
        || (mode & 0o2010 == 0o2010 && meta.gid() != group)
        || (user != 0 && capabilities())
}

/// ELF header and program headers (System V ABI, chapter 4 and 5). True if it is statically linked.
fn elf(path: &Path, file: &File, b: &[u8]) -> Result<bool, ProgramError> {
    let none = || ProgramError::NotAProgram(path.into());
    if !b.starts_with(b"\x7fELF") {
        return Err(none());
    }
    // EI_CLASS: 1 is 32-bit.
    if b.get(4) == Some(&1) {
        return Err(ProgramError::ThirtyTwoBit(path.into()));
    }
    let u16_at = |i: usize| b.get(i..i + 2).map(|s| u16::from_le_bytes([s[0], s[1]]));
    let u64_at = |b: &[u8], i: usize| b.get(i..i + 8).and_then(|s| s.try_into().ok()).map(u64::from_le_bytes);
    // e_machine: 62 is EM_X86_64.
    if u16_at(18) != Some(62) {
        return Err(ProgramError::Foreign(path.into()));
    }
    let off = u64_at(b, 32).ok_or_else(none)?;
    let (size, n) = (u16_at(54).ok_or_else(none)?, u16_at(56).ok_or_else(none)?);
    // They may be anywhere in the file: tools that change the interpreter move them to its end.
    let mut header = [0; 56];
    for i in 0..u64::from(n) {
        let at = off.saturating_add(i * u64::from(size));
        if file.read_exact_at(&mut header, at).is_err() {
            return Err(none());
        }
        // p_type 3 is PT_INTERP: the program needs a dynamic loader. Its path is at p_offset, p_filesz long.
        if header[..4] != [3, 0, 0, 0] {
            continue;
        }
        let (at, len) = (u64_at(&header, 8).unwrap_or(0), u64_at(&header, 32).unwrap_or(0));
        let mut loader = vec![0; len.min(4096) as usize];
        let read = file.read_at(&mut loader, at).unwrap_or(0);
        let musl = loader.get(..read).unwrap_or(&[]).windows(7).any(|w| w == b"ld-musl");
        return if musl { Err(ProgramError::Musl(path.into())) } else { Ok(false) };
    }
    // A file without a segment cannot run.
    if n == 0 { Err(none()) } else { Ok(!is_loader(path)) }
}

/// The dynamic loader itself, which needs none. The program that it runs takes a preload.
fn is_loader(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.as_bytes().starts_with(b"ld-linux"))
}
