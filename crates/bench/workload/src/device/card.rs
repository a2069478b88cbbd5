//! A device on the bus with its own DMA engine, as a machine has it ([`Machine::with_card`](crate::Machine::with_card)), and the memory that it may reach.
//!
//! A card moves bytes between its own memory, host memory and GPU memory. Its driver allocates the host memory: the bus addresses are known, and the GPU
//! reaches it too. GPU memory is reached at the bus address that BAR1 gives it.

use super::Device;
use crate::error::Error;
use gpu::Bar1Map;
use machine::Unavailable;
use std::sync::Arc;

/// A device on the bus, and memory for it. It may be opened more than once.
pub trait Card: Send + Sync {
    /// The card in a few words.
    fn about(&self) -> String;

    /// Whether it is emulated: measurements show that it works, not how fast it is.
    fn is_functional(&self) -> bool;

    /// `bytes` of its own memory for the caller alone, starting on a page.
    ///
    /// # Errors
    /// If it has no room.
    fn memory(&self, bytes: u64) -> Result<Box<dyn CardMemory>, Error>;

    /// All memory of the card, at the card's own addresses, including parts that were given to callers. A caller that names an address is responsible for
    /// the contents there.
    fn whole(&self) -> Box<dyn CardMemory>;

    /// Size of the card's memory, in bytes.
    fn own(&self) -> u64;

    /// Allocates host memory that it reaches.
    ///
    /// # Errors
    /// The bus's error.
    fn host(&self, bytes: u64) -> Result<pcie::Memory, Error>;

    /// Opens its DMA engine.
    ///
    /// # Errors
    /// The card's error.
    fn open(&self) -> Result<Box<dyn Device>, Error>;
}

/// A card's own memory. It is free again when this is dropped.
pub trait CardMemory: Send + Sync {
    /// The address that the card itself uses.
    fn address(&self) -> u64;

    /// Reads while no transfer there is pending.
    ///
    /// # Errors
    /// The card's error.
    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error>;

    /// As [`CardMemory::read`], the other way.
    ///
    /// # Errors
    /// As there.
    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error>;
}

/// A buffer as a card finds it.
#[derive(Clone)]
pub enum OnBus {
    /// The card's own memory, by the card's own address.
    Own(u64),
    /// Host memory from an offset on.
    Host(pcie::Memory, u64),
    Gpu(GpuTarget),
}

/// GPU memory that another device on the bus may use. Clones refer to the same memory. It stays, at its bus address, as long as one of them or its
/// [`Peer`](pcie::Peer) lives.
#[derive(Clone, Debug)]
pub struct GpuTarget {
    map: Arc<Bar1Map>,
    gpu: u32,
    device: Option<pcie::Address>,
    bus: u64,
}

impl GpuTarget {
    /// A whole BAR1 map of GPU `gpu`, which is `device` on the bus if that is known.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the driver lays the map out in pieces (static BAR1), or the driver's error.
    pub fn new(map: Bar1Map, gpu: u32, device: Option<pcie::Address>) -> Result<GpuTarget, Error> {
        let range = map.bus_range()?;
        if range.length < map.length() {
            return Err(Unavailable::new(format!(
                "{} bytes of GPU {gpu} have {} in a row on the bus: the driver maps BAR1 in physical order (static BAR1); take smaller \
                 targets, or go by host memory (device->staged->gpu{gpu})",
                map.length(),
                range.length
            ))
            .into());
        }
        Ok(GpuTarget { gpu, device, bus: range.address, map: Arc::new(map) })
    }

    /// The GPU's name in routes.
    pub fn route(&self) -> String {
        format!("gpu{}", self.gpu)
    }

    /// The memory in the form that drivers of devices take.
    pub fn peer(&self) -> pcie::Peer {
        let Self { map, gpu, device, bus } = self;
        pcie::Peer { what: format!("GPU {gpu}"), device: *device, bus: *bus, length: map.length(), keep: map.clone() }
    }

    /// Checks that the memory still has the owner that it had when it was mapped. Takes no lock unless CUDA has unmapped memory since.
    ///
    /// # Errors
    /// [`gpu::Error::Stale`], [`gpu::Error::Forked`].
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        Ok(self.map.check()?)
    }
}
