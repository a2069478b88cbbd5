//! Why the folder of a soak could not be made, read or written, or its process not be started.

use crate::versioned::Broken;
use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}: there is a soak already")]
    Exists(PathBuf),
    #[error("{0}: the folder is not empty, and its contents are not a soak of doorbell")]
    NotOurs(PathBuf),
    #[error("{0}: no soak: it has no asked.json")]
    NoSoak(PathBuf),
    #[error("{0}: the soak there is of another experiment, or has other periods")]
    Other(PathBuf),
    #[error("{0}: the soak there is complete")]
    Complete(PathBuf),
    #[error("{0}")]
    Unfit(String),
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error("{what}: {cause}")]
    Start { what: String, cause: io::Error },
    /// The measuring process could not write a period.
    #[error("{what}")]
    Unwritten { what: String, hint: String },
    #[error(transparent)]
    Lock(crate::Error),
    #[error(transparent)]
    Experiment(Box<experiment::Error>),
}

impl Error {
    /// What helps.
    pub fn hint(&self) -> String {
        use io::ErrorKind::{FileTooLarge, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        let text = match self {
            Error::Exists(_) => "--resume continues it, --force replaces it, -o DIR writes elsewhere",
            Error::NotOurs(_) => "give a new or an empty folder: -o DIR",
            Error::NoSoak(_) => "give the folder that `doorbell soak -o` wrote",
            Error::Other(_) => {
                "continue with the same experiment, --set and --every; --force replaces it, -o DIR writes elsewhere"
            }
            Error::Complete(_) => {
                "`doorbell soak --show DIR` prints it; --for with a longer time continues it; --force replaces it"
            }
            Error::Unfit(_) => "`doorbell soak --help` says what a soak takes",
            Error::Broken(Broken::Damaged { .. }) => {
                "if that file is removed, the other periods stay, and --resume continues"
            }
            Error::Broken(Broken::Version { .. }) => "read it with the doorbell that wrote it",
            Error::Broken(Broken::Read { .. }) => "give the folder of a soak, with all its files readable",
            Error::Start { .. } => "`doorbell doctor` says what works here",
            Error::Unwritten { hint, .. } => return hint.clone(),
            Error::Lock(e) => return e.hint(),
            Error::Experiment(_) => {
                "the file in a soak's folder must not be changed: begin a new soak with the changed file"
            }
            Error::Broken(Broken::Write { cause, .. }) => match cause.kind() {
                StorageFull | QuotaExceeded => {
                    "free some space; finished periods are kept, and --resume continues after them"
                }
                FileTooLarge => "raise the file size limit (`ulimit -f unlimited`); --resume continues",
                PermissionDenied | ReadOnlyFilesystem => "this user may not write there; -o DIR writes elsewhere",
                _ => "finished periods are kept, and --resume continues after them",
            },
        };
        text.into()
    }
}
