//! Where memory lies.

/// Which memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Video memory, seen by the CPU through BAR1.
    Video,
    /// Host memory.
    Host,
}
