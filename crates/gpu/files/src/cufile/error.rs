//! cuFile's errors, and errors from the measured path.

use super::counters::Mode;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("cuFile is not installed: {0}")]
    Missing(String),
    #[error("{call}: {name}")]
    Call { call: &'static str, name: String },
    #[error("{path}: {call} of {bytes} bytes at {offset}: {what}")]
    Transfer { path: PathBuf, call: &'static str, offset: u64, bytes: u64, what: String },
    #[error(
        "the bytes did not go straight between drive and GPU: {mode}; {bytes} bytes moved, {through_host} of them by calls through host memory, {by_nvidia_fs} by nvidia-fs"
    )]
    NotDirect { mode: Mode, bytes: u64, through_host: String, by_nvidia_fs: String },
    #[error("io_uring goes through pinned host memory, so nothing is direct there")]
    NeverDirect,
}

impl Error {
    /// Advice for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            Error::Missing(_) => "libcufile.so comes with CUDA (package libcufile); `--via uring` needs none",
            Error::Call { .. } => "gdscheck -p says what cuFile lacks on this machine; `--via uring` needs none of it",
            Error::Transfer { .. } => "cufile.log in the current folder says more; `--via uring` reads without cuFile",
            Error::NotDirect { .. } => {
                "gdscheck -p says what GPUDirect Storage lacks; without --require-direct the result says which way the bytes went"
            }
            Error::NeverDirect => "--via cufile may be direct, and measures whether it is",
        }
    }

    /// Whether it can never work on this machine.
    pub fn is_impossible(&self) -> bool {
        matches!(self, Error::Missing(_) | Error::Call { .. } | Error::NotDirect { .. } | Error::NeverDirect)
    }
}
