//! A graph of kernels that do nothing, each of which may begin before the one ahead of it has ended, in whatever context the thread has: for whoever wants the
//! numbers of latches that CUDA gives it.

use crate::Result;
use crate::capture;
use crate::functions::{Cuda, LaunchConfig, RawFunction, RawGraphExec, RawModule, RawStream};
use crate::launch::Launch;
use std::ffi::c_void;

/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`.
const THREAD_LOCAL: i32 = 1;
const PTX: &std::ffi::CStr = c"
.version 7.8
.target sm_90
.address_size 64
.visible .entry early()
{
    griddepcontrol.launch_dependents;
    griddepcontrol.wait;
    ret;
}
";

/// The executable graph. It is never destroyed: what CUDA has given it stays taken for as long as the context lives, and nobody launches it any more when this
/// is dropped.
#[derive(Debug)]
pub struct EarlyChain {
    cuda: Cuda,
    stream: RawStream,
    exec: RawGraphExec,
}

impl EarlyChain {
    /// So many kernels begin early, behind one that does not, in the context that is current on this thread, which stays current while this lives.
    pub fn new(cuda: Cuda, early: usize) -> Result<EarlyChain> {
        let null = std::ptr::null_mut();
        let (mut module, mut kernel): (RawModule, RawFunction) = (null, null);
        // SAFETY: PTX with its zero byte; writes one handle.
        unsafe { cuda.cuModuleLoadData(&mut module, PTX.as_ptr().cast()) }?;
        // SAFETY: as above.
        unsafe { cuda.cuModuleGetFunction(&mut kernel, module, c"early".as_ptr()) }?;
        let mut chain = EarlyChain { cuda, stream: null, exec: null };
        // SAFETY: writes one handle. (`CU_STREAM_NON_BLOCKING`: nobody's work is waited for.)
        unsafe { chain.cuda.cuStreamCreate(&mut chain.stream, 1) }?;
        // Loaded before the graph is made.
        chain.add(kernel, false)?;
        // SAFETY: the stream lives.
        unsafe { chain.cuda.cuStreamSynchronize(chain.stream) }?;
        let mut graph = null;
        {
            let _capturing = capture::capturing();
            // SAFETY: the stream lives.
            unsafe { chain.cuda.cuStreamBeginCapture_v2(chain.stream, THREAD_LOCAL) }?;
            let added = (0..=early).try_for_each(|n| chain.add(kernel, n > 0));
            // SAFETY: writes one handle.
            unsafe { chain.cuda.cuStreamEndCapture(chain.stream, &mut graph) }?;
            added?;
        }
        // SAFETY: writes one handle; the graph was made above.
        let made = unsafe { chain.cuda.cuGraphInstantiateWithFlags(&mut chain.exec, graph, 0) };
        // SAFETY: as above; the executable graph stands alone.
        unsafe { chain.cuda.cuGraphDestroy(graph) }?;
        made.map(|()| chain)
    }

    fn add(&self, kernel: RawFunction, programmatic: bool) -> Result<()> {
        let launch = Launch { programmatic, ..Launch::new([1; 3], [1; 3]) };
        let (mut attributes, none) = (launch.attributes(), std::ptr::null_mut::<*mut c_void>());
        let config = LaunchConfig {
            grid: launch.grid,
            block: launch.block,
            shared_bytes: 0,
            stream: self.stream,
            attributes: attributes.as_mut_ptr(),
            attribute_count: attributes.len() as u32,
        };
        // SAFETY: the kernel has no parameters, and the attributes live until the call returns.
        unsafe { self.cuda.cuLaunchKernelEx(&config, kernel, none, none) }
    }

    /// Launches it, and waits.
    pub fn launch(&self) -> Result<()> {
        // SAFETY: both live.
        unsafe { self.cuda.cuGraphLaunch(self.exec, self.stream) }?;
        // SAFETY: as above.
        unsafe { self.cuda.cuStreamSynchronize(self.stream) }
    }
}

/// The number of the context that is current on this thread, never given twice in a process (`cuCtxGetId`).
pub fn context_number(cuda: &Cuda) -> Result<u64> {
    let mut number = 0;
    // SAFETY: writes one number; null stands for the current context.
    unsafe { cuda.cuCtxGetId(std::ptr::null_mut(), &mut number) }?;
    Ok(number)
}

impl Drop for EarlyChain {
    fn drop(&mut self) {
        if !self.stream.is_null() {
            // SAFETY: made by `new`, and all its work was waited for.
            let _ = unsafe { self.cuda.cuStreamDestroy_v2(self.stream) };
        }
    }
}
