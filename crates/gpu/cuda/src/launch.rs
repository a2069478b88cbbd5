//! Launches with attributes, and with parameters as bytes.

use crate::Result;
use crate::functions::{LaunchAttribute, LaunchConfig};
use crate::kernel::Function;
use crate::stream::Stream;
use std::ffi::{c_int, c_void};

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`, `_CLUSTER_DIMENSION`, `_PROGRAMMATIC_STREAM_SERIALIZATION`.
const COOPERATIVE: c_int = 2;
const CLUSTER_DIMENSION: c_int = 4;
const PROGRAMMATIC: c_int = 6;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED: c_int = 8;

/// How a kernel is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Dynamic shared memory of a block.
    pub shared_bytes: u32,
    /// Blocks of a cluster.
    pub cluster: Option<[u32; 3]>,
    /// All blocks run at the same time.
    pub cooperative: bool,
    /// May begin before the previous kernel has ended.
    pub programmatic: bool,
}

impl Launch {
    /// Without attributes.
    pub fn new(grid: [u32; 3], block: [u32; 3]) -> Launch {
        Launch { grid, block, shared_bytes: 0, cluster: None, cooperative: false, programmatic: false }
    }

    fn attributes(&self) -> Vec<LaunchAttribute> {
        let attribute = |number, first: &[u32]| {
            let mut value = [0; 16];
            value[..first.len()].copy_from_slice(first);
            LaunchAttribute { number, padding: 0, value }
        };
        let cluster = self.cluster.map(|blocks| attribute(CLUSTER_DIMENSION, &blocks));
        let cooperative = self.cooperative.then(|| attribute(COOPERATIVE, &[1]));
        let programmatic = self.programmatic.then(|| attribute(PROGRAMMATIC, &[1]));
        cluster.into_iter().chain(cooperative).chain(programmatic).collect()
    }
}

/// A pointer to each.
pub(crate) fn pointers(parameters: &[&[u8]]) -> Vec<*mut c_void> {
    parameters.iter().map(|bytes| bytes.as_ptr().cast_mut().cast()).collect()
}

impl Function<'_> {
    /// Submits one launch, by `cuLaunchKernel` or (with attributes) by `cuLaunchKernelEx`.
    ///
    /// # Errors
    /// CUDA's error, or [`crate::Error::Missing`].
    ///
    /// # Safety
    /// `parameters` match the kernel's, each with as many bytes as the kernel declares. The memory that they name stays allocated
    /// until the stream has been synchronised. Until then it is not used in ways that disagree with the kernel.
    pub unsafe fn launch_as(&self, launch: &Launch, stream: &Stream<'_>, parameters: &[&[u8]]) -> Result<()> {
        let (mut pointers, mut attributes) = (pointers(parameters), launch.attributes());
        let ([x, y, z], [a, b, c], cuda) = (launch.grid, launch.block, self.context.cuda);
        let (none, shared) = (std::ptr::null_mut(), launch.shared_bytes);
        if attributes.is_empty() {
            // SAFETY: the pointers lead to the caller's parameters, which are read before the call returns.
            return unsafe {
                cuda.cuLaunchKernel(self.raw, x, y, z, a, b, c, shared, stream.raw, pointers.as_mut_ptr(), none)
            };
        }
        let config = LaunchConfig {
            grid: launch.grid,
            block: launch.block,
            shared_bytes: shared,
            stream: stream.raw,
            attributes: attributes.as_mut_ptr(),
            attribute_count: attributes.len() as u32,
        };
        // SAFETY: as above; so is the configuration.
        unsafe { cuda.cuLaunchKernelEx(&config, self.raw, pointers.as_mut_ptr(), none) }
    }

    /// Allows this much dynamic shared memory for a block, also beyond 48 KiB.
    ///
    /// # Errors
    /// As [`Function::launch_as`].
    pub fn allow_shared(&self, bytes: u32) -> Result<()> {
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: takes numbers.
        unsafe { self.context.cuda.cuFuncSetAttribute(self.raw, MAX_DYNAMIC_SHARED, bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `cuda.h` has them (CUDA 11.8 to 13.0, 64 bits).
    #[test]
    fn structures_are_laid_out_as_cudas() {
        assert_eq!(size_of::<LaunchAttribute>(), 72);
        assert_eq!(std::mem::offset_of!(LaunchAttribute, value), 8);
        assert_eq!(size_of::<LaunchConfig>(), 56);
        assert_eq!(std::mem::offset_of!(LaunchConfig, shared_bytes), 24);
        assert_eq!(std::mem::offset_of!(LaunchConfig, stream), 32);
        assert_eq!(std::mem::offset_of!(LaunchConfig, attributes), 40);
        assert_eq!(std::mem::offset_of!(LaunchConfig, attribute_count), 48);
    }

    #[test]
    fn attributes_are_cudas() {
        let plain = Launch::new([1; 3], [1; 3]);
        assert!(plain.attributes().is_empty());
        let all = Launch { cluster: Some([2, 1, 1]), cooperative: true, programmatic: true, ..plain };
        let found: Vec<_> = all.attributes().iter().map(|a| (a.number, a.value[0])).collect();
        assert_eq!(found, [(4, 2), (2, 1), (6, 1)]);
    }
}
