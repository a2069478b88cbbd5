//! Through sysfs, on a machine without an IOMMU.

use super::through;
use crate::devices;
use crate::report::check;

pub fn run() {
    let edu = match devices::one(devices::EDU) {
        Ok(edu) => edu,
        Err(why) => return crate::report::line(&format!("not ok edu {why}")),
    };
    check("sysfs registers", || through::registers(&pcie::sysfs::open(edu)?));
    check("sysfs missing bars", || through::missing_bars(&pcie::sysfs::open(edu)?));
    check("sysfs configuration", || through::configuration(&pcie::sysfs::open(edu)?));
    check("sysfs host dma", || through::host_dma(&pcie::sysfs::open(edu)?));
    check("sysfs memory comes back", || through::memory_comes_back(&pcie::sysfs::open(edu)?));
    check("sysfs pieces are apart", || through::pieces_are_apart(&pcie::sysfs::open(edu)?));
}
