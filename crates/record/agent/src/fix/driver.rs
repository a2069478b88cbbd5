//! The driver's own functions, of which answers are made.

use crate::process::symbol;
use core::ffi::c_char;
use core::sync::atomic::{AtomicUsize, Ordering};

/// `CUstream` values with a meaning of their own (cuda.h: CU_STREAM_LEGACY, CU_STREAM_PER_THREAD).
pub const LEGACY: usize = 1;
pub const PER_THREAD: usize = 2;

/// `CUresult`
pub const SUCCESS: i32 = 0;
pub const INVALID_VALUE: i32 = 1;
pub const OUT_OF_MEMORY: i32 = 2;
pub const INVALID_CONTEXT: i32 = 201;
pub const CONTEXT_IS_DESTROYED: i32 = 709;
pub const NOT_READY: i32 = 600;

/// `CUmemLocation`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Location {
    kind: u32,
    id: i32,
}

impl Location {
    pub const fn device(id: i32) -> Location {
        Location { kind: 1, id }
    }

    pub const fn node(id: i32) -> Location {
        Location { kind: 3, id }
    }
}

/// `CUmemAllocationProp`
#[repr(C)]
pub struct Wanted {
    /// 1: CU_MEM_ALLOCATION_TYPE_PINNED
    kind: u32,
    handles: u32,
    location: Location,
    win32: usize,
    compression: u8,
    /// Other devices may be given its physical addresses (`gpuDirectRDMACapable`).
    is_for_rdma: u8,
    rest: [u8; 6],
}

impl Wanted {
    pub const fn pinned(location: Location, is_for_rdma: bool) -> Wanted {
        Wanted { kind: 1, handles: 0, location, win32: 0, compression: 0, is_for_rdma: is_for_rdma as u8, rest: [0; 6] }
    }
}

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Access {
    location: Location,
    /// 3: CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    flags: u32,
}

impl Access {
    pub const fn all(location: Location) -> Access {
        Access { location, flags: 3 }
    }
}

macro_rules! functions {
    ($driver:ident: $($name:ident $symbol:literal ($($argument:ty),*);)*) => {
        /// As libcuda exports them.
        pub struct $driver {
            $(pub $name: unsafe extern "C" fn($($argument),*) -> i32,)*
        }

        impl $driver {
            const COUNT: usize = [$($symbol as &[u8]),*].len();
            pub const SYMBOLS: [&[u8]; $driver::COUNT] = [$($symbol),*];

            fn at() -> &'static [AtomicUsize; $driver::COUNT] {
                static AT: [AtomicUsize; $driver::COUNT] = [const { AtomicUsize::new(0) }; $driver::COUNT];
                &AT
            }

            /// A library that defines CUDA's calls has these of the symbols, behind any entry of the agent's; 0 for one that it lacks. (They stay when a
            /// library is unloaded: only calls of CUDA's use them, and a free must find them at any time.)
            pub fn found(at: [usize; $driver::COUNT]) {
                symbol::found($driver::at(), at);
            }

            /// `None` if a library that is loaded lacks one.
            pub fn here() -> Option<$driver> {
                let mut at = $driver::at().iter().map(|at| at.load(Ordering::Relaxed));
                // SAFETY: addresses of functions of these types, in the order of the symbols; each is checked for 0.
                unsafe {
                    $(let $name = at.next().filter(|&at| at != 0)?;)*
                    Some($driver { $($name: core::mem::transmute::<usize, unsafe extern "C" fn($($argument),*) -> i32>($name),)* })
                }
            }
        }
    };
}

// Since CUDA 12.4.
functions! { Loading:
    current b"cuCtxGetCurrent" (*mut usize);
    library_kernel b"cuLibraryGetKernel" (*mut usize, usize, *const c_char);
    kernel_function b"cuKernelGetFunction" (*mut usize, usize);
    module_function b"cuModuleGetFunction" (*mut usize, usize, *const c_char);
    load b"cuFuncLoad" (usize);
    capture_mode b"cuThreadExchangeStreamCaptureMode" (*mut i32);
}

functions! { Driver:
    count b"cuDeviceGetCount" (*mut i32);
    attribute b"cuDeviceGetAttribute" (*mut i32, i32, i32);
    current b"cuCtxGetCurrent" (*mut usize);
    current_device b"cuCtxGetDevice" (*mut i32);
    uuid b"cuDeviceGetUuid_v2" (*mut [u8; 16], i32);
    synchronize_context b"cuCtxSynchronize" ();
    id b"cuCtxGetId" (usize, *mut u64);
    push b"cuCtxPushCurrent_v2" (usize);
    pop b"cuCtxPopCurrent_v2" (*mut usize);
    host_alloc b"cuMemHostAlloc" (*mut usize, usize, u32);
    free_host b"cuMemFreeHost" (usize);
    alloc b"cuMemAlloc_v2" (*mut usize, usize);
    free b"cuMemFree_v2" (usize);
    reserve b"cuMemAddressReserve" (*mut usize, usize, usize, usize, u64);
    unreserve b"cuMemAddressFree" (usize, usize);
    create b"cuMemCreate" (*mut u64, usize, *const Wanted, u64);
    release b"cuMemRelease" (u64);
    map b"cuMemMap" (usize, usize, usize, u64, u64);
    unmap b"cuMemUnmap" (usize, usize);
    set_access b"cuMemSetAccess" (usize, usize, *const Access, usize);
    pointer b"cuPointerGetAttributes" (u32, *const i32, *const *mut u64, usize);
    range b"cuMemGetAddressRange_v2" (*mut usize, *mut usize, usize);
    to_gpu b"cuMemcpyHtoDAsync_v2" (usize, usize, usize, usize);
    from_gpu b"cuMemcpyDtoHAsync_v2" (usize, usize, usize, usize);
    write b"cuStreamWriteValue32_v2" (usize, usize, u32, u32);
    synchronize b"cuStreamSynchronize" (usize);
    stream_flags b"cuStreamGetFlags" (usize, *mut u32);
    query b"cuStreamQuery" (usize);
    is_capturing b"cuStreamIsCapturing" (usize, *mut i32);
    capture_mode b"cuThreadExchangeStreamCaptureMode" (*mut i32);
}

/// Makes calls that are legal while a stream is being captured in any mode, and that leave the capture valid.
///
/// # Safety
/// `exchange` is cuThreadExchangeStreamCaptureMode.
pub unsafe fn relaxed<T>(exchange: unsafe extern "C" fn(*mut i32) -> i32, then: impl FnOnce() -> T) -> T {
    /// CU_STREAM_CAPTURE_MODE_RELAXED
    const RELAXED: i32 = 2;
    let mut mode = RELAXED;
    // SAFETY: the caller's, with a place for the mode.
    let changed = unsafe { exchange(&raw mut mode) } == SUCCESS;
    let result = then();
    if changed {
        // SAFETY: as above; this puts the thread's mode back.
        unsafe { exchange(&raw mut mode) };
    }
    result
}

impl Driver {
    /// As [`relaxed`].
    pub fn relaxed<T>(&self, then: impl FnOnce() -> T) -> T {
        // SAFETY: that function.
        unsafe { relaxed(self.capture_mode, then) }
    }
}
