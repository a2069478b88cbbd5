//! The CPU's stores and loads through BAR1: all the work is in the submission.
//!
//! Stores are posted: when the submission returns they are on their way, before anything that the CPU sends to the GPU later.
//! `bar1[flush]` also waits for them: a load of the last byte returns only after all earlier stores have arrived.
//! Both are copies: they write the transfer's bytes and no others. `message` sends bytes to a kernel without a copy.

use crate::buffer::{Buffer, HostBytes};
use crate::ends::{Direction, Ends};
use crate::error::Error;
use crate::executor::{Executor, Transfer};
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::routes::entry::Entry;
use crate::spec::{Spec, Word};
use gpu::Bar1Map;
use machine::Unavailable;
use std::time::Duration;

const FLUSH: &str = "flush";
pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "bar1", numbered: false, options: &[FLUSH] },
    about: |_, _| "stores and loads of the CPU through BAR1; flush: a load waits until the stores have arrived".into(),
    list,
    check,
    open: |_, spec| Ok(Box::new(Bar1 { flush: spec.executor.has(FLUSH) })),
};

fn list(machine: &Machine) -> Vec<String> {
    let gpu = machine.index();
    vec![
        format!("host->bar1->gpu{gpu}"),
        format!("host->bar1[flush]->gpu{gpu}"),
        format!("host[pageable]->bar1->gpu{gpu}"),
        format!("gpu{gpu}->bar1->host"),
    ]
}

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    let direction = Direction::of(machine, spec)?;
    if direction == Direction::FromGpu && spec.executor.has(FLUSH) {
        return Err(Unavailable::new("loads are there when they come back: there is nothing to flush from the GPU"));
    }
    machine.space().map(drop)
}

struct Bar1 {
    flush: bool,
}

impl Executor for Bar1 {
    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        let gpu = if to.gpu().is_some() { to } else { from };
        gpu.bar1().map(drop)
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        ends.check(bytes)?;
        let direction = ends.direction()?;
        let (map, host) = (ends.gpu_end(direction).bar1()?, ends.host_bytes(direction, 0, bytes)?);
        Ok(match direction {
            Direction::ToGpu => Box::new(Stores { map, from: host, at: 0, ends, flush: self.flush, stored: false }),
            Direction::FromGpu => Box::new(Loads { map, to: host, at: 0, ends, loaded: false }),
        })
    }
}

struct Stores<'r> {
    map: &'r Bar1Map,
    from: HostBytes<'r>,
    /// Offset at the GPU's end.
    at: u64,
    ends: Ends<'r>,
    flush: bool,
    stored: bool,
}

impl Stores<'_> {
    #[inline]
    fn arrived(&self) -> Result<(), Error> {
        if self.flush {
            self.map.read(self.at + self.from.len() as u64 - 1, &mut [0])?;
        }
        Ok(())
    }
}

impl Transfer for Stores<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        self.map.write(self.at, self.from.bytes())?;
        self.stored = true;
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        if self.stored {
            self.arrived()?;
        }
        Ok(self.stored)
    }

    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        if self.stored { self.arrived() } else { Err(Error::Idle) }
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        let bytes = self.from.len() as u64;
        self.ends.hold([source, destination], bytes)?;
        self.from = self.ends.source.host_bytes(source, bytes)?;
        self.at = destination;
        Ok(())
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}

struct Loads<'r> {
    map: &'r Bar1Map,
    to: HostBytes<'r>,
    /// Offset at the GPU's end.
    at: u64,
    ends: Ends<'r>,
    loaded: bool,
}

impl Transfer for Loads<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        self.map.read(self.at, self.to.bytes_mut())?;
        self.loaded = true;
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.loaded)
    }

    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        if self.loaded { Ok(()) } else { Err(Error::Idle) }
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        let bytes = self.to.len() as u64;
        self.ends.hold([source, destination], bytes)?;
        self.to = self.ends.destination.host_bytes(destination, bytes)?;
        self.at = source;
        Ok(())
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}
