//! The two memories of a transfer: pinned slots of the host's, and the GPU's.

use crate::error::Error;
use copy::spec::{End, Host, Memory};
use copy::{Buffer, Machine};
use cuda::DeviceBuffer;
use gpu::Region;

/// Memory of a GPU for what comes from a file.
pub struct Target<'m> {
    /// Before the memory goes.
    buffer: Buffer<'m>,
    _memory: Option<DeviceBuffer<'m>>,
}

impl<'m> Target<'m> {
    /// Allocates: CUDA's memory where there is CUDA, so that a program's kernels find it, else our own.
    ///
    /// # Errors
    /// No memory, no GPU.
    pub fn new(machine: &'m Machine, bytes: u64) -> Result<Target<'m>, Error> {
        let bytes = bytes.max(1);
        machine.enter()?;
        match machine.context() {
            Ok(context) => {
                let memory = DeviceBuffer::new(context, bytes as usize)?;
                // SAFETY: the memory is dropped after the buffer, and nobody else knows it.
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

    /// Its address, for the GPU.
    pub fn va(&self) -> u64 {
        self.buffer.va()
    }
}

impl std::fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.buffer.fmt(f)
    }
}

/// Pinned host memory in equal parts, which begin on pages.
pub(crate) struct Slots<'m> {
    buffer: Option<Buffer<'m>>,
    /// Where there is no GPU: `files bare`.
    plain: Option<Plain>,
    pub bytes: usize,
    pub count: usize,
}

const PAGE: usize = 4096;

impl<'m> Slots<'m> {
    /// `count` slots of `bytes` each. With CUDA it is ordinary memory that CUDA registers: every kernel's io_uring can register
    /// that as well.
    pub fn pinned(machine: &'m Machine, bytes: usize, count: usize) -> Result<Slots<'m>, Error> {
        let bytes = bytes.next_multiple_of(PAGE);
        let host = if machine.context().is_ok() { Host::Registered } else { Host::Pinned };
        let end = End { memory: Memory::Host(host), offset: 0 };
        machine.enter()?;
        let buffer = Buffer::new(machine, end, (bytes * count) as u64)?;
        Ok(Slots { buffer: Some(buffer), plain: None, bytes, count })
    }

    /// Without a GPU.
    pub fn plain(bytes: usize, count: usize) -> Result<Slots<'m>, Error> {
        let bytes = bytes.next_multiple_of(PAGE);
        let plain = Plain::new(bytes * count)?;
        Ok(Slots { buffer: None, plain: Some(plain), bytes, count })
    }

    pub fn base(&self) -> *mut u8 {
        let pinned = self.buffer.as_ref().and_then(Buffer::host_pointer);
        pinned.or(self.plain.as_ref().map(|plain| plain.at)).unwrap_or(std::ptr::null_mut())
    }

    /// As our channels name it.
    pub fn region(&self, machine: &Machine) -> Result<Option<Region>, Error> {
        self.buffer.as_ref().map(|buffer| Ok(buffer.region(machine.space()?)?)).transpose()
    }

    /// The bytes of a slot.
    ///
    /// # Safety
    /// Nobody writes to the slot as long as the slice is used.
    pub unsafe fn slice(&self, slot: usize, bytes: usize) -> &[u8] {
        assert!(slot < self.count && bytes <= self.bytes);
        // SAFETY: within the memory; the caller's promise.
        unsafe { std::slice::from_raw_parts(self.base().add(slot * self.bytes), bytes) }
    }
}

/// Zeroed pages.
struct Plain {
    at: *mut u8,
    bytes: usize,
}

// SAFETY: plain memory with one owner.
unsafe impl Send for Plain {}

impl Plain {
    fn new(bytes: usize) -> Result<Plain, Error> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE;
        // SAFETY: a mapping at a free address.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(copy::Error::Memory { bytes: bytes as u64 }.into());
        }
        Ok(Plain { at: at.cast(), bytes })
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // SAFETY: our own mapping; the queue's requests have ended.
        unsafe { libc::munmap(self.at.cast(), self.bytes) };
    }
}
