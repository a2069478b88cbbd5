//! The CPU's stores and loads through BAR1: all the work is in the submission.
//!
//! Stores are posted: when the submission returns they are on their way, before anything that the CPU sends to the GPU later.
//! `bar1[flush]` also waits for them: a load of the last byte returns only after all earlier stores have arrived.
//! Both are copies: they write the transfer's bytes and no others. `message` sends bytes to a kernel without a copy.

use super::call::Call;
use crate::buffer::{Buffer, HostBytes};
use crate::ends::{Direction, Ends};
use crate::error::Error;
use crate::executor::{Executor, Transfer};
use crate::machine::Machine;
use crate::routes::entry::Entry;
use crate::spec::{Spec, Word};
use gpu::Bar1Map;
use machine::Unavailable;

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
        let map = ends.gpu_end(direction).bar1()?;
        let aim = move |ends: &Ends<'r>, at: [u64; 2]| {
            let (host, gpu) = direction.sides(at);
            Ok(Taken { map, host: ends.host_bytes(direction, host, bytes)?, at: gpu })
        };
        Ok(match direction {
            Direction::ToGpu => {
                let stores = Call::new(ends, bytes, aim, |to| Ok(to.map.write(to.at, to.host.bytes())?))?;
                Box::new(if self.flush { stores.until(Taken::arrived) } else { stores })
            }
            Direction::FromGpu => {
                Box::new(Call::new(ends, bytes, aim, |from| Ok(from.map.read(from.at, from.host.bytes_mut())?))?)
            }
        })
    }
}

/// What a submission stores or loads.
struct Taken<'r> {
    map: &'r Bar1Map,
    host: HostBytes<'r>,
    /// Offset at the GPU's end.
    at: u64,
}

impl Taken<'_> {
    /// A load of the last byte returns after all stores.
    #[inline]
    fn arrived(&self) -> Result<(), Error> {
        Ok(self.map.read(self.at + self.host.len() as u64 - 1, &mut [0])?)
    }
}
