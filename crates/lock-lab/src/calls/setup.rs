//! What a thread needs before it can work, as calls that can be timed: a stream, memory of the GPU, pinned memory. They move no
//! bytes; what comes after each call is that it is given back.

use copy::{Error, Machine, Route, Transfer, Unavailable};
use cuda::{Context, DeviceBuffer, PinnedBuffer, Stream};
use std::time::Duration;

/// Of the memory, each time.
const BYTES: usize = 4 << 20;

/// One kind of call: its name, and what it is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Stream,
    Memory,
    Pinned,
}

impl Kind {
    pub const ALL: [Kind; 3] = [Kind::Stream, Kind::Memory, Kind::Pinned];

    pub fn name(self) -> &'static str {
        match self {
            Kind::Stream => "stream",
            Kind::Memory => "memory",
            Kind::Pinned => "pinned memory",
        }
    }

    pub fn about(self) -> &'static str {
        match self {
            Kind::Stream => "cuStreamCreate; then cuStreamDestroy",
            Kind::Memory => "cuMemAlloc of 4 MiB; then cuMemFree",
            Kind::Pinned => "cuMemHostAlloc of 4 MiB; then cuMemFreeHost",
        }
    }
}

/// Opens it: it has nothing before its first call.
///
/// # Errors
/// [`Error::Unavailable`] where there is no CUDA.
pub fn open(machine: &Machine, kind: Kind) -> Result<Box<dyn Route + '_>, Error> {
    Ok(Box::new(Needs { context: machine.context()?, kind }))
}

struct Needs<'m> {
    context: &'m Context,
    kind: Kind,
}

impl Route for Needs<'_> {
    fn name(&self) -> &str {
        self.kind.name()
    }

    fn capacity(&self) -> u64 {
        0
    }

    fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error> {
        if bytes > 0 {
            return Err(Unavailable::new(format!("{} moves no bytes", self.kind.name())).into());
        }
        Ok(Box::new(Taken { context: self.context, kind: self.kind, held: Held::Nothing }))
    }

    fn fill(&mut self, _nothing: &[u8]) -> Result<(), Error> {
        Ok(())
    }

    fn read_back(&mut self, _nothing: &mut [u8]) -> Result<(), Error> {
        Ok(())
    }
}

#[allow(dead_code, reason = "held, and given back when it is dropped")]
enum Held<'m> {
    Nothing,
    Stream(Stream<'m>),
    Memory(DeviceBuffer<'m>),
    Pinned(PinnedBuffer<'m>),
}

struct Taken<'m> {
    context: &'m Context,
    kind: Kind,
    held: Held<'m>,
}

impl Transfer for Taken<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        self.held = match self.kind {
            Kind::Stream => Held::Stream(Stream::new(self.context)?),
            Kind::Memory => Held::Memory(DeviceBuffer::new(self.context, BYTES)?),
            Kind::Pinned => Held::Pinned(PinnedBuffer::new(self.context, BYTES)?),
        };
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(true)
    }

    /// Gives it back.
    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        self.held = Held::Nothing;
        Ok(())
    }
}
