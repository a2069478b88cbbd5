//! The two memories of a transfer, for code that checks the moved bytes. Use them only while no transfer is pending.

use crate::error::Error;

/// Bytes before and after each memory that no transfer may touch. They can be read and written here.
pub const GUARD: u64 = 64;

/// The memory that the CPU writes by itself. Changes there need no CUDA call, which would leave the caches and the GPU in a
/// different state than consecutive transfers do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostEnd {
    Source,
    Destination,
}

/// Source and destination, by offset from the start of transfers: from -[`GUARD`] to [`GUARD`] past the largest.
pub trait Inspect {
    /// Bytes of the destination that a transfer of `bytes` may write: a copy writes its own bytes, a message its whole line.
    fn footprint(&self, bytes: u64) -> u64 {
        bytes
    }

    fn host_end(&self) -> HostEnd;

    /// # Errors
    /// [`Error::Capacity`] outside of memory and guards, or CUDA's error.
    fn write_source(&self, at: i64, data: &[u8]) -> Result<(), Error>;

    /// # Errors
    /// As [`Inspect::write_source`].
    fn write_destination(&self, at: i64, data: &[u8]) -> Result<(), Error>;

    /// # Errors
    /// As [`Inspect::write_source`].
    fn read_destination(&self, at: i64, into: &mut [u8]) -> Result<(), Error>;
}
