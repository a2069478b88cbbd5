//! Graphs, captured from a stream.

use crate::Result;
use crate::capture::capturing;
use crate::context::Context;
use crate::functions::{RawGraph, RawGraphExec};
use crate::launch::Launch;
use crate::stream::Stream;
use std::ffi::c_void;

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`: calls of other threads do not disturb the capture.
pub(crate) const THREAD_LOCAL: i32 = 1;

#[derive(Debug)]
pub struct Graph<'c> {
    pub(crate) context: &'c Context,
    pub(crate) raw: RawGraph,
}

#[derive(Debug)]
pub struct GraphExec<'c> {
    pub(crate) context: &'c Context,
    pub(crate) raw: RawGraphExec,
}

impl<'c> Graph<'c> {
    /// Captures what `submit` puts into the stream, instead of running it. Until the capture has ended no thread waits for the whole context:
    /// [`Context::synchronize`] waits for the end first.
    pub fn capture(stream: &Stream<'c>, submit: impl FnOnce() -> Result<()>) -> Result<Self> {
        // SAFETY: the stream lives.
        unsafe { Graph::capture_from(stream.context, stream.raw, submit) }
    }

    /// # Safety
    /// `stream` is a live stream of the context.
    unsafe fn capture_from(
        context: &'c Context,
        stream: *mut c_void,
        submit: impl FnOnce() -> Result<()>,
    ) -> Result<Self> {
        let _alone = capturing();
        // SAFETY: the caller's.
        unsafe { context.cuda.cuStreamBeginCapture_v2(stream, THREAD_LOCAL) }?;
        let submitted = submit();
        let mut raw = std::ptr::null_mut();
        // Ended in any case, or the stream would stay unusable.
        // SAFETY: writes one handle, null if the capture was invalidated.
        let ended = unsafe { context.cuda.cuStreamEndCapture(stream, &mut raw) };
        let graph = Graph { context, raw };
        submitted.and(ended)?;
        Ok(graph)
    }

    pub fn instantiate(&self) -> Result<GraphExec<'c>> {
        self.instantiate_with(0)
    }

    /// For launches by kernels too (`CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH`).
    pub fn instantiate_for_kernels(&self) -> Result<GraphExec<'c>> {
        self.instantiate_with(4)
    }

    /// The driver API's handle (`CUgraph`).
    pub fn handle(&self) -> *mut c_void {
        self.raw
    }

    fn instantiate_with(&self, flags: u64) -> Result<GraphExec<'c>> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the graph lives.
        unsafe { self.context.cuda.cuGraphInstantiateWithFlags(&mut raw, self.raw, flags) }?;
        Ok(GraphExec { context: self.context, raw })
    }
}

impl Drop for Graph<'_> {
    fn drop(&mut self) {
        if !self.raw.is_null() {
            // SAFETY: made by `capture`; executable graphs do not need it any more.
            let _ = unsafe { self.context.cuda.cuGraphDestroy(self.raw) };
        }
    }
}

impl Context {
    /// An executable graph of one kernel of the program, given by its handle. Does not launch it.
    ///
    /// # Safety
    /// `function` and `stream` are live handles of this context, and the stream is not the default one. `arguments` has a pointer to each argument of the
    /// kernel, as `cuLaunchKernel` takes them. (They are read before this returns.)
    pub unsafe fn graph_of_kernel(
        &self,
        stream: *mut c_void,
        function: *mut c_void,
        launch: &Launch,
        arguments: *mut *mut c_void,
    ) -> Result<GraphExec<'_>> {
        let Launch { grid, block, shared_bytes, .. } = *launch;
        let submit = || {
            let none = std::ptr::null_mut();
            // SAFETY: the caller's promise.
            unsafe {
                self.cuda.cuLaunchKernel(
                    function,
                    grid[0],
                    grid[1],
                    grid[2],
                    block[0],
                    block[1],
                    block[2],
                    shared_bytes,
                    stream,
                    arguments,
                    none,
                )
            }
        };
        // SAFETY: the caller's promise.
        unsafe { Graph::capture_from(self, stream, submit) }?.instantiate()
    }

    /// An executable graph of a graph of the program, given by its handle. Does not launch it.
    ///
    /// # Safety
    /// `graph` is the handle (`CUgraph`) of a live graph.
    pub unsafe fn instantiate_by_handle(&self, graph: *mut c_void) -> Result<GraphExec<'_>> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the caller's graph lives.
        unsafe { self.cuda.cuGraphInstantiateWithFlags(&mut raw, graph, 0) }?;
        Ok(GraphExec { context: self, raw })
    }

    /// Launches an executable graph of the program, given by its handle.
    ///
    /// # Safety
    /// `exec` and `stream` are live handles of this context's GPU (a null stream: the default one). For the graph's nodes, the same as [`GraphExec::launch`].
    pub unsafe fn launch_by_handle(&self, exec: *mut c_void, stream: *mut c_void) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.cuda.cuGraphLaunch(exec, stream) }
    }

    /// Waits for a stream of the program, given by its handle.
    ///
    /// # Safety
    /// `stream` is a live handle of this context's GPU (a null stream: the default one).
    pub unsafe fn wait_for(&self, stream: *mut c_void) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.cuda.cuStreamSynchronize(stream) }
    }
}

impl GraphExec<'_> {
    /// The driver API's handle (`CUgraphExec`).
    pub fn handle(&self) -> *mut c_void {
        self.raw
    }

    /// # Safety
    /// The memory that its nodes name stays allocated until the stream has been synchronised. Until then it is not used in ways that disagree with the nodes.
    pub unsafe fn launch(&self, stream: &Stream<'_>) -> Result<()> {
        // SAFETY: both live; the caller answers for the nodes.
        unsafe { self.context.cuda.cuGraphLaunch(self.raw, stream.raw) }
    }
}

impl Drop for GraphExec<'_> {
    fn drop(&mut self) {
        // SAFETY: made by `instantiate`.
        let _ = unsafe { self.context.cuda.cuGraphExecDestroy(self.raw) };
    }
}
