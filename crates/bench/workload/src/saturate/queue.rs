//! A queue that takes I/Os: one thread submits, the number of slots is fixed, and each I/O has its own completion.

use crate::Error;

/// The place of an I/O: offsets in bytes in the queue's part of the target, and in the device's bytes for this queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub device: u64,
    pub target: u64,
}

/// An I/O that is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub slot: u32,
    /// The device's status; 0 is success.
    pub status: u32,
}

/// A queue of a device. [`Queue::submit`] and [`Queue::reap`] do not lock, allocate or make a system call.
pub trait Queue: Send {
    /// Submits the I/O of a free slot. The device is notified at once, unless submissions are batched ([`Queue::ring`]).
    ///
    /// # Errors
    /// Errors of the device or its driver.
    fn submit(&mut self, slot: u32, place: Place) -> Result<(), Error>;

    /// Notifies the device of the batched submissions.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    fn ring(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// No more I/Os follow: I/Os without their own completion get one, and the data of the last ones is flushed. This call may wait and make system
    /// calls.
    ///
    /// # Errors
    /// As [`Queue::submit`], and that the last completion does not arrive.
    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Takes the I/Os that completed since the last call, as many as `into` has room for.
    ///
    /// # Errors
    /// The queue is dead.
    fn reap(&mut self, into: &mut [Done]) -> Result<usize, Error>;
}
