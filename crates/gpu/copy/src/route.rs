//! An executor moves bytes between any two memories; a route is an executor with two memories of its own.

use crate::buffer::Buffer;
use crate::ends::Pair;
use crate::error::{Error, Unavailable};
use crate::inspect::Inspect;
use std::time::Duration;

/// What moves bytes: it owns channels, streams and kernels, and no memory that it moves.
pub trait Executor {
    /// Bytes that a memory needs for transfers of up to `capacity`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where it moves no transfer so large.
    fn room(&self, capacity: u64) -> Result<u64, Error> {
        Ok(capacity)
    }

    /// A message writes so many bytes of its destination, however long it is; 0 for copies.
    fn line(&self) -> u64 {
        0
    }

    /// How many like this one may be ready to move bytes at once. Kernels that wait for their commands keep their multiprocessors.
    fn at_once(&self) -> u32 {
        u32::MAX
    }

    /// Makes both memories reachable for it: pinned, or mapped. [`Executor::prepare`] does it too; whoever asks before learns
    /// earlier what is wrong with them.
    ///
    /// # Errors
    /// What the driver has against it.
    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error>;

    /// Readies a transfer of `bytes` from the start of one memory to the start of another.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where it cannot move that many bytes between these two, with the reason, and [`Error::Capacity`].
    fn prepare<'r>(
        &'r mut self,
        from: &'r Buffer<'r>,
        to: &'r Buffer<'r>,
        bytes: u64,
    ) -> Result<Box<dyn Transfer + 'r>, Error>;
}

/// A way between two memories, opened: they are allocated, and what moves the bytes exists.
pub struct Route<'m> {
    // Before the memories that its work may name.
    executor: Box<dyn Executor + 'm>,
    pair: Pair<'m>,
    capacity: u64,
}

impl<'m> Route<'m> {
    /// Between two memories of the caller's choice.
    ///
    /// # Errors
    /// What the executor has against the memories.
    pub fn new(
        name: &str,
        source: Buffer<'m>,
        executor: Box<dyn Executor + 'm>,
        destination: Buffer<'m>,
    ) -> Result<Route<'m>, Error> {
        let pair = Pair { name: name.into(), source, destination, line: 0 };
        let capacity = pair.capacity();
        Route::over(executor, pair, capacity)
    }

    pub(crate) fn over(
        mut executor: Box<dyn Executor + 'm>,
        mut pair: Pair<'m>,
        capacity: u64,
    ) -> Result<Route<'m>, Error> {
        pair.line = executor.line();
        executor.reach(&pair.source, &pair.destination)?;
        Ok(Route { executor, pair, capacity })
    }

    /// As it was asked for: `host->ce0->gpu0`.
    pub fn name(&self) -> &str {
        &self.pair.name
    }

    /// The largest transfer that its memories hold, bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// How many of these may be ready at once: one that is ready keeps what the others need.
    pub fn at_once(&self) -> u32 {
        self.executor.at_once()
    }

    /// Readies a transfer of `bytes` from the start of the source to the start of the destination.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where this way cannot move that many bytes, with the reason.
    pub fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error> {
        let capacity = self.capacity;
        if bytes > capacity {
            return Err(Error::Capacity { bytes, capacity });
        }
        self.executor.prepare(&self.pair.source, &self.pair.destination, bytes)
    }

    /// Writes `data` to the start of the source, untimed and by a way that is not this one where there is another.
    ///
    /// # Errors
    /// [`Error::Capacity`], and what CUDA says.
    pub fn fill(&mut self, data: &[u8]) -> Result<(), Error> {
        self.pair.fill(data)
    }

    /// Reads the start of the destination back into `into`, untimed and by a way that is not this one where there is another.
    ///
    /// # Errors
    /// As [`Route::fill`].
    pub fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.pair.read_back(into)
    }

    /// Its two memories, guards included, while nothing is under way.
    pub fn ends(&self) -> &dyn Inspect {
        &self.pair
    }

    /// Its parts, to be put together in another way.
    pub fn into_parts(self) -> (Buffer<'m>, Box<dyn Executor + 'm>, Buffer<'m>) {
        (self.pair.source, self.executor, self.pair.destination)
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

    /// The multiprocessors on which its kernels run, by cluster and block, as they said themselves. `None` where no kernel that
    /// stays carries it, or not all have said so yet.
    fn places(&self) -> Option<Vec<Vec<u32>>> {
        None
    }

    /// Its two memories, to be looked at and written while nothing of it is under way; `None` where they cannot be.
    fn ends(&self) -> Option<&dyn Inspect> {
        None
    }
}
