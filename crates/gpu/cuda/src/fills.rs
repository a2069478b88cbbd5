//! Fills of a small allocation, in the thread's current context. Used to see what CUDA submits for a fill.

use crate::Result;
use crate::functions::{Cuda, RawStream};

/// A little GPU memory, and a stream.
#[derive(Debug)]
pub struct Fills {
    cuda: Cuda,
    stream: RawStream,
    address: u64,
}

impl Fills {
    pub const BYTES: usize = 4096;

    /// Uses the context that is current on this thread. It must stay current and live as long as this.
    pub fn new(cuda: Cuda) -> Result<Fills> {
        let mut address = 0;
        // SAFETY: writes one address.
        unsafe { cuda.cuMemAlloc_v2(&mut address, Fills::BYTES) }?;
        let mut fills = Fills { cuda, stream: std::ptr::null_mut(), address };
        // SAFETY: writes one handle. (`CU_STREAM_NON_BLOCKING`: the stream waits for no other work.)
        unsafe { cuda.cuStreamCreate(&mut fills.stream, 1) }?;
        Ok(fills)
    }

    /// Address of the memory, which is [`Fills::BYTES`] long.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Writes at most [`Fills::BYTES`] bytes, at the start.
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        let bytes = bytes.get(..Fills::BYTES).unwrap_or(bytes);
        // SAFETY: both sides have that many bytes.
        unsafe { self.cuda.cuMemcpyHtoD_v2(self.address, bytes.as_ptr().cast(), bytes.len()) }
    }

    pub fn read(&self) -> Result<Vec<u8>> {
        let mut bytes = vec![0; Fills::BYTES];
        // SAFETY: both sides have that many bytes.
        unsafe { self.cuda.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), self.address, bytes.len()) }?;
        Ok(bytes)
    }

    /// Fills the first words (at most all) with `cuMemsetD32Async`, and waits.
    pub fn fill32(&self, value: u32, words: usize) -> Result<()> {
        // SAFETY: the memory belongs to `self`.
        unsafe { self.cuda.cuMemsetD32Async(self.address, value, words.min(Fills::BYTES / 4), self.stream) }?;
        // SAFETY: the stream lives.
        unsafe { self.cuda.cuStreamSynchronize(self.stream) }
    }
}

impl Drop for Fills {
    fn drop(&mut self) {
        if !self.stream.is_null() {
            // SAFETY: made by `new`, and all its work was waited for.
            let _ = unsafe { self.cuda.cuStreamDestroy_v2(self.stream) };
        }
        // SAFETY: as above.
        let _ = unsafe { self.cuda.cuMemFree_v2(self.address) };
    }
}
