//! The two memories of a transfer, for code that checks what it moved: only while none is under way.

use crate::error::Error;

/// Bytes before and behind each memory that no transfer may touch, and that can be read and written here.
pub const GUARD: u64 = 64;

/// Which memory the CPU writes by itself: what is changed there costs no call of CUDA's, which would leave the caches and the GPU
/// in another state than transfers one after the other do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEnd {
    Source,
    Destination,
}

/// Source and destination by offset from where transfers begin: from -[`GUARD`] to [`GUARD`] past the largest.
pub trait Inspect {
    /// Bytes of the destination that a transfer of so many may write: a copy writes its own, a message its line.
    fn footprint(&self, bytes: u64) -> u64 {
        bytes
    }

    fn host_end(&self) -> HostEnd;

    /// # Errors
    /// [`Error::Capacity`] outside of memory and guards, and what CUDA says.
    fn write_source(&self, at: i64, data: &[u8]) -> Result<(), Error>;

    /// # Errors
    /// As [`Inspect::write_source`].
    fn write_destination(&self, at: i64, data: &[u8]) -> Result<(), Error>;

    /// # Errors
    /// As [`Inspect::write_source`].
    fn read_destination(&self, at: i64, into: &mut [u8]) -> Result<(), Error>;
}
