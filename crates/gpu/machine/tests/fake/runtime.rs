//! The functions of libcudart.

use super::calls::{copy, create_stream, destroy_stream, driver, give, synchronize_stream};
use super::{CALLS, Inside, Kind, NOT_READY, SUCCESS, Status, free, with};
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// `cudaGetErrorName`: the only function of the runtime that does not return a status.
extern "C" fn runtime_error_name(_status: Status) -> *const c_char {
    c"cudaErrorOfTheStandIn".as_ptr()
}

/// Not 0: the status that `cudaSetDevice` returns.
pub static RUNTIME_STARTS: AtomicU32 = AtomicU32::new(0);

/// The runtime's functions by name.
pub fn find_runtime(name: &CStr) -> Option<NonNull<c_void>> {
    if name == c"cudaGetErrorName" {
        return NonNull::new(runtime_error_name as *mut c_void);
    }
    find_runtime_call(name)
}

fn runtime_copy(
    to: *mut c_void,
    from: *const c_void,
    bytes: usize,
    kind: c_int,
    stream: Option<*mut c_void>,
) -> Status {
    let (to, from) = (to as u64, from as u64);
    match kind {
        1 => copy(to, to, from, bytes, stream),
        2 => copy(from, to, from, bytes, stream),
        _ => 21,
    }
}

driver! {
    find_runtime_call;
    cudaSetDevice(device: c_int) {
        if device == 0 { RUNTIME_STARTS.load(Ordering::SeqCst) as Status } else { 101 }
    }
    cudaMemcpy(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int) {
        runtime_copy(to, from, bytes, kind, None)
    }
    cudaMemcpyAsync(to: *mut c_void, from: *const c_void, bytes: usize, kind: c_int, stream: *mut c_void) {
        runtime_copy(to, from, bytes, kind, Some(stream))
    }
    cudaMalloc(at: *mut *mut c_void, bytes: usize) {
        give(at, with(|fake| fake.allocate(Kind::Device { ordinal: 0 }, bytes)) as *mut c_void)
    }
    cudaFree(at: *mut c_void) { free(at as u64) }
    cudaMallocAsync(at: *mut *mut c_void, bytes: usize, _stream: *mut c_void) {
        give(at, with(|fake| fake.allocate(Kind::Device { ordinal: 0 }, bytes)) as *mut c_void)
    }
    cudaFreeAsync(at: *mut c_void, _stream: *mut c_void) { free(at as u64) }
    cudaStreamCreateWithFlags(stream: *mut *mut c_void, flags: c_uint) { create_stream(stream, flags) }
    cudaStreamSynchronize(stream: *mut c_void) { synchronize_stream(stream) }
    cudaStreamQuery(stream: *mut c_void) { with(|fake| if fake.step(stream as u64) { NOT_READY } else { SUCCESS }) }
    cudaStreamDestroy(stream: *mut c_void) { destroy_stream(stream) }
}
