//! GPU GPU memory that the CPU can access: a range of it mapped through BAR1.
//!
//! The mapping uses its own handle (RM_DUP_OBJECT), so the GPU memory stays allocated for as long as the map lives,
//! even if CUDA gives the whole mapping back to the driver. That does not protect a small block of CUDA memory: it
//! shares its mapping with others, and CUDA may give the block to another owner. So each store and load first checks
//! whether the pin still holds, and returns [`Error::Stale`] if not. [`crate::Region`] lists the events that end a pin.
//! A store in another thread during the free of a block is the program's race, as with any pointer.
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
/// The largest range in one mapping.
const MAX_LENGTH: u64 = 1 << 40;

/// The owner of the mapped memory.
enum Owner {
    /// doorbell's memory, kept alive by this.
    Memory(#[allow(dead_code, reason = "kept alive")] Arc<Memory>),
    /// CUDA's, pinned.
    Pin(Arc<Pin>),
}

/// A range of an object in GPU memory, with doorbell's own handle.
pub(crate) struct Duplicate {
    device: Arc<Device>,
    handle: u32,
    /// Where the range begins in the object.
    base: u64,
    size: u64,
    owner: Owner,
}

impl Duplicate {
    /// For doorbell's own memory.
    pub(crate) fn of(memory: &Arc<Memory>) -> Result<Arc<Duplicate>, Error> {
        if memory.place() != Place::Video {
            return Err(Error::NotVideo);
        }
        let device = memory.space().device();
        let owner = Owner::Memory(memory.clone());
        Duplicate::new(device, (device.client, memory.handle()), 0, memory.length(), owner)
    }

    /// For CUDA memory that was pinned.
    pub(crate) fn of_pin(pin: &Arc<Pin>) -> Result<Arc<Duplicate>, Error> {
        let space = pin.space();
        let refuse = |why| Error::NotPinnable { va: pin.va(), length: pin.length(), why };
        if pin.is_elsewhere() {
            return Err(refuse(
                "it is another GPU's memory: this GPU's BAR1 does not show it, and only copy engines reach it",
            ));
        }
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
        // If the pin holds now, the handle named this memory when it was duplicated. (After a free it would name no memory.)
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

    /// The memory is still the mapped memory, and this is still the process that mapped it.
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

/// Bus addresses to give to another PCIe device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusRange {
    pub address: u64,
    /// Bytes from there on that are known to be contiguous.
    pub length: u64,
}

/// A range of GPU memory, mapped for the CPU. Unmapped on drop.
pub struct Bar1Map {
    /// First byte of the range.
    at: *mut u8,
    length: u64,
    bus: u64,
    level: Level,
    line: LineStore,
    mapping: Mapping,
}

// SAFETY: the mapping lives as long as the map, and is only accessed through volatile, streaming or atomic accesses. If
// several threads write to the same bytes, they must order that themselves, as on the bus.
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
    /// Maps `length` bytes at `offset` of GPU memory that doorbell allocated.
    ///
    /// # Errors
    /// [`Error::NotVideo`] for host memory, [`Error::Outside`] if the range is not within it, [`Error::Length`] if it
    /// is empty, the driver's error if BAR1 has no room.
    pub fn of(memory: &Arc<Memory>, offset: u64, length: u64) -> Result<Bar1Map, Error> {
        check(offset, length, memory.length())?;
        Bar1Map::new(&Duplicate::of(memory)?, offset, length)
    }

    /// Maps `length` bytes at `offset` of a pinned range of CUDA memory. The map keeps the pin and the mapping that
    /// contains it. After CUDA has freed the memory, calls on the map return [`Error::Stale`].
    ///
    /// # Errors
    /// As [`Bar1Map::of`], and [`Error::NotPinnable`] if the range spans several CUDA allocations.
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
        // Whole pages, as the driver maps them; the range begins somewhere in the first.
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

    /// PCIe bus address of the first byte. Other devices reach it there if there is no IOMMU between.
    /// [`Bar1Map::bus_range`] returns how much of the range is contiguous.
    pub fn bus_address(&self) -> u64 {
        self.bus
    }

    /// The bus address with the usable length from there on.
    ///
    /// The whole range, if the driver gives each mapping contiguous addresses. If BAR1 maps all GPU memory in
    /// physical order (static BAR1), a range may be scattered, and only the rest of its first page is certain.
    ///
    /// # Errors
    /// The driver's error, if it does not report how BAR1 is used.
    pub fn bus_range(&self) -> Result<BusRange, Error> {
        let scattered = self.mapping.object.device.static_bar1()?;
        let page = PAGE - self.bus % PAGE;
        let length = if scattered { self.length.min(page) } else { self.length };
        Ok(BusRange { address: self.bus, length })
    }

    /// The instructions that copy here.
    pub fn level(&self) -> Level {
        self.level
    }

    /// If this map is the only user of its pin, the pin's drop will not wait for any submission.
    pub(crate) fn let_go(&mut self) {
        if let Some(Duplicate { owner: Owner::Pin(pin), .. }) = Arc::get_mut(&mut self.mapping.object)
            && let Some(pin) = Arc::get_mut(pin)
        {
            pin.let_go();
        }
    }

    /// Checks that the memory is still the mapped memory. Call this before giving the address to another device.
    ///
    /// # Errors
    /// [`Error::Stale`], [`Error::Forked`].
    #[inline]
    pub fn check(&self) -> Result<(), Error> {
        self.mapping.object.usable()
    }

    /// The mapped bytes, for accesses that this type does not offer. Stores are write-combined: fence them with SFENCE.
    pub fn as_ptr(&self) -> *mut u8 {
        self.at
    }

    /// Stores bytes with streaming stores and a fence after them. On return they are on their way, ahead of every later
    /// store to the device. Makes no allocation or system call. Takes a lock only once after each time that CUDA
    /// unmapped memory.
    ///
    /// # Errors
    /// [`Error::Outside`]: the range is not within the map; [`Error::Stale`]: the memory was freed or unpinned;
    /// [`Error::Forked`] in a fork's child. No byte was written.
    #[inline]
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        check(offset, bytes.len() as u64, self.length)?;
        self.mapping.object.usable()?;
        Point::BeforeStores.reached();
        // SAFETY: in bounds (just checked) of a mapping that lives as long as self. `bytes` is the program's own
        // memory, and this CPU supports the level.
        unsafe { stores::store(self.level, self.at.add(offset as usize), bytes.as_ptr(), bytes.len()) };
        // ORDERING: streaming stores are weakly ordered and may stay in the write-combining buffers: this sends them.
        stores::sfence();
        Ok(())
    }

    /// Loads bytes with streaming loads: the memory's current contents, including this thread's earlier stores. Like
    /// [`Bar1Map::write`] it makes no system call. If the range covers part of a line, the whole line is fetched and
    /// the rest is dropped.
    ///
    /// # Errors
    /// As [`Bar1Map::write`].
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        check(offset, into.len() as u64, self.length)?;
        self.mapping.object.usable()?;
        Point::BeforeStores.reached();
        // ORDERING: earlier stores leave the write-combining buffers, and a line that an earlier streaming load fetched
        // does not count as the memory's present contents.
        stores::mfence();
        // SAFETY: in bounds (just checked) of a mapping of whole pages, hence of whole lines, that lives as long as
        // self. `into` is the program's own memory, and this CPU supports the level.
        unsafe { stores::load(self.level, into.as_mut_ptr(), self.at.add(offset as usize), into.len()) };
        // ORDERING: streaming loads are weakly ordered too: the caller's next loads are not older than this one.
        stores::lfence();
        Ok(())
    }

    /// Returns when this thread's stores up to that byte have arrived: a load returns after them. Does not check
    /// whether the memory is still there. The caller must have checked that before its stores, and must keep the memory
    /// until they arrive.
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

    /// Stores four bytes in one piece, then a fence.
    ///
    /// # Errors
    /// As [`Bar1Map::write`], and [`Error::Misaligned`] if the word's address is not a multiple of 4.
    #[inline]
    pub fn store32(&self, offset: u64, value: u32) -> Result<(), Error> {
        // ORDERING: after everything that this thread wrote here and fenced; the fence sends it.
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

    /// Stores a whole line in one piece, and sends it. It may overtake earlier stores that were not fenced.
    ///
    /// # Errors
    /// As [`Bar1Map::write`], and [`Error::Misaligned`] if it would span two lines.
    #[inline]
    pub fn store_line(&self, offset: u64, line: &Line) -> Result<(), Error> {
        let at = self.place(offset, LINE as u64)?;
        // SAFETY: a line of the map (checked there), which lives as long as self; this CPU has the instruction
        // (`LineStore::best`).
        unsafe { stores::store_line(self.line, at, line) };
        Ok(())
    }

    /// Loads four bytes in one piece; errors as in [`Bar1Map::store32`].
    #[inline]
    pub fn load32(&self, offset: u64) -> Result<u32, Error> {
        // ORDERING: loads after a flag was seen are not older than the flag.
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

/// Checks that the range is within `size` bytes.
#[inline]
pub(crate) fn check(offset: u64, length: u64, size: u64) -> Result<(), Error> {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Error::Outside { offset, length, size }),
    }
}

/// The results of RM_MAP_MEMORY and mmap; undone on drop, also if only one was made.
struct Mapping {
    object: Arc<Duplicate>,
    /// Null: never mapped.
    at: *mut u8,
    length: usize,
    /// RM_MAP_MEMORY's result, until it is undone.
    linear: u64,
    known: bool,
    fd: RawFd,
}

impl Mapping {
    /// Maps whole pages of the object. The file is new: it takes one mapping in its life (the driver returns
    /// STATE_IN_USE for a second, even after the first is gone).
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
        // SAFETY: a new mapping at an address that the kernel chooses.
        let at =
            unsafe { device.driver.mmap(std::ptr::null_mut(), mapping.length, prot, libc::MAP_SHARED, mapping.fd, 0) };
        mapping.at = at.map_err(|cause| Error::Map { what: "GPU memory through BAR1", length, cause })?.cast();
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
            // SAFETY: this struct's own mapping; its users have ended with its owner.
            let _ = unsafe { device.driver.munmap(self.at.cast(), self.length) };
        }
        if self.known {
            // A mapping that cannot be undone ends with the object's handle.
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
