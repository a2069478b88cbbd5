//! Errors, with the call and CUDA's name for the error.

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A driver call that did not return `CUDA_SUCCESS`. Asynchronous faults surface in a later call.
    #[error("{call}: {name} ({code}): {text}")]
    Call { call: &'static str, name: String, code: i32, text: String },
    #[error("{what}: bytes {offset}..{end} of a buffer of {len}")]
    Range { what: &'static str, offset: usize, end: usize, len: usize },
    #[error("{what}: {to} bytes from {from} bytes")]
    Length { what: &'static str, to: usize, from: usize },
    #[error("{what}: not a C string")]
    Text { what: &'static str },
    /// A function that only newer drivers have.
    #[error("this CUDA driver has no {call}: a newer one is needed")]
    Missing { call: &'static str },
    #[error("no memory of {bytes} bytes: {reason}")]
    Memory { bytes: usize, reason: String },
}

/// CUDA cannot be used on this machine: a finding, not a failure.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("CUDA is not available: {reason}")]
pub struct Unavailable {
    pub reason: String,
}
