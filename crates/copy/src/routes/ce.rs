//! Copies by copy engine n, on a channel of our own: `ce0` for one after the other (NON_PIPELINED), `ce0[pipelined]` for
//! copies that may overlap those before them, `ce0[folded]` with the release in the same LAUNCH_DMA as the copy.
//!
//! Which engines run beside kernels and which on graphics' runlist, `gpu` says by their capabilities; both are `ceN` here.

use super::channel::{self, DOORBELL_BAR1, GPFIFO_HOST, PUSHBUFFER_VIDEO, TRACKER_VIDEO, USERD_HOST};
use super::{Direction, Ends};
use crate::error::{Error, Unavailable};
use crate::machine::Machine;
use crate::registry::{Entry, Opened};
use crate::route::{Route, Transfer};
use crate::spec::{Spec, Word};
use gpu::{Channel, CopyMode, Engine, Prepared, Ticket, Window};
use std::time::Duration;

const PIPELINED: &str = "pipelined";
const FOLDED: &str = "folded";
/// The most that the validator lets one copy move.
const MAX_BYTES: u64 = 1 << 30;

pub(crate) const ENTRY: Entry = Entry {
    word: Word {
        name: "ce",
        numbered: true,
        options: &[PIPELINED, FOLDED, GPFIFO_HOST, USERD_HOST, PUSHBUFFER_VIDEO, TRACKER_VIDEO, DOORBELL_BAR1],
    },
    about: "copy engine N, on a channel of our own; pipelined: copies may overlap",
    list,
    check,
    open,
};

fn list(machine: &Machine) -> Vec<String> {
    let gpu = machine.index();
    let mut names = Vec::new();
    for engine in machine.copy_engines().unwrap_or(&[0]) {
        for option in ["", "[pipelined]", "[folded]"] {
            names.push(format!("host->ce{engine}{option}->gpu{gpu}"));
            names.push(format!("gpu{gpu}->ce{engine}{option}->host"));
        }
    }
    names
}

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    Direction::of(machine, spec)?;
    channel::check(machine, spec)?;
    match (spec.executor.index, machine.copy_engines()) {
        (Some(n), Some(engines)) if !engines.contains(&n) => {
            let there: Vec<String> = engines.iter().map(|n| format!("ce{n}")).collect();
            Err(Unavailable::new(format!("this GPU has no ce{n}; it has {}", there.join(", "))))
        }
        _ if spec.executor.has(PIPELINED) && spec.executor.has(FOLDED) => {
            Err(Unavailable::new("pipelined and folded are two ways to say when a copy is done: choose one"))
        }
        _ => Ok(()),
    }
}

fn open<'m>(machine: &'m Machine, spec: &Spec, capacity: u64) -> Opened<'m> {
    let space = machine.space()?;
    let engine = Engine::Copy(spec.executor.index.unwrap_or(0));
    let mut ends = Ends::new(machine, spec, capacity)?;
    ends.source.pin(machine)?;
    ends.destination.pin(machine)?;
    let channel = Channel::new(space, engine, channel::options(&spec.executor))?;
    let mode = match (spec.executor.has(PIPELINED), spec.executor.has(FOLDED)) {
        (true, _) => CopyMode::Pipelined,
        (_, true) => CopyMode::Folded,
        _ => CopyMode::Plain,
    };
    Ok(Box::new(CopyEngine { channel, ends, mode }))
}

struct CopyEngine<'m> {
    // Before the memory that its work may name.
    channel: Channel,
    ends: Ends<'m>,
    mode: CopyMode,
}

impl Route for CopyEngine<'_> {
    fn name(&self) -> &str {
        &self.ends.name
    }

    fn capacity(&self) -> u64 {
        self.ends.capacity()
    }

    fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error> {
        self.ends.check(bytes)?;
        if bytes > MAX_BYTES {
            return Err(
                Unavailable::new(format!("{bytes} bytes by the copy engine: 1 GiB at most go in one copy")).into()
            );
        }
        let destination = Window { base: self.ends.destination.va(), length: bytes };
        let source = Window { base: self.ends.source.va(), length: bytes };
        let prepared = Prepared::copy(&mut self.channel, destination, source, bytes as u32, self.mode)?;
        Ok(Box::new(Copy { channel: &mut self.channel, prepared, last: None }))
    }

    fn fill(&mut self, data: &[u8]) -> Result<(), Error> {
        self.ends.fill(data)
    }

    fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.ends.read_back(into)
    }
}

struct Copy<'r> {
    channel: &'r mut Channel,
    prepared: Prepared,
    last: Option<Ticket>,
}

impl Transfer for Copy<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        self.last = Some(self.prepared.submit(self.channel)?);
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        channel::poll(self.channel, self.last)
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        channel::wait(self.channel, self.last, self.prepared.bytes(), timeout)
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        channel::settle(self.channel, self.last);
    }
}
