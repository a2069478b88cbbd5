//! Bytes that the CPU stores into GPU memory, through BAR1, before each submission of a launch.
//!
//! The stores take effect immediately and cannot wait for the GPU. So readers of the bytes must be done with those of the last submission, and a launch
//! that is not done is not launched again. All checks are made, and the ticket is taken, before the first byte is stored.

use super::named::Named;
use crate::bar1::{Bar1Map, check};
use crate::error::Error;
use crate::region::Region;
use crate::validate::Ranges;

/// Bytes of host memory, and the map of GPU memory where the CPU stores them, from its first byte on.
#[derive(Debug)]
pub struct Stores {
    pub from: Region,
    pub to: Bar1Map,
}

impl Stores {
    /// Checks that the launch keeps the source, and that the bytes fit.
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
        // SAFETY: the ticket is taken and the region was live after that, so a thread that frees it waits. The caller of `store_first` promised that the
        // CPU can read it. A write of the program during the copy is the program's race.
        let bytes = unsafe { std::slice::from_raw_parts(from.va() as *const u8, from.length() as usize) };
        to.write(0, bytes)?;
    }
    Ok(())
}
