//! Which executor moves the bytes.
//!
//! The best one depends on direction and size, and the sizes at which it changes are the machine's: they are measured, never
//! guessed. Without a profile the copy engine does everything.

/// From where to where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    ToGpu,
    FromGpu,
    WithinGpu,
    WithinHost,
}

/// What moves the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Executor {
    #[default]
    CopyEngine,
    /// The bytes travel in the command stream: the CPU reads them from the source when the copy is submitted.
    Inline,
}

/// A profile of this machine.
pub trait Chooser: Send + Sync {
    fn choose(&self, direction: Direction, bytes: u64) -> Executor;
}

/// What moves so many bytes in this direction.
pub(crate) fn choose(profile: Option<&dyn Chooser>, direction: Direction, bytes: u64) -> Executor {
    profile.map_or(Executor::CopyEngine, |profile| profile.choose(direction, bytes))
}
