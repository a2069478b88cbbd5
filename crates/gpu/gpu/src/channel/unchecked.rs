//! Words that the validator has not seen: for a stand-in for libcuda, which submits the same words as libcuda.

use super::*;

impl Channel {
    /// Submits `dwords` words at `va` as one entry, as CUDA does. Only these words themselves can report when they are
    /// done. The caller must keep them unchanged until then.
    ///
    /// # Errors
    /// [`Error::RealHardware`] except on the software GPU; otherwise as [`Channel::submit`].
    pub fn submit_unchecked(&mut self, va: u64, dwords: u32) -> Result<(), Error> {
        if !self.space.device().is_soft() {
            return Err(Error::RealHardware { index: self.space.device().card().minor as usize });
        }
        self.usable()?;
        let entry = Entry::segment(va, dwords).filter(|_| self.space.contains(va, 4 * u64::from(dwords)));
        let entry = entry.ok_or(Error::Words(dwords as usize))?;
        self.room(1)?;
        self.push(entry.encode(), None);
        self.mark_quarter(None);
        self.ring();
        Ok(())
    }
}
