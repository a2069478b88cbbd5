//! Memory of the GPU and pinned memory of the host.

use crate::context::Context;
use crate::error::Error;
use crate::functions::{Copy2d, CopyAttributes, Side2d};
use crate::{Result, stream::Stream};
use std::ffi::c_void;
use std::marker::PhantomData;

/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
const PORTABLE_MAPPED: u32 = 0x01 | 0x02;
/// `CU_MEMHOSTALLOC_WRITECOMBINED`.
const WRITE_COMBINED: u32 = 0x04;

/// Checks that `offset..offset + bytes` is within a buffer of `len` bytes.
fn inside(what: &'static str, offset: usize, bytes: usize, len: usize) -> Result<()> {
    match offset.checked_add(bytes) {
        Some(end) if end <= len => Ok(()),
        end => Err(Error::Range { what, offset, end: end.unwrap_or(usize::MAX), len }),
    }
}

/// Bytes of GPU memory, freed when dropped.
#[derive(Debug)]
pub struct DeviceBuffer<'c> {
    context: &'c Context,
    address: u64,
    len: usize,
}

/// A part of a [`DeviceBuffer`].
#[derive(Clone, Copy, Debug)]
pub struct DeviceSlice<'b> {
    pub(crate) address: u64,
    pub(crate) len: usize,
    buffer: PhantomData<&'b ()>,
}

impl<'c> DeviceBuffer<'c> {
    pub fn new(context: &'c Context, len: usize) -> Result<Self> {
        let mut address = 0;
        // SAFETY: writes one address.
        unsafe { context.cuda.cuMemAlloc_v2(&mut address, len) }?;
        Ok(DeviceBuffer { context, address, len })
    }

    /// Memory that was allocated elsewhere, freed when dropped.
    ///
    /// # Safety
    /// `len` bytes of device memory of this context are allocated at `address`, and no other code frees them.
    pub unsafe fn from_address(context: &'c Context, address: u64, len: usize) -> Self {
        DeviceBuffer { context, address, len }
    }

    /// Its address on the GPU.
    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn slice(&self, offset: usize, len: usize) -> Result<DeviceSlice<'_>> {
        inside("device buffer", offset, len, self.len)?;
        Ok(DeviceSlice { address: self.address + offset as u64, len, buffer: PhantomData })
    }

    /// Copies `bytes` to the start of the buffer and waits (`cuMemcpyHtoD`).
    pub fn write(&self, bytes: &[u8]) -> Result<()> {
        inside("write to device buffer", 0, bytes.len(), self.len)?;
        // SAFETY: both sides have that many bytes, and the call returns when the source is no longer read.
        unsafe { self.context.cuda.cuMemcpyHtoD_v2(self.address, bytes.as_ptr().cast(), bytes.len()) }
    }

    /// Copies the start of the buffer to `bytes` and waits (`cuMemcpyDtoH`).
    pub fn read(&self, bytes: &mut [u8]) -> Result<()> {
        inside("read of device buffer", 0, bytes.len(), self.len)?;
        // SAFETY: both sides have that many bytes, and the call returns when the copy is done.
        unsafe { self.context.cuda.cuMemcpyDtoH_v2(bytes.as_mut_ptr().cast(), self.address, bytes.len()) }
    }
}

impl Drop for DeviceBuffer<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`; CUDA waits for work that uses it.
        let _ = unsafe { self.context.cuda.cuMemFree_v2(self.address) };
    }
}

/// Pinned bytes of the host, readable and writable by the GPU, zeroed, freed when dropped.
#[derive(Debug)]
pub struct PinnedBuffer<'c> {
    context: &'c Context,
    pointer: *mut u8,
    len: usize,
}

// SAFETY: plain memory. Shared use is by `&self` (reads), or by raw pointers, for which the caller is responsible.
unsafe impl Send for PinnedBuffer<'_> {}
// SAFETY: as above.
unsafe impl Sync for PinnedBuffer<'_> {}

impl<'c> PinnedBuffer<'c> {
    pub fn new(context: &'c Context, len: usize) -> Result<Self> {
        PinnedBuffer::zeroed(context, len, PORTABLE_MAPPED)
    }

    /// Write-combined: the CPU's stores bypass its caches and are gathered; loads are slow.
    pub fn write_combined(context: &'c Context, len: usize) -> Result<Self> {
        PinnedBuffer::zeroed(context, len, PORTABLE_MAPPED | WRITE_COMBINED)
    }

    fn zeroed(context: &'c Context, len: usize, flags: u32) -> Result<Self> {
        let mut pointer: *mut c_void = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        unsafe { context.cuda.cuMemHostAlloc(&mut pointer, len, flags) }?;
        let pointer: *mut u8 = pointer.cast();
        // SAFETY: `len` fresh bytes, which no other code has.
        unsafe { pointer.write_bytes(0, len) };
        Ok(PinnedBuffer { context, pointer, len })
    }

    /// As CUDA gives it (`cuMemHostAlloc`), not zeroed. The contents are unknown but initialised: the memory is pinned, so the
    /// kernel or an earlier owner in this process has written it.
    pub fn as_given(context: &'c Context, len: usize) -> Result<Self> {
        let mut pointer: *mut c_void = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        unsafe { context.cuda.cuMemHostAlloc(&mut pointer, len, PORTABLE_MAPPED) }?;
        Ok(PinnedBuffer { context, pointer: pointer.cast(), len })
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// For volatile use while the GPU may read or write the memory too.
    pub fn as_ptr(&self) -> *mut u8 {
        self.pointer
    }

    /// The address at which the GPU sees it.
    pub fn device_address(&self) -> Result<u64> {
        let mut address = 0;
        // SAFETY: writes one address; the pointer is that of a live allocation.
        unsafe { self.context.cuda.cuMemHostGetDevicePointer_v2(&mut address, self.pointer.cast(), 0) }?;
        Ok(address)
    }

    /// The bytes, which no submitted work may be writing.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `len` initialised bytes; a caller that submits work to write them promises to wait (see `Stream`).
        unsafe { std::slice::from_raw_parts(self.pointer, self.len) }
    }

    /// The bytes, which no submitted work may be reading or writing.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and `&mut self` is the only user on the CPU.
        unsafe { std::slice::from_raw_parts_mut(self.pointer, self.len) }
    }
}

impl Drop for PinnedBuffer<'_> {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`.
        let _ = unsafe { self.context.cuda.cuMemFreeHost(self.pointer.cast()) };
    }
}

/// The caller's pageable memory, pinned by CUDA (`cuMemHostRegister`); pageable again when dropped.
#[derive(Debug)]
pub struct Registration<'c> {
    context: &'c Context,
    pointer: *mut u8,
}

// SAFETY: only a mark on memory, which any thread may remove.
unsafe impl Send for Registration<'_> {}
// SAFETY: as above.
unsafe impl Sync for Registration<'_> {}

impl<'c> Registration<'c> {
    /// # Safety
    /// `len` bytes at `pointer` stay allocated until this is dropped.
    pub unsafe fn new(context: &'c Context, pointer: *mut u8, len: usize) -> Result<Self> {
        // CU_MEMHOSTREGISTER_PORTABLE and _DEVICEMAP have the same values as the flags of an allocation.
        // SAFETY: the caller's promise.
        unsafe { context.cuda.cuMemHostRegister_v2(pointer.cast(), len, PORTABLE_MAPPED) }?;
        Ok(Registration { context, pointer })
    }

    /// The address at which the GPU sees it.
    pub fn device_address(&self) -> Result<u64> {
        let mut address = 0;
        // SAFETY: writes one address; the pointer is registered.
        unsafe { self.context.cuda.cuMemHostGetDevicePointer_v2(&mut address, self.pointer.cast(), 0) }?;
        Ok(address)
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        // SAFETY: registered by `new`.
        let _ = unsafe { self.context.cuda.cuMemHostUnregister(self.pointer.cast()) };
    }
}

/// Synchronous copies with any host memory: they return when CUDA promises that they are done.
impl DeviceSlice<'_> {
    /// `cuMemcpyHtoD`: returns when the source may be changed. If the source is pageable, the last part may not have reached the
    /// device yet.
    ///
    /// # Safety
    /// `len` bytes at `from`, this slice's length, can be read.
    pub unsafe fn upload_now(&self, context: &Context, from: *const u8) -> Result<()> {
        // SAFETY: both sides have that many bytes.
        unsafe { context.cuda.cuMemcpyHtoD_v2(self.address, from.cast(), self.len) }
    }

    /// `cuMemcpyDtoH`: returns when all bytes have arrived.
    ///
    /// # Safety
    /// `len` bytes at `to`, this slice's length, can be written.
    pub unsafe fn download_now(&self, context: &Context, to: *mut u8) -> Result<()> {
        // SAFETY: both sides have that many bytes.
        unsafe { context.cuda.cuMemcpyDtoH_v2(to.cast(), self.address, self.len) }
    }

    pub fn address(&self) -> u64 {
        self.address
    }

    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// Rows of bytes, whose starts are `pitch` bytes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plane {
    pub pitch: usize,
    /// Bytes of a row.
    pub width: usize,
    /// How many rows.
    pub height: usize,
}

impl Plane {
    fn inside(self, len: usize) -> Result<()> {
        let needed = self.pitch.checked_mul(self.height).filter(|_| self.width <= self.pitch);
        inside("rows", 0, needed.unwrap_or(usize::MAX), len)
    }
}

/// An address in memory of the host or of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    Host(u64),
    Device(u64),
}

impl Address {
    fn side(self, rows: Plane) -> Side2d {
        let (kind, host, device) = match self {
            Address::Host(at) => (1, at, 0),
            Address::Device(at) => (2, 0, at),
        };
        Side2d { x: 0, y: 0, kind, host: host as *mut c_void, device, array: std::ptr::null_mut(), pitch: rows.pitch }
    }
}

fn same_length(what: &'static str, to: usize, from: usize) -> Result<()> {
    if to == from { Ok(()) } else { Err(Error::Length { what, to, from }) }
}

/// Copies and fills. All return before the work is done.
impl Stream<'_> {
    /// Host to device.
    ///
    /// # Safety
    /// `from` stays allocated and unchanged until the stream has been synchronised.
    pub unsafe fn upload(&self, to: DeviceSlice<'_>, from: &[u8]) -> Result<()> {
        same_length("host to device copy", to.len, from.len())?;
        // SAFETY: both have that many bytes; the caller keeps the source.
        unsafe { self.context.cuda.cuMemcpyHtoDAsync_v2(to.address, from.as_ptr().cast(), from.len(), self.raw) }
    }

    /// Device to host.
    ///
    /// # Safety
    /// `to` stays allocated and unused until the stream has been synchronised.
    pub unsafe fn download(&self, to: &mut [u8], from: DeviceSlice<'_>) -> Result<()> {
        same_length("device to host copy", to.len(), from.len)?;
        // SAFETY: both have that many bytes; the caller keeps the target.
        unsafe { self.context.cuda.cuMemcpyDtoHAsync_v2(to.as_mut_ptr().cast(), from.address, from.len, self.raw) }
    }

    /// Device to device.
    pub fn copy(&self, to: DeviceSlice<'_>, from: DeviceSlice<'_>) -> Result<()> {
        same_length("device to device copy", to.len, from.len)?;
        // SAFETY: both have that many bytes, and freeing device memory waits for the copy.
        unsafe { self.context.cuda.cuMemcpyDtoDAsync_v2(to.address, from.address, from.len, self.raw) }
    }

    /// From one GPU to another (`cuMemcpyPeerAsync`), each memory with its GPU's context. CUDA copies through host memory where
    /// neither GPU reaches the other.
    ///
    /// # Errors
    /// [`Error::Length`], or CUDA's error.
    pub fn copy_peer(&self, to: (DeviceSlice<'_>, &Context), from: (DeviceSlice<'_>, &Context)) -> Result<()> {
        let ((to, at), (from, of)) = (to, from);
        same_length("GPU to GPU copy", to.len, from.len)?;
        // SAFETY: both have that many bytes, and freeing device memory waits for the copy.
        unsafe { self.context.cuda.cuMemcpyPeerAsync(to.address, at.raw, from.address, of.raw, from.len, self.raw) }
    }

    /// A batch of copies (`cuMemcpyBatchAsync`, since CUDA 12.8), each between any two addresses that CUDA accepts. They are
    /// made in no defined order.
    ///
    /// # Errors
    /// [`Error::Length`] where the arrays are not equally long, or CUDA's error.
    ///
    /// # Safety
    /// Each address has that many bytes, which stay allocated until the copies are done. Until then they are not used in ways
    /// that disagree with the copies.
    #[inline]
    pub unsafe fn copy_batch(&self, to: &mut [u64], from: &mut [u64], bytes: &mut [usize]) -> Result<()> {
        same_length("destinations and sources of a batch", to.len(), from.len())?;
        same_length("addresses and lengths of a batch", to.len(), bytes.len())?;
        // The source is read in stream order; the hints are for managed memory.
        let mut attributes = CopyAttributes { source_order: 1, source: [0; 2], destination: [0; 2], flags: 0 };
        // Index of the first copy with the attributes above: they apply to all copies.
        let (cuda, count, mut of, mut failed) = (self.context.cuda, to.len(), 0usize, 0usize);
        let (to, from, bytes) = (to.as_mut_ptr(), from.as_mut_ptr(), bytes.as_mut_ptr());
        if cuda.has_batches_of_13() {
            // SAFETY: arrays of that length; the caller keeps the memory.
            return unsafe {
                cuda.cuMemcpyBatchAsync_v2(to, from, bytes, count, &mut attributes, &mut of, 1, self.raw)
            };
        }
        // SAFETY: as above; the form of CUDA 12 also reports which copy failed.
        unsafe { cuda.cuMemcpyBatchAsync(to, from, bytes, count, &mut attributes, &mut of, 1, &mut failed, self.raw) }
    }

    /// Whether the driver has [`Stream::copy_batch`].
    ///
    /// # Errors
    /// The missing function.
    pub fn can_copy_batches(&self) -> Result<()> {
        let cuda = self.context.cuda;
        let has = cuda.has_batches_of_13() || cuda.has("cuMemcpyBatchAsync");
        if has { Ok(()) } else { Err(Error::Missing { call: "cuMemcpyBatchAsync" }) }
    }

    pub fn fill8(&self, to: DeviceSlice<'_>, value: u8) -> Result<()> {
        // SAFETY: the slice has that many bytes.
        unsafe { self.context.cuda.cuMemsetD8Async(to.address, value, to.len, self.raw) }
    }

    /// Fills with a value of two bytes; an odd length is refused.
    pub fn fill16(&self, to: DeviceSlice<'_>, value: u16) -> Result<()> {
        same_length("fill of pairs of bytes", to.len, to.len / 2 * 2)?;
        // SAFETY: the slice has that many pairs.
        unsafe { self.context.cuda.cuMemsetD16Async(to.address, value, to.len / 2, self.raw) }
    }

    /// Fills `width` bytes at the start of each row of a slice (`cuMemsetD2D8`).
    pub fn fill_rows8(&self, to: DeviceSlice<'_>, rows: Plane, value: u8) -> Result<()> {
        rows.inside(to.len)?;
        // SAFETY: the slice has that many rows.
        unsafe { self.context.cuda.cuMemsetD2D8Async(to.address, rows.pitch, value, rows.width, rows.height, self.raw) }
    }

    /// As [`Stream::fill_rows8`], words; a width that is no multiple of 4 is refused.
    pub fn fill_rows32(&self, to: DeviceSlice<'_>, rows: Plane, value: u32) -> Result<()> {
        rows.inside(to.len)?;
        same_length("fill of words", rows.width, rows.width / 4 * 4)?;
        // SAFETY: as above.
        unsafe {
            self.context.cuda.cuMemsetD2D32Async(to.address, rows.pitch, value, rows.width / 4, rows.height, self.raw)
        }
    }

    /// Copies the rows of one place to the same rows of another (`cuMemcpy2DAsync`). Each place is in host or GPU memory.
    ///
    /// # Safety
    /// Both places have `pitch` times `height` bytes, which stay allocated until the stream has been synchronised. Until then
    /// they are not used in ways that disagree with the copy.
    pub unsafe fn copy_rows(&self, to: Address, from: Address, rows: Plane) -> Result<()> {
        let copy = Copy2d { from: from.side(rows), to: to.side(rows), width: rows.width, height: rows.height };
        // SAFETY: read before the call returns; the caller keeps the memory.
        unsafe { self.context.cuda.cuMemcpy2DAsync_v2(&copy, self.raw) }
    }

    /// Fills whole words; a length that is no multiple of 4 is refused.
    pub fn fill32(&self, to: DeviceSlice<'_>, value: u32) -> Result<()> {
        same_length("fill of words", to.len, to.len / 4 * 4)?;
        // SAFETY: the slice has that many words.
        unsafe { self.context.cuda.cuMemsetD32Async(to.address, value, to.len / 4, self.raw) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked_without_overflow() {
        assert_eq!(inside("x", 0, 8, 8), Ok(()));
        assert_eq!(inside("x", 8, 0, 8), Ok(()));
        assert_eq!(inside("x", 1, 8, 8), Err(Error::Range { what: "x", offset: 1, end: 9, len: 8 }));
        assert_eq!(
            inside("x", usize::MAX, 2, 8),
            Err(Error::Range { what: "x", offset: usize::MAX, end: usize::MAX, len: 8 })
        );
    }

    #[test]
    fn lengths_must_agree() {
        assert_eq!(same_length("x", 4, 4), Ok(()));
        assert_eq!(same_length("x", 4, 5).unwrap_err().to_string(), "x: 4 bytes from 5 bytes");
    }
}
