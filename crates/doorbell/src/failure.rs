//! How an error ends the program: its text, a hint and an exit status.

use std::fmt;
use std::process::ExitCode;
use tape::file::TapeError;

/// An error that knows what helps against it.
#[derive(Debug)]
pub struct Failure {
    what: String,
    hint: String,
    status: u8,
}

impl Failure {
    pub fn new(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { what: what.into(), hint: hint.into(), status: crate::ERROR }
    }

    /// Not possible on this machine: exit status 77.
    #[allow(dead_code)] // for `record`, which is wired in beside this file
    pub fn impossible(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { what: what.into(), hint: hint.into(), status: crate::IMPOSSIBLE }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

/// Writes `error: ...` and, where something helps, `hint: ...` to standard error.
pub fn print(e: &anyhow::Error) {
    eprintln!("error: {e:#}");
    if let Some(h) = hint(e) {
        eprintln!("hint: {h}");
    }
}

pub fn status(e: &anyhow::Error) -> ExitCode {
    ExitCode::from(e.chain().find_map(|c| c.downcast_ref::<Failure>()).map_or(crate::ERROR, |f| f.status))
}

fn hint(e: &anyhow::Error) -> Option<String> {
    e.chain().find_map(|c| {
        if let Some(f) = c.downcast_ref::<Failure>() {
            return Some(f.hint.clone());
        }
        let tape = match c.downcast_ref::<insight::InsightError>() {
            Some(insight::InsightError::Tape(t)) => Some(t),
            _ => c.downcast_ref::<TapeError>(),
        };
        match c.downcast_ref::<std::io::Error>() {
            Some(e) => Some(io_hint(e).into()),
            None => tape.and_then(tape_hint),
        }
    })
}

fn io_hint(e: &std::io::Error) -> &'static str {
    use std::io::ErrorKind::*;
    match e.kind() {
        NotFound => "the folder must exist",
        PermissionDenied => "this user may not read or write there",
        IsADirectory => "give a file, not a folder",
        StorageFull | QuotaExceeded => "free some space, or write elsewhere",
        _ => "look at the file and at the disk it lies on",
    }
}

/// What helps against an unreadable tape.
pub fn tape_hint(e: &TapeError) -> Option<String> {
    Some(
        match e {
            TapeError::Io { cause, .. } if cause.kind() == std::io::ErrorKind::NotFound => {
                "`doorbell record -o FILE -- PROGRAM` writes a recording"
            }
            TapeError::Io { cause, .. } if cause.kind() == std::io::ErrorKind::PermissionDenied => {
                "recordings are readable by their owner only (mode 0600)"
            }
            TapeError::Io { cause, .. } => io_hint(cause),
            TapeError::NotATape { .. } => "give a file that `doorbell record` wrote",
            TapeError::Version { .. } => "read it with the doorbell that recorded it, or record again",
            TapeError::Damaged { .. } => {
                "the file was cut or changed after it was written, or the recorder was killed; what is shown ends there"
            }
        }
        .into(),
    )
}
