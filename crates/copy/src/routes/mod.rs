//! One file a route. Each says what it is called and how it is opened ([`Entry`]), and the registry lists it.
//!
//! [`Entry`]: crate::entry::Entry

mod answered;
pub(crate) mod aperture;
pub(crate) mod bar1;
pub(crate) mod ce;
pub(crate) mod channel;
pub(crate) mod cuda;
pub(crate) mod cudart;
pub(crate) mod inline;
pub(crate) mod message;

use crate::buffer::Buffer;
use crate::error::{Error, Unavailable};
use crate::inspect::{HostEnd, Inspect};
use crate::machine::Machine;
use crate::spec::{Host, Memory, Spec};
use std::marker::PhantomData;

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    ToGpu,
    FromGpu,
}

impl Direction {
    /// That of a way between the host and this machine's GPU; no route leads elsewhere yet.
    pub(crate) fn of(machine: &Machine, spec: &Spec) -> Result<Direction, Unavailable> {
        for end in [spec.source, spec.destination] {
            if let Memory::Gpu(n) = end.memory
                && n != machine.index()
            {
                let index = machine.index();
                return Err(Unavailable::new(format!("gpu{n} is not open; this machine was opened with gpu{index}")));
            }
        }
        match (spec.source.memory, spec.destination.memory) {
            (Memory::Host(_), Memory::Gpu(_)) => Ok(Direction::ToGpu),
            (Memory::Gpu(_), Memory::Host(_)) => Ok(Direction::FromGpu),
            (Memory::Host(_), Memory::Host(_)) => Err(Unavailable::new("a route needs a GPU at one of its ends")),
            (Memory::Gpu(_), Memory::Gpu(_)) => Err(Unavailable::new("a route needs the host at one of its ends")),
        }
    }
}

/// The two ends of a route, and what they are filled and read with.
pub(crate) struct Ends<'m> {
    pub(crate) name: String,
    pub(crate) machine: &'m Machine,
    pub(crate) source: Buffer<'m>,
    pub(crate) destination: Buffer<'m>,
    /// A message writes so many bytes of its destination, however long it is; 0 for copies.
    pub(crate) line: u64,
}

/// Bytes of host memory at one end of a route, which is borrowed as long as they are used.
#[derive(Clone, Copy)]
pub(crate) struct HostBytes<'r> {
    at: *mut u8,
    length: usize,
    route: PhantomData<&'r ()>,
}

impl HostBytes<'_> {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// What is there now; nobody writes there as long as the slice is used.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the buffer has that many bytes (checked when this was made) and lives as long as the route; it is written only
        // between transfers, and slices are made for one submission.
        unsafe { std::slice::from_raw_parts(self.at, self.length) }
    }

    /// For the CPU to write.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.length) }
    }
}

impl<'m> Ends<'m> {
    pub(crate) fn new(machine: &'m Machine, spec: &Spec, capacity: u64) -> Result<Ends<'m>, Error> {
        let source = Buffer::new(machine, spec.source, capacity)?;
        let mut destination = Buffer::new(machine, spec.destination, capacity)?;
        // CUDA's one call from pageable memory promises what CUDA is told next, no more: only CUDA may look there.
        let is_promised = spec.source.memory != Memory::Host(Host::Pageable) || !spec.executor.name.starts_with("cuda");
        if is_promised {
            destination.read_directly(machine);
        }
        Ok(Ends { name: spec.to_string(), machine, source, destination, line: 0 })
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.source.capacity()
    }

    /// What every route refuses: no bytes, and more than there are.
    pub(crate) fn check(&self, bytes: u64) -> Result<(), Error> {
        if bytes == 0 {
            return Err(Unavailable::new("a transfer of 0 bytes moves nothing").into());
        }
        let capacity = self.capacity();
        if bytes > capacity { Err(Error::Capacity { bytes, capacity }) } else { Ok(()) }
    }

    /// That a transfer from or to this place fits.
    pub(crate) fn holds(&self, at: u64, bytes: u64) -> Result<(), Error> {
        let capacity = self.capacity();
        match at.checked_add(bytes) {
            Some(end) if end <= capacity => Ok(()),
            _ => Err(Error::Capacity { bytes: at.saturating_add(bytes), capacity }),
        }
    }

    /// The end that is the GPU's.
    pub(crate) fn gpu_end(&mut self, direction: Direction) -> &mut Buffer<'m> {
        match direction {
            Direction::ToGpu => &mut self.destination,
            Direction::FromGpu => &mut self.source,
        }
    }

    /// The start of the end that is the host's, for the CPU to read or write as long as the route is borrowed.
    pub(crate) fn host_bytes(&self, direction: Direction, bytes: u64) -> Result<HostBytes<'_>, Error> {
        self.host_bytes_at(direction, 0, bytes)
    }

    /// As [`Ends::host_bytes`], at another place.
    pub(crate) fn host_bytes_at(&self, direction: Direction, at: u64, bytes: u64) -> Result<HostBytes<'_>, Error> {
        self.holds(at, bytes)?;
        let host = match direction {
            Direction::ToGpu => &self.source,
            Direction::FromGpu => &self.destination,
        };
        self.check(bytes)?;
        let start = host.host_pointer().ok_or_else(|| Unavailable::new("neither end is the host's"))?;
        Ok(HostBytes { at: start.wrapping_add(at as usize), length: bytes as usize, route: PhantomData })
    }

    pub(crate) fn fill(&self, data: &[u8]) -> Result<(), Error> {
        self.fits(data.len())?;
        self.source.write(self.machine, 0, data)
    }

    pub(crate) fn read_back(&self, into: &mut [u8]) -> Result<(), Error> {
        self.fits(into.len())?;
        self.destination.read(self.machine, 0, into)
    }

    fn fits(&self, bytes: usize) -> Result<(), Error> {
        let (bytes, capacity) = (bytes as u64, self.capacity());
        if bytes > capacity { Err(Error::Capacity { bytes, capacity }) } else { Ok(()) }
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
        self.source.write(self.machine, at, data)
    }

    fn write_destination(&self, at: i64, data: &[u8]) -> Result<(), Error> {
        self.destination.write(self.machine, at, data)
    }

    fn read_destination(&self, at: i64, into: &mut [u8]) -> Result<(), Error> {
        self.destination.read(self.machine, at, into)
    }
}
