//! Launches of clusters: blocks that the GPU schedules together, on the multiprocessors of one GPC.

use crate::Result;
use crate::functions::{LaunchAttribute, LaunchConfig};
use crate::kernel::{Argument, Function, pointers};
use crate::launch::CLUSTER_DIMENSION;
use crate::stream::Stream;
use std::ffi::c_int;

/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const MAX_DYNAMIC_SHARED: c_int = 8;
/// `CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED`.
const NON_PORTABLE_CLUSTERS: c_int = 14;

/// How a kernel is spread, in one dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub clusters: u32,
    /// Blocks of a cluster. Every GPU that has clusters supports 8; up to 16 work where the kernel allows non-portable sizes.
    pub size: u32,
    /// Threads of a block.
    pub threads: u32,
    /// Dynamic shared memory of a block, in addition to what the kernel declares.
    pub shared_bytes: u32,
}

impl Shape {
    fn dimension(&self) -> LaunchAttribute {
        let mut value = [0; 16];
        value[..3].copy_from_slice(&[self.size, 1, 1]);
        LaunchAttribute { number: CLUSTER_DIMENSION, padding: 0, value }
    }

    fn config(&self, attributes: &mut [LaunchAttribute], stream: Option<&Stream<'_>>) -> LaunchConfig {
        LaunchConfig {
            grid: [self.clusters.saturating_mul(self.size), 1, 1],
            block: [self.threads, 1, 1],
            shared_bytes: self.shared_bytes,
            stream: stream.map_or(std::ptr::null_mut(), |stream| stream.raw),
            attributes: attributes.as_mut_ptr(),
            attribute_count: attributes.len() as u32,
        }
    }
}

impl Function<'_> {
    /// Allows this much dynamic shared memory for a block, also beyond 48 KiB.
    ///
    /// # Errors
    /// CUDA's error, or [`crate::Error::Missing`].
    pub fn allow_shared(&self, bytes: u32) -> Result<()> {
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        // SAFETY: takes numbers.
        unsafe { self.context.cuda.cuFuncSetAttribute(self.raw, MAX_DYNAMIC_SHARED, bytes) }
    }

    /// Allows clusters of more than 8 blocks, which not every GPU has.
    ///
    /// # Errors
    /// As [`Function::allow_shared`].
    pub fn allow_large_clusters(&self) -> Result<()> {
        // SAFETY: takes numbers.
        unsafe { self.context.cuda.cuFuncSetAttribute(self.raw, NON_PORTABLE_CLUSTERS, 1) }
    }

    /// The largest cluster, in blocks, that this GPU has for the kernel with the shape's threads and shared memory.
    ///
    /// # Errors
    /// As [`Function::allow_shared`].
    pub fn largest_cluster(&self, shape: &Shape) -> Result<u32> {
        let (config, mut size) = (shape.config(&mut [], None), 0);
        // SAFETY: writes one int; the configuration is read before the call returns.
        unsafe { self.context.cuda.cuOccupancyMaxPotentialClusterSize(&mut size, self.raw, &config) }?;
        Ok(u32::try_from(size).unwrap_or(0))
    }

    /// How many clusters of the shape can run at the same time on an idle GPU.
    ///
    /// # Errors
    /// As [`Function::allow_shared`].
    pub fn clusters_at_once(&self, shape: &Shape) -> Result<u32> {
        let mut attributes = [shape.dimension()];
        let (config, mut clusters) = (shape.config(&mut attributes, None), 0);
        // SAFETY: as in `largest_cluster`.
        unsafe { self.context.cuda.cuOccupancyMaxActiveClusters(&mut clusters, self.raw, &config) }?;
        Ok(u32::try_from(clusters).unwrap_or(0))
    }

    /// Submits one launch of clusters.
    ///
    /// # Safety
    /// As [`Function::launch`].
    pub unsafe fn launch_clusters(&self, shape: &Shape, stream: &Stream<'_>, arguments: &[Argument]) -> Result<()> {
        let (mut pointers, mut attributes) = (pointers(arguments)?, [shape.dimension()]);
        let config = shape.config(&mut attributes, Some(stream));
        // SAFETY: the pointers lead to the caller's arguments, which are read with the configuration before the call returns.
        unsafe { self.context.cuda.cuLaunchKernelEx(&config, self.raw, pointers.as_mut_ptr(), std::ptr::null_mut()) }
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
    fn a_shape_is_a_grid_of_whole_clusters() {
        let shape = Shape { clusters: 4, size: 16, threads: 512, shared_bytes: 1000 };
        let mut attributes = [shape.dimension()];
        let config = shape.config(&mut attributes, None);
        assert_eq!((config.grid, config.block, config.shared_bytes), ([64, 1, 1], [512, 1, 1], 1000));
        assert_eq!(
            (config.attribute_count, attributes[0].number, &attributes[0].value[..4]),
            (1, 4, &[16, 1, 1, 0][..])
        );
    }
}
