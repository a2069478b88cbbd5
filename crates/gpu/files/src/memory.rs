//! The two memories of a transfer: pinned slots in host memory, and GPU memory.

use crate::error::Error;
use copy::spec::{End, Host, Memory};
use copy::{Buffer, Machine};
use cuda::{DeviceBuffer, Registration};
use gpu::Region;

/// GPU memory for the contents of a file.
pub struct Target<'m> {
    /// Dropped before the memory.
    buffer: Buffer<'m>,
    _memory: Option<DeviceBuffer<'m>>,
}

impl<'m> Target<'m> {
    /// Allocates CUDA's memory where there is CUDA, so that a program's kernels can use it; else doorbell's own memory.
    ///
    /// # Errors
    /// If there is no GPU or not enough memory.
    pub fn new(machine: &'m Machine, bytes: u64) -> Result<Target<'m>, Error> {
        let bytes = bytes.max(1);
        machine.enter()?;
        match machine.context() {
            Ok(context) => {
                let memory = DeviceBuffer::new(context, bytes as usize)?;
                // SAFETY: the memory is dropped after the buffer, and no other code has its address.
                let buffer = unsafe { Buffer::of_pointer(machine, memory.address(), bytes) }?;
                Ok(Target { buffer, _memory: Some(memory) })
            }
            Err(_) => {
                let memory = machine.space()?.alloc_video(bytes)?;
                Ok(Target { buffer: Buffer::of_memory(machine, &memory, 0, bytes)?, _memory: None })
            }
        }
    }

    pub fn buffer(&self) -> &Buffer<'m> {
        &self.buffer
    }

    /// Its GPU address.
    pub fn va(&self) -> u64 {
        self.buffer.va()
    }
}

impl std::fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.buffer.fmt(f)
    }
}

/// Pinned host memory in equal parts, which begin on pages. Without a GPU (`files bare`) it is not pinned.
pub(crate) struct Slots<'m> {
    // Each is dropped before the one that it refers to.
    buffer: Option<Buffer<'m>>,
    registration: Option<Registration<'m>>,
    plain: Option<Plain>,
    pub bytes: usize,
    pub count: usize,
}

const PAGE: usize = 4096;

impl<'m> Slots<'m> {
    /// `count` slots of `bytes` each. With CUDA it is ordinary memory on large pages, which CUDA registers. Every kernel's io_uring can register such memory as
    /// well, and drives get it in few pieces. Without CUDA, or where CUDA cannot register it, the driver allocates it.
    pub fn pinned(machine: &'m Machine, bytes: usize, count: usize) -> Result<Slots<'m>, Error> {
        let bytes = bytes.next_multiple_of(PAGE);
        machine.enter()?;
        if let Ok(registered) = Slots::registered(machine, bytes, count) {
            return Ok(registered);
        }
        let end = End { memory: Memory::Host(Host::Pinned), offset: 0 };
        let buffer = Some(Buffer::new(machine, end, (bytes * count) as u64)?);
        Ok(Slots { buffer, registration: None, plain: None, bytes, count })
    }

    fn registered(machine: &'m Machine, bytes: usize, count: usize) -> Result<Slots<'m>, Error> {
        let (context, plain) = (machine.context()?, Plain::new(bytes * count)?);
        // SAFETY: the memory lives as long as the registration.
        let registration = unsafe { Registration::new(context, plain.at, plain.bytes) }?;
        // SAFETY: the memory is dropped after the buffer, and only slots of this are used.
        let buffer = unsafe { Buffer::of_pointer(machine, registration.device_address()?, (bytes * count) as u64) }?;
        // Finds out now whether doorbell's channels may name it.
        buffer.region(machine.space()?)?;
        Ok(Slots { buffer: Some(buffer), registration: Some(registration), plain: Some(plain), bytes, count })
    }

    /// Without a GPU: plain memory.
    pub fn plain(bytes: usize, count: usize) -> Result<Slots<'m>, Error> {
        let bytes = bytes.next_multiple_of(PAGE);
        let plain = Some(Plain::new(bytes * count)?);
        Ok(Slots { buffer: None, registration: None, plain, bytes, count })
    }

    /// Leaks the memory on purpose.
    pub fn keep_for_ever(&mut self) {
        std::mem::forget((self.buffer.take(), self.registration.take(), self.plain.take()));
    }

    pub fn base(&self) -> *mut u8 {
        let plain = self.plain.as_ref().map(|plain| plain.at);
        plain.or_else(|| self.buffer.as_ref()?.host_pointer()).unwrap_or(std::ptr::null_mut())
    }

    /// The region that doorbell's channels name.
    pub fn region(&self, machine: &Machine) -> Result<Option<Region>, Error> {
        self.buffer.as_ref().map(|buffer| Ok(buffer.region(machine.space()?)?)).transpose()
    }

    /// The bytes of a slot.
    ///
    /// # Safety
    /// No code writes to the slot as long as the slice is in use.
    pub unsafe fn slice(&self, slot: usize, bytes: usize) -> &[u8] {
        assert!(slot < self.count && bytes <= self.bytes);
        // SAFETY: within the memory; the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base().add(slot * self.bytes), bytes) }
    }
}

/// Zeroed memory on large pages where the kernel has them. A drive's request then has few pieces. (1 MiB in pages of 4 KiB has 256 pieces, more than many
/// drives accept in one request.)
struct Plain {
    mapping: *mut u8,
    mapped: usize,
    at: *mut u8,
    bytes: usize,
}

const LARGE: usize = 2 << 20;

// SAFETY: plain memory with one owner.
unsafe impl Send for Plain {}

impl Plain {
    fn new(bytes: usize) -> Result<Plain, Error> {
        let bytes = bytes.next_multiple_of(LARGE);
        let (mapped, flags) = (bytes + LARGE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a mapping at a free address.
        let mapping =
            unsafe { libc::mmap(std::ptr::null_mut(), mapped, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if mapping == libc::MAP_FAILED {
            return Err(copy::Error::Memory { bytes: bytes as u64 }.into());
        }
        let mapping: *mut u8 = mapping.cast();
        let at = mapping.wrapping_add(mapping.align_offset(LARGE));
        // SAFETY: within the mapping, which no other code uses yet. A kernel without large pages returns an error, which does no harm.
        unsafe {
            libc::madvise(at.cast(), bytes, libc::MADV_HUGEPAGE);
            at.write_bytes(0, bytes);
        }
        Ok(Plain { mapping, mapped, at, bytes })
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: the mapping made by `new`; the queue's requests have ended.
        unsafe { libc::munmap(self.mapping.cast(), self.mapped) };
    }
}
