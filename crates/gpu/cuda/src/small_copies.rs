//! Copies of a few words from pinned host memory as nodes of graphs, in the thread's current context. Used to see what CUDA submits for such a copy.

use crate::Result;
use crate::capture;
use crate::functions::{Cuda, RawStream};
use std::ffi::c_void;

/// A little pinned memory, a little GPU memory, and a stream.
#[derive(Debug)]
pub struct SmallCopies {
    cuda: Cuda,
    stream: RawStream,
    source: *mut c_void,
    target: u64,
    /// Memory that is filled before each launch; 0 if there is none.
    ahead: u64,
}

/// Fills before a launch. They take an H200 0.7 ms; CUDA takes 0.1 ms to write a first launch. Where no work is pending, CUDA copies a few words itself.
const AHEAD: usize = 64 << 20;
const FILLS: usize = 32;

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
const THREAD_LOCAL: i32 = 1;

impl SmallCopies {
    /// Size of each memory.
    pub const BYTES: usize = 4096;

    /// Uses the context that is current on this thread. It must stay current and live as long as this.
    pub fn new(cuda: Cuda) -> Result<SmallCopies> {
        let null = std::ptr::null_mut();
        let mut copies = SmallCopies { cuda, stream: null, source: null, target: 0, ahead: 0 };
        // SAFETY: writes one pointer.
        unsafe { copies.cuda.cuMemHostAlloc(&mut copies.source, SmallCopies::BYTES, 0) }?;
        // SAFETY: writes one address.
        unsafe { copies.cuda.cuMemAlloc_v2(&mut copies.target, SmallCopies::BYTES) }?;
        // SAFETY: writes one address. (Without this memory a launch may need more attempts before it can be observed.)
        let _ = unsafe { copies.cuda.cuMemAlloc_v2(&mut copies.ahead, AHEAD) };
        // SAFETY: writes one handle. (`CU_STREAM_NON_BLOCKING`: the stream waits for no other work.)
        unsafe { copies.cuda.cuStreamCreate(&mut copies.stream, 1) }?;
        Ok(copies)
    }

    /// GPU addresses of both memories: the pinned memory's, then the GPU memory's.
    pub fn addresses(&self) -> Result<(u64, u64)> {
        let mut source = 0;
        // SAFETY: writes one address.
        unsafe { self.cuda.cuMemHostGetDevicePointer_v2(&mut source, self.source, 0) }?;
        Ok((source, self.target))
    }

    /// Makes a graph with two nodes. A memset node writes `background` to the last word of the GPU memory. After it, a memcpy node copies from `offset` of the
    /// pinned memory to the start of the GPU memory. (The CPU may copy for a memcpy node that has no node before it.) Then fills the GPU memory with
    /// `background` and writes `bytes` to the source. Calls `launch` with a function that launches the graph and waits for it. Returns the GPU memory's
    /// contents after that.
    pub fn copy(
        &self,
        offset: usize,
        bytes: &[u8],
        background: u8,
        launch: impl FnOnce(&mut dyn FnMut() -> Result<()>) -> Result<()>,
    ) -> Result<Vec<u8>> {
        let end = offset.saturating_add(bytes.len()).min(SmallCopies::BYTES);
        let (offset, length) = (offset.min(end), end - offset.min(end));
        let source = self.source.cast::<u8>().wrapping_add(offset);
        let mut graph = std::ptr::null_mut();
        {
            let _capturing = capture::capturing();
            // SAFETY: the stream lives, and both memories have that many bytes there.
            unsafe { self.cuda.cuStreamBeginCapture_v2(self.stream, THREAD_LOCAL) }?;
            let (last, word) = (self.target + SmallCopies::BYTES as u64 - 4, u32::from_ne_bytes([background; 4]));
            // SAFETY: the last word of the GPU memory.
            let filled = unsafe { self.cuda.cuMemsetD32Async(last, word, 1, self.stream) };
            // SAFETY: as above.
            let copied = unsafe { self.cuda.cuMemcpyHtoDAsync_v2(self.target, source.cast(), length, self.stream) };
            // SAFETY: writes one handle.
            unsafe { self.cuda.cuStreamEndCapture(self.stream, &mut graph) }?;
            filled.and(copied)?;
        }
        let mut exec = std::ptr::null_mut();
        // SAFETY: writes one handle; the graph was made above.
        let made = unsafe { self.cuda.cuGraphInstantiateWithFlags(&mut exec, graph, 0) };
        // SAFETY: as above; the executable graph does not need it.
        unsafe { self.cuda.cuGraphDestroy(graph) }?;
        made?;
        let done = self.launched(source, bytes.get(..length).unwrap_or_default(), background, || {
            launch(&mut || {
                for _ in 0..if self.ahead == 0 { 0 } else { FILLS } {
                    // SAFETY: `self` owns the memory, which has this length.
                    unsafe { self.cuda.cuMemsetD8Async(self.ahead, 0, AHEAD, self.stream) }?;
                }
                // SAFETY: both live.
                unsafe { self.cuda.cuGraphLaunch(exec, self.stream) }?;
                // SAFETY: as above.
                unsafe { self.cuda.cuStreamSynchronize(self.stream) }
            })
        });
        // SAFETY: its launch was waited for.
        unsafe { self.cuda.cuGraphExecDestroy(exec) }?;
        done
    }

    fn launched(
        &self,
        source: *mut u8,
        bytes: &[u8],
        background: u8,
        launch: impl FnOnce() -> Result<()>,
    ) -> Result<Vec<u8>> {
        let mut all = vec![background; SmallCopies::BYTES];
        // SAFETY: both sides have that many bytes.
        unsafe { self.cuda.cuMemcpyHtoD_v2(self.target, all.as_ptr().cast(), all.len()) }?;
        // SAFETY: within the pinned memory; no copy reads it now.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), source, bytes.len()) };
        launch()?;
        // SAFETY: as above.
        unsafe { self.cuda.cuMemcpyDtoH_v2(all.as_mut_ptr().cast(), self.target, all.len()) }?;
        Ok(all)
    }
}

impl Drop for SmallCopies {
    fn drop(&mut self) {
        // SAFETY: each was made by `new` or is null or 0, and all work was waited for.
        unsafe {
            if !self.stream.is_null() {
                let _ = self.cuda.cuStreamDestroy_v2(self.stream);
            }
            for address in [self.target, self.ahead].into_iter().filter(|address| *address != 0) {
                let _ = self.cuda.cuMemFree_v2(address);
            }
            if !self.source.is_null() {
                let _ = self.cuda.cuMemFreeHost(self.source);
            }
        }
    }
}
