//! What a driver of a device can do, as a card needs it.

use copy::Error;
use pcie::{Function, Memory};

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the bus to the card's own memory.
    ToCard,
    FromCard,
}

/// A DMA engine and the card's own memory.
pub trait Engine: Send {
    /// Which device it is, in a few words.
    fn about(&self) -> String;

    fn function(&self) -> &dyn Function;

    /// The card's own memory: where it begins, and bytes.
    fn own(&self) -> (u64, u64);

    /// Starts to move `bytes` between the card's address `own` and `at` of a memory that its function may reach. It keeps the memory until
    /// that is done. What is polled is the last transfer.
    ///
    /// # Errors
    /// What its driver says; nothing was started then.
    fn start(&mut self, direction: Direction, own: u64, memory: &Memory, at: u64, bytes: u64) -> Result<(), Error>;

    /// Looks once: whether it is done.
    ///
    /// # Errors
    /// What its driver says.
    fn poll(&mut self) -> Result<bool, Error>;

    /// Reads the card's own memory. No transfer may be running.
    ///
    /// # Errors
    /// What its driver says.
    fn read_own(&mut self, own: u64, into: &mut [u8]) -> Result<(), Error>;

    /// As [`Engine::read_own`], the other way.
    ///
    /// # Errors
    /// As there.
    fn write_own(&mut self, own: u64, from: &[u8]) -> Result<(), Error>;
}
