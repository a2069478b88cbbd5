//! Devices that move bytes by their own DMA: between their memory and the host's, or directly to and from a GPU's.
//!
//! Memory is pinned once and used often, as a driver for such a device does: [`Device::pin`] returns a handle. A job between two
//! handles starts at any offsets within them ([`Job::start`]) without an allocation. A machine may have a card on the bus
//! ([`card`]); on others a copy engine takes the place of a device ([`engine`]).

pub mod card;
mod consumer;
mod engine;
pub mod frames;
pub mod transfers;

pub use card::{Card, CardMemory, GpuTarget, OnBus};
pub use engine::EngineDevice;

use crate::buffer::Buffer;
use crate::error::Error;
use crate::machine::Machine;
use std::time::Duration;

/// Memory that a device may reach, including its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(pub(crate) u64);

/// A device that moves bytes by itself.
pub trait Device {
    /// The device in a few words.
    fn about(&self) -> String;

    /// Lets it reach memory: its own, the host's or a GPU's.
    ///
    /// # Errors
    /// If it cannot reach the memory.
    fn pin(&mut self, memory: &Buffer<'_>) -> Result<Handle, Error>;

    /// Releases the handle. Jobs with it then return [`Error::Unpinned`].
    ///
    /// # Errors
    /// [`Error::Unpinned`] if the handle is unknown.
    fn unpin(&mut self, handle: Handle) -> Result<(), Error>;

    /// Prepares transfers of `bytes` between two memories that it has pinned: from its own to the host's or directly to a GPU's, or back.
    ///
    /// # Errors
    /// [`Error::Unpinned`], [`Error::Capacity`], or the device's error.
    fn job<'r>(&'r mut self, from: Handle, to: Handle, bytes: u64) -> Result<Box<dyn Job + 'r>, Error>;
}

/// A prepared transfer of a device, which may be started any number of times.
pub trait Job {
    /// Starts it, from and to these offsets of its two memories.
    ///
    /// # Errors
    /// [`Error::Unpinned`] where one of them was unpinned or freed, or the device's error.
    fn start(&mut self, from: u64, to: u64) -> Result<(), Error>;

    /// True when the last started transfer is done.
    ///
    /// # Errors
    /// The device's error.
    fn poll(&mut self) -> Result<bool, Error>;

    /// Waits until it is done.
    ///
    /// # Errors
    /// [`Error::Late`] after `timeout`, [`Error::Idle`] if none was started.
    fn wait(&mut self, timeout: Duration) -> Result<(), Error>;

    /// When the last one was done, in nanoseconds of a GPU's clock, if the device reports it.
    fn released_gpu_ns(&self) -> Option<u64> {
        None
    }
}

/// Opens the device.
///
/// # Errors
/// The card's error, or an error if no separate channel can be opened.
pub fn open(machine: &Machine) -> Result<Box<dyn Device>, Error> {
    match machine.card() {
        Some(card) => card.open(),
        None => Ok(Box::new(EngineDevice::new(machine)?)),
    }
}

/// The device in a few words.
pub(crate) fn about(machine: &Machine) -> String {
    match machine.card() {
        Some(card) => card.about(),
        None => format!("a copy engine of GPU {} is the device", machine.device_seat().index()),
    }
}
