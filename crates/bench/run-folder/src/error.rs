//! Why a folder could not be made, read or written, or its process not be started.

use std::io;
use std::path::{Path, PathBuf};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}: there is a run already")]
    Exists(PathBuf),
    #[error("{0}: the folder is not empty, and its contents are not a run of doorbell")]
    NotOurs(PathBuf),
    #[error("{0}: no run: it has no {1}")]
    NoRun(PathBuf, &'static str),
    #[error("{0}: the soak there is complete")]
    Complete(PathBuf),
    #[error("{path}: {what} writes to it")]
    Busy { path: PathBuf, what: String },
    #[error("{path}: the run there is of another experiment: {what}")]
    OtherExperiment { path: PathBuf, what: String },
    #[error(transparent)]
    Experiment(Box<experiment::Error>),
    #[error("{path}: {what}")]
    Damaged { path: PathBuf, what: String },
    /// JSON with a complete end, but not written like this by doorbell.
    #[error("{path}: {what}")]
    Invalid { path: PathBuf, what: String },
    #[error("{path}: its schema is {found:?}, and this doorbell reads {reads:?}")]
    Version { path: PathBuf, found: String, reads: &'static str, by: Option<String> },
    #[error("{path}: cannot be read: {cause}")]
    Read { path: PathBuf, cause: io::Error },
    #[error("{path}: cannot be written: {cause}")]
    Write { path: PathBuf, cause: io::Error },
    /// Of a measuring process.
    #[error("{what}: {cause}")]
    Start { what: String, cause: io::Error },
    /// A measuring process could not write what it measured.
    #[error("{what}")]
    Unwritten { what: String, hint: String },
}

impl Error {
    /// What to do.
    pub fn hint(&self) -> String {
        use io::ErrorKind::{FileTooLarge, NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let text = match self {
            Error::Exists(_) => "--resume continues it, --force replaces it, -o DIR writes elsewhere",
            Error::NotOurs(_) => "give a new or an empty folder: -o DIR",
            Error::NoRun(..) => "give the folder that `doorbell bench -o` (or `doorbell soak -o`) wrote",
            Error::Complete(_) => {
                "`doorbell soak --show DIR` prints it; --for with a longer time continues it; --force replaces it"
            }
            Error::Busy { .. } => "wait for its end, or write elsewhere with -o DIR",
            Error::OtherExperiment { .. } => {
                "--resume without an experiment goes on with the folder's own; --force replaces the run"
            }
            Error::Experiment(_) => {
                "the file in a run's folder must not be changed: begin a new run with the changed file"
            }
            Error::Damaged { path, .. } if path.ends_with(crate::folder::RUN) => {
                "`doorbell bench -o DIR --resume` sums it up again from its parts"
            }
            Error::Invalid { .. } => "doorbell does not write this: undo the changes, or restore the file from a copy",
            Error::Damaged { .. } => {
                "if its part is removed (parts/ and samples/, or periods/), --resume measures it again"
            }
            Error::Version { by: Some(by), .. } => return format!("doorbell {by} wrote it: read it with that one"),
            Error::Version { .. } => "read it with the doorbell that wrote it",
            Error::Read { .. } => "give the folder of a run, with all its files readable",
            Error::Start { .. } => "`doorbell doctor` says what works here",
            Error::Unwritten { hint, .. } => return hint.clone(),
            Error::Write { cause, .. } => match cause.kind() {
                StorageFull | QuotaExceeded => {
                    "free some space; finished parts are kept, and --resume continues after them"
                }
                FileTooLarge => {
                    "raise the file size limit (`ulimit -f unlimited`); --resume continues after the finished parts"
                }
                PermissionDenied | ReadOnlyFilesystem => "this user may not write there; -o DIR writes elsewhere",
                NotFound => "its directory must exist; -o DIR writes elsewhere",
                _ => "finished parts are kept, and --resume continues after them",
            },
        };
        text.into()
    }

    pub fn read(path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |cause| Error::Read { path: path.into(), cause }
    }

    pub fn write(path: &Path) -> impl FnOnce(io::Error) -> Error {
        move |cause| Error::Write { path: path.into(), cause }
    }

    pub(crate) fn start(what: &str) -> impl FnOnce(io::Error) -> Error {
        move |cause| Error::Start { what: what.into(), cause }
    }

    /// From a text that is no valid document.
    pub(crate) fn of_json(path: &Path, text: &[u8], error: &serde_json::Error) -> Error {
        let (path, what) = (path.to_owned(), crate::json::wrong(text, error));
        if error.is_eof() { Error::Damaged { path, what } } else { Error::Invalid { path, what } }
    }

    pub(crate) fn damaged(path: &Path, what: impl ToString) -> Error {
        Error::Damaged { path: path.into(), what: what.to_string() }
    }
}
