//! Can this program be recorded at all? Found out before it is started: a preload needs a dynamic 64-bit program.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    #[error("{0}: no such program")]
    NotFound(PathBuf),
    #[error("{0}: not executable")]
    NotExecutable(PathBuf),
    #[error("{path}: {source}")]
    Io { path: PathBuf, source: io::Error },
    #[error("{0}: statically linked, so nothing can be preloaded into it")]
    Static(PathBuf),
    #[error("{0}: a 32-bit program; only x86-64 programs can be recorded")]
    ThirtyTwoBit(PathBuf),
    #[error("{0}: a program for another processor; only x86-64 programs can be recorded")]
    Foreign(PathBuf),
    #[error("{0}: neither an ELF program nor a script")]
    NotAProgram(PathBuf),
    #[error("{0}: set-user-ID, so the loader ignores preloads")]
    SetUid(PathBuf),
}

/// A program that can be recorded.
#[derive(Debug)]
pub struct Program {
    /// Where it was found.
    pub path: PathBuf,
}

impl Program {
    /// Finds `name` as the shell would and looks at what it is. A script is judged by its interpreter.
    pub fn find(name: &OsStr) -> Result<Program, ProgramError> {
        let path = if name.as_bytes().contains(&b'/') {
            PathBuf::from(name)
        } else {
            let dirs = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&dirs)
                .map(|d| d.join(name))
                .find(|p| is_executable(p))
                .ok_or_else(|| ProgramError::NotFound(name.into()))?
        };
        examine(&path, 0)?;
        Ok(Program { path })
    }
}

fn is_executable(p: &Path) -> bool {
    p.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

fn examine(path: &Path, depth: u32) -> Result<(), ProgramError> {
    let io_err = |source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => ProgramError::NotFound(path.into()),
        _ => ProgramError::Io { path: path.into(), source },
    };
    let meta = path.metadata().map_err(io_err)?;
    if !is_executable(path) {
        return Err(ProgramError::NotExecutable(path.into()));
    }
    // SAFETY: no arguments.
    let root = unsafe { libc::geteuid() } == 0;
    if meta.permissions().mode() & 0o4000 != 0 && !(root && meta.uid() == 0) {
        return Err(ProgramError::SetUid(path.into()));
    }
    let mut head = Vec::new();
    File::open(path).and_then(|f| f.take(64 << 10).read_to_end(&mut head)).map_err(io_err)?;
    if head.starts_with(b"#!") {
        let line = head.get(2..).unwrap_or(&[]).split(|&b| b == b'\n').next().unwrap_or(&[]);
        let word = line.split(|&b| b == b' ' || b == b'\t').find(|w| !w.is_empty()).unwrap_or(&[]);
        if depth > 4 || word.is_empty() {
            return Err(ProgramError::NotAProgram(path.into()));
        }
        return examine(Path::new(OsStr::from_bytes(word)), depth + 1);
    }
    elf(path, &head)
}

/// ELF header and program headers (System V ABI, chapter 4 and 5).
fn elf(path: &Path, b: &[u8]) -> Result<(), ProgramError> {
    let none = || ProgramError::NotAProgram(path.into());
    if !b.starts_with(b"\x7fELF") {
        return Err(none());
    }
    // EI_CLASS: 1 is 32-bit.
    if b.get(4) == Some(&1) {
        return Err(ProgramError::ThirtyTwoBit(path.into()));
    }
    let u16_at = |i: usize| b.get(i..i + 2).map(|s| u16::from_le_bytes([s[0], s[1]]));
    // e_machine: 62 is EM_X86_64.
    if u16_at(18) != Some(62) {
        return Err(ProgramError::Foreign(path.into()));
    }
    let off = b.get(32..40).and_then(|s| s.try_into().ok()).map(u64::from_le_bytes).ok_or_else(none)? as usize;
    let (size, n) = (u16_at(54).ok_or_else(none)? as usize, u16_at(56).ok_or_else(none)? as usize);
    for i in 0..n {
        let at = off.saturating_add(i * size);
        // p_type 3 is PT_INTERP: a dynamic loader is asked for.
        if b.get(at..at.saturating_add(4)) == Some(&[3, 0, 0, 0]) {
            return Ok(());
        }
    }
    Err(ProgramError::Static(path.into()))
}
