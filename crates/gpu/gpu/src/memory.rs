//! Memory that GPU and CPU access at the same address.

use crate::error::Error;
use crate::lease::{Lease, Of};
use crate::place::Place;
use crate::region::{Owner, Region};
use crate::space::{AddressSpace, GRAIN, Grant, PAGE, RINGS};
use rm::abi::{MemoryAlloc, alloc_flags, attr, uvm};
use rm::class;
use rm::driver::{self, RmError};
use std::any::Any;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

/// Where CUDA's pushbuffers begin; all other memory is placed above.
const FIRST: u64 = 0x2_0080_0000;
/// NV_ERR_UVM_ADDRESS_IN_USE.
const ADDRESS_IN_USE: u32 = 0x68;
/// The largest memory object.
pub const MAX_LENGTH: u64 = 16 << 30;
/// NVOS02_FLAGS for pages of the program: physically anywhere, cached, and mapped already.
const USER_PAGES: u32 = 1 << 4 | 1 << 12 | 1 << 30;
/// As CUDA requests it (580): no bank preference, a given handle, mapped only on request.
const ALLOC_FLAGS: u32 =
    alloc_flags::IGNORE_BANK_PLACEMENT | alloc_flags::MEMORY_HANDLE_PROVIDED | alloc_flags::MAP_NOT_REQUIRED;

impl AddressSpace {
    /// GPU memory that the CPU accesses through BAR1: loads are slow there, stores are posted.
    pub fn alloc_video(self: &Arc<Self>, length: u64) -> Result<Arc<Memory>, Error> {
        Memory::new(self, Place::Video, length, true)
    }

    /// Host memory.
    pub fn alloc_host(self: &Arc<Self>, length: u64) -> Result<Arc<Memory>, Error> {
        Memory::new(self, Place::Host, length, true)
    }

    /// GPU memory for the QMDs and constant banks of a launch ([`crate::LaunchWords::memory`]). Only that launch may name it.
    pub fn alloc_for_launch(self: &Arc<Self>, length: u64) -> Result<Arc<Memory>, Error> {
        self.alloc_own(Place::Video, length)
    }

    /// Makes another owner's host memory, whole pages of the program, available to the GPU at the CPU's address. Another
    /// device may reach it, too. `keep` is held as long as the GPU may access the memory.
    ///
    /// # Errors
    /// [`Error::Length`] unless it is whole pages, or the driver's error.
    ///
    /// # Safety
    /// As long as `keep` lives, `length` bytes from `at` on are mapped, and only the holders of `keep` use them.
    pub unsafe fn adopt_host(
        self: &Arc<Self>,
        at: NonNull<u8>,
        length: u64,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Arc<Memory>, Error> {
        // SAFETY: the caller's contract.
        unsafe { Memory::adopt(self, at.as_ptr() as u64, length, keep) }
    }

    /// The crate's internal memory for rings and pushbuffers: no pushbuffer may name it, and freeing it makes none stale.
    pub(crate) fn alloc_own(self: &Arc<Self>, place: Place, length: u64) -> Result<Arc<Memory>, Error> {
        Memory::new(self, place, length, false)
    }
}

/// Memory that GPU and CPU access at one address. Freed on drop.
#[derive(Debug)]
pub struct Memory {
    space: Arc<AddressSpace>,
    handle: u32,
    /// The file that the kernel's object of adopted pages refers to.
    fd: Option<RawFd>,
    va: u64,
    length: u64,
    place: Place,
    /// Its number in the address space, if transfers and pushbuffers may name it.
    number: Option<u64>,
    lease: Arc<Lease>,
    /// The owner of the pages, if they are adopted.
    keep: Option<Arc<dyn Any + Send + Sync>>,
}

impl Memory {
    fn new(space: &Arc<AddressSpace>, place: Place, length: u64, named: bool) -> Result<Arc<Memory>, Error> {
        if length == 0 || length > MAX_LENGTH {
            return Err(Error::Length(length));
        }
        space.give_back_leftovers();
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
        // 2 MiB pages where they fit, as in CUDA.
        let huge = place == Place::Video && length.is_multiple_of(GRAIN);
        let mut params = MemoryAlloc {
            owner: device.client,
            flags: ALLOC_FLAGS,
            attr: attr | if huge { attr::PAGE_SIZE_HUGE } else { 0 },
            size: length,
            alignment: if huge { GRAIN } else { PAGE },
            ..Default::default()
        };
        let shape = &device.abi.branch().layouts.memory_alloc;
        let handle = device.alloc_shaped(device.device, class, shape, &mut params)?;
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
            // SAFETY: NOREPLACE: existing mappings are not touched.
            match unsafe { device.driver.mmap(va as *mut _, length as usize, prot, flags, fd, 0) } {
                Ok(at) if at as u64 == va => {
                    undo.mapped = Some((va, length));
                    (range.base, range.status) = (va, 0);
                    // SAFETY: the struct belongs to this request.
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
                        // The address is free for the CPU and in use on the GPU, by CUDA.
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
                // A kernel without NOREPLACE placed it elsewhere.
                Ok(at) => {
                    // SAFETY: the mapping that was just made.
                    let _ = unsafe { device.driver.munmap(at, length as usize) };
                }
                Err(error) if error.raw_os_error() == Some(libc::EEXIST) => {}
                Err(cause) => return Err(Error::Map { what: "GPU memory", length, cause }),
            }
            // In use by another owner: the range is given back, and the next one tried.
            space.unreserve(va);
            undo.reserved = None;
            above = va + GRAIN;
        };
        undo.external = Some((va, length));
        map_for_gpu(space, handle, va, length)?;
        // The mapping outlives the file: libcuda also closes its file here. A program may have thousands of transfers, and
        // few descriptors.
        undo.fd = None;
        let _ = device.driver.close(fd);
        undo.keep();
        let number = named.then(|| space.grant(va, length));
        let lease = if named { Lease::new(Of::Memory) } else { Lease::never() };
        Ok(Arc::new(Memory { space: space.clone(), handle, fd: None, va, length, place, number, lease, keep: None }))
    }

    /// # Safety
    /// As [`AddressSpace::adopt_host`].
    unsafe fn adopt(
        space: &Arc<AddressSpace>,
        va: u64,
        length: u64,
        keep: Arc<dyn Any + Send + Sync>,
    ) -> Result<Arc<Memory>, Error> {
        if length == 0 || length > MAX_LENGTH || !length.is_multiple_of(PAGE) || !va.is_multiple_of(PAGE) {
            return Err(Error::Length(length));
        }
        let device = &space.device;
        let mut undo = Undo::new(space);
        let fd = device.open_node(true)?;
        undo.fd = Some(fd);
        // SAFETY: the pages stay mapped as long as `keep`, which is released after the object.
        let handle = unsafe {
            driver::alloc_user_pages(&*device.driver, fd, device.client, device.device, 0, va, length, USER_PAGES)?
        };
        undo.handle = Some(handle);
        let mut range = uvm::Range { base: va, length, ..Default::default() };
        // SAFETY: the struct belongs to this request.
        unsafe {
            driver::uvm_call(&*device.driver, &device.abi, device.uvm, uvm::CREATE_EXTERNAL_RANGE, &mut range)?;
        }
        undo.external = Some((va, length));
        map_for_gpu(space, handle, va, length)?;
        undo.keep();
        let number = Some(space.grant(va, length));
        Ok(Arc::new(Memory {
            space: space.clone(),
            handle,
            fd: Some(fd),
            va,
            length,
            place: Place::Host,
            number,
            lease: Lease::new(Of::Memory),
            keep: Some(keep),
        }))
    }

    /// The whole memory, for transfers.
    pub fn region(&self) -> Region {
        let owner = match self.place {
            Place::Video => Owner::Video,
            Place::Host => Owner::Host,
        };
        // The crate's internal memory has no granted number.
        let grant = Grant::Memory(self.number.unwrap_or(u64::MAX));
        Region::new(&self.space, grant, owner, [self.space.device.uuid].into(), &self.lease, (self.va, self.length))
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

    /// Copies bytes into the memory with the CPU.
    ///
    /// # Panics
    /// If the range is not within the memory.
    pub fn write(&self, offset: u64, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: within the mapping, which lives as long as self.
        unsafe { self.as_ptr().add(offset as usize).copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    }

    /// Copies bytes out of the memory with the CPU.
    ///
    /// # Panics
    /// If the range is not within the memory.
    pub fn read(&self, offset: u64, into: &mut [u8]) {
        self.check(offset, into.len());
        // SAFETY: within the mapping, which lives as long as self.
        unsafe { self.as_ptr().add(offset as usize).copy_to_nonoverlapping(into.as_mut_ptr(), into.len()) };
    }

    /// The word at a byte offset.
    ///
    /// # Panics
    /// If it is not aligned or not within the memory.
    pub fn word(&self, offset: u64) -> &std::sync::atomic::AtomicU32 {
        self.check(offset, 4);
        assert_eq!(offset % 4, 0);
        // SAFETY: in bounds, aligned, alive as long as self.
        unsafe { &*self.as_ptr().add(offset as usize).cast() }
    }

    /// The 64-bit word at a byte offset.
    ///
    /// # Panics
    /// If it is not aligned or not within the memory.
    pub fn word64(&self, offset: u64) -> &AtomicU64 {
        self.check(offset, 8);
        assert_eq!(offset % 8, 0);
        // SAFETY: in bounds, aligned, alive as long as self.
        unsafe { &*self.as_ptr().add(offset as usize).cast() }
    }
}

impl Memory {
    /// From now on no transfer may name it, even if others still hold it. Waits up to a second for submissions that name it.
    /// The memory lives as long as it has a holder, and until the last of these submissions is done.
    pub fn end(&self) {
        if self.number.is_none() {
            return;
        }
        self.lease.end();
        self.space.revoke(self.va, self.number);
        if !self.space.device.forked() {
            self.space.wait(&self.lease);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.lease.is_over() {
            self.end();
        }
        // Adopted pages are not unmapped here.
        let own = self.keep.is_none();
        let memory = Leftover {
            lease: self.lease.clone(),
            handle: self.handle,
            fd: self.fd,
            range: (self.va, self.length),
            own,
            keep: self.keep.take(),
        };
        if self.number.is_none() || self.space.device.forked() {
            memory.free(&self.space);
            return;
        }
        // If a channel may still access it, freeing it would make the GPU fault.
        self.space.leave(memory);
        self.space.give_back_leftovers();
    }
}

/// Memory without a holder, kept until the last submission that names it is done.
pub(crate) struct Leftover {
    lease: Arc<Lease>,
    handle: u32,
    fd: Option<RawFd>,
    range: (u64, u64),
    /// Its pages are not adopted.
    own: bool,
    /// The owner of adopted pages.
    keep: Option<Arc<dyn Any + Send + Sync>>,
}

impl Leftover {
    fn free(self, space: &AddressSpace) {
        drop(Undo {
            space,
            handle: Some(self.handle),
            fd: self.fd,
            reserved: self.own.then_some(self.range.0),
            mapped: self.own.then_some(self.range),
            external: Some(self.range),
        });
        drop(self.keep);
    }
}

/// The leftovers of an address space. They are checked whenever memory is allocated or dropped there and when a channel is
/// dropped. All of them are freed with the address space.
#[derive(Default)]
pub(crate) struct Leftovers(Mutex<Vec<Leftover>>);

impl std::fmt::Debug for Leftovers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Leftovers").finish_non_exhaustive()
    }
}

impl Leftovers {
    pub fn leave(&self, memory: Leftover) {
        poison::ignore(self.0.lock()).push(memory);
    }

    pub fn give_back(&self, space: &AddressSpace, is_unused: impl Fn(&Lease) -> bool) {
        // (Freed after the lock is released.)
        let unused: Vec<Leftover> = {
            let mut all = poison::ignore(self.0.lock());
            if all.is_empty() {
                return;
            }
            all.extract_if(.., |memory| is_unused(&memory.lease)).collect()
        };
        unused.into_iter().for_each(|memory| memory.free(space));
    }
}

/// Maps a memory object for the GPU into an external range made for it.
fn map_for_gpu(space: &AddressSpace, handle: u32, va: u64, length: u64) -> Result<(), Error> {
    let device = &space.device;
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
    // SAFETY: the struct belongs to this request.
    unsafe {
        driver::uvm_call(&*device.driver, &device.abi, device.uvm, uvm::MAP_EXTERNAL_ALLOCATION, &mut map)?;
    }
    Ok(())
}

/// On drop, undoes the steps made so far for a memory.
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
            // SAFETY: the struct belongs to this request.
            let _ = unsafe { driver::uvm_call(&*device.driver, &device.abi, device.uvm, uvm::FREE, &mut range) };
        }
        if let Some((va, length)) = self.mapped {
            // SAFETY: this memory's mapping, which has no users any more.
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
