//! A copy by one CUDA call that also waits: it is done when the call returns.

use super::{Side, side_at};
use crate::ends::Ends;
use crate::error::Error;
use crate::executor::Transfer;
use crate::inspect::Inspect;
use std::time::Duration;

pub(in crate::routes) struct AtOnce<'r, C> {
    side: Side<'r>,
    ends: Ends<'r>,
    call: C,
    submitted: bool,
}

impl<'r, C: Fn(Side<'_>) -> cuda::Result<()>> AtOnce<'r, C> {
    pub(in crate::routes) fn new(side: Side<'r>, ends: Ends<'r>, call: C) -> AtOnce<'r, C> {
        AtOnce { side, ends, call, submitted: false }
    }
}

impl<C: Fn(Side<'_>) -> cuda::Result<()>> Transfer for AtOnce<'_, C> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        (self.call)(self.side)?;
        self.submitted = true;
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.submitted)
    }

    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        if self.submitted { Ok(()) } else { Err(Error::Idle) }
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        let bytes = self.side.device.len() as u64;
        self.side = side_at(self.ends, bytes, [source, destination])?;
        Ok(())
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}
