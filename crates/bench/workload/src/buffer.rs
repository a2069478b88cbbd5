//! The memory at one end of a route: allocated for it, or the user's. CUDA allocates it where there is CUDA, so that all routes
//! move the same bytes; otherwise doorbell does.
//!
//! A buffer stores the address at which engines see it. An executor may also need a pin in its address space or a map through
//! BAR1. Those are made at first use and dropped with the buffer.

use crate::device::{CardMemory, GpuTarget, OnBus};
use crate::error::Error;
use crate::inspect::GUARD;
use crate::machine::Machine;
use crate::pages::{self, Pages};
use crate::spec::{End, Host, Memory};
use cuda::{DeviceBuffer, DeviceSlice, PinnedBuffer, Registration};
use gpu::{AddressSpace, Aperture, Bar1Map, Region};
use machine::{Pinned, Unavailable, pin_in};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

/// A larger size can only be a mistake.
const MAX_BYTES: u64 = 16 << 30;
/// Why only the CPU can serve routes from or to pageable memory.
pub(crate) const PAGEABLE: &str = "engines cannot reach pageable memory: use host (pinned) or host[registered]";
/// Why engines cannot move a card's own memory.
const A_CARDS: &str = "a card's own memory is reached by the card alone: use dma or staged";
const NOT_THE_GPUS: &str = "only pinned memory of the GPU has a place in BAR1";
const PAGE: u64 = 0x1000;
/// A large page of the GPU: buffers of at least this size begin and end on one.
const LARGE: u64 = 2 << 20;

enum Kind<'m> {
    Pinned(PinnedBuffer<'m>),
    Registered {
        // Before the pages that it marks.
        _registration: Registration<'m>,
        pages: Pages,
    },
    Pageable(Pages),
    Device(DeviceBuffer<'m>),
    Own(Arc<gpu::Memory>),
    /// Host memory of a card's driver (`dma`), registered with CUDA.
    Shared {
        _registration: Registration<'m>,
    },
    /// A card's own memory.
    Card(Box<dyn CardMemory>),
}

/// Offset of the memory after the front guard: one page, or one large page for large buffers.
fn front(bytes: u64) -> u64 {
    if bytes < LARGE { PAGE } else { LARGE }
}

/// CUDA reads longer ranges: loads through BAR1 make 0.7 GB/s.
const VIEWED: usize = 64 << 10;

/// One end of a route: memory that executors move bytes from or to. If the buffer was allocated here, guards are before and after
/// the memory, which executors may not touch.
pub struct Buffer<'m> {
    /// A map of CUDA's GPU memory with its guards, through which short reads make no CUDA call. Dropped before the memory.
    view: Option<(Bar1Map, Pinned)>,
    /// As above.
    bar1: OnceLock<Bar1Map>,
    /// As above; one for each address space that used it.
    pins: Mutex<Vec<Pinned>>,
    kind: Kind<'m>,
    /// For host memory that a card's driver allocated: where the card finds it. Dropped after the registration and the GPU's
    /// maps.
    dma: Option<pcie::Memory>,
    /// The machine of its GPU.
    machine: &'m Machine,
    /// The machine whose CUDA context the threads are in.
    home: &'m Machine,
    /// The GPU that has the memory; none for host memory.
    gpu: Option<u32>,
    /// The buffer represents a device's memory.
    is_device: bool,
    /// The address at which engines see the first byte after the offset.
    va: u64,
    offset: u64,
    capacity: u64,
    guard: u64,
    id: u64,
}

/// Distinguishes a buffer from all others of the process, also from earlier ones at the same address.
fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Bytes of host memory at one end of a transfer, borrowed while they are in use.
#[derive(Clone, Copy)]
pub(crate) struct HostBytes<'r> {
    at: *mut u8,
    length: usize,
    buffer: PhantomData<&'r ()>,
}

impl HostBytes<'_> {
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// The current bytes. No thread may write them while the slice is in use.
    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the buffer has that many bytes (checked when this was made) and outlives this; it is written only between
        // transfers, and slices are made for one submission.
        unsafe { std::slice::from_raw_parts(self.at, self.length) }
    }

    /// For the CPU to write.
    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.length) }
    }
}

fn no_buffer(capacity: u64) -> Unavailable {
    Unavailable::new(format!("a buffer of {capacity} bytes: 1 byte to 16 GiB are possible"))
}

/// Why this machine has no such memory, as far as that is known without an attempt.
pub(crate) fn check(machine: &Machine, end: End) -> Result<(), Unavailable> {
    let Memory::Host(kind) = end.memory else { return Ok(()) };
    if kind.is_cudas() {
        machine.context()?;
    }
    pages::check(kind)
}

impl<'m> Buffer<'m> {
    /// Allocates `capacity` bytes after the end's offset, with guards around them.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a kind of memory or a size that is not possible, or the allocation's error.
    pub fn new(machine: &'m Machine, end: End, capacity: u64) -> Result<Buffer<'m>, Error> {
        let bytes = capacity
            .checked_add(end.offset)
            .filter(|bytes| capacity > 0 && *bytes <= MAX_BYTES)
            .ok_or_else(|| no_buffer(capacity))?;
        let front = front(bytes);
        let grain = if bytes < LARGE { 1 } else { LARGE };
        let bytes = (front + bytes + GUARD).next_multiple_of(grain);
        let len = bytes as usize;
        let home = machine;
        if let (Memory::Device, Some(card)) = (end.memory, home.card()) {
            let memory = card.memory(bytes)?;
            let (offset, base) = (front + end.offset, memory.address());
            let buffer = Buffer::over(home, Kind::Card(memory), None, base + offset, (offset, capacity, GUARD));
            return Ok(Buffer { is_device: true, ..buffer });
        }
        let machine = match end.memory {
            Memory::Gpu(n) => home.gpu(n)?,
            Memory::Device => home.device_seat(),
            Memory::Host(_) => home,
        };
        let context = machine.context();
        let (kind, base) = match (end.memory, context) {
            (Memory::Host(Host::Pageable), _) => {
                let pages = Pages::of_kind(Host::Pageable, bytes)?;
                let base = pages.as_ptr() as u64;
                (Kind::Pageable(pages), base)
            }
            (Memory::Host(Host::Pinned), Ok(context)) => {
                let buffer = PinnedBuffer::new(context, len)?;
                let base = buffer.device_address()?;
                (Kind::Pinned(buffer), base)
            }
            (Memory::Host(Host::WriteCombined), context) => {
                let buffer = PinnedBuffer::write_combined(context?, len)?;
                let base = buffer.device_address()?;
                (Kind::Pinned(buffer), base)
            }
            (Memory::Host(kind @ (Host::Registered | Host::Huge | Host::Node(_))), context) => {
                let (context, pages) = (context?, Pages::of_kind(kind, bytes)?);
                // SAFETY: the pages live as long as the registration.
                let registration = unsafe { Registration::new(context, pages.as_ptr(), len) }?;
                let base = registration.device_address()?;
                (Kind::Registered { _registration: registration, pages }, base)
            }
            (Memory::Gpu(_) | Memory::Device, Ok(context)) => {
                let buffer = in_context(home, machine, || Ok(DeviceBuffer::new(context, len)?))?;
                let base = buffer.address();
                (Kind::Device(buffer), base)
            }
            (Memory::Host(Host::Pinned), Err(_)) => own(machine.space()?.alloc_host(bytes)?),
            (Memory::Gpu(_) | Memory::Device, Err(_)) => own(machine.space()?.alloc_video(bytes)?),
        };
        let gpu = match end.memory {
            Memory::Gpu(n) => Some(n),
            Memory::Device => Some(machine.index()),
            Memory::Host(_) => None,
        };
        let is_device = end.memory == Memory::Device;
        let offset = front + end.offset;
        Ok(Buffer { home, is_device, ..Buffer::over(machine, kind, gpu, base + offset, (offset, capacity, GUARD)) })
    }

    /// All of a card's own memory, from its start. There are no guards, and other callers may still take parts of it.
    ///
    /// # Errors
    /// [`Error::Unavailable`] on a machine without a card.
    pub fn of_card(machine: &'m Machine) -> Result<Buffer<'m>, Error> {
        let card = machine.card().ok_or_else(|| Unavailable::new("the machine has no card on the bus"))?;
        let (memory, length) = (card.whole(), card.own());
        let base = memory.address();
        let buffer = Buffer::over(machine, Kind::Card(memory), None, base, (0, length, 0));
        Ok(Buffer { is_device: true, ..buffer })
    }

    /// As [`Buffer::new`], for transfers of the machine's device. Where that is a card, its driver allocates the host memory,
    /// which the GPU reaches too.
    ///
    /// # Errors
    /// As there, and [`Error::Unavailable`] for other kinds of host memory.
    pub fn for_device(machine: &'m Machine, end: End, capacity: u64) -> Result<Buffer<'m>, Error> {
        let (Some(card), Memory::Host(kind)) = (machine.card(), end.memory) else {
            return Buffer::new(machine, end, capacity);
        };
        if kind != Host::Pinned {
            return Err(
                Unavailable::new(format!("{} reaches host memory of its driver's alone: host", card.about())).into()
            );
        }
        let bytes = capacity.checked_add(end.offset).filter(|bytes| capacity > 0 && *bytes <= MAX_BYTES);
        let bytes = bytes.ok_or_else(|| no_buffer(capacity))?;
        let front = front(bytes);
        let memory = card.host((front + bytes + GUARD).next_multiple_of(PAGE))?;
        let at = memory.as_ptr().ok_or_else(|| Unavailable::new("the CPU does not reach the card's host memory"))?;
        let (kind, base) = match machine.context() {
            Ok(context) => {
                // SAFETY: the memory is dropped after the registration (`dma`).
                let registration = unsafe { Registration::new(context, at.as_ptr(), memory.length() as usize) }?;
                let base = registration.device_address()?;
                (Kind::Shared { _registration: registration }, base)
            }
            Err(_) => {
                let length = memory.length() & !(PAGE - 1);
                // SAFETY: it stays mapped as long as the clone, and only this buffer uses it.
                own(unsafe { machine.space()?.adopt_host(at, length, Arc::new(memory.clone())) }?)
            }
        };
        let offset = front + end.offset;
        let buffer = Buffer::over(machine, kind, None, base + offset, (offset, capacity, GUARD));
        Ok(Buffer { dma: Some(memory), ..buffer })
    }

    /// The memory as a card on the bus finds it. GPU memory is mapped through BAR1 for this, and stays mapped as long as the target lives.
    ///
    /// # Errors
    /// If that is not known.
    pub fn on_bus(&self) -> Result<OnBus, Error> {
        match (&self.kind, &self.dma) {
            (Kind::Card(memory), _) => Ok(OnBus::Own(memory.address() + self.offset)),
            (_, Some(memory)) => Ok(OnBus::Host(memory.clone(), self.offset)),
            _ if self.gpu.is_some() => self.gpu_target().map(OnBus::Gpu),
            _ => Err(Unavailable::new("where this host memory is on the bus is not known: take the card's").into()),
        }
    }

    /// GPU memory for another device on the bus.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for host memory, and as [`GpuTarget::new`].
    pub fn gpu_target(&self) -> Result<GpuTarget, Error> {
        let device = self.machine.space()?.device();
        let card = device.card();
        let address = pcie::Address { domain: card.domain, bus: card.bus, device: card.slot, function: card.function };
        GpuTarget::new(self.new_bar1()?, self.machine.index(), (!device.is_soft()).then_some(address))
    }

    fn over(
        machine: &'m Machine,
        kind: Kind<'m>,
        gpu: Option<u32>,
        va: u64,
        (offset, capacity, guard): (u64, u64, u64),
    ) -> Buffer<'m> {
        let (bar1, pins) = (OnceLock::new(), Mutex::default());
        Buffer {
            view: None,
            bar1,
            pins,
            kind,
            dma: None,
            machine,
            home: machine,
            is_device: false,
            gpu,
            va,
            offset,
            capacity,
            guard,
            id: next_id(),
        }
    }

    /// Makes later short reads of CUDA's GPU memory use BAR1 where that is possible. Such reads take no libcuda lock. A
    /// copy by CUDA waits for these locks while other threads use CUDA.
    pub(crate) fn read_directly(&mut self) {
        if let Kind::Device(_) = &self.kind
            && self.capacity <= VIEWED as u64
        {
            let (begin, length) = (self.va - self.guard, self.capacity + 2 * self.guard);
            let view = || {
                let pinned = pin_in(self.machine, self.machine.space()?, begin, length)?;
                Ok((Bar1Map::of_pin(pinned.pin(), 0, length)?, pinned))
            };
            self.view = in_context(self.home, self.machine, view).ok();
        }
    }

    /// Bytes after the offset.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// The machine of its GPU.
    pub(crate) fn machine(&self) -> &'m Machine {
        self.machine
    }

    /// The GPU that has the memory; none for host memory.
    pub fn gpu(&self) -> Option<u32> {
        self.gpu
    }

    /// Whether the memory is a device's.
    pub fn is_device(&self) -> bool {
        self.is_device
    }

    /// Whether engines can reach it.
    pub fn is_pinned(&self) -> bool {
        !matches!(self.kind, Kind::Pageable(_) | Kind::Card(_))
    }

    /// The address at which engines see it. For pageable memory, which they cannot see, the CPU's address.
    pub fn va(&self) -> u64 {
        self.va
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Checks that `bytes` at `at` are within it.
    pub(crate) fn holds(&self, at: u64, bytes: u64) -> Result<(), Error> {
        match at.checked_add(bytes) {
            Some(end) if end <= self.capacity => Ok(()),
            _ => Err(Error::Capacity { bytes: at.saturating_add(bytes), capacity: self.capacity }),
        }
    }

    /// The buffer as doorbell's pushbuffers in that address space may name it. CUDA's memory is pinned there the first time.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for pageable memory, and where it cannot be pinned.
    pub fn region(&self, space: &Arc<AddressSpace>) -> Result<Region, Error> {
        match &self.kind {
            Kind::Own(memory) => Ok(memory.region().part(self.offset, self.capacity)?),
            _ => self.with_pin(space, |pin| Ok(pin.region().clone())),
        }
    }

    /// As `region`, but with the caller's own pin for CUDA's memory. The region is valid as long as that pin.
    pub(crate) fn pin(&self, space: &Arc<AddressSpace>) -> Result<(Region, Option<Pinned>), Error> {
        match &self.kind {
            Kind::Own(_) => Ok((self.region(space)?, None)),
            _ => {
                let pinned = self.new_pin(space)?;
                Ok((pinned.region().clone(), Some(pinned)))
            }
        }
    }

    fn new_pin(&self, space: &Arc<AddressSpace>) -> Result<Pinned, Error> {
        match &self.kind {
            Kind::Pageable(_) => Err(Unavailable::new(PAGEABLE).into()),
            Kind::Card(_) => Err(Unavailable::new(A_CARDS).into()),
            _ => in_context(self.home, self.machine, || Ok(pin_in(self.machine, space, self.va, self.capacity)?)),
        }
    }

    fn with_pin<T>(
        &self,
        space: &Arc<AddressSpace>,
        take: impl FnOnce(&Arc<gpu::Pin>) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let mut pins = poison::ignore(self.pins.lock());
        if let Some(pinned) = pins.iter().find(|pinned| Arc::ptr_eq(pinned.pin().space(), space)) {
            return take(pinned.pin());
        }
        let pinned = self.new_pin(space)?;
        let taken = take(pinned.pin());
        pins.push(pinned);
        taken
    }

    /// Where the CPU reads and writes host memory; `None` for GPU memory.
    pub fn host_pointer(&self) -> Option<*mut u8> {
        let base = match &self.kind {
            Kind::Pinned(buffer) => buffer.as_ptr(),
            Kind::Registered { pages, .. } | Kind::Pageable(pages) => pages.as_ptr(),
            Kind::Own(memory) if memory.place() == gpu::Place::Host => memory.as_ptr(),
            Kind::Shared { .. } => self.dma.as_ref()?.as_ptr()?.as_ptr(),
            Kind::Own(_) | Kind::Device(_) | Kind::Card(_) => return None,
        };
        // SAFETY: the buffer was made with the offset in it.
        Some(unsafe { base.add(self.offset as usize) })
    }

    /// Bytes of it for the CPU to read or write while they are borrowed.
    pub(crate) fn host_bytes(&self, at: u64, bytes: u64) -> Result<HostBytes<'_>, Error> {
        self.holds(at, bytes)?;
        let start = self.host_pointer().ok_or_else(|| Unavailable::new("neither end is the host's"))?;
        Ok(HostBytes { at: start.wrapping_add(at as usize), length: bytes as usize, buffer: PhantomData })
    }

    /// CUDA's device memory: `bytes` bytes, from `at` bytes after the offset; `None` for any other memory.
    pub(crate) fn device_slice(&self, at: u64, bytes: u64) -> Result<Option<DeviceSlice<'_>>, Error> {
        self.holds(at, bytes)?;
        match &self.kind {
            Kind::Device(buffer) => Ok(Some(buffer.slice((self.offset + at) as usize, bytes as usize)?)),
            _ => Ok(None),
        }
    }

    /// A map of the GPU memory through BAR1, which all callers share.
    pub(crate) fn bar1(&self) -> Result<&Bar1Map, Error> {
        if let Some(map) = self.bar1.get() {
            return Ok(map);
        }
        let map = self.new_bar1()?;
        Ok(self.bar1.get_or_init(|| map))
    }

    /// A new map, which belongs to the caller.
    pub(crate) fn new_bar1(&self) -> Result<Bar1Map, Error> {
        match &self.kind {
            _ if self.gpu.is_none() => Err(Unavailable::new(NOT_THE_GPUS).into()),
            Kind::Own(memory) => Ok(Bar1Map::of(memory, self.offset, self.capacity)?),
            _ => self.with_pin(self.machine.space()?, |pin| Ok(Bar1Map::of_pin(pin, 0, self.capacity)?)),
        }
    }

    /// A BAR1 window over the GPU memory, and the buffer's start within the range that the window can show.
    pub(crate) fn aperture(&self) -> Result<(Aperture, u64), Error> {
        match &self.kind {
            _ if self.gpu.is_none() => Err(Unavailable::new(NOT_THE_GPUS).into()),
            Kind::Own(memory) => Ok((Aperture::of(memory)?, self.offset)),
            _ => self.with_pin(self.machine.space()?, |pin| Ok((Aperture::of_pin(pin, Aperture::WINDOW)?, 0))),
        }
    }

    /// The place in the memory of `bytes` at an offset, which may be in the guards.
    fn place(&self, at: i64, bytes: usize) -> Result<u64, Error> {
        let (bytes, capacity) = (bytes as u64, self.capacity);
        let start = at.checked_add(self.guard as i64).and_then(|start| u64::try_from(start).ok());
        let end = start.and_then(|start| start.checked_add(bytes));
        match end {
            Some(end) if end <= capacity + 2 * self.guard => Ok(self.offset.wrapping_add_signed(at)),
            _ => Err(Error::Capacity { bytes, capacity }),
        }
    }

    /// Writes at an offset while no transfer is pending. The CPU writes host memory. CUDA writes its own GPU memory; other GPU
    /// memory is written through its CPU mapping. The guards, if any, are before 0 and after the capacity.
    ///
    /// # Errors
    /// [`Error::Capacity`] outside of memory and guards, or CUDA's error.
    pub fn write(&self, at: i64, data: &[u8]) -> Result<(), Error> {
        let place = self.place(at, data.len())?;
        if let Some(pointer) = self.host_pointer() {
            // SAFETY: that many bytes are there (`place`), and no transfer is pending: the caller ensures that.
            unsafe { pointer.offset(at as isize).copy_from_nonoverlapping(data.as_ptr(), data.len()) };
        } else if let Kind::Card(memory) = &self.kind {
            memory.write(place, data)?;
        } else if let Kind::Own(memory) = &self.kind {
            memory.write(place, data);
        } else if let Kind::Device(buffer) = &self.kind {
            let slice = buffer.slice(place as usize, data.len())?;
            let context = self.machine.context()?;
            in_context(self.home, self.machine, || {
                // SAFETY: the slice is as long as the data.
                unsafe { slice.upload_now(context, data.as_ptr()) }?;
                // From pageable memory the call may return before the last bytes have arrived. This waits for no other stream: a
                // kernel of another route may be spinning in one.
                Ok(context.synchronize_default_stream()?)
            })?;
        }
        Ok(())
    }

    /// Reads at an offset, as [`Buffer::write`] writes there.
    ///
    /// # Errors
    /// As [`Buffer::write`].
    pub fn read(&self, at: i64, into: &mut [u8]) -> Result<(), Error> {
        let place = self.place(at, into.len())?;
        if let Some(pointer) = self.host_pointer() {
            // SAFETY: as above.
            unsafe { pointer.offset(at as isize).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
        } else if let Some((view, _)) = &self.view {
            view.read(at.wrapping_add(self.guard as i64) as u64, into)?;
        } else if let Kind::Card(memory) = &self.kind {
            memory.read(place, into)?;
        } else if let Kind::Own(memory) = &self.kind {
            memory.read(place, into);
        } else if let Kind::Device(buffer) = &self.kind {
            let slice = buffer.slice(place as usize, into.len())?;
            let context = self.machine.context()?;
            in_context(self.home, self.machine, || {
                // SAFETY: the slice is as long as the buffer.
                Ok(unsafe { slice.download_now(context, into.as_mut_ptr()) }?)
            })?;
        }
        Ok(())
    }
}

/// Runs `work` in the CUDA context of `machine`, if that is not the thread's context, `home`.
fn in_context<T>(home: &Machine, machine: &Machine, work: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    if std::ptr::eq(home, machine) {
        return work();
    }
    machine.enter()?;
    let done = work();
    home.enter()?;
    done
}

fn own<'m>(memory: Arc<gpu::Memory>) -> (Kind<'m>, u64) {
    let base = memory.va();
    (Kind::Own(memory), base)
}

impl std::fmt::Debug for Buffer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("va", &format_args!("{:#x}", self.va()))
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
