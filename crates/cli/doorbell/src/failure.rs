//! How an error ends the program: its text, a hint and an exit status.

#[cfg(target_arch = "x86_64")]
mod recording;
#[cfg(not(target_arch = "x86_64"))]
use crate::refused::recording;

use clap::error::{ContextKind, ContextValue};
use decode::InsightError;
use std::ffi::OsString;
use std::fmt;
use std::io;
use std::process::ExitCode;
use tape::file::TapeError;
use terminal::foreign;
use terminal::table::Style;

/// An error with a hint.
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
    pub fn impossible(what: impl Into<String>, hint: impl Into<String>) -> Failure {
        Failure { what: what.into(), hint: hint.into(), status: crate::IMPOSSIBLE }
    }

    #[cfg(test)]
    pub fn hint(&self) -> &str {
        &self.hint
    }

    pub fn is_impossible(&self) -> bool {
        self.status == crate::IMPOSSIBLE
    }

    #[cfg(test)]
    pub fn status(&self) -> u8 {
        self.status
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Failure {}

/// Writes `error: ...` and, if there is a hint, `hint: ...` to standard error.
pub fn print(e: &anyhow::Error) {
    let style = Style::of_stderr();
    say!("{} {}", style.bad("error:"), foreign::lines(&format!("{e:#}")));
    if let Some(h) = hint(e) {
        say!("{} {}", style.good("hint:"), foreign::lines(&h.to_string()));
    }
}

pub fn status(e: &anyhow::Error) -> ExitCode {
    ExitCode::from(e.chain().find_map(|c| c.downcast_ref::<Failure>()).map_or(crate::ERROR, |f| f.status))
}

/// Statuses of `record` and `run` that are not the program's, the same as those of `env`, `timeout` and `nohup`.
pub mod wrapper {
    /// doorbell failed.
    pub const FAILED: u8 = 125;
    /// The program was found but cannot be executed, or no library can be loaded into it.
    pub const CANNOT_EXECUTE: u8 = 126;
    /// The program was not found.
    pub const NOT_FOUND: u8 = 127;
}

pub fn status_of_wrapper(e: &anyhow::Error) -> ExitCode {
    ExitCode::from(e.chain().find_map(recording::status).unwrap_or(wrapper::FAILED))
}

/// Prints the hint for arguments that cannot be parsed: the subcommand is the first word that is no option.
pub fn of_wrong_arguments(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let mut words = arguments.skip(1);
    while let Some(word) = words.next() {
        match word.to_str() {
            Some("--color") => drop(words.next()),
            Some(option) if option.starts_with('-') => {}
            Some("record" | "run") => return ExitCode::from(wrapper::FAILED),
            _ => break,
        }
    }
    ExitCode::from(crate::ERROR)
}

/// An argument error with options as they were typed: if `--for`, an alias of `--duration`, was typed, the error names
/// `--for`.
pub fn as_typed(mut e: clap::Error, command: &clap::Command, typed: impl Iterator<Item = OsString>) -> clap::Error {
    let typed: Vec<OsString> = typed.collect();
    for (long, alias) in aliases(command).iter().filter(|(_, alias)| is_typed(alias, &typed)) {
        for kind in [ContextKind::InvalidArg, ContextKind::PriorArg] {
            let named = match e.get(kind) {
                Some(ContextValue::String(text)) => {
                    text.strip_prefix(&format!("--{long}")).map(|rest| format!("--{alias}{rest}"))
                }
                _ => None,
            };
            if let Some(named) = named {
                e.insert(kind, ContextValue::String(named));
            }
        }
    }
    e
}

/// The name of an option, or its alias if that was typed.
pub fn typed(long: &'static str, alias: &'static str) -> &'static str {
    let typed: Vec<OsString> = std::env::args_os().collect();
    if is_typed(alias.trim_start_matches('-'), &typed) { alias } else { long }
}

fn is_typed(alias: &str, typed: &[OsString]) -> bool {
    let words = typed.iter().filter_map(|word| word.to_str()?.strip_prefix("--")?.strip_prefix(alias));
    words.into_iter().any(|rest| rest.is_empty() || rest.starts_with('='))
}

/// Options with an alias: both names.
fn aliases(command: &clap::Command) -> Vec<(String, String)> {
    let own = command.get_arguments().flat_map(|arg| {
        let long = arg.get_long().unwrap_or_default().to_owned();
        arg.get_all_aliases().unwrap_or_default().into_iter().map(move |alias| (long.clone(), alias.to_owned()))
    });
    own.chain(command.get_subcommands().flat_map(aliases)).collect()
}

fn hint(e: &anyhow::Error) -> Option<String> {
    e.chain().find_map(|c| {
        if let Some(f) = c.downcast_ref::<Failure>() {
            return Some(f.hint.clone());
        }
        if let Some(e) = c.downcast_ref::<comparison::Error>() {
            return e.hint();
        }
        if let Some(e) = c.downcast_ref::<run_folder::Error>() {
            return Some(e.hint());
        }
        if let Some(e) = c.downcast_ref::<output::Error>() {
            return Some(e.hint().into());
        }
        if let Some(hint) = recording::hint(c) {
            return Some(hint.into());
        }
        let tape = match c.downcast_ref::<InsightError>() {
            Some(InsightError::NotRecorded { what: crate::show::PYTHON, .. }) => {
                return Some("record it again: `doorbell record --python python3 train.py`".into());
            }
            Some(InsightError::NotRecorded { .. }) => {
                let what = "locks, CUDA calls and ranges of NVTX";
                return Some(format!("record it again: `doorbell record --locks PROGRAM` records {what}"));
            }
            Some(InsightError::WaitsOnly { .. }) => {
                return Some("record it again: `doorbell record --locks PROGRAM` records every operation".into());
            }
            Some(InsightError::Tape(t)) => Some(t),
            _ => c.downcast_ref::<TapeError>(),
        };
        if let Some(export::ExportError::Write(e)) = c.downcast_ref() {
            return Some(io_hint(e).into());
        }
        match c.downcast_ref::<io::Error>() {
            Some(e) => Some(io_hint(e).into()),
            None => tape.and_then(tape_hint),
        }
    })
}

fn io_hint(e: &io::Error) -> &'static str {
    use io::ErrorKind::*;
    match e.kind() {
        NotFound => "the folder must exist",
        PermissionDenied => "this user may not read or write there",
        IsADirectory => "give a file, not a folder",
        StorageFull | QuotaExceeded => "free some space, or write elsewhere",
        _ => "look at the file and at the disk it lies on",
    }
}

/// The hint for an unreadable tape.
pub fn tape_hint(e: &TapeError) -> Option<String> {
    Some(
        match e {
            TapeError::Io { cause, .. } if cause.kind() == io::ErrorKind::NotFound => {
                "`doorbell record -o FILE PROGRAM` writes a recording"
            }
            TapeError::Io { cause, .. } if cause.kind() == io::ErrorKind::PermissionDenied => {
                "recordings are readable by their owner only (mode 0600)"
            }
            TapeError::Io { cause, .. } => io_hint(cause),
            TapeError::Exists(_) => "--force replaces it; -o FILE writes another one",
            TapeError::Link(_) => "give the file that it leads to, or --force to replace the link",
            TapeError::NotATape { .. } => "give a file that `doorbell record` wrote",
            TapeError::Version { .. } => "read it with the doorbell that recorded it, or record again",
            TapeError::Damaged { .. } => {
                "the file was cut or changed after it was written, or the recorder was killed; what is shown ends there"
            }
            TapeError::Events { .. } => "the file was changed after it was written, or the disk failed",
        }
        .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_option_that_was_typed() {
        for (line, named) in [
            ("doorbell soak mixed --for 5", "--for <TIME>"),
            ("doorbell soak mixed --for=5", "--for <TIME>"),
            ("doorbell soak mixed --duration 5", "--duration <TIME>"),
            ("doorbell show a.doorbell --top x", "--top <N>"),
        ] {
            let words = || line.split(' ').map(OsString::from);
            let e = crate::command_line().try_get_matches_from(words()).unwrap_err();
            let text = as_typed(e, &crate::command_line(), words()).to_string();
            assert!(text.contains(named), "{line}: {text}");
        }
    }

    #[test]
    fn wrong_arguments_of_record_and_run_are_no_status_of_a_program() {
        let of = |line: &str| format!("{:?}", of_wrong_arguments(line.split(' ').map(OsString::from)));
        let is = |n: u8| format!("{:?}", ExitCode::from(n));
        assert_eq!(of("doorbell record --nonsense"), is(125));
        assert_eq!(of("doorbell --color never run"), is(125));
        assert_eq!(of("doorbell --color=never -V run"), is(125));
        assert_eq!(of("doorbell show run"), is(2));
        assert_eq!(of("doorbell"), is(2));
    }
}
