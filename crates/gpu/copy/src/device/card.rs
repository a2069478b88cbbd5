//! A device on the bus with a DMA engine of its own, as a machine has it ([`Machine::with_card`](crate::Machine::with_card)), and what it may reach.
//!
//! A card moves bytes between memory of its own, host memory that its driver allocates (whose bus addresses are known, and which the GPU
//! reaches as well) and a GPU's memory, at the bus address that BAR1 gives it.

use super::Device;
use crate::error::{Error, Unavailable};
use gpu::Bar1Map;
use std::sync::Arc;

/// A device on the bus, and memory for it. Devices of it may be opened more than once.
pub trait Card: Send + Sync {
    /// Which it is, in a few words.
    fn about(&self) -> String;

    /// It is emulated: what is measured with it shows that it works and not how fast.
    fn is_functional(&self) -> bool;

    /// `bytes` of its own memory that nobody else has, from a page's begin on.
    ///
    /// # Errors
    /// Where it has no room.
    fn memory(&self, bytes: u64) -> Result<Box<dyn CardMemory>, Error>;

    /// All of its own memory, by the card's own addresses, whoever has taken a part of it: who names an address answers for what is there.
    fn whole(&self) -> Box<dyn CardMemory>;

    /// Bytes of its own memory.
    fn own(&self) -> u64;

    /// Host memory that it reaches.
    ///
    /// # Errors
    /// What the bus says.
    fn host(&self, bytes: u64) -> Result<pcie::Memory, Error>;

    /// Opens its DMA engine.
    ///
    /// # Errors
    /// What it says.
    fn open(&self) -> Result<Box<dyn Device>, Error>;
}

/// Memory of a card's own. It is the card's again when this is dropped.
pub trait CardMemory: Send + Sync {
    /// Where the card itself finds it.
    fn address(&self) -> u64;

    /// Reads while no transfer is under way there.
    ///
    /// # Errors
    /// What the card says.
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

/// Memory of a GPU that another device on the bus may be given. Clones are the same; the memory keeps its bus address, and stays, as long
/// as one of them or its [`Peer`](pcie::Peer) lives.
#[derive(Clone, Debug)]
pub struct GpuTarget {
    map: Arc<Bar1Map>,
    gpu: u32,
    device: Option<pcie::Address>,
    bus: u64,
}

impl GpuTarget {
    /// A whole BAR1 map, of GPU `gpu`, which stands at `device` on the bus if that is known.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the driver lays the map out in pieces (static BAR1), and what it says.
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

    /// The GPU, as routes call it.
    pub fn route(&self) -> String {
        format!("gpu{}", self.gpu)
    }

    /// As drivers of devices take it.
    pub fn peer(&self) -> pcie::Peer {
        let Self { map, gpu, device, bus } = self;
        pcie::Peer { what: format!("GPU {gpu}"), device: *device, bus: *bus, length: map.length(), keep: map.clone() }
    }

    /// That the memory is still whose it was when it was mapped. Takes no lock unless something of CUDA's was unmapped since.
    ///
    /// # Errors
    /// [`gpu::Error::Stale`], [`gpu::Error::Forked`].
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        Ok(self.map.check()?)
    }
}
