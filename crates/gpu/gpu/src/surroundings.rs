//! How the GPU is shared or protected, according to the kernel driver and CUDA's objects: for code that was not tested under
//! all of that.

use crate::device::Device;
use crate::error::Error;
use crate::space::AddressSpace;
use crate::watched::Watched;

impl Device {
    /// Whether confidential computing is on: pushbuffers and memory are encrypted then. Queries the driver with a separate
    /// client.
    ///
    /// # Errors
    /// The driver's error.
    pub fn is_confidential(&self) -> Result<bool, Error> {
        Ok(rm::driver::confidential_feature(&*self.driver, self.ctl)?.is_some_and(|feature| feature != 0))
    }
}

impl AddressSpace {
    /// A number that changes when kernels' local memory moves (`cuCtxSetLimit`).
    pub(crate) fn local_memory(&self) -> u64 {
        self.watched.map_or(0, Watched::moves)
    }

    /// Whether this address space's CUDA has an object of the class, as far as its calls were watched.
    pub fn cuda_has(&self, class: u32) -> bool {
        self.watched.is_some_and(|watched| watched.graph().of_class(class).next().is_some())
    }
}
