//! libcuda's own copies: what every other route is compared with.
//!
//! As tight as CUDA lets a program be: one call submits (`cuMemcpyHtoDAsync`, `cuMemcpyDtoHAsync`) on a stream that waits
//! for no other, one call waits (`cuStreamSynchronize`, which knows no time limit). `sync` is the one call that does both
//! (`cuMemcpyHtoD`, `cuMemcpyDtoH`).
//!
//! Done means what CUDA promises. Of `sync` from pageable memory that is less than for all others: the source may be
//! changed, and whatever CUDA is told next sees the bytes, but the last of them may still be on their way.

use super::{Direction, Ends};
use crate::entry::{Entry, Opened};
use crate::error::{Error, Unavailable};
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::route::{Route, Transfer};
use crate::spec::{Spec, Word};
use cuda::{Context, DeviceSlice, Stream};
use std::time::Duration;

pub(crate) const SYNC: &str = "sync";

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "cuda", numbered: false, options: &[SYNC] },
    about: |_, _| "libcuda's own copies, on a stream or (sync) by the one call that also waits".into(),
    list,
    check,
    open,
};

fn list(machine: &Machine) -> Vec<String> {
    let gpu = machine.index();
    let mut names = Vec::new();
    for host in ["host", "host[pageable]", "host[registered]"] {
        for cuda in ["cuda", "cuda[sync]"] {
            names.push(format!("{host}->{cuda}->gpu{gpu}"));
            names.push(format!("gpu{gpu}->{cuda}->{host}"));
        }
    }
    names
}

pub(crate) fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    Direction::of(machine, spec)?;
    machine.context().map(|_| ())
}

fn open<'m>(machine: &'m Machine, spec: &Spec, capacity: u64) -> Opened<'m> {
    let direction = Direction::of(machine, spec)?;
    let context = machine.context()?;
    let stream = Stream::new(context)?;
    let ends = Ends::new(machine, spec, capacity)?;
    Ok(Box::new(CudaRoute { stream, ends, context, direction, sync: spec.executor.has(SYNC) }))
}

struct CudaRoute<'m> {
    // Before the memory that its work may name.
    stream: Stream<'m>,
    ends: Ends<'m>,
    context: &'m Context,
    direction: Direction,
    sync: bool,
}

impl Route for CudaRoute<'_> {
    fn name(&self) -> &str {
        &self.ends.name
    }

    fn capacity(&self) -> u64 {
        self.ends.capacity()
    }

    fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error> {
        self.ends.check(bytes)?;
        let (side, ends) = (side(&self.ends, self.direction, bytes)?, &self.ends);
        if self.sync {
            Ok(Box::new(Sync { context: self.context, side, ends, submitted: false }))
        } else {
            Ok(Box::new(Async { stream: &self.stream, side, ends }))
        }
    }

    fn fill(&mut self, data: &[u8]) -> Result<(), Error> {
        self.ends.fill(data)
    }

    fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.ends.read_back(into)
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}

/// The two memories of a transfer, equally long.
#[derive(Clone, Copy)]
pub(crate) struct Side<'r> {
    pub(crate) host: *mut u8,
    pub(crate) device: DeviceSlice<'r>,
    pub(crate) direction: Direction,
}

pub(crate) fn side<'r>(ends: &'r Ends<'_>, direction: Direction, bytes: u64) -> Result<Side<'r>, Error> {
    let (host, device) = match direction {
        Direction::ToGpu => (&ends.source, &ends.destination),
        Direction::FromGpu => (&ends.destination, &ends.source),
    };
    let missing = || Unavailable::new("CUDA copies between its own memories");
    let host = host.host_pointer().ok_or_else(missing)?;
    let device = device.device_slice(bytes)?.ok_or_else(missing)?;
    Ok(Side { host, device, direction })
}

struct Async<'r> {
    stream: &'r Stream<'r>,
    side: Side<'r>,
    ends: &'r Ends<'r>,
}

impl Side<'_> {
    /// # Safety
    /// The memory stays allocated, and the host's unused, until the stream has been synchronised.
    #[inline]
    pub(crate) unsafe fn enqueue(&self, stream: &Stream<'_>) -> Result<(), Error> {
        let len = self.device.len();
        match self.direction {
            Direction::ToGpu => {
                // SAFETY: the host buffer has the slice's length; the caller keeps it.
                unsafe { stream.upload(self.device, std::slice::from_raw_parts(self.host, len)) }?;
            }
            Direction::FromGpu => {
                // SAFETY: as above.
                unsafe { stream.download(std::slice::from_raw_parts_mut(self.host, len), self.device) }?;
            }
        }
        Ok(())
    }
}

impl Transfer for Async<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        // SAFETY: the transfer borrows the route, which owns the memory and, dropped, waits for the stream.
        unsafe { self.side.enqueue(self.stream) }
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.stream.is_done()?)
    }

    fn is_polled(&self) -> bool {
        false
    }

    /// CUDA's wait has no time limit: `timeout` is not looked at.
    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        Ok(self.stream.synchronize()?)
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(self.ends)
    }
}

impl Drop for Async<'_> {
    fn drop(&mut self) {
        // Whoever has waited already pays one more call here, outside of any transfer.
        let _ = self.stream.synchronize();
    }
}

struct Sync<'r> {
    context: &'r Context,
    side: Side<'r>,
    ends: &'r Ends<'r>,
    submitted: bool,
}

impl Transfer for Sync<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        let Side { host, device, direction } = self.side;
        match direction {
            // SAFETY: the host buffer has the slice's length, and the call is done with it when it returns.
            Direction::ToGpu => unsafe { device.upload_now(self.context, host) }?,
            // SAFETY: as above.
            Direction::FromGpu => unsafe { device.download_now(self.context, host) }?,
        }
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

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(self.ends)
    }
}
