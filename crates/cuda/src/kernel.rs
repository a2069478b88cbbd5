//! Modules of PTX text and the kernels in them.

use crate::Result;
use crate::context::Context;
use crate::error::Error;
use crate::functions::{RawFunction, RawModule};
use crate::stream::Stream;
use std::ffi::{CString, c_void};

/// PTX compiled by the driver for the context's GPU; unloaded when dropped.
#[derive(Debug)]
pub struct Module<'c> {
    context: &'c Context,
    raw: RawModule,
}

// SAFETY: CUDA modules may be used from any thread, by several at a time.
unsafe impl Send for Module<'_> {}
// SAFETY: as above.
unsafe impl Sync for Module<'_> {}

impl<'c> Module<'c> {
    pub fn from_ptx(context: &'c Context, ptx: &str) -> Result<Self> {
        let text = CString::new(ptx).map_err(|_| Error::Text { what: "PTX" })?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the image is zero-terminated text and is not kept.
        unsafe { context.cuda.cuModuleLoadData(&mut raw, text.as_ptr().cast()) }?;
        Ok(Module { context, raw })
    }

    pub fn function(&self, name: &str) -> Result<Function<'_>> {
        let text = CString::new(name).map_err(|_| Error::Text { what: "kernel name" })?;
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the name is zero-terminated.
        unsafe { self.context.cuda.cuModuleGetFunction(&mut raw, self.raw, text.as_ptr()) }?;
        Ok(Function { context: self.context, raw })
    }
}

impl Drop for Module<'_> {
    fn drop(&mut self) {
        // SAFETY: loaded by `from_ptx`; its functions borrow it.
        let _ = unsafe { self.context.cuda.cuModuleUnload(self.raw) };
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Function<'m> {
    context: &'m Context,
    raw: RawFunction,
}

// SAFETY: CUDA functions may be launched from any thread, by several at a time.
unsafe impl Send for Function<'_> {}
// SAFETY: as above.
unsafe impl Sync for Function<'_> {}

/// A kernel parameter by value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Argument {
    U32(u32),
    U64(u64),
}

/// More than any kernel of ours takes.
const MAX_ARGUMENTS: usize = 8;

impl Function<'_> {
    /// Submits one launch. Does not allocate: it is what launch loops time.
    ///
    /// # Safety
    /// `arguments` are those of the kernel in number and width, and the memory that they name stays allocated, and unused
    /// in ways that disagree with the kernel, until the stream has been synchronised.
    pub unsafe fn launch(
        &self,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        stream: &Stream<'_>,
        arguments: &[Argument],
    ) -> Result<()> {
        if arguments.len() > MAX_ARGUMENTS {
            return Err(Error::Length { what: "kernel arguments", to: MAX_ARGUMENTS, from: arguments.len() });
        }
        let mut pointers = [std::ptr::null_mut::<c_void>(); MAX_ARGUMENTS];
        for (pointer, argument) in pointers.iter_mut().zip(arguments) {
            *pointer = match argument {
                Argument::U32(value) => std::ptr::from_ref(value).cast_mut().cast(),
                Argument::U64(value) => std::ptr::from_ref(value).cast_mut().cast(),
            };
        }
        // SAFETY: the pointers lead to the caller's arguments, which are read before the call returns.
        unsafe {
            self.context.cuda.cuLaunchKernel(
                self.raw,
                grid[0],
                grid[1],
                grid[2],
                block[0],
                block[1],
                block[2],
                shared_bytes,
                stream.raw,
                pointers.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        }
    }
}
