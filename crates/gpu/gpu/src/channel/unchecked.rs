//! Words that the validator has not seen: for a stand-in of libcuda, which submits what libcuda would.

use super::*;

impl Channel {
    /// Submits `dwords` words at `va` as one entry, as CUDA does: nothing but these words says when they are done. They
    /// stay as they are until then, which is the caller's to see to.
    ///
    /// # Errors
    /// [`Error::RealHardware`] on everything but the software GPU; otherwise as [`Channel::submit`].
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
