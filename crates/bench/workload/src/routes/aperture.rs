//! A 4 MiB window of BAR1 that is moved over the GPU's memory; the CPU stores and loads through it. It is today's form
//! of the BAR0 window of older GPUs. All the work is in the submission, including the moves: no transfer finds the
//! window where it needs it. A move makes system calls, so this is the only doorbell route whose submissions make any.

use crate::buffer::{Buffer, HostBytes};
use crate::ends::{Direction, Ends, both_ways};
use crate::error::Error;
use crate::executor::{Executor, Transfer};
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::routes::entry::{Entry, Found};
use crate::spec::{Spec, Word};
use gpu::Aperture;
use machine::Unavailable;
use std::time::Duration;

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "aperture", numbered: false, options: &[] },
    about: |_, _| "stores and loads of the CPU through a 4 MiB window of BAR1, moved for each transfer".into(),
    list: |machine| both_ways(machine, "host", "aperture").into(),
    check,
    open,
};

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    Direction::of(machine, spec)?;
    machine.space().map(drop)
}

fn open<'m>(_: &'m Machine, _: &Spec) -> Found<'m> {
    Ok(Box::new(Moved { over: None }))
}

struct Moved {
    over: Option<Over>,
}

/// A window over one buffer.
struct Over {
    buffer: u64,
    aperture: Aperture,
    /// Offset of the buffer in the range that the window can show.
    base: u64,
}

impl Moved {
    /// The window for this buffer.
    fn over(&mut self, gpu: &Buffer<'_>) -> Result<&mut Over, Error> {
        let over = match self.over.take() {
            Some(over) if over.buffer == gpu.id() => over,
            _ => {
                let (aperture, base) = gpu.aperture()?;
                Over { buffer: gpu.id(), aperture, base }
            }
        };
        Ok(self.over.insert(over))
    }
}

impl Executor for Moved {
    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        let gpu = if to.gpu().is_some() { to } else { from };
        self.over(gpu).map(drop)
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        ends.check(bytes)?;
        let direction = ends.direction()?;
        let host = ends.host_bytes(direction, 0, bytes)?;
        let Over { aperture, base, .. } = self.over(ends.gpu_end(direction))?;
        Ok(Box::new(Windows { aperture, base: *base, at: 0, host, direction, ends, done: false }))
    }
}

struct Windows<'r> {
    aperture: &'r mut Aperture,
    base: u64,
    /// Offset in the buffer.
    at: u64,
    host: HostBytes<'r>,
    ends: Ends<'r>,
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
        self.ends.hold([source, destination], bytes)?;
        self.host = self.ends.host_bytes(self.direction, host, bytes)?;
        self.at = gpu;
        Ok(())
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}
