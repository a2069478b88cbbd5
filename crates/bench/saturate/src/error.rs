//! What can go wrong, by name.

use run_folder::versioned::Broken;
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[cfg(target_arch = "x86_64")]
    #[error(transparent)]
    Gpu(#[from] gpu::Error),
    /// It does not exist here, and the reason.
    #[error("{0}")]
    Unavailable(String),
    #[error("queue {queue}: {under_way} of {depth} I/Os in flight, and none completed for {after:?}")]
    Late { queue: usize, under_way: usize, depth: usize, after: Duration },
    #[error("queue {queue}: slot {slot} completed, but nothing is in flight there")]
    NotUnderWay { queue: usize, slot: u32 },
    #[error("a thread that submits has panicked")]
    Panicked,
    /// An error of a device or its driver.
    #[error("{0}")]
    Device(String),
    /// A file to be read.
    #[error("{what}")]
    File { what: String, hint: String },
    #[error("{origin}: {what}")]
    Plan { origin: String, what: String, hint: String },
    #[error("{0}: there is a run already")]
    Exists(PathBuf),
    #[error("{0}: the folder is not empty, and its contents are not a run of `bench saturate`")]
    NotOurs(PathBuf),
    #[error("{0}: no run of `bench saturate`: it has no asked.json")]
    NoRun(PathBuf),
    #[error("{0}: the run there has another plan")]
    Other(PathBuf),
    #[error(transparent)]
    Broken(#[from] Broken),
    #[error(transparent)]
    Lock(run_folder::Error),
}

impl Error {
    /// What to do.
    pub fn hint(&self) -> String {
        match self {
            Error::Plan { hint, .. } | Error::File { hint, .. } => return hint.clone(),
            Error::Lock(e) => return e.hint(),
            Error::Exists(_) => "--resume continues it, --force replaces it, -o DIR writes elsewhere",
            Error::NotOurs(_) => "give a new or an empty folder: -o DIR",
            Error::NoRun(_) => "give the folder that `doorbell bench saturate -o` wrote",
            Error::Other(_) => "continue with the same plan; --force replaces it, -o DIR writes elsewhere",
            Error::Broken(Broken::Damaged { .. }) => "if that file is removed, --resume measures that cell again",
            Error::Broken(Broken::Version { .. }) => "read it with the doorbell that wrote it",
            Error::Broken(Broken::Read { .. }) => "give the folder of a run, with all its files readable",
            Error::Broken(Broken::Write { .. }) => "finished cells are kept, and --resume continues after them",
            Error::Late { .. } | Error::NotUnderWay { .. } => {
                "the kernel log says whether the device was reset; a smaller depth shows whether the load matters"
            }
            _ => "`doorbell doctor` says what works here",
        }
        .into()
    }
}
