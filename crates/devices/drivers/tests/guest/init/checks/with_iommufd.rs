//! Through vfio's newer way: a device's own file and iommufd.

use super::{drivers, through, with_iommu};
use crate::devices;
use crate::report::{Outcome, check};
use pcie::bind::{To, Word};
use pcie::{Function, Tree, bind, vfio};

pub fn run() -> Outcome {
    let (edu, ivshmem) = (devices::one(devices::EDU)?, devices::one(devices::IVSHMEM)?);
    let drive = devices::find(devices::NVME)?.first().copied().ok_or("no drive")?;
    let tree = Tree::default();
    let open = vfio::open_by_iommufd;
    let _bound = [edu, ivshmem].into_iter().map(|at| bind::take(&tree, at, To::Vfio, Word::None));
    let _bound = _bound.collect::<Result<Vec<_>, _>>()?;
    check("iommufd registers", || through::registers(&open(edu)?));
    check("iommufd missing bars", || through::missing_bars(&open(edu)?));
    check("iommufd configuration", || through::configuration(&open(edu)?));
    check("iommufd host dma", || through::host_dma(&open(edu)?));
    check("iommufd memory can be allocated again", || through::memory_comes_back(&open(edu)?));
    check("iommufd pieces are separate", || through::pieces_are_apart(&open(edu)?));
    check("iommufd unmaps", || with_iommu::unmaps(&open(edu)?));
    check("iommufd keeps memory after the function", || with_iommu::outlives(open(edu)?));
    check("iommufd refuses a second opening", || {
        let _first = open(edu)?;
        through::refused(open(edu), &["a program drives it already"])
    });
    // It maps memory, and no BARs.
    check("iommufd refuses peers", || {
        let (edu, other) = (open(edu)?, open(ivshmem)?);
        let peer = other.bar(2)?.peer("ivshmem", ivshmem);
        through::refused(edu.reach(&peer), &["cannot reach ivshmem", "the kernel does not map it", "path [B]"])
    });
    check("iommufd blocks", || {
        let bound = bind::take(&tree, drive, To::Vfio, Word::None)?;
        drivers::blocks(Box::new(open(bound.address())?), 512, None)
    });
    check("iommufd blocks seen by the kernel", || drivers::seen_by_the_kernel(drive));
    Ok(())
}
