//! An address space and the memory in it, mapped for the GPU and for the CPU at the same address.
//!
//! Addresses are low and fixed, as CUDA has them: video memory for rings from 0x2_0060_0000, everything else above, all
//! below 2^40, which is what GPFIFO entries can carry.

use crate::device::Device;
use crate::error::Error;
use crate::libcuda::{CudasGroup, Watched};
use crate::pin::Pins;
use crate::tracker::{InFlight, Tracker};
use rm::abi::{MemoryAlloc, alloc_flags, attr, uvm, va_flags};
use rm::class;
use rm::driver::{self, RmError};
use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Where CUDA has its block of rings.
const RINGS: u64 = 0x2_0060_0000;
/// Where CUDA's pushbuffers begin; everything else is found above.
const FIRST: u64 = 0x2_0080_0000;
/// Beside CUDA: far from what CUDA reserves for itself.
const BESIDE: u64 = 0x80_0000_0000;
const LAST: u64 = 1 << 40;
/// Ranges begin and end on 2 MiB, as the driver's big mappings do.
const GRAIN: u64 = 2 << 20;
const PAGE: u64 = 0x1000;
/// How long the freeing of memory waits for copies that are under way.
const DRAIN: Duration = Duration::from_secs(1);
/// NV_ERR_UVM_ADDRESS_IN_USE.
const ADDRESS_IN_USE: u32 = 0x68;
/// The largest memory object that is given out.
const MAX_LENGTH: u64 = 16 << 30;
/// Size of a new VA space: what CUDA asks for on Hopper, with 57 address bits (580).
const SPACE_SIZE: u64 = 0x1ff_ffff_ffff_f000;
/// As CUDA asks for it (580): no bank preference, a handle of its own, mapped only when asked.
const ALLOC_FLAGS: u32 =
    alloc_flags::IGNORE_BANK_PLACEMENT | alloc_flags::MEMORY_HANDLE_PROVIDED | alloc_flags::MAP_NOT_REQUIRED;

/// Which memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Video memory, seen by the CPU through BAR1.
    Video,
    /// Host memory.
    Host,
}

/// A GPU virtual address space. Memory and channels keep it alive.
#[derive(Debug)]
pub struct AddressSpace {
    pub(crate) device: Arc<Device>,
    pub(crate) handle: u32,
    /// Taken ranges, by first address; the length is a multiple of the grain.
    taken: Mutex<BTreeMap<u64, u64>>,
    /// What may be named in a pushbuffer: exact first address and length.
    mapped: Mutex<BTreeMap<u64, u64>>,
    /// Grows whenever something is unmapped.
    generation: AtomicU64,
    rings: Mutex<Vec<crate::ring::RingBlock>>,
    trackers: Mutex<Vec<Weak<Tracker>>>,
    /// Where one of CUDA's: what CUDA maps and unmaps there, and what is pinned of it.
    pub(crate) pins: Option<Pins>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AddressSpace {
    pub fn new(device: &Arc<Device>) -> Result<Arc<AddressSpace>, Error> {
        let flags = va_flags::IS_EXTERNALLY_OWNED | va_flags::ENABLE_PAGE_FAULTING;
        let (mut params, size) = device.abi.vaspace_alloc(flags, PAGE, SPACE_SIZE);
        let handle = driver::alloc_bytes(
            &*device.driver,
            device.ctl,
            device.client,
            device.device,
            0,
            class::FERMI_VASPACE_A,
            &mut params[..size],
        )?;
        let mut register = uvm::RegisterGpuVaspace {
            uuid: device.uuid,
            ctl_fd: device.ctl,
            client: device.client,
            va_space: handle,
            ..Default::default()
        };
        // SAFETY: the struct is the request's.
        let registered = unsafe {
            driver::uvm_call(&*device.driver, &device.abi, device.uvm, uvm::REGISTER_GPU_VASPACE, &mut register)
        };
        if let Err(error) = registered {
            device.free(device.device, handle);
            return Err(error.into());
        }
        Ok(Arc::new(AddressSpace {
            device: device.clone(),
            handle,
            taken: Mutex::default(),
            mapped: Mutex::default(),
            generation: AtomicU64::new(0),
            rings: Mutex::default(),
            trackers: Mutex::default(),
            pins: None,
        }))
    }

    /// CUDA's own address space; `handle` names it in the client that `device` uses.
    pub(crate) fn beside(device: &Arc<Device>, handle: u32, watched: &'static Watched) -> Arc<AddressSpace> {
        Arc::new(AddressSpace {
            device: device.clone(),
            handle,
            taken: Mutex::default(),
            mapped: Mutex::default(),
            generation: AtomicU64::new(0),
            rings: Mutex::default(),
            trackers: Mutex::default(),
            pins: Some(Pins::new(watched)),
        })
    }

    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Video memory that the CPU sees through BAR1: loads are slow there, stores are posted.
    pub fn alloc_video(self: &Arc<Self>, length: u64) -> Result<Arc<Memory>, Error> {
        Memory::new(self, Place::Video, length, true)
    }

    /// Host memory.
    pub fn alloc_host(self: &Arc<Self>, length: u64) -> Result<Arc<Memory>, Error> {
        Memory::new(self, Place::Host, length, true)
    }

    /// Memory of the crate's own, rings and pushbuffers: no pushbuffer may name it, and its end makes none stale.
    pub(crate) fn alloc_own(self: &Arc<Self>, place: Place, length: u64) -> Result<Arc<Memory>, Error> {
        Memory::new(self, place, length, false)
    }

    /// True if the whole range may be named in a pushbuffer.
    pub fn contains(&self, va: u64, length: u64) -> bool {
        let Some(end) = va.checked_add(length) else { return false };
        lock(&self.mapped).range(..=va).next_back().is_some_and(|(start, len)| end <= start + len)
            || self.pins.as_ref().is_some_and(|pins| pins.contain(va, length))
    }

    /// A number that changes when something is unmapped: what was validated before is stale.
    #[inline]
    pub fn generation(&self) -> u64 {
        // Both only grow, so the sum changes when one does.
        self.generation.load(Ordering::SeqCst) + self.pins.as_ref().map_or(0, Pins::generation)
    }

    /// What a channel needs to be one of CUDA's graphics channels.
    pub(crate) fn cudas_group(&self) -> Result<CudasGroup, Error> {
        let Some(pins) = &self.pins else { return Err(Error::Group("this address space is not CUDA's")) };
        if !self.device.borrowed {
            return Err(Error::Group("enter the address space with Entry::CudasClient"));
        }
        let found = pins.watched.group(self.device.client, self.device.device);
        found.ok_or(Error::Group("no graphics channel of CUDA's was seen"))
    }

    /// Whoever frees memory here waits for what this channel has in flight.
    pub(crate) fn track(&self, tracker: &Arc<Tracker>) {
        let mut trackers = lock(&self.trackers);
        trackers.retain(|t| t.strong_count() > 0);
        trackers.push(Arc::downgrade(tracker));
        if let Some(pins) = &self.pins {
            pins.watched.track(tracker);
        }
    }

    /// Something that pushbuffers may have named is about to go: nothing is submitted to it any more.
    pub(crate) fn unmapped(&self) {
        // ORDERING: sequentially consistent with a submission's `submitted` store and its load of the generation: either the
        // submission sees this and gives up, or `drain` sees the submission.
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// Waits for what all channels have in flight; false if some of it does not come to an end.
    fn drain(&self) -> bool {
        let trackers: Vec<_> = lock(&self.trackers).iter().filter_map(Weak::upgrade).collect();
        // All are waited for, whatever one of them says, and all of them together no longer than one.
        let deadline = Instant::now() + DRAIN;
        let stuck = trackers.iter().filter(|tracker| !tracker.drain(deadline)).count();
        stuck == 0
    }

    /// How far each channel here is: for whoever finds that something hangs.
    pub fn in_flight(&self) -> Vec<InFlight> {
        if self.device.forked() {
            return Vec::new();
        }
        let trackers: Vec<_> = lock(&self.trackers).iter().filter_map(Weak::upgrade).collect();
        trackers.iter().map(|tracker| tracker.in_flight()).collect()
    }

    pub(crate) fn rings(&self) -> MutexGuard<'_, Vec<crate::ring::RingBlock>> {
        lock(&self.rings)
    }

    /// The first gap above `above` that is long enough.
    pub(crate) fn reserve(&self, length: u64, above: u64) -> Result<u64, Error> {
        let length = length.next_multiple_of(GRAIN);
        let mut taken = lock(&self.taken);
        let mut at = above.max(if self.pins.is_some() { BESIDE } else { RINGS });
        for (&start, &len) in taken.iter() {
            if start >= at + length {
                break;
            }
            at = at.max(start + len);
        }
        if at + length > LAST {
            return Err(Error::NoAddresses { length });
        }
        taken.insert(at, length);
        Ok(at)
    }

    pub(crate) fn unreserve(&self, at: u64) {
        lock(&self.taken).remove(&at);
    }
}

impl Drop for AddressSpace {
    fn drop(&mut self) {
        if self.device.forked() {
            return;
        }
        if self.pins.is_some() {
            // Our duplicate of CUDA's; CUDA's own handle is not ours to free.
            if !self.device.borrowed {
                self.device.free(self.device.device, self.handle);
            }
            return;
        }
        let mut call = uvm::UnregisterGpu { uuid: self.device.uuid, status: 0 };
        // SAFETY: the struct is the request's. An error leaves it to the closing of the UVM file.
        let _ = unsafe {
            driver::uvm_call(
                &*self.device.driver,
                &self.device.abi,
                self.device.uvm,
                uvm::UNREGISTER_GPU_VASPACE,
                &mut call,
            )
        };
        self.device.free(self.device.device, self.handle);
    }
}

/// Memory that GPU and CPU see at one address. Freed on drop.
#[derive(Debug)]
pub struct Memory {
    space: Arc<AddressSpace>,
    handle: u32,
    fd: RawFd,
    va: u64,
    length: u64,
    place: Place,
    /// Pushbuffers may name it.
    named: bool,
}

impl Memory {
    fn new(space: &Arc<AddressSpace>, place: Place, length: u64, named: bool) -> Result<Arc<Memory>, Error> {
        if length == 0 || length > MAX_LENGTH {
            return Err(Error::Length(length));
        }
        let device = &space.device;
        let length = length.next_multiple_of(PAGE);
        // Host memory is cached: the GPU's writes to it snoop, and polling it costs a cache hit.
        let (class, attr) = match place {
            Place::Video => {
                (class::NV01_MEMORY_LOCAL_USER, attr::LOCATION_VIDMEM | attr::PHYSICALITY_ALLOW_NONCONTIGUOUS)
            }
            Place::Host => (
                class::NV01_MEMORY_SYSTEM,
                attr::LOCATION_PCI | attr::PHYSICALITY_NONCONTIGUOUS | attr::PAGE_SIZE_4K | attr::COHERENCY_CACHED,
            ),
        };
        // 2 MiB pages where they fit, as CUDA has them.
        let huge = place == Place::Video && length.is_multiple_of(GRAIN);
        let mut params = MemoryAlloc {
            owner: device.client,
            flags: ALLOC_FLAGS,
            attr: attr | if huge { attr::PAGE_SIZE_HUGE } else { 0 },
            size: length,
            alignment: if huge { GRAIN } else { PAGE },
            ..Default::default()
        };
        let handle = device.alloc(device.device, class, &mut params)?;
        let mut undo = Undo::new(space);
        undo.handle = Some(handle);
        let fd = device.open_node(place == Place::Video)?;
        undo.fd = Some(fd);
        driver::map_memory(&*device.driver, device.ctl, device.client, device.device, handle, 0, length, 0, fd)?;
        let mut above = if named || place == Place::Host { FIRST } else { RINGS };
        let mut range = uvm::Range { length, ..Default::default() };
        let va = loop {
            let va = space.reserve(length, above)?;
            undo.reserved = Some(va);
            let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
            let prot = libc::PROT_READ | libc::PROT_WRITE;
            // SAFETY: NOREPLACE: nothing that is mapped already is touched.
            match unsafe { device.driver.mmap(va as *mut _, length as usize, prot, flags, fd, 0) } {
                Ok(at) if at as u64 == va => {
                    undo.mapped = Some((va, length));
                    (range.base, range.status) = (va, 0);
                    // SAFETY: the struct is the request's.
                    let made = unsafe {
                        driver::uvm_call(
                            &*device.driver,
                            &device.abi,
                            device.uvm,
                            uvm::CREATE_EXTERNAL_RANGE,
                            &mut range,
                        )
                    };
                    match made {
                        Ok(()) => break va,
                        // The address is free for the CPU and taken for the GPU: CUDA's.
                        Err(error) if !matches!(&error, RmError::Status { status: ADDRESS_IN_USE, .. }) => {
                            return Err(error.into());
                        }
                        Err(_) => {
                            undo.mapped = None;
                            // SAFETY: the mapping that was just made.
                            let _ = unsafe { device.driver.munmap(at, length as usize) };
                        }
                    }
                }
                // A kernel that does not know NOREPLACE put it elsewhere.
                Ok(at) => {
                    // SAFETY: the mapping that was just made.
                    let _ = unsafe { device.driver.munmap(at, length as usize) };
                }
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                Err(cause) => return Err(Error::Map { what: "GPU memory", length, cause }),
            }
            // Somebody else's: the range is given back, and the next one tried.
            space.unreserve(va);
            undo.reserved = None;
            above = va + GRAIN;
        };
        undo.external = Some((va, length));
        let mut map = uvm::MapExternal {
            base: va,
            length,
            gpu_count: 1,
            ctl_fd: device.ctl,
            client: device.client,
            memory: handle,
            ..Default::default()
        };
        map.gpus[0] =
            uvm::GpuMapping { uuid: device.uuid, mapping: uvm::GpuMapping::READ_WRITE_ATOMIC, ..Default::default() };
        // SAFETY: the struct is the request's.
        unsafe {
            driver::uvm_call(&*device.driver, &device.abi, device.uvm, uvm::MAP_EXTERNAL_ALLOCATION, &mut map)?;
        }
        undo.keep();
        if named {
            lock(&space.mapped).insert(va, length);
        }
        Ok(Arc::new(Memory { space: space.clone(), handle, fd, va, length, place, named }))
    }

    /// Address, for GPU and CPU.
    pub fn va(&self) -> u64 {
        self.va
    }

    /// Bytes, a multiple of the page.
    pub fn length(&self) -> u64 {
        self.length
    }

    pub fn place(&self) -> Place {
        self.place
    }

    pub fn space(&self) -> &Arc<AddressSpace> {
        &self.space
    }

    pub(crate) fn handle(&self) -> u32 {
        self.handle
    }

    pub fn as_ptr(&self) -> *mut u8 {
        self.va as *mut u8
    }

    fn check(&self, offset: u64, length: usize) {
        assert!(!self.space.device.forked(), "memory of the GPU in a fork's child: open the device again there");
        assert!(
            offset.checked_add(length as u64).is_some_and(|end| end <= self.length),
            "{length:#x} bytes at {offset:#x} of a memory of {:#x}",
            self.length
        );
    }

    /// Copies bytes in by the CPU.
    ///
    /// # Panics
    /// Where the range is not within the memory.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: within the mapping, which lives as long as self.
        unsafe { self.as_ptr().add(offset as usize).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies bytes out by the CPU.
    ///
    /// # Panics
    /// Where the range is not within the memory.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: within the mapping, which lives as long as self.
        unsafe { self.as_ptr().add(offset as usize).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
    }

    /// The word at a byte offset.
    ///
    /// # Panics
    /// Where it is not aligned or not within the memory.
    pub fn word(&self, offset: u64) -> &std::sync::atomic::AtomicU32 {
        self.check(offset, 4);
        assert_eq!(offset % 4, 0);
        // SAFETY: in bounds, aligned, alive as long as self.
        unsafe { &*self.as_ptr().add(offset as usize).cast() }
    }

    /// The 64-bit word at a byte offset.
    ///
    /// # Panics
    /// Where it is not aligned or not within the memory.
    pub fn word64(&self, offset: u64) -> &AtomicU64 {
        self.check(offset, 8);
        assert_eq!(offset % 8, 0);
        // SAFETY: in bounds, aligned, alive as long as self.
        unsafe { &*self.as_ptr().add(offset as usize).cast() }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.named {
            lock(&self.space.mapped).remove(&self.va);
            self.space.unmapped();
            if !self.space.device.forked() && !self.space.drain() {
                // A channel may still come to it, and the GPU would fault: it stays until the client goes.
                return;
            }
        }
        drop(Undo {
            space: &self.space,
            handle: Some(self.handle),
            fd: Some(self.fd),
            reserved: Some(self.va),
            mapped: Some((self.va, self.length)),
            external: Some((self.va, self.length)),
        });
    }
}

/// Takes back, on drop, as much of a memory as has been made.
struct Undo<'a> {
    space: &'a AddressSpace,
    handle: Option<u32>,
    fd: Option<RawFd>,
    reserved: Option<u64>,
    mapped: Option<(u64, u64)>,
    external: Option<(u64, u64)>,
}

impl<'a> Undo<'a> {
    fn new(space: &'a AddressSpace) -> Self {
        Undo { space, handle: None, fd: None, reserved: None, mapped: None, external: None }
    }

    fn keep(mut self) {
        (self.handle, self.fd, self.reserved, self.mapped, self.external) = (None, None, None, None, None);
    }
}

impl Drop for Undo<'_> {
    fn drop(&mut self) {
        let device = &self.space.device;
        if device.forked() {
            return;
        }
        if let Some((base, length)) = self.external {
            let mut range = uvm::Range { base, length, ..Default::default() };
            // SAFETY: the struct is the request's.
            let _ = unsafe { driver::uvm_call(&*device.driver, &device.abi, device.uvm, uvm::FREE, &mut range) };
        }
        if let Some((va, length)) = self.mapped {
            // SAFETY: our own mapping, which nothing refers to any more.
            let _ = unsafe { device.driver.munmap(va as *mut _, length as usize) };
        }
        if let Some(va) = self.reserved {
            self.space.unreserve(va);
        }
        if let Some(fd) = self.fd {
            let _ = device.driver.close(fd);
        }
        if let Some(handle) = self.handle {
            device.free(device.device, handle);
        }
    }
}
