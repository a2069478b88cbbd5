//! The kernel's interface to user space: include/uapi/linux/vfio.h. The structs come from rust-vmm's bindings, which check their
//! sizes and offsets when they are compiled.

use std::ffi::c_ulong;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

pub(super) use vfio_bindings::bindings::vfio::{
    VFIO_API_VERSION, VFIO_BASE, VFIO_DMA_MAP_FLAG_READ, VFIO_DMA_MAP_FLAG_WRITE, VFIO_GROUP_FLAGS_VIABLE,
    VFIO_IOMMU_INFO_CAPS, VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE, VFIO_IRQ_SET_ACTION_TRIGGER, VFIO_IRQ_SET_DATA_EVENTFD,
    VFIO_PCI_CONFIG_REGION_INDEX, VFIO_PCI_REQ_IRQ_INDEX, VFIO_REGION_INFO_FLAG_MMAP, VFIO_TYPE, VFIO_TYPE1v2_IOMMU,
    vfio_group_status, vfio_iommu_type1_dma_map, vfio_iommu_type1_dma_unmap, vfio_iommu_type1_info, vfio_region_info,
};

/// `_IO(VFIO_TYPE, VFIO_BASE + n)`: without the argument's size, which the structs contain.
const fn vfio(n: u32) -> c_ulong {
    (VFIO_TYPE as c_ulong) << 8 | (VFIO_BASE + n) as c_ulong
}

pub(super) const GET_API_VERSION: c_ulong = vfio(0);
pub(super) const CHECK_EXTENSION: c_ulong = vfio(1);
pub(super) const SET_IOMMU: c_ulong = vfio(2);
pub(super) const GROUP_GET_STATUS: c_ulong = vfio(3);
pub(super) const GROUP_SET_CONTAINER: c_ulong = vfio(4);
pub(super) const GROUP_GET_DEVICE_FD: c_ulong = vfio(6);
pub(super) const DEVICE_GET_REGION_INFO: c_ulong = vfio(8);
pub(super) const DEVICE_SET_IRQS: c_ulong = vfio(10);
pub(super) const DEVICE_RESET: c_ulong = vfio(11);
pub(super) const IOMMU_GET_INFO: c_ulong = vfio(12);
pub(super) const IOMMU_MAP_DMA: c_ulong = vfio(13);
pub(super) const IOMMU_UNMAP_DMA: c_ulong = vfio(14);

/// A call whose argument is a number.
pub(super) fn number(file: &File, call: c_ulong, value: c_ulong) -> io::Result<i32> {
    // SAFETY: these calls take a number, or none.
    answer(unsafe { libc::ioctl(file.as_raw_fd(), call, value) })
}

/// A call whose argument is a struct, or several.
///
/// # Safety
/// `argument` is what the call takes, with the size that the struct gives.
pub(super) unsafe fn with<T: ?Sized>(file: &File, call: c_ulong, argument: *mut T) -> io::Result<i32> {
    // SAFETY: guaranteed by the caller.
    answer(unsafe { libc::ioctl(file.as_raw_fd(), call, argument.cast::<u8>()) })
}

fn answer(returned: i32) -> io::Result<i32> {
    if returned < 0 { Err(io::Error::last_os_error()) } else { Ok(returned) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As `printf("%#lx", VFIO_..)` with Linux 6.1's and 6.12's headers.
    #[test]
    fn numbers_are_the_kernels() {
        assert_eq!(GET_API_VERSION, 0x3b64);
        assert_eq!(GROUP_GET_DEVICE_FD, 0x3b6a);
        assert_eq!(DEVICE_GET_REGION_INFO, 0x3b6c);
        assert_eq!(DEVICE_RESET, 0x3b6f);
        assert_eq!(IOMMU_GET_INFO, 0x3b70);
        assert_eq!(IOMMU_UNMAP_DMA, 0x3b72);
    }

    #[test]
    fn structs_have_the_kernels_sizes() {
        assert_eq!(size_of::<vfio_group_status>(), 8);
        assert_eq!(size_of::<vfio_region_info>(), 32);
        assert_eq!(size_of::<vfio_iommu_type1_info>(), 24);
        assert_eq!(size_of::<vfio_iommu_type1_dma_map>(), 32);
        assert_eq!(size_of::<vfio_iommu_type1_dma_unmap>(), 24);
    }
}
