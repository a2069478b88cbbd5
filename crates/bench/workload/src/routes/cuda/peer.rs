//! CUDA's copies from GPU to GPU: `cuMemcpyPeerAsync` between two, `cuMemcpyDtoDAsync` within one.

use crate::ends::Ends;
use crate::error::Error;
use crate::executor::Transfer;
use crate::inspect::Inspect;
use cuda::{DeviceSlice, Stream};
use machine::Unavailable;
use std::time::Duration;

pub(super) struct Peer<'r> {
    stream: &'r Stream<'r>,
    ends: Ends<'r>,
    to: DeviceSlice<'r>,
    from: DeviceSlice<'r>,
    bytes: u64,
}

impl<'r> Peer<'r> {
    pub(super) fn new(stream: &'r Stream<'r>, ends: Ends<'r>, bytes: u64) -> Result<Peer<'r>, Error> {
        let [to, from] = slices(ends, bytes, [0, 0])?;
        Ok(Peer { stream, ends, to, from, bytes })
    }
}

fn slices(ends: Ends<'_>, bytes: u64, [source, destination]: [u64; 2]) -> Result<[DeviceSlice<'_>; 2], Error> {
    ends.hold([source, destination], bytes)?;
    let missing = || Unavailable::new("CUDA copies between its own memories");
    let to = ends.destination.device_slice(destination, bytes)?.ok_or_else(missing)?;
    Ok([to, ends.source.device_slice(source, bytes)?.ok_or_else(missing)?])
}

impl Transfer for Peer<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        let (to, from) = (self.ends.destination, self.ends.source);
        if to.gpu() == from.gpu() {
            return Ok(self.stream.copy(self.to, self.from)?);
        }
        let (at, of) = (to.machine().context()?, from.machine().context()?);
        Ok(self.stream.copy_peer((self.to, at), (self.from, of))?)
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.stream.is_done()?)
    }

    fn is_polled(&self) -> bool {
        false
    }

    /// CUDA's wait has no time limit, so `timeout` is ignored.
    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        Ok(self.stream.synchronize()?)
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        [self.to, self.from] = slices(self.ends, self.bytes, [source, destination])?;
        Ok(())
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}

impl Drop for Peer<'_> {
    fn drop(&mut self) {
        // After a wait this costs one more call, outside of any transfer.
        let _ = self.stream.synchronize();
    }
}
