//! The memory at the two ends of a route: CUDA's where there is CUDA, so that all routes move the same bytes, else our own.

use crate::error::{Error, Unavailable};
use crate::inspect::GUARD;
use crate::machine::Machine;
use crate::pin::{self, Pinned};
use crate::spec::{End, Host, Memory};
use crate::view::View;
use cuda::{DeviceBuffer, DeviceSlice, PinnedBuffer, Registration};
use gpu::{AddressSpace, Aperture, Bar1Map, Region};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;

/// Larger buffers would only be a slip of the pen.
const MAX_BYTES: u64 = 16 << 30;
/// Why only the CPU takes part in routes from or to pageable memory.
pub(crate) const PAGEABLE: &str = "engines cannot reach pageable memory: use host (pinned) or host[registered]";
const NOT_THE_GPUS: &str = "only pinned memory of the GPU has a place in BAR1";
const PAGE: usize = 0x1000;
/// A large page of the GPU's: buffers so long begin and end on one.
const LARGE: u64 = 2 << 20;

/// Pageable memory: zeroed, on whole pages, freed when dropped.
#[derive(Debug)]
pub(crate) struct Pages {
    pointer: NonNull<u8>,
    layout: Layout,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Pages {}
// SAFETY: as above; shared use goes through raw pointers, which are the user's.
unsafe impl Sync for Pages {}

impl Pages {
    pub(crate) fn new(bytes: u64) -> Result<Pages, Error> {
        let none = Error::Memory { bytes };
        let layout = usize::try_from(bytes).ok().filter(|bytes| *bytes > 0);
        let layout = layout.and_then(|bytes| Layout::from_size_align(bytes.next_multiple_of(PAGE), PAGE).ok());
        let Some(layout) = layout else { return Err(none) };
        // SAFETY: the layout is not empty.
        let pointer = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(none)?;
        Ok(Pages { pointer, layout })
    }

    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.pointer.as_ptr()
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout.
        unsafe { dealloc(self.pointer.as_ptr(), self.layout) };
    }
}

enum Kind<'m> {
    Pinned(PinnedBuffer<'m>),
    Registered {
        // Before the pages that it marks.
        registration: Registration<'m>,
        pages: Pages,
    },
    Pageable(Pages),
    Device(DeviceBuffer<'m>),
    Own(Arc<gpu::Memory>),
}

/// Where the memory behind the guard begins: on a page, and of large buffers on a large page.
fn front(bytes: u64) -> u64 {
    if bytes < LARGE { PAGE as u64 } else { LARGE }
}

/// More is read by CUDA: loads through BAR1 make 0.7 GB/s.
const VIEWED: usize = 64 << 10;

/// One end of a route. Before what transfers may name, and behind it, there is memory that they may not touch.
pub(crate) struct Buffer<'m> {
    /// Goes before the memory does.
    view: Option<View>,
    /// Goes before the memory does.
    pinned: Option<Pinned>,
    kind: Kind<'m>,
    offset: u64,
    capacity: u64,
}

impl<'m> Buffer<'m> {
    /// Allocates `capacity` bytes behind the end's offset.
    pub(crate) fn new(machine: &'m Machine, end: End, capacity: u64) -> Result<Buffer<'m>, Error> {
        let bytes = capacity
            .checked_add(end.offset)
            .filter(|bytes| capacity > 0 && *bytes <= MAX_BYTES)
            .ok_or_else(|| Unavailable::new(format!("a buffer of {capacity} bytes: 1 byte to 16 GiB are possible")))?;
        let front = front(bytes);
        let grain = if bytes < LARGE { 1 } else { LARGE };
        let bytes = (front + bytes + GUARD).next_multiple_of(grain);
        let len = bytes as usize;
        let context = machine.context();
        let kind = match (end.memory, context) {
            (Memory::Host(Host::Pageable), _) => Kind::Pageable(Pages::new(bytes)?),
            (Memory::Host(Host::Pinned), Ok(context)) => Kind::Pinned(PinnedBuffer::new(context, len)?),
            (Memory::Host(Host::Registered), context) => {
                let (context, pages) = (context?, Pages::new(bytes)?);
                // SAFETY: the pages live as long as the registration.
                let registration = unsafe { Registration::new(context, pages.as_ptr(), len) }?;
                Kind::Registered { registration, pages }
            }
            (Memory::Gpu(_), Ok(context)) => Kind::Device(DeviceBuffer::new(context, len)?),
            (Memory::Host(Host::Pinned), Err(_)) => Kind::Own(machine.space()?.alloc_host(bytes)?),
            (Memory::Gpu(_), Err(_)) => Kind::Own(machine.space()?.alloc_video(bytes)?),
        };
        Ok(Buffer { view: None, pinned: None, kind, offset: front + end.offset, capacity })
    }

    /// Makes it nameable in pushbuffers of our own address space.
    pub(crate) fn pin(&mut self, machine: &Machine) -> Result<(), Error> {
        self.pin_in(machine, machine.space()?)
    }

    /// As [`Buffer::pin`], of one of the machine's address spaces.
    pub(crate) fn pin_in(&mut self, machine: &Machine, space: &Arc<AddressSpace>) -> Result<(), Error> {
        let base = match &self.kind {
            Kind::Own(_) => return Ok(()),
            Kind::Pinned(buffer) => buffer.device_address()?,
            Kind::Device(buffer) => buffer.address(),
            Kind::Registered { registration, .. } => registration.device_address()?,
            Kind::Pageable(_) => return Err(Unavailable::new(PAGEABLE).into()),
        };
        self.pinned = Some(pin::pin_in(machine, space, base + self.offset, self.capacity)?);
        Ok(())
    }

    /// From now on short reads of CUDA's memory of the GPU go through BAR1 where that is possible: they take no lock of
    /// libcuda's, for which they would wait as long as a copy of CUDA's beside other threads.
    pub(crate) fn read_directly(&mut self, machine: &Machine) {
        if let Kind::Device(buffer) = &self.kind
            && self.capacity <= VIEWED as u64
        {
            let (from, length) = (self.offset - GUARD, self.capacity + 2 * GUARD);
            self.view = View::of(machine, buffer.address() + from, length).ok();
        }
    }

    /// Bytes behind the offset.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The address under which the GPU sees it.
    pub(crate) fn va(&self) -> u64 {
        if let Some(pinned) = &self.pinned {
            return pinned.va();
        }
        let base = match &self.kind {
            Kind::Own(memory) => memory.va(),
            Kind::Device(buffer) => buffer.address(),
            Kind::Pinned(buffer) => buffer.as_ptr() as u64,
            Kind::Registered { pages, .. } | Kind::Pageable(pages) => pages.as_ptr() as u64,
        };
        base + self.offset
    }

    /// The first `bytes` bytes behind the offset, for transfers of our own: our memory, or CUDA's that was pinned.
    pub(crate) fn region(&self, bytes: u64) -> Result<Region, Error> {
        Ok(match (&self.kind, &self.pinned) {
            (Kind::Own(memory), _) => memory.region().part(self.offset, bytes)?,
            (_, Some(pinned)) => pinned.region().part(0, bytes)?,
            _ => return Err(Unavailable::new(PAGEABLE).into()),
        })
    }

    /// Where the CPU reads and writes host memory; `None` for memory of the GPU.
    pub(crate) fn host_pointer(&self) -> Option<*mut u8> {
        let base = match &self.kind {
            Kind::Pinned(buffer) => buffer.as_ptr(),
            Kind::Registered { pages, .. } | Kind::Pageable(pages) => pages.as_ptr(),
            Kind::Own(memory) if memory.place() == gpu::Place::Host => memory.as_ptr(),
            Kind::Own(_) | Kind::Device(_) => return None,
        };
        // SAFETY: the buffer was allocated with the offset in it.
        Some(unsafe { base.add(self.offset as usize) })
    }

    /// `bytes` bytes of CUDA's device memory, so far behind the offset; `None` for any other.
    pub(crate) fn device_slice(&self, at: u64, bytes: u64) -> Result<Option<DeviceSlice<'_>>, Error> {
        match &self.kind {
            Kind::Device(buffer) => Ok(Some(buffer.slice((self.offset + at) as usize, bytes as usize)?)),
            _ => Ok(None),
        }
    }

    /// Memory of the GPU, pinned, through BAR1: from the offset on.
    pub(crate) fn bar1(&self) -> Result<Bar1Map, Error> {
        Ok(match (&self.kind, &self.pinned) {
            (Kind::Own(memory), _) => Bar1Map::of(memory, self.offset, self.capacity)?,
            (_, Some(pinned)) => Bar1Map::of_pin(pinned.pin(), 0, self.capacity)?,
            _ => return Err(Unavailable::new(NOT_THE_GPUS).into()),
        })
    }

    /// A window of BAR1 over memory of the GPU, pinned, and where in what it moves over the buffer begins.
    pub(crate) fn aperture(&self) -> Result<(Aperture, u64), Error> {
        Ok(match (&self.kind, &self.pinned) {
            (Kind::Own(memory), _) => (Aperture::of(memory)?, self.offset),
            (_, Some(pinned)) => (Aperture::of_pin(pinned.pin(), Aperture::WINDOW)?, 0),
            _ => return Err(Unavailable::new(NOT_THE_GPUS).into()),
        })
    }

    /// Where `bytes` at an offset, which may lie in the guards, are in the memory.
    fn place(&self, at: i64, bytes: usize) -> Result<u64, Error> {
        let (bytes, capacity) = (bytes as u64, self.capacity);
        let start = at.checked_add(GUARD as i64).and_then(|start| u64::try_from(start).ok());
        let end = start.and_then(|start| start.checked_add(bytes));
        match end {
            Some(end) if end <= capacity + 2 * GUARD => Ok(self.offset.wrapping_add_signed(at)),
            _ => Err(Error::Capacity { bytes, capacity }),
        }
    }

    /// Writes at an offset: host memory by the CPU, memory of the GPU by CUDA if it is CUDA's, else through its CPU mapping.
    pub(crate) fn write(&self, machine: &Machine, at: i64, data: &[u8]) -> Result<(), Error> {
        let place = self.place(at, data.len())?;
        if let Some(pointer) = self.host_pointer() {
            // SAFETY: as many bytes are there (`place`), and no transfer is under way: who writes sees to that.
            unsafe { pointer.offset(at as isize).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        } else if let Kind::Device(buffer) = &self.kind {
            // SAFETY: the slice is as long as the data.
            unsafe { buffer.slice(place as usize, data.len())?.upload_now(machine.context()?, data.as_ptr()) }?;
            // From pageable memory the call may come back before the last bytes have arrived. Other streams are not waited
            // for: a kernel of another route may be spinning in one.
            machine.context()?.synchronize_default_stream()?;
        } else if let Kind::Own(memory) = &self.kind {
            memory.write(place, data);
        }
        Ok(())
    }

    /// Reads at an offset, as [`Buffer::write`] writes there.
    pub(crate) fn read(&self, machine: &Machine, at: i64, into: &mut [u8]) -> Result<(), Error> {
        let place = self.place(at, into.len())?;
        if let Some(pointer) = self.host_pointer() {
            // SAFETY: as above.
            unsafe { pointer.offset(at as isize).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        } else if let Some(view) = &self.view {
            view.read(at.wrapping_add(GUARD as i64) as u64, into)?;
        } else if let Kind::Device(buffer) = &self.kind {
            // SAFETY: the slice is as long as the buffer.
            unsafe { buffer.slice(place as usize, into.len())?.download_now(machine.context()?, into.as_mut_ptr()) }?;
        } else if let Kind::Own(memory) = &self.kind {
            memory.read(place, into);
        }
        Ok(())
    }
}

impl std::fmt::Debug for Buffer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("va", &format_args!("{:#x}", self.va()))
            .field("capacity", &self.capacity)
            .finish()
    }
}
