//! The CUDA runtime's copies, the calls that programs make: `cudaMemcpyAsync` on a stream and `cudaStreamSynchronize`, or
//! (sync) `cudaMemcpy`. Beside `cuda`, whose calls lie one library lower, it says what the runtime adds.
//!
//! Done means what it means for `cuda`.

use super::cuda::{Side, side, side_at};
use super::{Direction, Ends};
use crate::entry::{Entry, Opened};
use crate::error::{Error, Unavailable};
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::route::{Route, Transfer};
use crate::spec::{Spec, Word};
use cuda::runtime::{Runtime, Stream};
use std::time::Duration;

const SYNC: &str = "sync";

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "cudart", numbered: false, options: &[SYNC] },
    about: |_, _| "the CUDA runtime's copies, on a stream or (sync) by the one call that also waits".into(),
    list,
    check,
    open,
};

fn list(machine: &Machine) -> Vec<String> {
    let gpu = machine.index();
    let mut names = Vec::new();
    for host in ["host", "host[pageable]"] {
        for cudart in ["cudart", "cudart[sync]"] {
            names.push(format!("{host}->{cudart}->gpu{gpu}"));
            names.push(format!("gpu{gpu}->{cudart}->{host}"));
        }
    }
    names
}

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    Direction::of(machine, spec)?;
    machine.context()?;
    machine.runtime().map(|_| ())
}

fn open<'m>(machine: &'m Machine, spec: &Spec, capacity: u64) -> Opened<'m> {
    let direction = Direction::of(machine, spec)?;
    let runtime = machine.runtime()?;
    let device = machine.context()?.device().ordinal();
    let start = |error: cuda::Error| Unavailable::new(format!("the CUDA runtime does not start: {error}"));
    runtime.set_device(device).map_err(start)?;
    let stream = Stream::new(runtime).map_err(start)?;
    let ends = Ends::new(machine, spec, capacity)?;
    Ok(Box::new(RuntimeRoute { stream, ends, runtime, direction, sync: spec.executor.has(SYNC) }))
}

struct RuntimeRoute<'m> {
    // Before the memory that its work may name.
    stream: Stream,
    ends: Ends<'m>,
    runtime: Runtime,
    direction: Direction,
    sync: bool,
}

impl Route for RuntimeRoute<'_> {
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
            Ok(Box::new(Sync { runtime: self.runtime, side, ends, submitted: false }))
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

struct Async<'r> {
    stream: &'r Stream,
    side: Side<'r>,
    ends: &'r Ends<'r>,
}

impl Transfer for Async<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        let Side { host, device, direction } = self.side;
        match direction {
            // SAFETY: the host buffer has the slice's length; the transfer borrows the route, which owns both, and waits
            // for the stream when it is dropped.
            Direction::ToGpu => unsafe { self.stream.upload(device, host) }?,
            // SAFETY: as above.
            Direction::FromGpu => unsafe { self.stream.download(host, device) }?,
        }
        Ok(())
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

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        let bytes = self.side.device.len() as u64;
        self.side = side_at(self.ends, self.side.direction, bytes, [source, destination])?;
        Ok(())
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
    runtime: Runtime,
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
            Direction::ToGpu => unsafe { self.runtime.upload_now(device, host) }?,
            // SAFETY: as above.
            Direction::FromGpu => unsafe { self.runtime.download_now(host, device) }?,
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

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        let bytes = self.side.device.len() as u64;
        self.side = side_at(self.ends, self.side.direction, bytes, [source, destination])?;
        Ok(())
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(self.ends)
    }
}
