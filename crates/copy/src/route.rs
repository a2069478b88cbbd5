//! The two traits of a way to move bytes.

use crate::error::{Error, Unavailable};
use crate::inspect::Inspect;
use std::time::Duration;

/// A way between two memories, opened: its buffers are allocated and its channel exists.
pub trait Route {
    /// As it was asked for: `host->ce0->gpu0`.
    fn name(&self) -> &str;

    /// The largest transfer that its buffers hold, bytes.
    fn capacity(&self) -> u64;

    /// Readies a transfer of `bytes` from the start of the source to the start of the destination.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where this way cannot move that many bytes, with the reason.
    fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error>;

    /// Writes `data` to the start of the source, untimed and by a way that is not this one where there is another.
    fn fill(&mut self, data: &[u8]) -> Result<(), Error>;

    /// Reads the start of the destination back into `into`, untimed and by a way that is not this one where there is another.
    fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error>;

    /// Its two memories, guards included; `None` where they cannot be looked at.
    fn ends(&self) -> Option<&dyn Inspect> {
        None
    }
}

/// One transfer that is ready to go, as often as one likes.
pub trait Transfer {
    /// Hands it to whoever executes it. For ways that are the CPU's own (stores through BAR1) all the work is here.
    fn submit(&mut self) -> Result<(), Error>;

    /// True when the last submitted transfer's bytes are all there.
    fn poll(&mut self) -> Result<bool, Error>;

    /// Whether [`Transfer::poll`] only looks at memory. Where it calls CUDA, a loop of polls is no way to wait:
    /// [`Transfer::wait`] is.
    fn is_polled(&self) -> bool {
        true
    }

    /// Until the last submitted transfer's bytes are all there.
    ///
    /// # Errors
    /// [`Error::Late`] after `timeout`; the transfer may still be under way.
    fn wait(&mut self, timeout: Duration) -> Result<(), Error>;

    /// To be called when no submission will come for a while: lets go of what is kept busy on the GPU meanwhile, such as a
    /// kernel that spins. The next submission readies it again, and takes longer for it. Most ways have nothing to do here.
    fn rest(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The next submissions go from another place of the source to another of the destination: offsets from where transfers
    /// begin otherwise. No transfer may be in flight.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where its addresses are fixed when it is prepared, [`Error::Capacity`] where it would not fit.
    fn move_to(&mut self, _source: u64, _destination: u64) -> Result<(), Error> {
        Err(Unavailable::new("its addresses are fixed when it is prepared").into())
    }

    /// When the last transfer that is done was, in nanoseconds of the GPU's clock ([`gpu::Clock`]): the timestamp that the
    /// engine wrote with its release. `None` where no engine of ours releases anything.
    fn released_gpu_ns(&self) -> Option<u64> {
        None
    }

    /// When the engine began the last transfer that is done, by the same clock. `None` where it does not say: `ceN[timed]` and
    /// `inline[timed]` do.
    fn started_gpu_ns(&self) -> Option<u64> {
        None
    }

    /// Its two memories, to be looked at and written while nothing of it is under way; `None` where they cannot be.
    fn ends(&self) -> Option<&dyn Inspect> {
        None
    }
}
