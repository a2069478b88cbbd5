//! The programs, one file each, for a GPU with libcuda.

pub(crate) mod bench;
pub(crate) mod channels;
pub(crate) mod copies;
pub(crate) mod graphs;
pub(crate) mod launches;
pub(crate) mod spin;
pub(crate) mod stall;
pub(crate) mod starve;
pub(crate) mod storm;
pub(crate) mod threads;

use cuda::DeviceBuffer;

/// Reads all of a buffer back (`cuMemcpyDtoH`).
fn read(buffer: &DeviceBuffer<'_>) -> cuda::Result<Vec<u8>> {
    let mut bytes = vec![0; buffer.len()];
    buffer.read(&mut bytes)?;
    Ok(bytes)
}
