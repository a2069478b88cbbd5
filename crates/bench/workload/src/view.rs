//! CUDA's GPU memory as the CPU reads it through BAR1, without a CUDA call. CUDA's copies wait for its locks while
//! other threads use CUDA; these reads do not.

use crate::error::Error;
use crate::machine::Machine;
use gpu::Bar1Map;
use machine::{Pinned, pin_in};

/// A mapped range of that memory.
#[derive(Debug)]
pub struct View {
    map: Bar1Map,
    /// Dropped after the mapping.
    _pinned: Pinned,
}

impl View {
    /// # Errors
    /// As [`machine::pin`], or an error of the BAR1 mapping.
    pub fn of(machine: &Machine, address: u64, length: u64) -> Result<View, Error> {
        let pinned = pin_in(machine, machine.space()?, address, length)?;
        let map = Bar1Map::of_pin(pinned.pin(), 0, length)?;
        Ok(View { map, _pinned: pinned })
    }

    /// Reads the current bytes, from `at` bytes after the start. A load takes about a microsecond; long reads make 0.7
    /// GB/s.
    ///
    /// # Errors
    /// The range ends before `into` does, or the memory was freed.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.map.read(at, into)?)
    }
}
