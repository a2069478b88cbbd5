//! Makes CUDA's memory usable in doorbell's pushbuffers: exactly the range that CUDA has allocated, no byte more.
//!
//! The kernel driver maps more than was requested (2 MiB at a time), so CUDA's own range query determines the end of an
//! allocation.

use crate::error::{Error, PinError};
use crate::machine::Machine;
use cuda::{Context, MemoryType};
use gpu::AddressSpace;
use std::sync::Arc;

/// A range of CUDA memory that doorbell's channels may name, until this is dropped or the memory is freed. Drop it before you
/// free the memory: the drop waits for work in flight. [`gpu::Region`] lists which frees are seen, and which are not.
#[derive(Debug)]
pub struct Pinned {
    pin: Arc<gpu::Pin>,
}

impl Pinned {
    /// The address at which the GPU sees it.
    pub fn va(&self) -> u64 {
        self.pin.va()
    }

    /// Length in bytes.
    pub fn length(&self) -> u64 {
        self.pin.length()
    }

    /// All of it, for the caller's own transfers.
    pub fn region(&self) -> &gpu::Region {
        self.pin.region()
    }

    /// The pin in `gpu`, for BAR1 maps.
    pub fn pin(&self) -> &Arc<gpu::Pin> {
        &self.pin
    }
}

/// Pins `length` bytes at `pointer`, which CUDA knows: device memory of this machine's GPU, or of another one to which it has peer
/// access, or host memory that CUDA allocated or registered.
///
/// # Errors
/// [`PinError`] for each way in which the range is anything else; [`Error::Unavailable`] where there is no CUDA or its address
/// space cannot be entered; [`Error::Gpu`] where the kernel driver's objects for the range are not known.
pub fn pin(machine: &Machine, pointer: u64, length: u64) -> Result<Pinned, Error> {
    let context = machine.context()?;
    // An error of the range is reported before one of the machine.
    let found = allocation(context, pointer, length)?;
    if machine.space().is_err() {
        found.is_of(context, pointer)?;
    }
    pin_in(machine, machine.space()?, pointer, length)
}

/// As [`pin`], for pushbuffers in one of the machine's address spaces.
///
/// # Errors
/// As [`pin`].
pub fn pin_in(machine: &Machine, space: &Arc<AddressSpace>, pointer: u64, length: u64) -> Result<Pinned, Error> {
    let context = machine.context()?;
    let Allocation { number, base, bytes, elsewhere } = allocation(context, pointer, length)?;
    let cuda = context.cuda();
    if elsewhere.is_none() {
        space.believe(base, bytes);
    }
    // CUDA never reuses an allocation's number: another number is another owner's memory at the same address.
    let witness = move || matches!(cuda.allocation(pointer), Ok(Some(now)) if now == number);
    let pin = match elsewhere {
        None => space.pin_with(pointer, length, Arc::new(witness))?,
        Some(_) => space.pin_of_another(pointer, length, Arc::new(witness))?,
    };
    // It may have been freed between the query and the pin. From here on a free ends the pin.
    let now = allocation(context, pointer, length)?.number;
    if now == number { Ok(Pinned { pin: Arc::new(pin) }) } else { Err(PinError::Freed { pointer }.into()) }
}

/// CUDA's data of an allocation.
struct Allocation {
    number: u64,
    base: u64,
    bytes: u64,
    /// CUDA's number of another GPU whose memory it is.
    elsewhere: Option<i32>,
}

impl Allocation {
    /// An error if it is memory of another GPU than the context's.
    fn is_of(&self, context: &Context, pointer: u64) -> Result<(), PinError> {
        match self.elsewhere {
            None => Ok(()),
            Some(found) => Err(PinError::OtherGpu { pointer, found, wanted: context.device().ordinal() }),
        }
    }
}

/// Finds the allocation that has the whole range, of a kind that the GPU reads in place.
fn allocation(context: &Context, pointer: u64, length: u64) -> Result<Allocation, Error> {
    if pointer == 0 {
        return Err(PinError::Null.into());
    }
    if length == 0 {
        return Err(PinError::Empty { pointer }.into());
    }
    let Some(known) = context.pointer(pointer)? else {
        // CUDA returns the same for freed memory and for memory that was never its own.
        let error = if is_mapped(pointer) { PinError::Pageable { pointer } } else { PinError::Freed { pointer } };
        return Err(error.into());
    };
    if known.managed {
        return Err(PinError::Managed { pointer }.into());
    }
    let elsewhere = match known.memory {
        MemoryType::Device => Some(known.ordinal).filter(|ordinal| *ordinal != context.device().ordinal()),
        MemoryType::Host => None,
        MemoryType::Other(memory) => return Err(PinError::Unknown { pointer, memory }.into()),
    };
    let left = known.base.saturating_add(known.bytes).saturating_sub(pointer);
    if pointer < known.base || left == 0 {
        return Err(PinError::Freed { pointer }.into());
    }
    if length > left {
        return Err(PinError::PastEnd { pointer, length, left }.into());
    }
    Ok(Allocation { number: known.allocation, base: known.base, bytes: known.bytes, elsewhere })
}

/// Whether the process can read ordinary memory there. CUDA keeps freed memory reserved, unreadable or as a mapping of its own
/// files.
fn is_mapped(pointer: u64) -> bool {
    // Without this file the state is unknown, and `false` is the safer result.
    let Ok(maps) = std::fs::read_to_string("/proc/self/maps") else { return false };
    maps.lines().any(|line| {
        let mut fields = line.split_ascii_whitespace();
        let range = fields.next().and_then(|range| range.split_once('-'));
        let bound = |text: &str| u64::from_str_radix(text, 16).ok();
        let inside = range.and_then(|(start, end)| Some((bound(start)?..bound(end)?).contains(&pointer)));
        let readable = fields.next().is_some_and(|rights| rights.starts_with('r'));
        inside == Some(true) && readable && !line.contains("/dev/nvidia")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_mapped_and_the_first_page_is_not() {
        let heap = Box::new(1u64);
        assert!(is_mapped(std::ptr::from_ref(&*heap) as u64));
        assert!(!is_mapped(8) && !is_mapped(u64::MAX));
    }
}
