//! What went wrong, by name.

use crate::{class, control, status};
use std::fmt;
use std::io;

/// What a call was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    None,
    Class(u32),
    Command(u32),
    Handle(u32),
    Fd(i32),
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Subject::None => Ok(()),
            Subject::Class(c) => match class::name(c) {
                Some(n) => write!(f, " {n}"),
                None => write!(f, " class {c:#06x}"),
            },
            Subject::Command(c) => match control::name(c) {
                Some(n) => write!(f, " {n}"),
                None => write!(f, " command {c:#010x}"),
            },
            Subject::Handle(h) => write!(f, " object {h:#010x}"),
            Subject::Fd(fd) => write!(f, " fd {fd}"),
        }
    }
}

/// A driver call that failed.
#[derive(Debug, thiserror::Error)]
pub enum RmError {
    /// The ioctl went through and the driver refused.
    #[error("{operation}{subject}: {} ({status:#x}){}", Name(*.status), Hint(*.status))]
    Status { operation: &'static str, subject: Subject, status: u32 },
    /// The kernel refused the ioctl itself.
    #[error("{operation}{subject}: {cause}")]
    Io { operation: &'static str, subject: Subject, cause: io::Error },
    /// UVM calls carry no size, so they are made only to drivers whose version is known.
    #[error("{operation}: not issued: this driver's version is not known, and UVM calls carry no size to protect them")]
    UvmRefused { operation: &'static str },
    /// The driver answered with something that makes no sense.
    #[error("{operation}: {what}")]
    Answer { operation: &'static str, what: &'static str },
}

impl RmError {
    /// The driver's status, if it got as far as giving one.
    pub fn status(&self) -> Option<u32> {
        match self {
            RmError::Status { status, .. } => Some(*status),
            _ => None,
        }
    }
}

struct Name(u32);

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(status::name(self.0).unwrap_or("unknown status"))
    }
}

struct Hint(u32);

impl fmt::Display for Hint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match status::hint(self.0) {
            Some(h) => write!(f, "; {h}"),
            None => Ok(()),
        }
    }
}
