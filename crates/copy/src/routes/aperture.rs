//! A 4 MiB window of BAR1 that is moved over the GPU's memory, stores and loads of the CPU through it: today's form of the
//! BAR0 window of older GPUs. All the work is in the submission, the moves included: no transfer finds the window where it
//! needs it. A move makes system calls, so this is the one route of our own whose submissions do.

use super::{Direction, Ends, HostBytes};
use crate::entry::{Entry, Opened};
use crate::error::{Error, Unavailable};
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::route::{Route, Transfer};
use crate::spec::{Spec, Word};
use gpu::Aperture;
use std::time::Duration;

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "aperture", numbered: false, options: &[] },
    about: |_, _| "stores and loads of the CPU through a 4 MiB window of BAR1, moved for each transfer".into(),
    list,
    check,
    open,
};

fn list(machine: &Machine) -> Vec<String> {
    let gpu = machine.index();
    vec![format!("host->aperture->gpu{gpu}"), format!("gpu{gpu}->aperture->host")]
}

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    Direction::of(machine, spec)?;
    machine.space().map(drop)
}

fn open<'m>(machine: &'m Machine, spec: &Spec, capacity: u64) -> Opened<'m> {
    let direction = Direction::of(machine, spec)?;
    let mut ends = Ends::new(machine, spec, capacity)?;
    let gpu = ends.gpu_end(direction);
    gpu.pin(machine)?;
    let (aperture, base) = gpu.aperture()?;
    Ok(Box::new(ApertureRoute { aperture, base, ends, direction }))
}

struct ApertureRoute<'m> {
    aperture: Aperture,
    /// Where in what the window moves over the buffer begins.
    base: u64,
    ends: Ends<'m>,
    direction: Direction,
}

impl Route for ApertureRoute<'_> {
    fn name(&self) -> &str {
        &self.ends.name
    }

    fn capacity(&self) -> u64 {
        self.ends.capacity()
    }

    fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error> {
        self.ends.check(bytes)?;
        let host = self.ends.host_bytes(self.direction, bytes)?;
        let (aperture, base, direction, ends) = (&mut self.aperture, self.base, self.direction, &self.ends);
        Ok(Box::new(Windows { aperture, base, at: 0, host, direction, ends, done: false }))
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

struct Windows<'r> {
    aperture: &'r mut Aperture,
    base: u64,
    /// Where in the buffer.
    at: u64,
    host: HostBytes<'r>,
    ends: &'r Ends<'r>,
    direction: Direction,
    done: bool,
}

impl Transfer for Windows<'_> {
    fn submit(&mut self) -> Result<(), Error> {
        self.aperture.close();
        match self.direction {
            Direction::ToGpu => self.aperture.write(self.base + self.at, self.host.bytes())?,
            Direction::FromGpu => self.aperture.read(self.base + self.at, self.host.bytes_mut())?,
        }
        self.done = true;
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.done)
    }

    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        if self.done { Ok(()) } else { Err(Error::Idle) }
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        let bytes = self.host.len() as u64;
        let (host, gpu) = match self.direction {
            Direction::ToGpu => (source, destination),
            Direction::FromGpu => (destination, source),
        };
        self.ends.holds(gpu, bytes)?;
        self.host = self.ends.host_bytes_at(self.direction, host, bytes)?;
        self.at = gpu;
        Ok(())
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(self.ends)
    }
}
