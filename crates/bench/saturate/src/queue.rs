//! What takes I/Os: one submitter, so many slots, and each I/O with a completion of its own.

use crate::Error;

/// Where an I/O goes: bytes from the start of the queue's part of the target, and of what the device has for this queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub device: u64,
    pub target: u64,
}

/// An I/O that is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub slot: u32,
    /// What the device says of it; 0 is well.
    pub status: u32,
}

/// A queue of a device. [`Queue::submit`] and [`Queue::reap`] take no lock, allocate nothing and make no system call.
pub trait Queue: Send {
    /// Submits the I/O of a slot that is free. Unless submissions are gathered ([`Queue::ring`]) the device is told at once.
    ///
    /// # Errors
    /// What the device or its driver has against it.
    fn submit(&mut self, slot: u32, place: Place) -> Result<(), Error>;

    /// Tells the device of what was gathered.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    fn ring(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// No I/O comes any more: those without a completion of their own get one, and what is behind it is there. It may wait, and call the kernel.
    ///
    /// # Errors
    /// As [`Queue::submit`], and what it waits for does not come.
    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Those that are done since the last call, as many as there is room for.
    ///
    /// # Errors
    /// The queue is dead.
    fn reap(&mut self, into: &mut [Done]) -> Result<usize, Error>;
}
