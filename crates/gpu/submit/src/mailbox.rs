//! A mailbox of a running kernel, as a lane has it.

use gpu::{Bar1Map, Region};

/// A mailbox, and where its answers come.
pub(crate) struct Mailbox {
    pub map: Bar1Map,
    pub to: Region,
    pub answers: Region,
    /// Where the CPU sees them.
    pub pointer: u64,
    pub buffers: [(u32, u32); 2],
    /// Of the last message.
    pub number: u32,
}
