//! The kinds of memory.

/// A kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// GPU memory, accessed by the CPU through BAR1.
    Video,
    /// Host memory.
    Host,
}
