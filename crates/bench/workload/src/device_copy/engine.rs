//! The operations of a device driver that a card needs.

use crate::Error;
use pcie::{Function, Memory};

/// The direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the bus to the card's own memory.
    ToCard,
    FromCard,
}

/// A DMA engine and the card's own memory.
pub trait Engine: Send {
    /// The device, in a few words.
    fn about(&self) -> String;

    fn function(&self) -> &dyn Function;

    /// The card's own memory: first address and length in bytes.
    fn own(&self) -> (u64, u64);

    /// Starts to move `bytes` between the card's address `own` and `at` of a memory that its function may reach. The engine keeps the
    /// memory until the transfer is done. A poll looks at the last transfer.
    ///
    /// # Errors
    /// Errors of its driver; no transfer was started then.
    fn start(&mut self, direction: Direction, own: u64, memory: &Memory, at: u64, bytes: u64) -> Result<(), Error>;

    /// Polls once. Returns whether it is done.
    ///
    /// # Errors
    /// Errors of its driver.
    fn poll(&mut self) -> Result<bool, Error>;

    /// Reads the card's own memory. No transfer may be running.
    ///
    /// # Errors
    /// Errors of its driver.
    fn read_own(&mut self, own: u64, into: &mut [u8]) -> Result<(), Error>;

    /// As [`Engine::read_own`], the other way.
    ///
    /// # Errors
    /// As there.
    fn write_own(&mut self, own: u64, from: &[u8]) -> Result<(), Error>;
}
