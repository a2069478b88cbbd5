//! Steps whose bytes the CPU stores into GPU memory before the launch ([`crate::Way::Stores`]).
//!
//! The words do not mention them: the stores are posted writes through BAR1, and the doorbell after them does not overtake them. So they can only be a
//! chain's first steps.

use crate::error::Error;
use gpu::{AddressSpace, Bar1Map, Memory, Owner, Pin, Region, Stores};
use std::sync::Arc;

/// Maximum number of bytes of one step: the measured range.
pub const STORES_MOST: u64 = 64 << 10;

/// GPU memory that the CPU may store into.
#[derive(Clone, Debug)]
pub enum Stored {
    /// doorbell's memory, of the channel's address space or of another in the same CUDA context.
    Memory(Arc<Memory>),
    /// CUDA's memory, pinned in the channel's address space.
    Pin(Arc<Pin>),
}

impl Stored {
    fn region(&self) -> Region {
        match self {
            Stored::Memory(memory) => memory.region(),
            Stored::Pin(pin) => pin.region().clone(),
        }
    }

    fn map(&self, to: &Region, space: &Arc<AddressSpace>) -> Result<Bar1Map, gpu::Error> {
        let (offset, bytes) = (to.va() - self.region().va(), to.length());
        match self {
            Stored::Memory(memory) if memory.space().shares_addresses(space) => Bar1Map::of(memory, offset, bytes),
            Stored::Pin(pin) if Arc::ptr_eq(pin.space(), space) => Bar1Map::of_pin(pin, offset, bytes),
            _ => Err(gpu::Error::OtherSpace { va: to.va() }),
        }
    }
}

/// Why bytes cannot be stored from one region to another, independent of earlier steps.
pub(crate) fn why_not(to: &Region, from: &Region, bytes: u64) -> Option<&'static str> {
    match (from.owner(), to.owner()) {
        (Owner::Video, _) => Some("the CPU reads what it stores: it lies in host memory"),
        (_, Owner::Host) => Some("the CPU stores into the GPU's memory: leave it to the copy engine"),
        _ if bytes > STORES_MOST => Some("64 KiB are stored at most: leave it to the copy engine"),
        _ => None,
    }
}

/// The stores of a step from all of one region to all of another, and the destination if it is CUDA's memory. `all`: memory that the CPU may store
/// into.
pub(crate) fn prepared(
    step: usize,
    (to, from): (Region, Region),
    all: &[Stored],
    space: &Arc<AddressSpace>,
) -> Result<(Stores, Option<Region>), Error> {
    let missing = "where the CPU stores is not among the memories and pins that it may store into: pass it with ChainOptions::stored";
    let stored = all.iter().find(|stored| stored.region().holds(to.va(), to.length()));
    let stored = stored.ok_or(Error::Chain { step, why: missing })?;
    let map = stored.map(&to, space);
    let pinned = matches!(stored, Stored::Pin(_)).then_some(to);
    let to = map.map_err(|error| match error {
        gpu::Error::NotVideo => {
            Error::Chain { step, why: "the CPU stores into the GPU's memory: leave it to the copy engine" }
        }
        other => other.into(),
    })?;
    Ok((Stores { from, to }, pinned))
}
