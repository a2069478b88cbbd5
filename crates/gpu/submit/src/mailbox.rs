//! A running kernel's mailbox, as a lane stores it.

use gpu::{Bar1Map, Region};

/// A mailbox, and the place of its answers.
pub(crate) struct Mailbox {
    pub map: Bar1Map,
    pub to: Region,
    pub answers: Region,
    /// The address at which the CPU sees the answers.
    pub pointer: u64,
    pub buffers: [(u32, u32); 2],
    /// Number of the last message.
    pub number: u32,
}
