//! Memory that a function's DMA may reach, and its bus addresses.

use crate::error::Error;
use std::any::Any;
use std::ptr::NonNull;
use std::sync::Arc;

/// Bytes that are contiguous on the bus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Where they begin in the memory.
    pub offset: u64,
    /// Their bus address.
    pub bus: u64,
    pub length: u64,
}

/// Whose memory it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Host,
    /// Behind a BAR of another device: a GPU's memory.
    Peer,
}

/// How an emulated machine chooses the pages of an allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// One run.
    #[default]
    Together,
    /// Every page at a different place, in the same order each time: so page lists are really used.
    Scattered,
}

/// Memory in a BAR of another device. The bus addresses are that device's as long as `keep` lives.
#[derive(Clone)]
pub struct Peer {
    /// What it is, for messages: "GPU 0".
    pub what: String,
    /// The device that has the BAR, if known: used to look up the path between it and the function.
    pub device: Option<crate::Address>,
    pub bus: u64,
    pub length: u64,
    pub keep: Arc<dyn Any + Send + Sync>,
}

/// Memory that one function may reach. Clones are the same memory; it stays until the last of them is dropped.
#[derive(Clone)]
pub struct Memory(Arc<Inner>);

struct Inner {
    place: Place,
    /// Sorted by offset, without gaps.
    runs: Vec<Run>,
    length: u64,
    /// Where the CPU reaches it.
    cpu: Option<NonNull<u8>>,
    _keep: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is to memory that `_keep` keeps; accesses use raw pointers and bounds are checked.
unsafe impl Send for Inner {}
// SAFETY: as above.
unsafe impl Sync for Inner {}

impl Memory {
    /// Memory of these runs, and where the CPU reaches it.
    ///
    /// # Panics
    /// If the runs have gaps or there are none.
    ///
    /// # Safety
    /// As long as `keep` lives, the runs are the function's to read and write, and `cpu` (if given) points to as many mapped bytes.
    pub unsafe fn new(
        place: Place,
        runs: Vec<Run>,
        cpu: Option<NonNull<u8>>,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Memory {
        let mut length = 0u64;
        for run in &runs {
            assert!(run.offset == length && run.length > 0, "a gap at {length:#x}");
            length = length.checked_add(run.length).expect("runs of less than 2^64 bytes");
        }
        assert!(length > 0, "no runs");
        Memory(Arc::new(Inner { place, runs, length, cpu, _keep: keep }))
    }

    pub fn length(&self) -> u64 {
        self.0.length
    }

    pub fn place(&self) -> Place {
        self.0.place
    }

    /// Its CPU address; none for memory that only devices can reach.
    pub fn as_ptr(&self) -> Option<NonNull<u8>> {
        self.0.cpu
    }

    pub fn runs(&self) -> &[Run] {
        &self.0.runs
    }

    /// The bus address of the byte at `offset`, and how many bytes are contiguous from there.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`].
    pub fn bus(&self, offset: u64) -> Result<(u64, u64), Error> {
        let after = self.0.runs.partition_point(|run| run.offset <= offset);
        let run = self.0.runs[..after].last().filter(|run| offset - run.offset < run.length);
        let run =
            run.ok_or(Error::OutOfBounds { what: "the memory", at: offset, end: offset, length: self.0.length })?;
        let within = offset - run.offset;
        Ok((run.bus + within, run.length - within))
    }

    /// # Errors
    /// [`Error::OutOfBounds`] if `bytes` at `offset` are not all within the memory.
    pub fn holds(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        let end = offset.saturating_add(bytes);
        if end > self.0.length {
            return Err(Error::OutOfBounds { what: "the memory", at: offset, end, length: self.0.length });
        }
        Ok(())
    }
}

impl Memory {
    fn cpu(&self, offset: u64, bytes: usize) -> Result<*mut u8, Error> {
        self.holds(offset, bytes as u64)?;
        let at = self.0.cpu.ok_or(Error::OutOfBounds {
            what: "what the CPU reaches of the memory",
            at: offset,
            end: offset + bytes as u64,
            length: 0,
        })?;
        // SAFETY: within the memory, as was just checked, and so within what `cpu` points to (`new`).
        Ok(unsafe { at.as_ptr().add(offset as usize) })
    }

    /// Stores bytes from the CPU. Simultaneous writes by a device may be mixed with them.
    ///
    /// # Errors
    /// [`Error::OutOfBounds`], also if the CPU cannot access the memory.
    pub fn store(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        let to = self.cpu(offset, from.len())?;
        // SAFETY: `cpu` checked the bounds; `from` is a Rust slice, which never overlaps device memory.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), to, from.len()) };
        Ok(())
    }

    /// Loads bytes. Simultaneous writes by a device may be included in part.
    ///
    /// # Errors
    /// As [`Memory::store`].
    pub fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        let from = self.cpu(offset, into.len())?;
        // SAFETY: as in `store`.
        unsafe { std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_is_found_in_its_run() {
        let runs =
            vec![Run { offset: 0, bus: 0x9000, length: 0x1000 }, Run { offset: 0x1000, bus: 0x4000, length: 0x2000 }];
        // SAFETY: the memory is never accessed.
        let memory = unsafe { Memory::new(Place::Host, runs, None, Arc::new(())) };
        assert_eq!(memory.bus(0xfff).unwrap(), (0x9fff, 1));
        assert_eq!(memory.bus(0x1000).unwrap(), (0x4000, 0x2000));
        assert_eq!(memory.bus(0x2fff).unwrap(), (0x5fff, 1));
        assert!(memory.bus(0x3000).is_err());
        assert!(memory.holds(0x2000, 0x1000).is_ok() && memory.holds(0x2000, 0x1001).is_err());
        assert!(memory.holds(u64::MAX, 2).is_err());
    }
}
