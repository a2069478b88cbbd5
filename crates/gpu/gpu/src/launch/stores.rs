//! Bytes that the CPU stores into video memory, through BAR1, in front of each submission of a launch.
//!
//! The stores are over when they are made: they cannot wait for the GPU. So whoever reads the bytes must be done with those of the last submission, and a
//! launch that is not over is not launched again. All is checked, and the ticket is taken, before the first byte is stored.

use super::named::Named;
use crate::bar1::{Bar1Map, check};
use crate::error::Error;
use crate::region::Region;
use crate::validate::Ranges;

/// Bytes of host memory, and the video memory where the CPU stores them, from its first byte on.
#[derive(Debug)]
pub struct Stores {
    pub from: Region,
    pub to: Bar1Map,
}

impl Stores {
    /// That the launch keeps the source, and the bytes fit.
    pub(super) fn check(&self, named: &Named) -> Result<(), Error> {
        let (va, length) = (self.from.va(), self.from.length());
        if !named.contains(va, length) {
            return Err(Error::OutsideRegion { va, length });
        }
        check(0, length, self.to.length())
    }
}

/// Makes all stores of a submission whose ticket is taken, or none.
#[inline]
pub(super) fn store(all: &[Stores]) -> Result<(), Error> {
    all.iter().try_for_each(|stores| stores.to.check())?;
    for Stores { from, to } in all {
        // SAFETY: the ticket is taken and the region was there after it, so whoever frees it waits; the CPU can read it, as `store_first` was promised, and
        // what writes it meanwhile is the program's race.
        let bytes = unsafe { std::slice::from_raw_parts(from.va() as *const u8, from.length() as usize) };
        to.write(0, bytes)?;
    }
    Ok(())
}
