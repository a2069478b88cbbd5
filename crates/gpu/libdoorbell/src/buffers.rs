//! Memory that copies may name.

use crate::call::{To, put_if_wanted, run, wrong};
use crate::session::of;
use crate::types::*;
use std::ffi::c_void;
use submit::Buffer;

/// doorbell_buffer_create: host memory.
pub const DOORBELL_HOST: u32 = 0;
/// doorbell_buffer_create: GPU memory. The CPU can write it at some 20 GB/s. Each read by the CPU is a round trip over PCIe.
pub const DOORBELL_VIDEO: u32 = 1;

/// Registers `length` bytes of CUDA's memory at `pointer` (cudaMalloc, cudaHostAlloc, cudaHostRegister), so that copies may name
/// them. The registration ends with doorbell_buffer_free(), or when CUDA frees the memory. After CUDA's free, copies return
/// DOORBELL_FREED. If the profile names stores or loads of the CPU, GPU memory of up to 256 MiB is also mapped for the CPU. This
/// takes a descriptor and the kernel driver's locks.
/// Memory of another GPU can be registered while the session's GPU has peer access to it (cuCtxEnablePeerAccess,
/// cudaDeviceEnablePeerAccess). When that access ends, copies return DOORBELL_FREED.
/// Cost: microseconds, and CUDA's locks. It waits if another thread is in a long CUDA call. Threads: any. Errors:
/// DOORBELL_NOT_PINNABLE with the reason, DOORBELL_UNAVAILABLE without CUDA, DOORBELL_LIMIT (65,536 at a time),
/// DOORBELL_ARGUMENT, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_buffer_register(
    doorbell: *mut doorbell_t,
    pointer: *const c_void,
    length: usize,
    buffer: *mut doorbell_buffer_t,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(buffer) }?;
        answer.put(of(doorbell)?.pin(pointer as u64, length as u64)?.raw());
        Ok(())
    })
}

/// Allocates host memory (DOORBELL_HOST) or GPU memory (DOORBELL_VIDEO) as a buffer, in whole pages. Host memory is pinned and
/// its pages are present. The call does not use CUDA. `pointer` may be null.
/// Cost: some hundred microseconds, and the kernel driver's locks. Threads: any. Errors: DOORBELL_DRIVER, DOORBELL_LIMIT,
/// DOORBELL_ARGUMENT (a length of 0, or more than 16 GiB), DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_buffer_create(
    doorbell: *mut doorbell_t,
    place: u32,
    length: usize,
    buffer: *mut doorbell_buffer_t,
    pointer: *mut *mut c_void,
) -> i32 {
    run(|| {
        // SAFETY: the caller guarantees it.
        let answer = unsafe { To::new(buffer) }?;
        if place > DOORBELL_VIDEO {
            return Err(wrong("the place is neither DOORBELL_HOST nor DOORBELL_VIDEO"));
        }
        let session = of(doorbell)?;
        let made = session.allocate(length as u64, place == DOORBELL_VIDEO)?;
        if !pointer.is_null() {
            let (at, _) = session.place(made)?;
            // SAFETY: the caller guarantees it.
            unsafe { put_if_wanted(pointer, at as *mut c_void) };
        }
        answer.put(made.raw());
        Ok(())
    })
}

/// Returns the address and the length of a buffer. Either pointer may be null.
/// Cost: a microsecond. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_CLOSED, DOORBELL_FORKED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_buffer_get(
    doorbell: *mut doorbell_t,
    buffer: doorbell_buffer_t,
    pointer: *mut *mut c_void,
    length: *mut u64,
) -> i32 {
    run(|| {
        let (at, bytes) = of(doorbell)?.place(Buffer::from_raw(buffer))?;
        // SAFETY: the caller guarantees it.
        unsafe {
            put_if_wanted(pointer, at as *mut c_void);
            put_if_wanted(length, bytes);
        }
        Ok(())
    })
}

/// Ends a buffer. From this call on, no new submission can name it. The call waits for other threads' calls that use the buffer,
/// and up to a second for submissions that name it. For memory from doorbell_buffer_register(), it then stops the lanes that
/// still copy to or from it. Memory from doorbell_buffer_create() is freed when those submissions are done. The call neither
/// waits for nor stops other submissions.
/// Cost: microseconds and the wait. Threads: any. Errors: DOORBELL_HANDLE, DOORBELL_FORKED. DOORBELL_CLOSED while another thread is
/// in doorbell_free(): copies may still write the memory until that call has returned.
#[unsafe(no_mangle)]
pub extern "C" fn doorbell_buffer_free(doorbell: *mut doorbell_t, buffer: doorbell_buffer_t) -> i32 {
    run(|| of(doorbell)?.unpin(Buffer::from_raw(buffer)))
}
