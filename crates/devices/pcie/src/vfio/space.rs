//! An address space of the IOMMU: a container of vfio's type 1. Devices of one group share it.

use super::abi;
use super::iova::Iova;
use crate::error::Error;
use std::any::Any;
use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex};

pub(super) struct Space {
    container: File,
    iova: Mutex<Iova>,
    /// The group's file, which is held as long as something is mapped.
    group: File,
}

/// Memory of this process at a place in the space. Unmapped when it is dropped.
pub(super) struct Mapped {
    space: Arc<Space>,
    pub at: u64,
    length: u64,
    /// The memory itself: dropped after it is unmapped.
    _memory: Box<dyn Any + Send + Sync>,
}

impl Space {
    /// A container in which a group is, with its IOMMU set.
    pub(super) fn new(container: File, group: File) -> io::Result<Space> {
        let iova = Mutex::new(Iova::new(ranges(&container)?));
        Ok(Space { container, iova, group })
    }

    /// The file of the group whose devices are in the space.
    pub(super) fn group(&self) -> &File {
        &self.group
    }

    /// Maps `length` bytes of this process, which `memory` keeps.
    pub(super) fn map(
        self: &Arc<Self>,
        from: *mut u8,
        length: u64,
        align: u64,
        memory: Box<dyn Any + Send + Sync>,
    ) -> Result<Mapped, Error> {
        let at = poison::ignore(self.iova.lock()).take(length, align);
        let at = at
            .ok_or_else(|| Error::system("no room in the IOMMU's address ranges", io::ErrorKind::OutOfMemory.into()))?;
        if let Err(why) = self.map_at(from as u64, at, length) {
            poison::ignore(self.iova.lock()).give_back(at);
            let what = match why.raw_os_error() {
                Some(libc::ENOMEM) => {
                    "map memory for the device (its limit of locked memory is reached: raise `ulimit -l`)"
                }
                Some(libc::ENOSPC) => {
                    "map memory for the device (it has 65,535 mappings already: use fewer, larger ones)"
                }
                _ => "map memory for the device",
            };
            return Err(Error::system(what, why));
        }
        Ok(Mapped { space: Arc::clone(self), at, length, _memory: memory })
    }

    fn map_at(&self, from: u64, at: u64, length: u64) -> io::Result<()> {
        let mut map = abi::vfio_iommu_type1_dma_map {
            argsz: size_of::<abi::vfio_iommu_type1_dma_map>() as u32,
            flags: abi::VFIO_DMA_MAP_FLAG_READ | abi::VFIO_DMA_MAP_FLAG_WRITE,
            vaddr: from,
            iova: at,
            size: length,
        };
        // SAFETY: the call's own struct; the caller owns the memory and keeps it.
        unsafe { abi::with(&self.container, abi::IOMMU_MAP_DMA, &raw mut map) }.map(drop)
    }

    fn unmap(&self, at: u64, length: u64) -> io::Result<()> {
        // SAFETY: plain numbers, for which zeros are values.
        let mut unmap: abi::vfio_iommu_type1_dma_unmap = unsafe { std::mem::zeroed() };
        unmap.argsz = size_of_val(&unmap) as u32;
        unmap.iova = at;
        unmap.size = length;
        // SAFETY: the call's own struct.
        unsafe { abi::with(&self.container, abi::IOMMU_UNMAP_DMA, &raw mut unmap) }.map(drop)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // If the kernel did not unmap a range, it is not allocated again. The kernel then keeps the pages pinned, so they get no other owner.
        if self.space.unmap(self.at, self.length).is_ok() {
            poison::ignore(self.space.iova.lock()).give_back(self.at);
        }
    }
}

/// The ranges in the answer of VFIO_IOMMU_GET_INFO, after the struct itself.
fn ranges(container: &File) -> io::Result<Vec<(u64, u64)>> {
    const HEAD: usize = size_of::<abi::vfio_iommu_type1_info>();
    let mut words = vec![0u64; HEAD / 8];
    loop {
        let room = words.len() * 8;
        let info = words.as_mut_ptr().cast::<abi::vfio_iommu_type1_info>();
        // SAFETY: at least the struct, aligned.
        unsafe { (*info).argsz = room as u32 };
        // SAFETY: the call's own struct, followed by `argsz` bytes.
        unsafe { abi::with(container, abi::IOMMU_GET_INFO, info)? };
        // SAFETY: as above.
        let wanted = unsafe { (*info).argsz } as usize;
        if wanted <= room {
            break;
        }
        words = vec![0; wanted.min(1 << 20).div_ceil(8)];
        if wanted > 1 << 20 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // Kernels before 5.4 report no ranges: all of 48 bits but the interrupts' (Intel SDM, 11.11: 0xfee00000).
    let before = || vec![(0, 0xfedf_ffff), (0xfef0_0000, (1 << 48) - 1)];
    Ok(ranges_of(&bytes).unwrap_or_else(before))
}

/// The chain of capabilities: `vfio_info_cap_header` is id (u16), version (u16), next (u32, from the begin of the whole).
fn ranges_of(bytes: &[u8]) -> Option<Vec<(u64, u64)>> {
    let u16_at = |at: usize| Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?));
    let u32_at = |at: usize| Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?));
    let u64_at = |at: usize| Some(u64::from_ne_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?));
    if u32_at(4)? & abi::VFIO_IOMMU_INFO_CAPS == 0 {
        return None;
    }
    let mut at = u32_at(16)? as usize;
    while at != 0 {
        if u32::from(u16_at(at)?) == abi::VFIO_IOMMU_TYPE1_INFO_CAP_IOVA_RANGE {
            let count = u32_at(at + 8)? as usize;
            return (0..count).map(|i| Some((u64_at(at + 16 + 16 * i)?, u64_at(at + 24 + 16 * i)?))).collect();
        }
        // Only forwards: so a circular chain ends.
        at = Some(u32_at(at + 4)? as usize).filter(|next| *next == 0 || *next > at)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of VFIO_IOMMU_GET_INFO with two capabilities, the second of ranges.
    fn answer(next: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [72u32, abi::VFIO_IOMMU_INFO_CAPS, 0x1000, 0, 24, 0] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend([3, 0, 1, 0]);
        bytes.extend(next.to_ne_bytes());
        bytes.extend([0xff, 0xff, 0, 0, 0, 0, 0, 0]);
        bytes.extend([1, 0, 1, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        for word in [0u64, 0xfedf_ffff, 0xfef0_0000, 0xffff_ffff_ffff] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn ranges_are_found_after_other_capabilities() {
        let expected = vec![(0, 0xfedf_ffff), (0xfef0_0000, 0xffff_ffff_ffff)];
        assert_eq!(ranges_of(&answer(40)), Some(expected));
    }

    #[test]
    fn chains_that_lead_nowhere_end() {
        for next in [0, 24, 20, 70, 1000, u32::MAX] {
            assert_eq!(ranges_of(&answer(next)), None, "{next}");
        }
        for length in 0..answer(40).len() {
            let _ = ranges_of(&answer(40)[..length]);
        }
    }
}
