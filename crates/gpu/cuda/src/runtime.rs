//! The CUDA runtime, libcudart, opened at run time: the few functions that copy.
//!
//! Signatures and values are those of the CUDA Runtime API reference (`driver_types.h`, `cuda_runtime_api.h`). The
//! runtime works in the device's primary context, the one of [`crate::Device::primary_context`]. So either API can use
//! the other's memory.

use crate::error::{Error, Unavailable};
use crate::library::Loaded;
use crate::{DeviceSlice, Result};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;

/// `cudaError_t`.
type Status = c_int;
type RawStream = *mut c_void;

const SUCCESS: Status = 0;
/// `cudaErrorNotReady`.
const NOT_READY: Status = 600;
/// `cudaStreamNonBlocking`.
const NON_BLOCKING: c_uint = 1;
/// `cudaMemcpyKind`.
const HOST_TO_DEVICE: c_int = 1;
const DEVICE_TO_HOST: c_int = 2;

/// Where libcudart is searched: first through LD_LIBRARY_PATH and the linker's cache, then in the toolkit's folders.
/// Copies inside other packages are not searched.
const PLACES: [&str; 6] = [
    "libcudart.so.13",
    "libcudart.so.12",
    "/usr/local/cuda/lib64/libcudart.so.13",
    "/usr/local/cuda/lib64/libcudart.so.12",
    "/usr/local/cuda/targets/x86_64-linux/lib/libcudart.so.13",
    "/usr/local/cuda/targets/x86_64-linux/lib/libcudart.so.12",
];

struct Table {
    copy: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int) -> Status,
    copy_async: unsafe extern "C" fn(*mut c_void, *const c_void, usize, c_int, RawStream) -> Status,
    create: unsafe extern "C" fn(*mut RawStream, c_uint) -> Status,
    synchronize: unsafe extern "C" fn(RawStream) -> Status,
    query: unsafe extern "C" fn(RawStream) -> Status,
    destroy: unsafe extern "C" fn(RawStream) -> Status,
    set_device: unsafe extern "C" fn(c_int) -> Status,
    malloc: unsafe extern "C" fn(*mut *mut c_void, usize) -> Status,
    free: unsafe extern "C" fn(*mut c_void) -> Status,
    malloc_async: unsafe extern "C" fn(*mut *mut c_void, usize, RawStream) -> Status,
    free_async: unsafe extern "C" fn(*mut c_void, RawStream) -> Status,
    name: unsafe extern "C" fn(Status) -> *const c_char,
}

impl Table {
    /// # Safety
    /// Each address that `find` returns is that of the function with this name in the runtime's reference, which is
    /// never unloaded.
    unsafe fn find<E>(
        mut find: impl FnMut(&CStr) -> std::result::Result<NonNull<c_void>, E>,
    ) -> std::result::Result<Table, E> {
        macro_rules! function {
            ($name:literal, fn($($argument:ty),*) -> $answer:ty) => {{
                let address = find($name)?.as_ptr();
                // SAFETY: the caller promises that this function exists, with the signature of the reference.
                unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> $answer>(address) }
            }};
        }
        Ok(Table {
            copy: function!(c"cudaMemcpy", fn(*mut c_void, *const c_void, usize, c_int) -> Status),
            copy_async: function!(
                c"cudaMemcpyAsync",
                fn(*mut c_void, *const c_void, usize, c_int, RawStream) -> Status
            ),
            create: function!(c"cudaStreamCreateWithFlags", fn(*mut RawStream, c_uint) -> Status),
            synchronize: function!(c"cudaStreamSynchronize", fn(RawStream) -> Status),
            query: function!(c"cudaStreamQuery", fn(RawStream) -> Status),
            destroy: function!(c"cudaStreamDestroy", fn(RawStream) -> Status),
            set_device: function!(c"cudaSetDevice", fn(c_int) -> Status),
            malloc: function!(c"cudaMalloc", fn(*mut *mut c_void, usize) -> Status),
            free: function!(c"cudaFree", fn(*mut c_void) -> Status),
            malloc_async: function!(c"cudaMallocAsync", fn(*mut *mut c_void, usize, RawStream) -> Status),
            free_async: function!(c"cudaFreeAsync", fn(*mut c_void, RawStream) -> Status),
            name: function!(c"cudaGetErrorName", fn(Status) -> *const c_char),
        })
    }
}

/// The loaded runtime. It stays loaded for the life of the process.
#[derive(Clone, Copy)]
pub struct Runtime {
    table: &'static Table,
}

impl std::fmt::Debug for Runtime {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Runtime")
    }
}

impl Runtime {
    /// Opens libcudart of CUDA 13 or 12.
    pub fn load() -> std::result::Result<Runtime, Unavailable> {
        Runtime::load_from(&PLACES)
    }

    /// As [`Runtime::load`], from the first of these libraries that opens.
    pub fn load_from(places: &[&str]) -> std::result::Result<Runtime, Unavailable> {
        let library = Loaded::first(places, "libcudart")
            .map_err(|reason| Unavailable { reason: format!("the CUDA runtime is not installed: {reason}") })?;
        // SAFETY: the signatures are those of the reference, and the library is never closed.
        let table = library.functions(|find| unsafe { Table::find(find) })?;
        Ok(Runtime { table: Box::leak(Box::new(table)) })
    }

    /// A runtime with functions that the caller provides, such as a stand-in for libcudart in tests.
    ///
    /// # Safety
    /// For every name that `find` resolves, it returns a function with the signature and behaviour of the CUDA Runtime
    /// API reference, which is never unloaded.
    pub unsafe fn from_symbols(
        mut find: impl FnMut(&CStr) -> Option<NonNull<c_void>>,
    ) -> std::result::Result<Runtime, Unavailable> {
        // SAFETY: passed on to the caller.
        let table = unsafe {
            Table::find(|name| {
                find(name).ok_or_else(|| Unavailable { reason: format!("no {}", name.to_string_lossy()) })
            })
        }?;
        Ok(Runtime { table: Box::leak(Box::new(table)) })
    }

    /// Makes this device, given by CUDA's ordinal, current on the calling thread (`cudaSetDevice`).
    ///
    /// # Errors
    /// `cudaErrorInsufficientDriver` where the runtime is newer than the driver, or another reason why it cannot start.
    pub fn set_device(&self, ordinal: i32) -> Result<()> {
        // SAFETY: takes a number.
        self.check("cudaSetDevice", unsafe { (self.table.set_device)(ordinal) })
    }

    #[inline]
    fn check(&self, call: &'static str, status: Status) -> Result<()> {
        if status == SUCCESS { Ok(()) } else { Err(self.error(call, status)) }
    }

    #[cold]
    fn error(&self, call: &'static str, status: Status) -> Error {
        // SAFETY: takes a number, and returns a static string or null.
        let name = unsafe { (self.table.name)(status) };
        let name = if name.is_null() {
            "unknown error".into()
        } else {
            // SAFETY: as above, zero-terminated.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        };
        Error::Call { call, name, code: status, text: "from the CUDA runtime".into() }
    }

    /// Allocates memory of the calling thread's device (`cudaMalloc`) and returns its address. Only [`Runtime::free`]
    /// frees it.
    pub fn malloc(&self, bytes: usize) -> Result<u64> {
        let mut at = std::ptr::null_mut();
        // SAFETY: writes one address.
        self.check("cudaMalloc", unsafe { (self.table.malloc)(&mut at, bytes) })?;
        Ok(at as u64)
    }

    /// Frees the memory (`cudaFree`).
    ///
    /// # Safety
    /// `address` is from [`Runtime::malloc`], is freed once, and is no longer in use.
    pub unsafe fn free(&self, address: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        self.check("cudaFree", unsafe { (self.table.free)(address as *mut c_void) })
    }

    /// Copies to the device and waits (`cudaMemcpy`). If the source is pageable, the last part may still be on its way
    /// when this returns.
    ///
    /// # Safety
    /// As many bytes as the slice has can be read at `from`, and the slice's device is the calling thread's.
    pub unsafe fn upload_now(&self, to: DeviceSlice<'_>, from: *const u8) -> Result<()> {
        // SAFETY: both sides have that many bytes.
        let status = unsafe { (self.table.copy)(address(to), from.cast(), to.len(), HOST_TO_DEVICE) };
        self.check("cudaMemcpy", status)
    }

    /// Copies from the device and waits (`cudaMemcpy`).
    ///
    /// # Safety
    /// As many bytes as the slice has can be written at `to`, and the slice's device is the calling thread's.
    pub unsafe fn download_now(&self, to: *mut u8, from: DeviceSlice<'_>) -> Result<()> {
        // SAFETY: both sides have that many bytes.
        let status = unsafe { (self.table.copy)(to.cast(), address(from), from.len(), DEVICE_TO_HOST) };
        self.check("cudaMemcpy", status)
    }
}

fn address(slice: DeviceSlice<'_>) -> *mut c_void {
    slice.address() as *mut c_void
}

/// A stream of the runtime, independent of the default stream.
#[derive(Debug)]
pub struct Stream {
    runtime: Runtime,
    raw: RawStream,
}

// SAFETY: the runtime's streams may be used from any thread, by several at a time.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    /// On the calling thread's device.
    pub fn new(runtime: Runtime) -> Result<Stream> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle.
        runtime.check("cudaStreamCreateWithFlags", unsafe { (runtime.table.create)(&mut raw, NON_BLOCKING) })?;
        Ok(Stream { runtime, raw })
    }

    /// Allocates device memory from the stream's pool (`cudaMallocAsync`) and returns its address.
    pub fn malloc(&self, bytes: usize) -> Result<u64> {
        let mut at = std::ptr::null_mut();
        // SAFETY: writes one address.
        let status = unsafe { (self.runtime.table.malloc_async)(&mut at, bytes, self.raw) };
        self.runtime.check("cudaMallocAsync", status)?;
        Ok(at as u64)
    }

    /// Returns the memory to the pool, in the order of the stream (`cudaFreeAsync`).
    ///
    /// # Safety
    /// `address` is from [`Stream::malloc`] and is freed once. Only earlier work in the stream uses it.
    pub unsafe fn free(&self, address: u64) -> Result<()> {
        // SAFETY: the caller's promise.
        let status = unsafe { (self.runtime.table.free_async)(address as *mut c_void, self.raw) };
        self.runtime.check("cudaFreeAsync", status)
    }

    /// Host to device (`cudaMemcpyAsync`).
    ///
    /// # Safety
    /// As many bytes as the slice has stay readable and unchanged at `from` until the stream has been synchronised.
    #[inline]
    pub unsafe fn upload(&self, to: DeviceSlice<'_>, from: *const u8) -> Result<()> {
        let copy = self.runtime.table.copy_async;
        // SAFETY: both sides have that many bytes; the caller keeps the source.
        let status = unsafe { copy(address(to), from.cast(), to.len(), HOST_TO_DEVICE, self.raw) };
        self.runtime.check("cudaMemcpyAsync", status)
    }

    /// Device to host (`cudaMemcpyAsync`).
    ///
    /// # Safety
    /// As many bytes as the slice has stay allocated and unused at `to` until the stream has been synchronised.
    #[inline]
    pub unsafe fn download(&self, to: *mut u8, from: DeviceSlice<'_>) -> Result<()> {
        let copy = self.runtime.table.copy_async;
        // SAFETY: both sides have that many bytes; the caller keeps the target.
        let status = unsafe { copy(to.cast(), address(from), from.len(), DEVICE_TO_HOST, self.raw) };
        self.runtime.check("cudaMemcpyAsync", status)
    }

    /// Waits until everything in the stream is done.
    #[inline]
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives until this is dropped.
        self.runtime.check("cudaStreamSynchronize", unsafe { (self.runtime.table.synchronize)(self.raw) })
    }

    /// True when everything in the stream is done.
    #[inline]
    pub fn is_done(&self) -> Result<bool> {
        // SAFETY: the stream lives until this is dropped.
        match unsafe { (self.runtime.table.query)(self.raw) } {
            NOT_READY => Ok(false),
            status => self.runtime.check("cudaStreamQuery", status).map(|()| true),
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // The runtime lets work that is still queued finish.
        // SAFETY: created by `new`.
        let _ = unsafe { (self.runtime.table.destroy)(self.raw) };
    }
}
