//! The two memories of a transfer: pinned slots in host memory, and GPU memory.

use crate::error::Error;
use cuda::{DeviceBuffer, PinnedBuffer, Registration};
use gpu::Region;
use machine::{Machine, Pinned, pin};
use std::sync::{Arc, OnceLock};

/// GPU memory for the contents of a file.
pub struct Target<'m> {
    machine: &'m Machine,
    memory: Gpu<'m>,
    bytes: u64,
}

enum Gpu<'m> {
    /// Pinned when doorbell's channels first name it. The pin is dropped before the memory.
    Cudas(OnceLock<Pinned>, DeviceBuffer<'m>),
    Own(Arc<gpu::Memory>),
}

impl<'m> Target<'m> {
    /// Allocates CUDA's memory where there is CUDA, so that a program's kernels can use it; else doorbell's own memory.
    ///
    /// # Errors
    /// If there is no GPU or not enough memory.
    pub fn new(machine: &'m Machine, bytes: u64) -> Result<Target<'m>, Error> {
        let bytes = bytes.max(1);
        machine.enter()?;
        let memory = match machine.context() {
            Ok(context) => Gpu::Cudas(OnceLock::new(), DeviceBuffer::new(context, bytes as usize)?),
            Err(_) => Gpu::Own(machine.space()?.alloc_video(bytes)?),
        };
        Ok(Target { machine, memory, bytes })
    }

    /// Its GPU address.
    pub fn va(&self) -> u64 {
        match &self.memory {
            Gpu::Cudas(_, memory) => memory.address(),
            Gpu::Own(memory) => memory.va(),
        }
    }

    /// Its length.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// As doorbell's channels name it, as long as this lives.
    pub(crate) fn region(&self) -> Result<Region, Error> {
        match &self.memory {
            Gpu::Own(memory) => Ok(memory.region().part(0, self.bytes)?),
            Gpu::Cudas(pinned, memory) => match pinned.get() {
                Some(pinned) => Ok(pinned.region().clone()),
                None => {
                    let new = pin(self.machine, memory.address(), self.bytes)?;
                    Ok(pinned.get_or_init(|| new).region().clone())
                }
            },
        }
    }

    /// Writes at an offset while no transfer is pending.
    ///
    /// # Errors
    /// [`Error::Argument`] outside of the memory, or CUDA's error.
    pub fn write(&self, at: u64, data: &[u8]) -> Result<(), Error> {
        self.holds(at, data.len())?;
        match &self.memory {
            Gpu::Own(memory) => memory.write(at, data),
            Gpu::Cudas(_, memory) => {
                let (context, slice) = (self.machine.context()?, memory.slice(at as usize, data.len())?);
                // SAFETY: the slice is as long as the data.
                unsafe { slice.upload_now(context, data.as_ptr()) }?;
                // From pageable memory the call may return before the last bytes have arrived.
                context.synchronize_default_stream()?;
            }
        }
        Ok(())
    }

    /// Reads at an offset, as [`Target::write`] writes there.
    ///
    /// # Errors
    /// As there.
    pub fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.holds(at, into.len())?;
        match &self.memory {
            Gpu::Own(memory) => memory.read(at, into),
            Gpu::Cudas(_, memory) => {
                let (context, slice) = (self.machine.context()?, memory.slice(at as usize, into.len())?);
                // SAFETY: the slice is as long as the buffer.
                unsafe { slice.download_now(context, into.as_mut_ptr()) }?;
            }
        }
        Ok(())
    }

    fn holds(&self, at: u64, bytes: usize) -> Result<(), Error> {
        match at.checked_add(bytes as u64) {
            Some(end) if end <= self.bytes => Ok(()),
            _ => Err(Error::Argument(format!("{bytes} bytes at {at} are not within {} bytes of memory", self.bytes))),
        }
    }
}

impl std::fmt::Debug for Target<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let va = format_args!("{:#x}", self.va());
        f.debug_struct("Target").field("va", &va).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// Pinned host memory in equal parts, which begin on pages. Without a GPU (`files bare`) it is not pinned.
pub(crate) struct Slots<'m> {
    /// None only after [`Slots::keep_for_ever`].
    memory: Option<Host<'m>>,
    pub bytes: usize,
    pub count: usize,
}

/// Each part is dropped before the one that it refers to.
enum Host<'m> {
    Plain(Plain),
    Registered { pinned: Pinned, _registration: Registration<'m>, plain: Plain },
    Cudas { pinned: Pinned, buffer: PinnedBuffer<'m> },
    Own(Arc<gpu::Memory>),
}

const PAGE: usize = 4096;

impl<'m> Slots<'m> {
    /// `count` slots of `bytes` each. With CUDA it is ordinary memory on large pages, which CUDA registers. Every kernel's io_uring can register such memory as
    /// well, and drives get it in few pieces. Without CUDA, or where CUDA cannot register it, the driver allocates it.
    pub fn pinned(machine: &'m Machine, bytes: usize, count: usize) -> Result<Slots<'m>, Error> {
        let bytes = bytes.next_multiple_of(PAGE);
        let all = bytes * count;
        machine.enter()?;
        let memory = match (Slots::registered(machine, all), machine.context()) {
            (Ok(registered), _) => registered,
            (Err(_), Ok(context)) => {
                let buffer = PinnedBuffer::new(context, all)?;
                Host::Cudas { pinned: pin(machine, buffer.device_address()?, all as u64)?, buffer }
            }
            (Err(_), Err(_)) => Host::Own(machine.space()?.alloc_host(all as u64)?),
        };
        Ok(Slots { memory: Some(memory), bytes, count })
    }

    fn registered(machine: &'m Machine, bytes: usize) -> Result<Host<'m>, Error> {
        let (context, plain) = (machine.context()?, Plain::new(bytes)?);
        // SAFETY: the memory lives as long as the registration.
        let registration = unsafe { Registration::new(context, plain.at, plain.bytes) }?;
        // Finds out now whether doorbell's channels may name it.
        let pinned = pin(machine, registration.device_address()?, bytes as u64)?;
        Ok(Host::Registered { pinned, _registration: registration, plain })
    }

    /// Without a GPU: plain memory.
    pub fn plain(bytes: usize, count: usize) -> Result<Slots<'m>, Error> {
        let bytes = bytes.next_multiple_of(PAGE);
        Ok(Slots { memory: Some(Host::Plain(Plain::new(bytes * count)?)), bytes, count })
    }

    /// Leaks the memory on purpose.
    pub fn keep_for_ever(&mut self) {
        std::mem::forget(self.memory.take());
    }

    pub fn base(&self) -> *mut u8 {
        match &self.memory {
            Some(Host::Plain(plain) | Host::Registered { plain, .. }) => plain.at,
            Some(Host::Cudas { buffer, .. }) => buffer.as_ptr(),
            Some(Host::Own(memory)) => memory.as_ptr(),
            None => std::ptr::null_mut(),
        }
    }

    /// The region that doorbell's channels name.
    ///
    /// # Errors
    /// Without a GPU.
    pub fn region(&self) -> Result<Region, Error> {
        match &self.memory {
            Some(Host::Registered { pinned, .. } | Host::Cudas { pinned, .. }) => Ok(pinned.region().clone()),
            Some(Host::Own(memory)) => Ok(memory.region()),
            Some(Host::Plain(_)) | None => Err(Error::Argument("the slots are not pinned".into())),
        }
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
            return Err(Error::Memory { bytes: bytes as u64 });
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
