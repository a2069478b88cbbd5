//! What executes methods, and the subchannels that they are sent on.

/// What executes the methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Copy engine n.
    Copy(u32),
    /// Compute and inline-to-memory.
    Graphics,
}

/// Subchannels: fixed on the graphics engine, free on copy engines.
pub(crate) const COMPUTE: u8 = 1;
pub(crate) const COPY: u8 = 4;
