//! A 4 MiB window of BAR1 that is moved over the GPU's memory; the CPU stores and loads through it. It is today's form
//! of the BAR0 window of older GPUs. All the work is in the submission, including the moves: no transfer finds the
//! window where it needs it. A move makes system calls, so this is the only doorbell route whose submissions make any.

use super::call::Call;
use crate::buffer::{Buffer, HostBytes};
use crate::ends::{Direction, Ends, both_ways};
use crate::error::Error;
use crate::executor::{Executor, Transfer};
use crate::machine::Machine;
use crate::routes::entry::{Entry, Found};
use crate::spec::{Spec, Word};
use gpu::Aperture;
use machine::Unavailable;

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
        let Over { aperture, base, .. } = self.over(ends.gpu_end(direction))?;
        let aim = move |ends: &Ends<'r>, at: [u64; 2]| {
            let (host, gpu) = direction.sides(at);
            Ok((ends.host_bytes(direction, host, bytes)?, *base + gpu))
        };
        let call = move |(host, at): &mut (HostBytes<'r>, u64)| {
            aperture.close();
            match direction {
                Direction::ToGpu => aperture.write(*at, host.bytes())?,
                Direction::FromGpu => aperture.read(*at, host.bytes_mut())?,
            }
            Ok(())
        };
        Ok(Box::new(Call::new(ends, bytes, aim, call)?))
    }
}
