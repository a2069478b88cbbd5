//! Errors with the file, the offset in it, and advice.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// The kernel's error number.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{path}: cannot be opened: {cause}")]
    Open { path: PathBuf, cause: io::Error },
    #[error("{path}: {what}")]
    Kind { path: PathBuf, what: &'static str },
    #[error("{path}: nothing was transferred: the file is empty")]
    Empty { path: PathBuf },
    #[error("{path}: reading {bytes} bytes at {offset} failed: {cause}")]
    Read { path: PathBuf, offset: u64, bytes: u64, cause: Errno },
    #[error("{path}: writing {bytes} bytes at {offset} failed: {cause}; there is no new file")]
    Write { path: PathBuf, offset: u64, bytes: u64, cause: Errno },
    #[error("{path}: the file ends at {end}, and had {expected} bytes when it was opened")]
    Truncated { path: PathBuf, end: u64, expected: u64 },
    #[error("{path}: the file changed while it was read ({what})")]
    Changed { path: PathBuf, what: &'static str },
    #[error(
        "{path}: {wrong} of {bytes} bytes differ, the first at {offset} of the file, which is {va:#x} of the GPU: {found:#04x} \
         instead of {expected:#04x}"
    )]
    Differs { path: PathBuf, wrong: u64, bytes: u64, offset: u64, va: u64, expected: u8, found: u8 },
    #[error("{0}")]
    Argument(String),
    #[error("{path}: not a safetensors file: {what}")]
    Tensors { path: PathBuf, what: String },
    #[error("io_uring: {what}: {cause}")]
    Ring { what: &'static str, cause: io::Error },
    #[error(transparent)]
    Output(#[from] output::Error),
    #[error("{bytes} bytes of pageable memory cannot be had from the system")]
    Memory { bytes: u64 },
    #[error("{bytes} bytes are not there within {after:?}")]
    Late { bytes: u64, after: Duration },
    #[error(transparent)]
    Machine(#[from] machine::Error),
    #[error(transparent)]
    Gpu(#[from] gpu::Error),
    #[error(transparent)]
    CuFile(#[from] crate::cufile::error::Error),
}

impl From<machine::Unavailable> for Error {
    fn from(why: machine::Unavailable) -> Error {
        Error::Machine(why.into())
    }
}

impl From<cuda::Error> for Error {
    fn from(error: cuda::Error) -> Error {
        Error::Machine(error.into())
    }
}

impl Error {
    /// Advice for the user.
    pub fn hint(&self) -> String {
        match self {
            Error::Open { cause, .. } => match cause.kind() {
                io::ErrorKind::NotFound => "check the path".into(),
                io::ErrorKind::PermissionDenied => "this user may not read it: `ls -l` says who may".into(),
                _ => "look at the file and at the disk it lies on".into(),
            },
            Error::Kind { .. } => "give a regular file, or a block device to read from".into(),
            Error::Empty { .. } => "see whether it was written whole".into(),
            Error::Read { cause, .. } | Error::Write { cause, .. } => errno_hint(cause.0).into(),
            Error::Truncated { .. } | Error::Changed { .. } => {
                "somebody writes to it: wait until it is whole, then read it again".into()
            }
            Error::Differs { .. } => {
                "read it again: if it differs again, `doorbell selftest` checks the GPU's copies, and `cmp` two readings of the file"
                    .into()
            }
            Error::Argument(_) => "`--help` says what fits".into(),
            Error::Tensors { .. } => "see whether it was downloaded whole (its size), and whether it is a safetensors file".into(),
            Error::Ring { .. } => "`--via threads` reads without io_uring".into(),
            // There is no such option for the file here.
            Error::Output(error) => error.hint().replace("-o FILE writes elsewhere", "name a file elsewhere").replace(" with -o FILE", ""),
            Error::CuFile(error) => error.hint().into(),
            Error::Memory { .. } | Error::Late { .. } | Error::Machine(_) | Error::Gpu(_) => {
                "`doorbell doctor` says what works here; `--gpu soft` shows on any machine what the command does".into()
            }
        }
    }

    /// Whether it can never work on this machine.
    pub fn is_impossible(&self) -> bool {
        match self {
            Error::Machine(machine::Error::Unavailable(_)) => true,
            Error::CuFile(error) => error.is_impossible(),
            _ => false,
        }
    }
}

fn errno_hint(errno: i32) -> &'static str {
    match errno {
        libc::EIO | libc::ENODATA => {
            "the drive could not read or write there: `dmesg` and `smartctl -a` say more; copy the file elsewhere"
        }
        libc::ENOSPC | libc::EDQUOT => "free some space, or name a file elsewhere",
        libc::EFBIG => "raise the file size limit (`ulimit -f unlimited`)",
        libc::EINVAL => "the file system refuses direct I/O of this shape: --buffered reads through the page cache",
        libc::ENOMEM => "a smaller --depth or --block needs less memory",
        libc::EACCES | libc::EPERM => "this user may not read or write there",
        _ => "look at the file and at the disk it lies on",
    }
}
