//! Devices that move bytes by DMA of their own: between their memory and the host's, or straight between it and a GPU's.
//!
//! Memory is pinned once and used often, as a driver for such a device has it: [`Device::pin`] gives a handle, and what is
//! prepared between two handles starts at any offsets within them ([`Job::start`]) without an allocation. A machine may have a card
//! on the bus ([`card`]); on others a copy engine plays a device ([`engine`]).

pub mod card;
mod consumer;
mod engine;
pub mod frames;
mod opened;
pub mod transfers;

pub use card::{Card, CardMemory, GpuTarget, OnBus};
pub use engine::EngineDevice;
pub(crate) use opened::about;
pub use opened::open;

use crate::error::Error;
use gpu::{AddressSpace, Region};
use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

/// Memory that a device may reach, its own included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handle(u64);

impl Handle {
    /// One by which a device knows what it has pinned.
    pub fn new(number: u64) -> Handle {
        Handle(number)
    }
}

/// Memory as a device is given it: a [`Buffer`](crate::Buffer).
pub trait Reachable {
    /// Bytes of it.
    fn capacity(&self) -> u64;

    /// It as a card on the bus finds it.
    ///
    /// # Errors
    /// Where that is not known.
    fn on_bus(&self) -> Result<OnBus, Error>;

    /// It as engines of this address space find it, as long as what comes with it is kept.
    ///
    /// # Errors
    /// Where engines cannot reach it.
    fn pinned_in(&self, space: &Arc<AddressSpace>) -> Result<(Region, Box<dyn Any>), Error>;
}

/// What moves bytes by itself.
#[expect(clippy::wrong_self_convention, reason = "directions of a transfer, not conversions")]
pub trait Device {
    /// What it is, in a few words.
    fn about(&self) -> String;

    /// Lets it reach memory: its own, the host's or a GPU's.
    ///
    /// # Errors
    /// Where it cannot.
    fn pin(&mut self, memory: &dyn Reachable) -> Result<Handle, Error>;

    /// Nothing is started with the handle any more.
    ///
    /// # Errors
    /// [`Error::Unpinned`] for a handle that is none.
    fn unpin(&mut self, handle: Handle) -> Result<(), Error>;

    /// Readies transfers of `bytes` from its memory to the host's.
    ///
    /// # Errors
    /// [`Error::Unpinned`], [`Error::Capacity`], and what the device says.
    fn to_host<'r>(&'r mut self, from: Handle, to: Handle, bytes: u64) -> Result<Box<dyn Job + 'r>, Error>;

    /// From the host's memory to its own.
    ///
    /// # Errors
    /// As [`Device::to_host`].
    fn from_host<'r>(&'r mut self, from: Handle, to: Handle, bytes: u64) -> Result<Box<dyn Job + 'r>, Error>;

    /// From its memory straight to a GPU's.
    ///
    /// # Errors
    /// As [`Device::to_host`].
    fn to_gpu<'r>(&'r mut self, from: Handle, to: Handle, bytes: u64) -> Result<Box<dyn Job + 'r>, Error>;

    /// From a GPU's memory straight to its own.
    ///
    /// # Errors
    /// As [`Device::to_host`].
    fn from_gpu<'r>(&'r mut self, from: Handle, to: Handle, bytes: u64) -> Result<Box<dyn Job + 'r>, Error>;
}

/// A transfer of a device that is ready to go, as often as one likes.
pub trait Job {
    /// Starts it from and to these offsets of its two memories.
    ///
    /// # Errors
    /// [`Error::Unpinned`] where one of them was unpinned or freed, and what the device says.
    fn start(&mut self, from: u64, to: u64) -> Result<(), Error>;

    /// True when what was started last is done.
    ///
    /// # Errors
    /// What the device says.
    fn poll(&mut self) -> Result<bool, Error>;

    /// Until it is.
    ///
    /// # Errors
    /// [`Error::Late`] after `timeout`, [`Error::Idle`] where nothing was started.
    fn wait(&mut self, timeout: Duration) -> Result<(), Error>;

    /// When the last one was done, in nanoseconds of a GPU's clock, where the device says.
    fn released_gpu_ns(&self) -> Option<u64> {
        None
    }
}
