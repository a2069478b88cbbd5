//! Modules of PTX text and the kernels in them.

use crate::Result;
use crate::context::Context;
use crate::error::Error;
use crate::functions::{RawFunction, RawModule};
use crate::stream::Stream;
use std::ffi::{CStr, CString, c_void};

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
        Module::from_ptx_text(context, &text)
    }

    /// As [`Module::from_ptx`], with text that is ready for CUDA. Makes a single call.
    #[inline]
    pub fn from_ptx_text(context: &'c Context, ptx: &CStr) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the image is zero-terminated text and is not kept.
        unsafe { context.cuda.cuModuleLoadData(&mut raw, ptx.as_ptr().cast()) }?;
        Ok(Module { context, raw })
    }

    /// Loads code that is compiled already. Makes a single call.
    #[inline]
    pub fn from_compiled(context: &'c Context, compiled: &Compiled) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the image is whole, as the linker gave it, and is not kept.
        unsafe { context.cuda.cuModuleLoadData(&mut raw, compiled.image.as_ptr().cast()) }?;
        Ok(Module { context, raw })
    }

    pub fn function(&self, name: &str) -> Result<Function<'_>> {
        self.function_named(&CString::new(name).map_err(|_| Error::Text { what: "kernel name" })?)
    }

    /// As [`Module::function`], with a name that is ready for CUDA.
    #[inline]
    pub fn function_named(&self, name: &CStr) -> Result<Function<'_>> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the name is zero-terminated.
        unsafe { self.context.cuda.cuModuleGetFunction(&mut raw, self.raw, name.as_ptr()) }?;
        Ok(Function { context: self.context, raw })
    }
}

/// Code compiled for the context's GPU. Modules are loaded from it.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// In words, so that it is aligned for any reader.
    image: Vec<u64>,
}

/// `CU_JIT_INPUT_PTX`.
const PTX: i32 = 1;
/// `CU_MODULE_LAZY_LOADING`.
const LAZY: i32 = 2;

impl Compiled {
    /// Compiles PTX for the context's GPU (`cuLinkCreate`, `cuLinkAddData`, `cuLinkComplete`).
    ///
    /// # Errors
    /// The compiler's error, or [`Error::Missing`].
    pub fn from_ptx(context: &Context, ptx: &str) -> Result<Compiled> {
        let (text, none) = (CString::new(ptx).map_err(|_| Error::Text { what: "PTX" })?, std::ptr::null_mut());
        let (cuda, mut link) = (context.cuda, std::ptr::null_mut());
        // SAFETY: no options; writes one handle.
        unsafe { cuda.cuLinkCreate_v2(0, none, std::ptr::null_mut(), &mut link) }?;
        let (mut image, mut bytes) = (std::ptr::null_mut(), 0);
        let data = text.as_bytes_with_nul();
        // SAFETY: the text is read before the call returns; it is zero-terminated, and its zero counts. No options.
        let linked = unsafe {
            cuda.cuLinkAddData_v2(
                link,
                PTX,
                data.as_ptr().cast_mut().cast(),
                data.len(),
                c"kernels".as_ptr(),
                0,
                none,
                std::ptr::null_mut(),
            )
        };
        // SAFETY: writes one pointer and one size.
        let linked = linked.and_then(|()| unsafe { cuda.cuLinkComplete(link, &mut image, &mut bytes) });
        let words = bytes.div_ceil(8);
        let mut copy = vec![0u64; words];
        if linked.is_ok() && !image.is_null() {
            // SAFETY: `image` has this many bytes until the link is destroyed, and the copy has room for them.
            unsafe { std::ptr::copy_nonoverlapping(image.cast::<u8>(), copy.as_mut_ptr().cast(), bytes) };
        }
        // SAFETY: created above, and not used any more.
        let destroyed = unsafe { cuda.cuLinkDestroy(link) };
        linked.and(destroyed)?;
        Ok(Compiled { image: copy })
    }
}

impl Context {
    /// Whether modules are loaded kernel by kernel, when each is first used (`CUDA_MODULE_LOADING`).
    ///
    /// # Errors
    /// CUDA's error, or [`Error::Missing`].
    pub fn loads_lazily(&self) -> Result<bool> {
        let mut mode = 0;
        // SAFETY: writes one int.
        unsafe { self.cuda.cuModuleGetLoadingMode(&mut mode) }?;
        Ok(mode == LAZY)
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
    pub(crate) context: &'m Context,
    pub(crate) raw: RawFunction,
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

/// More than any doorbell kernel takes.
const MAX_ARGUMENTS: usize = 8;

/// A pointer to each argument, as CUDA takes them.
#[inline]
pub(crate) fn pointers(arguments: &[Argument]) -> Result<[*mut c_void; MAX_ARGUMENTS]> {
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
    Ok(pointers)
}

impl Function<'_> {
    /// Submits one launch. Does not allocate, because launch loops time it.
    ///
    /// # Safety
    /// `arguments` match the kernel's in number and width. The memory that they name stays allocated until the stream
    /// has been synchronised. Until then it is not used in ways that disagree with the kernel.
    pub unsafe fn launch(
        &self,
        grid: [u32; 3],
        block: [u32; 3],
        shared_bytes: u32,
        stream: &Stream<'_>,
        arguments: &[Argument],
    ) -> Result<()> {
        let mut pointers = pointers(arguments)?;
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
