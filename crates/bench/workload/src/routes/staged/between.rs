//! From GPU to GPU without peer access: the bytes are copied to pinned host memory and from there to the other GPU, in pieces, so that both halves
//! work at the same time.

use super::ENGINE;
use crate::buffer::Buffer;
use crate::ends::Ends;
use crate::error::Error;
use crate::executor::{Executor, Transfer};
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::routes::entry::Found;
use crate::routes::{dma, polling, registry};
use crate::spec::{End, Host, Memory, Spec};
use machine::Unavailable;
use std::time::Duration;

/// Bytes of a piece. Longer transfers are whole pieces.
const PIECE: u64 = 4 << 20;
/// Number of pieces in host memory at a time.
const PIECES: u64 = 2;

/// The two halves, if both ends are GPUs.
pub(super) fn halves(machine: &Machine, spec: &Spec) -> Result<Option<[Spec; 2]>, Unavailable> {
    let (Memory::Gpu(from), Memory::Gpu(to)) = (spec.source.memory, spec.destination.memory) else { return Ok(None) };
    if from == to {
        return Err(Unavailable::new("a copy within one GPU is not staged"));
    }
    if spec.executor.numbers(ENGINE).is_some() || spec.executor.has(dma::SLEEPS) {
        return Err(Unavailable::new(
            "between GPUs staged takes no options: each GPU's own engine for the host copies",
        ));
    }
    let out = machine.gpu(from)?.engine_for_host(false);
    let into = machine.gpu(to)?.engine_for_host(true);
    let half = |text: String| registry::parse(&text).map_err(|error| Unavailable::new(error.to_string()));
    Ok(Some([half(format!("gpu{from}->ce{out}->host"))?, half(format!("host->ce{into}->gpu{to}"))?]))
}

pub(super) fn open<'m>(machine: &'m Machine, [out, into]: &[Spec; 2]) -> Found<'m> {
    let (out, into) = (registry::of_spec(machine, out)?, registry::of_spec(machine, into)?);
    let end = End { memory: Memory::Host(Host::Pinned), offset: 0 };
    Ok(Box::new(Staged { out, into, host: Buffer::new(machine, end, PIECES * PIECE)? }))
}

/// Two executors with host memory between them.
struct Staged<'m> {
    // Dropped before the memory that they may use.
    out: Box<dyn Executor + 'm>,
    into: Box<dyn Executor + 'm>,
    host: Buffer<'m>,
}

impl Executor for Staged<'_> {
    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        self.out.reach(from, &self.host)?;
        self.into.reach(&self.host, to)
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        let piece = bytes.min(PIECE);
        if bytes == 0 || !bytes.is_multiple_of(piece) {
            let what = format!("{bytes} bytes staged: up to {PIECE}, or a multiple of that");
            return Err(Unavailable::new(what).into());
        }
        let out = self.out.prepare(Ends::new(ends.source, &self.host), piece)?;
        let into = self.into.prepare(Ends::new(&self.host, ends.destination), piece)?;
        Ok(Box::new(Pieces { out, into, ends, piece, count: bytes / piece, left: [0; 2], arrived: [0; 2] }))
    }
}

/// A transfer of so many pieces. For each half: how many were submitted, and how many are done; one is in progress at a time.
struct Pieces<'r> {
    out: Box<dyn Transfer + 'r>,
    into: Box<dyn Transfer + 'r>,
    ends: Ends<'r>,
    piece: u64,
    count: u64,
    left: [u64; 2],
    arrived: [u64; 2],
}

impl Pieces<'_> {
    fn start_out(&mut self) -> Result<(), Error> {
        let n = self.left[0];
        self.out.move_to(n * self.piece, n % PIECES * self.piece)?;
        self.left[0] += 1;
        self.out.submit()
    }

    fn start_into(&mut self) -> Result<(), Error> {
        let n = self.left[1];
        self.into.move_to(n % PIECES * self.piece, n * self.piece)?;
        self.left[1] += 1;
        self.into.submit()
    }
}

impl Transfer for Pieces<'_> {
    fn submit(&mut self) -> Result<(), Error> {
        (self.left, self.arrived) = ([0; 2], [0; 2]);
        self.start_out()
    }

    /// The next pieces are submitted here.
    fn poll(&mut self) -> Result<bool, Error> {
        if self.left[0] == 0 {
            return Ok(false);
        }
        if self.arrived[0] < self.left[0] && self.out.poll()? {
            self.arrived[0] += 1;
        }
        if self.arrived[1] < self.left[1] && self.into.poll()? {
            self.arrived[1] += 1;
        }
        if self.left[1] == self.arrived[1] && self.left[1] < self.arrived[0] {
            self.start_into()?;
        }
        // A place in the host's memory is free once its piece was copied to the other GPU.
        if self.left[0] == self.arrived[0] && self.left[0] < self.count && self.left[0] < self.arrived[1] + PIECES {
            self.start_out()?;
        }
        Ok(self.arrived[1] == self.count)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if self.left[0] == 0 {
            return Err(Error::Idle);
        }
        polling::ended(timeout, self.piece * self.count, || self.poll())
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.ends)
    }
}
