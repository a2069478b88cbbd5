//! The engines that execute methods.

/// An engine that executes methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// Copy engine n.
    Copy(u32),
    /// Compute and inline-to-memory.
    Graphics,
}
