//! How the GPU is shared or protected, asked of the kernel driver and of CUDA's objects: for whoever has not seen his work under all of that.

use crate::device::Device;
use crate::error::Error;
use crate::space::AddressSpace;
use crate::watched::Watched;

impl Device {
    /// Whether confidential computing is on: pushbuffers and memory are encrypted then. Asks the driver, by a client of its own.
    ///
    /// # Errors
    /// What the driver answers instead.
    pub fn is_confidential(&self) -> Result<bool, Error> {
        Ok(rm::driver::confidential_feature(&*self.driver, self.ctl)?.is_some_and(|feature| feature != 0))
    }
}

impl AddressSpace {
    /// A number that changes when kernels' local memory moves (`cuCtxSetLimit`).
    pub(crate) fn local_memory(&self) -> u64 {
        self.watched.map_or(0, Watched::moves)
    }

    /// Whether the CUDA beside this has an object of the class, as far as its calls were watched.
    pub fn cuda_has(&self, class: u32) -> bool {
        self.watched.is_some_and(|watched| watched.graph().of_class(class).next().is_some())
    }
}
