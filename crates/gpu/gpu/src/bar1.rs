//! GPU video memory under the CPU's hands: a range of it mapped through BAR1.
//!
//! The mapping hangs on a handle of its own (RM_DUP_OBJECT), so the video memory behind it stays allocated for as long as the
//! map lives, also where CUDA gives the whole mapping back to the driver. That does not hold for a small block of CUDA's: it
//! shares the mapping with others, and CUDA may give it to another owner. So each store and load asks first whether the pin still
//! holds, and is [`Error::Stale`] where it does not; what ends a pin is told at [`crate::Region`]. A store that another thread
//! makes while the block is being freed is the program's race, as with any pointer.
//!
//! BAR1 is mapped write-combined: stores are posted, a load is a round trip over PCIe.

use crate::device::Device;
use crate::error::Error;
use crate::memory::Memory;
use crate::pin::Pin;
use crate::place::Place;
use crate::points::Point;
use crate::stores::{self, LINE, Level, Line, LineStore};
use rm::driver;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

const PAGE: u64 = 0x1000;
/// The largest range that is mapped at once.
const MAX_LENGTH: u64 = 1 << 40;

/// Whose memory is mapped.
enum Owner {
    /// Ours: it is there as long as this.
    Memory(#[allow(dead_code, reason = "kept alive")] Arc<Memory>),
    /// CUDA's, pinned.
    Pin(Arc<Pin>),
}

/// A range of a video-memory object, by a handle of our own.
pub(crate) struct Duplicate {
    device: Arc<Device>,
    handle: u32,
    /// Where the range begins in the object.
    base: u64,
    size: u64,
    owner: Owner,
}

impl Duplicate {
    /// Of memory of our own.
    pub(crate) fn of(memory: &Arc<Memory>) -> Result<Arc<Duplicate>, Error> {
        if memory.place() != Place::Video {
            return Err(Error::NotVideo);
        }
        let device = memory.space().device();
        let owner = Owner::Memory(memory.clone());
        Duplicate::new(device, (device.client, memory.handle()), 0, memory.length(), owner)
    }

    /// Of memory of CUDA's that was pinned.
    pub(crate) fn of_pin(pin: &Arc<Pin>) -> Result<Arc<Duplicate>, Error> {
        let space = pin.space();
        let refuse = |why| Error::NotPinnable { va: pin.va(), length: pin.length(), why };
        pin.region().ask()?;
        let found = space.watched.and_then(|watched| watched.graph().place_of(pin.va()));
        let found = found.ok_or(Error::Stale)?;
        if found.place != rm::graph::Place::Video {
            return Err(Error::NotVideo);
        }
        if found.rest < pin.length() {
            return Err(refuse("it lies in several allocations: pin and map each by itself"));
        }
        let owner = Owner::Pin(pin.clone());
        let theirs = (found.client, found.handle);
        let duplicate = Duplicate::new(space.device(), theirs, found.offset, pin.length(), owner);
        // The handle named this memory when it was duplicated if the pin holds now. (Freed a moment before, it names nothing.)
        if !pin.region().is_live() {
            return Err(Error::Stale);
        }
        duplicate
    }

    fn new(
        device: &Arc<Device>,
        theirs: (u32, u32),
        base: u64,
        size: u64,
        owner: Owner,
    ) -> Result<Arc<Duplicate>, Error> {
        if device.forked() {
            return Err(Error::Forked);
        }
        let handle = driver::dup_object(&*device.driver, device.ctl, device.client, device.device, theirs.0, theirs.1)?;
        Ok(Arc::new(Duplicate { device: device.clone(), handle, base, size, owner }))
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// The memory is still what was mapped, and this is still the process that mapped it.
    #[inline]
    fn usable(&self) -> Result<(), Error> {
        if self.device.forked() {
            return Err(Error::Forked);
        }
        match &self.owner {
            Owner::Pin(pin) if !pin.region().is_still_live() => Err(Error::Stale),
            _ => Ok(()),
        }
    }
}

impl Drop for Duplicate {
    fn drop(&mut self) {
        self.device.free(self.device.device, self.handle);
    }
}

/// Bus addresses that another PCIe device may be given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusRange {
    pub address: u64,
    /// Bytes that are known to follow one another from there on.
    pub length: u64,
}

/// A range of video memory, mapped for the CPU. Unmapped on drop.
pub struct Bar1Map {
    /// First byte of the range.
    at: *mut u8,
    length: u64,
    bus: u64,
    level: Level,
    line: LineStore,
    mapping: Mapping,
}

// SAFETY: the mapping lives as long as the map, and is only touched through volatile, streaming or atomic accesses; what
// several threads write to the same bytes is theirs to order, as on the bus.
unsafe impl Send for Bar1Map {}
// SAFETY: as above.
unsafe impl Sync for Bar1Map {}

impl std::fmt::Debug for Bar1Map {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut all = f.debug_struct("Bar1Map");
        all.field("at", &self.at).field("length", &self.length).field("bus", &format_args!("{:#x}", self.bus));
        all.field("level", &self.level).finish_non_exhaustive()
    }
}

impl Bar1Map {
    /// Maps `length` bytes at `offset` of video memory of our own.
    ///
    /// # Errors
    /// [`Error::NotVideo`] for host memory, [`Error::Outside`] where the range is not within it, [`Error::Length`] where it
    /// is empty; the driver's where BAR1 has no room.
    pub fn of(memory: &Arc<Memory>, offset: u64, length: u64) -> Result<Bar1Map, Error> {
        check(offset, length, memory.length())?;
        Bar1Map::new(&Duplicate::of(memory)?, offset, length)
    }

    /// Maps `length` bytes at `offset` of a pinned range of CUDA's. The map keeps the pin and the mapping that it is in: when
    /// CUDA has freed it, calls here are [`Error::Stale`].
    ///
    /// # Errors
    /// As [`Bar1Map::of`], and [`Error::NotPinnable`] where the range lies in several of CUDA's allocations.
    pub fn of_pin(pin: &Arc<Pin>, offset: u64, length: u64) -> Result<Bar1Map, Error> {
        check(offset, length, pin.length())?;
        Bar1Map::new(&Duplicate::of_pin(pin)?, offset, length)
    }

    pub(crate) fn new(object: &Arc<Duplicate>, offset: u64, length: u64) -> Result<Bar1Map, Error> {
        check(offset, length, object.size)?;
        if length == 0 || length > MAX_LENGTH {
            return Err(Error::Length(length));
        }
        object.usable()?;
        let offset = object.base + offset;
        // Whole pages, as the driver maps; the range begins somewhere in the first.
        let first = offset & !(PAGE - 1);
        let skip = offset - first;
        let mapping = Mapping::new(object, first, (skip + length).next_multiple_of(PAGE))?;
        let at = mapping.at.wrapping_add(skip as usize);
        let bus = mapping.linear + skip;
        Ok(Bar1Map { at, length, bus, level: Level::best(), line: LineStore::best(), mapping })
    }

    /// Bytes of the range.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// PCIe bus address of the first byte. Other devices reach it there if no IOMMU is between; how far the range
    /// goes on from there, [`Bar1Map::bus_range`] says.
    pub fn bus_address(&self) -> u64 {
        self.bus
    }

    /// The bus address with the length that may be used from there on.
    ///
    /// The whole range, where the driver gives each mapping addresses in a row. Where BAR1 maps all video memory in
    /// physical order (static BAR1), a range may be scattered, and only the rest of its first page is sure.
    ///
    /// # Errors
    /// The driver's, where it does not say how BAR1 is used.
    pub fn bus_range(&self) -> Result<BusRange, Error> {
        let scattered = self.mapping.object.device.static_bar1()?;
        let page = PAGE - self.bus % PAGE;
        let length = if scattered { self.length.min(page) } else { self.length };
        Ok(BusRange { address: self.bus, length })
    }

    /// Which instructions copy here.
    pub fn level(&self) -> Level {
        self.level
    }

    /// How [`Bar1Map::store_line`] stores: the best that this CPU has, if nothing else is set.
    pub fn line_store(&self) -> LineStore {
        self.line
    }

    /// True if it will be so; false, and nothing changes, where this CPU cannot.
    pub fn set_line_store(&mut self, how: LineStore) -> bool {
        let can = how.is_available();
        if can {
            self.line = how;
        }
        can
    }

    /// Nothing names its pin any more, if nobody else has that: its drop waits for nothing.
    pub(crate) fn let_go(&mut self) {
        if let Some(Duplicate { owner: Owner::Pin(pin), .. }) = Arc::get_mut(&mut self.mapping.object)
            && let Some(pin) = Arc::get_mut(pin)
        {
            pin.let_go();
        }
    }

    /// That the memory is still what was mapped: what is about to let another device come to it asks first.
    ///
    /// # Errors
    /// [`Error::Stale`], [`Error::Forked`].
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        self.mapping.object.usable()
    }

    /// The mapped bytes, for what is not here. Stores are write-combined: fence them with SFENCE.
    pub fn as_ptr(&self) -> *mut u8 {
        self.at
    }

    /// Stores bytes with streaming stores, and a fence behind them: when this returns they are on their way, in front of
    /// every later store to the device. No allocation or system call, and no lock but once after each time that CUDA
    /// unmapped something.
    ///
    /// # Errors
    /// [`Error::Outside`]: the range is not within the map; [`Error::Stale`]: the memory was freed or unpinned; [`Error::Forked`] in
    /// a fork's child. Nothing was written.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        check(offset, bytes.len() as u64, self.length)?;
        self.mapping.object.usable()?;
        Point::BeforeStores.reached();
        // SAFETY: in bounds (just checked) of a mapping that lives as long as self; `bytes` is memory of the program's own
        // and the level is this CPU's.
        unsafe { stores::store(self.level, self.at.add(offset as usize), bytes.as_ptr(), bytes.len()) };
        // ORDERING: streaming stores are weakly ordered and may stay in the write-combining buffers: this sends them.
        stores::sfence();
        Ok(())
    }

    /// Loads bytes with streaming loads: what the memory holds now, this thread's earlier stores included. Asks nobody, as
    /// [`Bar1Map::write`]. Of a line that the range holds a part of, the rest is fetched too and left out.
    ///
    /// # Errors
    /// As [`Bar1Map::write`].
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        check(offset, into.len() as u64, self.length)?;
        self.mapping.object.usable()?;
        Point::BeforeStores.reached();
        // ORDERING: earlier stores leave the write-combining buffers, and no line that a streaming load fetched before
        // is taken for the memory's present contents.
        stores::mfence();
        // SAFETY: in bounds (just checked) of a mapping of whole pages, hence of whole lines, that lives as long as self;
        // `into` is memory of the program's own and the level is this CPU's.
        unsafe { stores::load(self.level, into.as_mut_ptr(), self.at.add(offset as usize), into.len()) };
        // ORDERING: streaming loads are weakly ordered too: what the caller loads next is not older than this.
        stores::lfence();
        Ok(())
    }

    /// Returns when the stores that this thread has made up to that byte are there: a load comes back behind them. Whether the memory is still there is not
    /// asked: who was told so before its stores, and holds the memory, is to have it until they have arrived.
    ///
    /// # Errors
    /// [`Error::Outside`], [`Error::Forked`].
    #[inline]
    pub fn wait_for_stores(&self, offset: u64) -> Result<(), Error> {
        check(offset, 1, self.length)?;
        if self.mapping.object.device.forked() {
            return Err(Error::Forked);
        }
        // ORDERING: the stores leave the write-combining buffers before the load.
        stores::mfence();
        let mut byte = 0;
        // SAFETY: in bounds of a mapping of whole lines that lives as long as self.
        unsafe { stores::load(self.level, &raw mut byte, self.at.add(offset as usize), 1) };
        // ORDERING: as in read.
        stores::lfence();
        Ok(())
    }

    /// Stores four bytes in one piece, with a fence behind.
    ///
    /// # Errors
    /// As [`Bar1Map::write`], and [`Error::Misaligned`] where the word's address is no multiple of 4.
    #[inline]
    pub fn store32(&self, offset: u64, value: u32) -> Result<(), Error> {
        // ORDERING: behind everything that this thread wrote here and fenced; the fence sends it.
        self.word32(offset)?.store(value, Ordering::Release);
        stores::sfence();
        Ok(())
    }

    /// As [`Bar1Map::store32`], eight bytes.
    #[inline]
    pub fn store64(&self, offset: u64, value: u64) -> Result<(), Error> {
        // ORDERING: as in store32.
        self.word64(offset)?.store(value, Ordering::Release);
        stores::sfence();
        Ok(())
    }

    /// Stores a whole line in one piece, and sends it. What was stored before and not fenced may be overtaken.
    ///
    /// # Errors
    /// As [`Bar1Map::write`], and [`Error::Misaligned`] where it would lie in two lines.
    #[inline]
    pub fn store_line(&self, offset: u64, line: &Line) -> Result<(), Error> {
        let at = self.place(offset, LINE as u64)?;
        // SAFETY: a line of the map (checked there), which lives as long as self; this CPU can (`set_line_store`).
        unsafe { stores::store_line(self.line, at, line) };
        Ok(())
    }

    /// Loads four bytes in one piece; errors as in [`Bar1Map::store32`].
    #[inline]
    pub fn load32(&self, offset: u64) -> Result<u32, Error> {
        // ORDERING: what is loaded after a flag was seen is not older than the flag.
        Ok(self.word32(offset)?.load(Ordering::Acquire))
    }

    /// As [`Bar1Map::load32`], eight bytes.
    #[inline]
    pub fn load64(&self, offset: u64) -> Result<u64, Error> {
        // ORDERING: as in load32.
        Ok(self.word64(offset)?.load(Ordering::Acquire))
    }

    fn word32(&self, offset: u64) -> Result<&AtomicU32, Error> {
        // SAFETY: in bounds and aligned (checked there), alive as long as self.
        self.place(offset, 4).map(|at| unsafe { &*at.cast() })
    }

    fn word64(&self, offset: u64) -> Result<&AtomicU64, Error> {
        // SAFETY: in bounds and aligned (checked there), alive as long as self.
        self.place(offset, 8).map(|at| unsafe { &*at.cast() })
    }

    fn place(&self, offset: u64, size: u64) -> Result<*mut u8, Error> {
        check(offset, size, self.length)?;
        self.mapping.object.usable()?;
        let at = self.at.wrapping_add(offset as usize);
        if !(at.addr() as u64).is_multiple_of(size) {
            return Err(Error::Misaligned { offset, size });
        }
        Ok(at)
    }
}

/// The range lies within `size` bytes.
#[inline]
pub(crate) fn check(offset: u64, length: u64, size: u64) -> Result<(), Error> {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::Outside { offset, length, size }),
    }
}

/// What RM_MAP_MEMORY and mmap have made; undone on drop, whole or half.
struct Mapping {
    object: Arc<Duplicate>,
    /// Never mapped where it is null.
    at: *mut u8,
    length: usize,
    /// What RM_MAP_MEMORY answered, until it is undone.
    linear: u64,
    known: bool,
    fd: RawFd,
}

impl Mapping {
    /// Maps whole pages of the object. The file is a fresh one: it takes one mapping in its life (the driver answers
    /// STATE_IN_USE to a second, even when the first is gone).
    fn new(object: &Arc<Duplicate>, offset: u64, length: u64) -> Result<Mapping, Error> {
        let device = &object.device;
        let mut mapping = Mapping {
            object: object.clone(),
            at: std::ptr::null_mut(),
            length: length as usize,
            linear: 0,
            known: false,
            fd: device.open_node(true)?,
        };
        mapping.linear = driver::map_memory(
            &*device.driver,
            device.ctl,
            device.client,
            device.device,
            object.handle,
            offset,
            length,
            0,
            mapping.fd,
        )?;
        mapping.known = true;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at =
            unsafe { device.driver.mmap(std::ptr::null_mut(), mapping.length, prot, libc::MAP_SHARED, mapping.fd, 0) };
        mapping.at = at.map_err(|cause| Error::Map { what: "video memory through BAR1", length, cause })?.cast();
        Ok(mapping)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        let device = &self.object.device;
        if device.forked() {
            return;
        }
        if !self.at.is_null() {
            // SAFETY: our own mapping; whoever used it is gone with its owner.
            let _ = unsafe { device.driver.munmap(self.at.cast(), self.length) };
        }
        if self.known {
            // What cannot be undone goes with the object's handle.
            let _ = driver::unmap_memory(
                &*device.driver,
                device.ctl,
                device.client,
                device.device,
                self.object.handle,
                self.linear,
            );
        }
        let _ = device.driver.close(self.fd);
    }
}
