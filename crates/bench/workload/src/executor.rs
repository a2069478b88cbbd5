//! An executor moves bytes between any two memories. A route is an executor with its own two memories.

use crate::buffer::Buffer;
use crate::ends::Ends;
use crate::error::Error;
use crate::inspect::Inspect;
use machine::Unavailable;
use std::time::Duration;

/// Moves bytes. It owns channels, streams and kernels, but not the memory that it moves.
pub trait Executor {
    /// Bytes that a memory needs for transfers of up to `capacity`.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where it cannot move such a large transfer.
    fn room(&self, capacity: u64) -> Result<u64, Error> {
        Ok(capacity)
    }

    /// A message of any length writes this many bytes of its destination; 0 for copies.
    fn line(&self) -> u64 {
        0
    }

    /// Makes both memories reachable for it: pinned, or mapped. [`Executor::prepare`] does this too. A separate call reports
    /// errors of the memories earlier.
    ///
    /// # Errors
    /// The driver's reason to refuse them.
    fn reach(&mut self, _from: &Buffer<'_>, _to: &Buffer<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Prepares a transfer of `bytes` from the start of one memory to the start of another.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where it cannot move that many bytes between these two, with the reason, or [`Error::Capacity`].
    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error>;
}

/// An opened route between two memories: they are allocated, and the executor exists.
pub struct Route<'m> {
    // Before the memories that its work may name.
    executor: Box<dyn Executor + 'm>,
    name: String,
    source: Buffer<'m>,
    destination: Buffer<'m>,
    capacity: u64,
}

impl<'m> Route<'m> {
    /// Between two memories that the caller chooses.
    ///
    /// # Errors
    /// The executor's reason to refuse the memories.
    pub fn new(
        name: &str,
        source: Buffer<'m>,
        mut executor: Box<dyn Executor + 'm>,
        destination: Buffer<'m>,
    ) -> Result<Route<'m>, Error> {
        executor.reach(&source, &destination)?;
        let capacity = source.capacity().min(destination.capacity());
        Ok(Route { executor, name: name.into(), source, destination, capacity })
    }

    /// The same, for transfers of up to `capacity` bytes.
    pub(crate) fn up_to(self, capacity: u64) -> Route<'m> {
        Route { capacity, ..self }
    }

    /// The name as the caller wrote it: `host->ce0->gpu0`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The largest transfer that its memories hold, in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Prepares a transfer of `bytes` from the start of the source to the start of the destination.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where this route cannot move that many bytes, with the reason.
    pub fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error> {
        let capacity = self.capacity;
        if bytes > capacity {
            return Err(Error::Capacity { bytes, capacity });
        }
        self.executor.prepare(Ends::new(&self.source, &self.destination), bytes)
    }

    /// Its two memories, including guards; use them while no transfer is pending.
    pub fn ends(&self) -> Ends<'_> {
        Ends { line: self.executor.line(), ..Ends::new(&self.source, &self.destination) }
    }

    /// Its parts, so that they can be combined differently.
    pub fn into_parts(self) -> (Buffer<'m>, Box<dyn Executor + 'm>, Buffer<'m>) {
        (self.source, self.executor, self.destination)
    }
}

pub(crate) const FIXED: &str = "its addresses are fixed when it is prepared";

/// One prepared transfer, which may be submitted any number of times.
pub trait Transfer {
    /// Submits it. If the CPU moves the bytes (stores through BAR1), all the work is here.
    fn submit(&mut self) -> Result<(), Error>;

    /// True when all bytes of the last submitted transfer have arrived.
    fn poll(&mut self) -> Result<bool, Error>;

    /// Whether [`Transfer::poll`] only reads memory. Where it calls CUDA, do not wait in a loop of polls; use [`Transfer::wait`].
    fn is_polled(&self) -> bool {
        true
    }

    /// Waits until all bytes of the last submitted transfer have arrived.
    ///
    /// # Errors
    /// [`Error::Late`] after `timeout`; the transfer may still be pending.
    fn wait(&mut self, timeout: Duration) -> Result<(), Error>;

    /// Call this when no submission will follow for a while. It stops what would stay busy on the GPU, such as a kernel that
    /// spins. The next submission starts it again, and takes longer for that. Most routes need no work here.
    fn rest(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The next submissions use other places of source and destination: offsets from where transfers otherwise begin. No transfer
    /// may be in flight.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where the addresses are fixed when it is prepared, [`Error::Capacity`] where it would not fit.
    fn move_to(&mut self, _source: u64, _destination: u64) -> Result<(), Error> {
        Err(Unavailable::new(FIXED).into())
    }

    /// When the last finished transfer was done, in nanoseconds of the GPU's clock ([`gpu::Clock`]): the timestamp that the
    /// engine wrote with its release. `None` where no engine on doorbell's channels writes a release.
    fn released_gpu_ns(&self) -> Option<u64> {
        None
    }

    /// When the engine began the last finished transfer, by the same clock. `None` where it does not write that time;
    /// `ceN[timed]` and `inline[timed]` do.
    fn started_gpu_ns(&self) -> Option<u64> {
        None
    }

    /// Its two memories, to be read and written while no transfer is pending; `None` where they cannot be.
    fn ends(&self) -> Option<&dyn Inspect> {
        None
    }
}
