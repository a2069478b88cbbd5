//! A session's memory that the CPU itself uses for longer than one call.

use crate::buffers::Kept;
use crate::error::Error;
use crate::handle::{BUFFER, Buffer};
use crate::numbering::LOOKS;
use crate::session::Session;
use gpu::Memory;
use rm::graph::Place;
use std::ptr::NonNull;
use std::sync::Arc;

/// A session's host memory that stays mapped while this lives, even after the buffer was unpinned or the session closed.
#[derive(Clone, Debug)]
pub struct Hold {
    memory: Arc<Memory>,
    at: usize,
    bytes: usize,
}

impl Session {
    /// Keeps `bytes` at `at` of a buffer from [`Session::allocate`] mapped, for example for a thread that fills a chain's input.
    ///
    /// # Errors
    /// [`Error::Argument`] for CUDA's memory or GPU memory, [`Error::Outside`], [`Error::Handle`], [`Error::Closed`], [`Error::Forked`].
    pub fn hold(&self, (buffer, at): (Buffer, u64), bytes: u64) -> Result<Hold, Error> {
        let _setup = self.setup()?;
        let now = self.now()?;
        // Any lane's claim keeps the entry.
        let claim = self.lanes[LOOKS].claim_in_time();
        // SAFETY: the claim lives until the end of the function.
        let entry = unsafe { self.buffers.find(BUFFER.decode(now.opening(), buffer.0)?) }?;
        entry.region.part(at, bytes)?;
        let held = match &entry.kept {
            Kept::Ours(memory) if entry.place == Place::Host => {
                Ok(Hold { memory: memory.clone(), at: at as usize, bytes: bytes as usize })
            }
            _ => Err(Error::Argument(
                "only host memory of doorbell's own is held for the CPU: allocate it (not GPU memory)",
            )),
        };
        drop(claim);
        held
    }
}

impl Hold {
    /// The first of the bytes. The caller must make sure that no other thread reads or writes them at the same time.
    #[inline]
    pub fn pointer(&self) -> NonNull<u8> {
        // SAFETY: the part is within the memory, as was checked when it was made, and no mapping is at 0.
        unsafe { NonNull::new_unchecked(self.memory.as_ptr().add(self.at)) }
    }

    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
