//! The two memories of a transfer, the direction of the bytes between them, and access to both.

use crate::buffer::{Buffer, HostBytes};
use crate::error::Error;
use crate::inspect::{HostEnd, Inspect};
use crate::machine::Machine;
use crate::spec::{Memory, Spec};
use machine::Unavailable;

/// The direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToGpu,
    FromGpu,
}

const NO_GPU: &str = "a route needs a GPU at one of its ends";
/// Why other executors cannot move a device's memory.
pub(crate) const A_DEVICES: &str = "a device moves its bytes itself: use dma or staged";
const NO_HOST: &str = "a route needs the host at one of its ends";

impl Direction {
    /// The direction of a route between the host and this machine's GPU. Routes between GPUs use [`seat`].
    pub(crate) fn of(machine: &Machine, spec: &Spec) -> Result<Direction, Unavailable> {
        let gpu = |memory| match memory {
            Memory::Gpu(n) if n != machine.index() => {
                let index = machine.index();
                Err(Unavailable::new(format!("gpu{n} is not open; this machine was opened with gpu{index}")))
            }
            Memory::Gpu(n) => Ok(Some(n)),
            Memory::Host(_) => Ok(None),
            Memory::Device => Err(Unavailable::new(A_DEVICES)),
        };
        Direction::between(gpu(spec.source.memory)?, gpu(spec.destination.memory)?)
    }

    /// The host's and the GPU's of these values for source and destination.
    pub(crate) fn sides<T>(self, [source, destination]: [T; 2]) -> (T, T) {
        match self {
            Direction::ToGpu => (source, destination),
            Direction::FromGpu => (destination, source),
        }
    }

    fn between(from: Option<u32>, to: Option<u32>) -> Result<Direction, Unavailable> {
        match (from, to) {
            (None, Some(_)) => Ok(Direction::ToGpu),
            (Some(_), None) => Ok(Direction::FromGpu),
            (None, None) => Err(Unavailable::new(NO_GPU)),
            (Some(_), Some(_)) => Err(Unavailable::new(NO_HOST)),
        }
    }
}

/// The machine of the GPU whose engines move the bytes, if at least one of the two memories is a GPU's. The source's GPU if it
/// has one, so that the link carries writes; else the destination's.
pub(crate) fn seat<'m>(machine: &'m Machine, spec: &Spec) -> Result<&'m Machine, Unavailable> {
    let gpu = |memory| match memory {
        Memory::Gpu(n) => machine.gpu(n).map(Some),
        Memory::Host(_) => Ok(None),
        Memory::Device => Err(Unavailable::new(A_DEVICES)),
    };
    let (from, to) = (gpu(spec.source.memory)?, gpu(spec.destination.memory)?);
    from.or(to).ok_or_else(|| Unavailable::new(NO_GPU))
}

/// An executor's routes from a kind of host memory to the machine's GPU and back.
pub(crate) fn both_ways(machine: &Machine, host: &str, executor: &str) -> [String; 2] {
    let gpu = machine.index();
    [format!("{host}->{executor}->gpu{gpu}"), format!("gpu{gpu}->{executor}->{host}")]
}

/// The routes of an executor between GPUs that are worth listing: within one, to the next, and back.
pub(crate) fn between_gpus(machine: &Machine, executor: &str) -> Vec<String> {
    let (gpu, next) = (machine.index(), machine.index() + 1);
    [(gpu, gpu), (gpu, next), (next, gpu)].map(|(from, to)| format!("gpu{from}->{executor}->gpu{to}")).into()
}

/// The two memories of a transfer, borrowed as long as it lives.
#[derive(Clone, Copy)]
pub struct Ends<'r> {
    pub source: &'r Buffer<'r>,
    pub destination: &'r Buffer<'r>,
    /// A message of any length writes this many bytes of its destination; 0 for copies.
    pub(crate) line: u64,
}

impl<'r> Ends<'r> {
    pub fn new(source: &'r Buffer<'r>, destination: &'r Buffer<'r>) -> Ends<'r> {
        Ends { source, destination, line: 0 }
    }

    /// # Errors
    /// Transfers that every executor refuses: of 0 bytes, or of more than a memory has.
    pub(crate) fn check(&self, bytes: u64) -> Result<(), Error> {
        if bytes == 0 {
            return Err(Unavailable::new("a transfer of 0 bytes moves nothing").into());
        }
        self.hold([0, 0], bytes)
    }

    pub(crate) fn direction(&self) -> Result<Direction, Unavailable> {
        Direction::between(self.source.gpu(), self.destination.gpu())
    }

    /// Checks that a transfer between these offsets of source and destination fits.
    pub(crate) fn hold(&self, [source, destination]: [u64; 2], bytes: u64) -> Result<(), Error> {
        self.source.holds(source, bytes)?;
        self.destination.holds(destination, bytes)
    }

    /// The host's end, for the CPU to read or write.
    pub(crate) fn host_bytes(&self, direction: Direction, at: u64, bytes: u64) -> Result<HostBytes<'r>, Error> {
        direction.sides([self.source, self.destination]).0.host_bytes(at, bytes)
    }

    /// The GPU's end.
    pub(crate) fn gpu_end(&self, direction: Direction) -> &'r Buffer<'r> {
        direction.sides([self.source, self.destination]).1
    }
}

impl Inspect for Ends<'_> {
    fn footprint(&self, bytes: u64) -> u64 {
        bytes.max(self.line)
    }

    fn host_end(&self) -> HostEnd {
        if self.source.host_pointer().is_some() { HostEnd::Source } else { HostEnd::Destination }
    }

    fn write_source(&self, at: i64, data: &[u8]) -> Result<(), Error> {
        self.source.write(at, data)
    }

    fn write_destination(&self, at: i64, data: &[u8]) -> Result<(), Error> {
        self.destination.write(at, data)
    }

    fn read_destination(&self, at: i64, into: &mut [u8]) -> Result<(), Error> {
        self.destination.read(at, into)
    }
}
