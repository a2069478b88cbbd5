//! What can go wrong on the bus, by name.

use crate::address::{Address, NoAddress};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Address(NoAddress),
    #[error("{address} is gone: its registers read as ones everywhere (pulled out, powered off, or its link is down)")]
    Gone { address: Address },
    #[error("{address} is gone with the machine that emulated it: {why}")]
    Ended { address: Address, why: String },
    #[error("{address} has no BAR {index}: {why}")]
    NoBar { address: Address, index: u8, why: String },
    #[error("bytes {at:#x} to {end:#x} are not within {length:#x} bytes of {what}")]
    OutOfBounds { what: &'static str, at: u64, end: u64, length: u64 },
    #[error("{address} cannot reach {what}: {why}; {hint}")]
    Unreachable { address: Address, what: String, why: String, hint: String },
    #[error("{address} cannot be driven from here: {why}; {hint}")]
    Refused { address: Address, why: String, hint: String },
    #[error("{what}")]
    System {
        what: String,
        #[source]
        source: std::io::Error,
    },
    #[error("QEMU: {0}")]
    Qemu(String),
}

impl Error {
    /// The function is no longer there.
    pub fn is_gone(&self) -> bool {
        matches!(self, Error::Gone { .. } | Error::Ended { .. })
    }

    /// A system call that failed, and at what.
    pub fn system(what: impl Into<String>, source: std::io::Error) -> Error {
        Error::System { what: what.into(), source }
    }
}
