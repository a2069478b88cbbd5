//! A device's bytes to a GPU through host memory, as programs copy without a direct path (path B of the GPU Direct test): the
//! device's DMA to pinned memory, then a copy to the GPU, or the opposite direction. `staged` copies by CUDA (`cuda[sync]`), or
//! without CUDA by a copy engine; `staged[ce=3]` copies by that engine.
//!
//! A poll or a wait submits the second half when the first is done. With `staged[sleeps]` the CPU sleeps until the DMA is done
//! (as under `dma`). For the copy after it the CPU waits as that copy's route does.
//!
//! From GPU to GPU it is the way without peer access ([`between`]).

mod between;

use super::dma::{self, Dma};
use super::registry;
use crate::buffer::Buffer;
use crate::ends::Ends;
use crate::error::Error;
use crate::executor::{Executor, Transfer};
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::routes::entry::{Entry, Found};
use crate::spec::{self, End, Host, Memory, Spec, Word};
use machine::Unavailable;
use std::time::{Duration, Instant};

const ENGINE: &str = "ce=";

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "staged", numbered: false, options: &[ENGINE, dma::SLEEPS] },
    about,
    list: |machine| {
        let gpu = machine.index();
        vec![format!("device->staged->gpu{gpu}"), format!("gpu{gpu}->staged->device")]
    },
    check: |machine, spec| {
        if let Some(halves) = between::halves(machine, spec)? {
            return halves.iter().try_for_each(|half| registry::check(machine, half));
        }
        dma::check(machine, spec)?;
        registry::check(machine, &half(machine, spec)?)
    },
    open,
};

fn about(machine: &Machine, spec: &Spec) -> String {
    if let Ok(Some([out, into])) = between::halves(machine, spec) {
        return format!("without peer access, in pieces through pinned host memory: {out} and {into}");
    }
    let copy = copier(machine, &spec.executor).unwrap_or_default();
    let sleeps = if spec.executor.has(dma::SLEEPS) { ", for which the CPU sleeps" } else { "" };
    let device = crate::device::about(machine);
    format!(
        "a device's DMA to host memory{sleeps}, and from there to the GPU by {copy}; or the other way round; {device}"
    )
}

/// The executor between host and GPU.
fn copier(machine: &Machine, executor: &spec::Executor) -> Result<String, Unavailable> {
    match executor.numbers(ENGINE) {
        Some(&[n]) => Ok(format!("ce{n}")),
        Some(_) => Err(Unavailable::new("ce=N: one engine copies")),
        None if machine.context().is_ok() => Ok("cuda[sync]".into()),
        None => Ok(format!("ce{}", machine.copy_engine())),
    }
}

fn reads(spec: &Spec) -> bool {
    spec.source.memory == Memory::Device
}

/// The half between host and GPU.
fn half(machine: &Machine, spec: &Spec) -> Result<Spec, Unavailable> {
    let gpu = if reads(spec) { spec.destination.memory } else { spec.source.memory };
    let Memory::Gpu(n) = gpu else {
        return Err(Unavailable::new("staged goes through host memory to a GPU: to the host it is dma"));
    };
    let copier = copier(machine, &spec.executor)?;
    let route = if reads(spec) { format!("host->{copier}->gpu{n}") } else { format!("gpu{n}->{copier}->host") };
    registry::parse(&route).map_err(|error| Unavailable::new(error.to_string()))
}

fn open<'m>(machine: &'m Machine, spec: &Spec) -> Found<'m> {
    if let Some(halves) = between::halves(machine, spec)? {
        return between::open(machine, &halves);
    }
    let copy = registry::of_spec(machine, &half(machine, spec)?)?;
    Ok(Box::new(Staged {
        dma: Dma::new(machine, 1, spec.executor.has(dma::SLEEPS))?,
        copy,
        host: None,
        machine,
        reads: reads(spec),
    }))
}

struct Staged<'m> {
    dma: Dma,
    copy: Box<dyn Executor + 'm>,
    /// The host memory between the halves, as large as the ends. Dropped after the executors whose work may name it.
    host: Option<Buffer<'m>>,
    machine: &'m Machine,
    /// From the device; otherwise to it.
    reads: bool,
}

impl Executor for Staged<'_> {
    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        let capacity = from.capacity().min(to.capacity());
        if self.host.as_ref().is_none_or(|host| host.capacity() < capacity) {
            let end = End { memory: Memory::Host(Host::Pinned), offset: 0 };
            self.host = Some(Buffer::for_device(self.machine, end, capacity)?);
        }
        let Staged { dma, copy, host: Some(host), reads, .. } = self else { return Err(Error::Idle) };
        if *reads {
            dma.reach(from, host)?;
            copy.reach(host, to)
        } else {
            copy.reach(from, host)?;
            dma.reach(host, to)
        }
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        let Ends { source: from, destination: to, .. } = ends;
        ends.check(bytes)?;
        self.reach(from, to)?;
        let Staged { dma, copy, host: Some(host), reads, .. } = self else { return Err(Error::Idle) };
        let halves = if *reads {
            [dma.prepare(Ends::new(from, host), bytes)?, copy.prepare(Ends::new(host, to), bytes)?]
        } else {
            [copy.prepare(Ends::new(from, host), bytes)?, dma.prepare(Ends::new(host, to), bytes)?]
        };
        Ok(Box::new(Halves { halves, ends, half: None }))
    }
}

struct Halves<'r> {
    halves: [Box<dyn Transfer + 'r>; 2],
    ends: Ends<'r>,
    /// The half that is pending, or was last.
    half: Option<usize>,
}

impl Transfer for Halves<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        // There is only one host buffer, so an earlier transfer that uses it must continue first.
        if self.half == Some(0) {
            self.wait(PATIENCE)?;
        }
        self.halves[0].submit()?;
        self.half = Some(0);
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        match self.half {
            None => Ok(false),
            Some(0) => {
                if self.halves[0].poll()? {
                    self.halves[1].submit()?;
                    self.half = Some(1);
                    return self.halves[1].poll();
                }
                Ok(false)
            }
            Some(_) => self.halves[1].poll(),
        }
    }

    fn is_polled(&self) -> bool {
        self.halves.iter().all(|half| half.is_polled())
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let start = Instant::now();
        if self.half.ok_or(Error::Idle)? == 0 {
            self.halves[0].wait(timeout)?;
            self.halves[1].submit()?;
            self.half = Some(1);
        }
        self.halves[1].wait(timeout.saturating_sub(start.elapsed()))
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        self.halves[0].move_to(source, 0)?;
        self.halves[1].move_to(0, destination)
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}

/// Longer than any transfer that ends at all.
const PATIENCE: Duration = Duration::from_secs(2);
