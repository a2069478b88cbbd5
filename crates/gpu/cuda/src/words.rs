//! Words that streams write and wait for. They order a stream and work outside CUDA.

use crate::Result;
use crate::context::Context;
use crate::error::Error;
use crate::functions::{Cuda, RawContext};
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;

/// `CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP`.
const PORTABLE_MAPPED: u32 = 0x01 | 0x02;
/// `CU_STREAM_WAIT_VALUE_GEQ`: values count up, and may wrap.
const REACHED: u32 = 0;
/// Whole pages are pinned.
const PAGE: usize = 4096;
/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: u32 = 1;

/// Words of 32 bits in host memory that CUDA has pinned, zero at first; unmapped when dropped. (Memory of CUDA's own ends with its context: a program may reset
/// the device while others read the words.)
#[derive(Debug)]
pub struct Words {
    cuda: Cuda,
    at: *mut AtomicU32,
    count: usize,
    /// Handle of the stream that waits for events, as a number. 0 until it is first needed.
    stream: Mutex<usize>,
}

// SAFETY: the words are atomic, and CUDA's calls may be made from any thread.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

/// Bytes of the mapping of so many words.
fn bytes(count: usize) -> usize {
    (4 * count).next_multiple_of(PAGE)
}

impl Words {
    /// In the current context, which must outlive this.
    ///
    /// # Errors
    /// [`Error::Missing`] where the driver lacks one of the two calls, [`Error::Memory`].
    pub fn new(context: &Context, count: usize) -> Result<Words> {
        let cuda = context.cuda();
        for call in ["cuStreamWriteValue32_v2", "cuStreamWaitValue32_v2"] {
            if !cuda.has(call) {
                return Err(Error::Missing { call });
            }
        }
        let bytes = bytes(count);
        let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, shared: a fork's child gets no copy, which could move this process's pages away from the GPU's.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, rights, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            let reason = std::io::Error::last_os_error().to_string();
            return Err(Error::Memory { bytes, reason });
        }
        // SAFETY: `drop` ends the registration before the mapping.
        let registered = unsafe { cuda.cuMemHostRegister_v2(at, bytes, PORTABLE_MAPPED) };
        if let Err(error) = registered {
            // SAFETY: the mapping of above.
            unsafe { libc::munmap(at, bytes) };
            return Err(error);
        }
        Ok(Words { cuda, at: at.cast(), count, stream: Mutex::new(0) })
    }

    /// Address of the first, for CPU and GPU.
    pub fn address(&self) -> u64 {
        self.at as u64
    }

    /// # Panics
    /// If `index` is out of range.
    pub fn word(&self, index: usize) -> &AtomicU32 {
        assert!(index < self.count);
        // SAFETY: within the allocation, which lives as long as self, and aligned.
        unsafe { &*self.at.add(index) }
    }

    /// Writes the word after everything in the stream is done, with a fence for all observers.
    ///
    /// # Safety
    /// `stream` is null or the handle (`CUstream`) of a stream of a context on the words' GPU. The words live until the write is done.
    pub unsafe fn write_after(&self, stream: *mut c_void, index: usize, value: u32) -> Result<()> {
        let at = std::ptr::from_ref(self.word(index)) as u64;
        // SAFETY: the caller's promise.
        unsafe { self.cuda.cuStreamWriteValue32_v2(stream, at, value, 0) }
    }

    /// Whether the stream has no pending work, so that there is no need to wait for it. False if the query fails.
    ///
    /// # Safety
    /// As [`Words::write_after`], and the stream does not capture.
    pub unsafe fn is_idle(&self, stream: *mut c_void) -> bool {
        self.cuda.stream_is_done(stream).unwrap_or(false)
    }

    /// Writes the word when the work that the event has recorded is done. Events are waited for one after the other, in a separate stream.
    ///
    /// # Safety
    /// `event` is the handle (`CUevent`) of an event of a context on the words' GPU, and that context is current. The words live until the write is done.
    pub unsafe fn write_after_event(&self, event: *mut c_void, index: usize, value: u32) -> Result<()> {
        let mut own = poison::ignore(self.stream.lock());
        if *own == 0 {
            let mut made = std::ptr::null_mut();
            // SAFETY: writes one handle.
            unsafe { self.cuda.cuStreamCreate(&mut made, NON_BLOCKING) }?;
            *own = made as usize;
        }
        let stream = *own as *mut c_void;
        // SAFETY: the caller's promise, and the stream was created here.
        unsafe {
            self.cuda.cuStreamWaitEvent(stream, event, 0)?;
            self.write_after(stream, index, value)
        }
    }

    /// Work that is put into the stream later waits until the word reaches `value`.
    ///
    /// # Safety
    /// As [`Words::write_after`].
    pub unsafe fn hold_until(&self, stream: *mut c_void, index: usize, value: u32) -> Result<()> {
        let at = std::ptr::from_ref(self.word(index)) as u64;
        // SAFETY: the caller's promise.
        unsafe { self.cuda.cuStreamWaitValue32_v2(stream, at, value, REACHED) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        // SAFETY: allocated by `new`; the code that put writes and waits into streams has waited for them.
        unsafe {
            let stream = *poison::ignore(self.stream.get_mut());
            if stream != 0 {
                let _ = self.cuda.cuStreamDestroy_v2(stream as *mut c_void);
            }
        }
        // SAFETY: as above. The call fails only if the context has ended: then CUDA does not use the words.
        unsafe {
            let _ = self.cuda.cuMemHostUnregister(self.at.cast());
            libc::munmap(self.at.cast(), bytes(self.count));
        }
    }
}

/// Restores the thread's context when dropped.
#[derive(Debug)]
pub struct KeepCurrent {
    cuda: Cuda,
    /// None where the driver returned an error.
    was: Option<RawContext>,
}

impl Cuda {
    /// Restores the context that is current on this thread when the result is dropped.
    pub fn keep_current(&self) -> KeepCurrent {
        let mut was = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let known = unsafe { self.cuCtxGetCurrent(&mut was) };
        KeepCurrent { cuda: *self, was: known.is_ok().then_some(was) }
    }
}

impl Drop for KeepCurrent {
    fn drop(&mut self) {
        if let Some(was) = self.was {
            // SAFETY: it was this thread's context, or null for none.
            let _ = unsafe { self.cuda.cuCtxSetCurrent(was) };
        }
    }
}
