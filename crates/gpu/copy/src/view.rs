//! CUDA's memory of the GPU as the CPU reads it by itself, through BAR1: no call of CUDA's, whose locks it would wait for
//! beside other threads as long as a copy of CUDA's does.

use crate::error::Error;
use crate::machine::Machine;
use crate::pin::{self, Pinned};
use gpu::Bar1Map;

/// A range of it, mapped.
#[derive(Debug)]
pub struct View {
    map: Bar1Map,
    /// Goes after the mapping does.
    _pinned: Pinned,
}

impl View {
    /// # Errors
    /// As [`crate::pin`], and what mapping it through BAR1 says.
    pub fn of(machine: &Machine, address: u64, length: u64) -> Result<View, Error> {
        let pinned = pin::pin_in(machine, machine.space()?, address, length)?;
        let map = Bar1Map::of_pin(pinned.pin(), 0, length)?;
        Ok(View { map, _pinned: pinned })
    }

    /// What is there now, from `at` bytes behind the start on. A load takes about a microsecond, long reads 0.7 GB/s.
    ///
    /// # Errors
    /// The range ends before `into` does, or the memory went away.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        Ok(self.map.read(at, into)?)
    }
}
