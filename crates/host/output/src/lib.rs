//! Names of result files, and how these files are created.
//!
//! Invariant: without `force` no existing file is changed, two processes never get the same file, and no symbolic link is followed to a file. Pipes
//! and devices are written in place: they hold no contents that could be lost.

mod claim;
mod folder;
mod name;
mod rank;
mod whole;

pub use claim::{Claim, claim, claim_default, claim_next, claim_part};
pub use folder::whole_folder;
pub use name::Pattern;
pub use rank::Rank;
pub use whole::{WholeFile, is_part, remove_parts, replace};

use std::io;
use std::path::PathBuf;

/// Why the file could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{name}: {what}")]
    Pattern { name: String, what: String },
    #[error("{0}: the file exists")]
    Exists(PathBuf),
    #[error("{0}: a symbolic link, which is not followed")]
    Link(PathBuf),
    #[error("{0}: a directory")]
    Directory(PathBuf),
    #[error("{0}: is no folder")]
    NoFolder(PathBuf),
    #[error("{0}: the folder has other files, which are kept")]
    NotOurs(PathBuf),
    #[error("{0}: every number up to {last} is taken", last = claim::MOST)]
    NoNumberFree(PathBuf),
    #[error("{path}: cannot be created: {cause}")]
    Create { path: PathBuf, cause: io::Error },
    #[error("{path}: cannot be written: {cause}")]
    Write { path: PathBuf, cause: io::Error },
}

/// True if the machine lacks what a file, memory or a process needs: space, a file system to write to, memory, descriptors or processes.
pub fn is_lack(cause: &io::Error) -> bool {
    use io::ErrorKind::{OutOfMemory, QuotaExceeded, ReadOnlyFilesystem, StorageFull, WouldBlock};
    // ENFILE, EMFILE
    matches!(cause.kind(), OutOfMemory | QuotaExceeded | ReadOnlyFilesystem | StorageFull | WouldBlock)
        || matches!(cause.raw_os_error(), Some(libc::ENFILE | libc::EMFILE))
}

impl Error {
    /// True if the file could be written if the machine had more of something, or the name were free.
    pub fn is_lack(&self) -> bool {
        match self {
            Error::NoNumberFree(_) => true,
            Error::Create { cause, .. } | Error::Write { cause, .. } => is_lack(cause),
            _ => false,
        }
    }

    /// What to do.
    pub fn hint(&self) -> &'static str {
        use io::ErrorKind::{NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull};
        match self {
            Error::Pattern { .. } => {
                "%h is the host, %p the process id, %n the first free number, %q{VAR} an environment variable, %% a percent sign"
            }
            Error::Exists(_) => "--force replaces it; %n in the name takes the first free number",
            Error::Link(_) => "give the file that it points to, or replace the link itself with --force",
            Error::Directory(_) => "give a file in it: -o FILE",
            Error::NoFolder(_) => "give a folder that is new: -o FOLDER",
            Error::NotOurs(_) => "give a folder that is new; --force replaces only what this command wrote",
            Error::NoNumberFree(_) => "remove old files, or choose another name",
            Error::Create { cause, .. } | Error::Write { cause, .. } => match cause.kind() {
                NotFound => "the directory must exist; -o FILE writes elsewhere",
                PermissionDenied | ReadOnlyFilesystem => "this user may not write there; -o FILE writes elsewhere",
                StorageFull | QuotaExceeded => "free some space, or write elsewhere with -o FILE",
                io::ErrorKind::FileTooLarge => "raise the file size limit (`ulimit -f unlimited`)",
                _ => "-o FILE writes elsewhere",
            },
        }
    }
}
