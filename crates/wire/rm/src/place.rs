//! The place of memory, as far as driver calls reveal it.

/// The kind of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Place {
    /// The GPU's own memory.
    Video,
    Host,
    /// The calls do not say: virtual ranges, managed memory that migrates, objects of other processes.
    #[default]
    Unknown,
}
