//! Memory of a session's that the CPU uses itself, for longer than one call.

use crate::buffers::Kept;
use crate::error::Error;
use crate::handle::{BUFFER, Buffer};
use crate::session::{LOOKS, Session};
use gpu::Memory;
use rm::graph::Place;
use std::ptr::NonNull;
use std::sync::Arc;

/// Host memory of a session's that stays mapped while this lives, also after the buffer was unpinned or the session closed.
#[derive(Clone, Debug)]
pub struct Hold {
    memory: Arc<Memory>,
    at: usize,
    bytes: usize,
}

impl Session {
    /// Keeps `bytes` at `at` of a buffer of [`Session::allocate`]'s mapped: for a thread that fills what a chain reads.
    ///
    /// # Errors
    /// [`Error::Argument`] for memory of CUDA's or of the GPU, [`Error::Outside`], [`Error::Handle`], [`Error::Closed`], [`Error::Forked`].
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
            _ => {
                Err(Error::Argument("only host memory of doorbell's own is held for the CPU: allocate it (not video)"))
            }
        };
        drop(claim);
        held
    }
}

impl Hold {
    /// The first of the bytes. Whoever reads or writes them looks itself that nobody else does so at the same time.
    #[inline]
    pub fn pointer(&self) -> NonNull<u8> {
        // SAFETY: the part lies within the memory, as was checked when it was made, and no mapping is at 0.
        unsafe { NonNull::new_unchecked(self.memory.as_ptr().add(self.at)) }
    }

    #[inline]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}
