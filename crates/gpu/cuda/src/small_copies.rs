//! Copies of a few words from pinned host memory as nodes of graphs, in whatever context the thread has: for whoever wants to see what CUDA submits for one.

use crate::Result;
use crate::capture;
use crate::functions::{Cuda, RawStream};
use std::ffi::c_void;

/// A little pinned memory, a little of the GPU's, and a stream.
#[derive(Debug)]
pub struct SmallCopies {
    cuda: Cuda,
    stream: RawStream,
    source: *mut c_void,
    target: u64,
    /// Memory that is filled ahead of each launch; 0 without.
    ahead: u64,
}

/// Fills ahead of a launch: they take an H200 0.7 ms, and CUDA 0.1 to write a first launch. CUDA copies a few words itself where nothing is under way.
const AHEAD: usize = 64 << 20;
const FILLS: usize = 32;

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
const THREAD_LOCAL: i32 = 1;

impl SmallCopies {
    /// Of both memories.
    pub const BYTES: usize = 4096;

    /// In the context that is current on this thread, which stays current and lives while this does.
    pub fn new(cuda: Cuda) -> Result<SmallCopies> {
        let null = std::ptr::null_mut();
        let mut copies = SmallCopies { cuda, stream: null, source: null, target: 0, ahead: 0 };
        // SAFETY: writes one pointer.
        unsafe { copies.cuda.cuMemHostAlloc(&mut copies.source, SmallCopies::BYTES, 0) }?;
        // SAFETY: writes one address.
        unsafe { copies.cuda.cuMemAlloc_v2(&mut copies.target, SmallCopies::BYTES) }?;
        // SAFETY: writes one address. (Without it a launch may have to be looked at more often.)
        let _ = unsafe { copies.cuda.cuMemAlloc_v2(&mut copies.ahead, AHEAD) };
        // SAFETY: writes one handle. (`CU_STREAM_NON_BLOCKING`: nobody's work is waited for.)
        unsafe { copies.cuda.cuStreamCreate(&mut copies.stream, 1) }?;
        Ok(copies)
    }

    /// Where the GPU sees both memories: the pinned one, and its own.
    pub fn addresses(&self) -> Result<(u64, u64)> {
        let mut source = 0;
        // SAFETY: writes one address.
        unsafe { self.cuda.cuMemHostGetDevicePointer_v2(&mut source, self.source, 0) }?;
        Ok((source, self.target))
    }

    /// Makes a graph of a memset node, which writes `background` to the last word of the GPU's memory, and behind it a memcpy node from `offset` of the pinned
    /// memory to the start of the other (a memcpy node that nothing goes before may be copied by the CPU). Puts `background` everywhere into the other, writes
    /// `bytes` to the source, and has `launch` called around the graph's launch, which is waited for. What the other memory holds then.
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
            // SAFETY: the stream lives, and both memories have so many bytes there.
            unsafe { self.cuda.cuStreamBeginCapture_v2(self.stream, THREAD_LOCAL) }?;
            let (last, word) = (self.target + SmallCopies::BYTES as u64 - 4, u32::from_ne_bytes([background; 4]));
            // SAFETY: the last word of the GPU's memory.
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
        // SAFETY: as above; the executable graph stands alone.
        unsafe { self.cuda.cuGraphDestroy(graph) }?;
        made?;
        let done = self.launched(source, bytes.get(..length).unwrap_or_default(), background, || {
            launch(&mut || {
                for _ in 0..if self.ahead == 0 { 0 } else { FILLS } {
                    // SAFETY: memory of its own, of this length.
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
        // SAFETY: so many bytes are at both.
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
        // SAFETY: made by `new` or null or 0, and all work was waited for.
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
