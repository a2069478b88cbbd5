//! Taking functions from their drivers and giving them back, also when the process that took them is killed.

use super::through;
use crate::report::{Outcome, ensure};
use pcie::bind::{self, To, Word};
use pcie::{Address, Tree, sysfs, vfio};
use std::ffi::CString;
use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until it holds.
pub fn until(what: &str, holds: impl Fn() -> bool) -> Outcome {
    let started = Instant::now();
    while !holds() {
        ensure(started.elapsed() < PATIENCE, || format!("{what}: not after {PATIENCE:?}"))?;
        sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The kernel's driver has it, and shows its namespace.
pub fn is_the_kernels(drive: Address) -> Outcome {
    let tree = Tree::default();
    until("the driver nvme has it", || tree.driver(drive).as_deref() == Some("nvme"))?;
    until("its namespace is there", || !bind::disks(&tree, drive).is_empty())?;
    let folder = format!("/sys/bus/pci/devices/{drive}");
    let over = fs::read_to_string(format!("{folder}/driver_override"))?;
    ensure(over.trim() == "(null)", || format!("its override is {over:?}"))
}

pub fn to_nobody_and_back(drive: Address) -> Outcome {
    is_the_kernels(drive)?;
    let bound = bind::take(&Tree::default(), drive, To::Nobody, Word::None)?;
    ensure(bound.before() == Some("nvme"), || format!("before: {:?}", bound.before()))?;
    ensure(Tree::default().driver(drive).is_none(), || "it has a driver still".into())?;
    through::drive(&sysfs::open(drive)?)?;
    drop(bound);
    is_the_kernels(drive)
}

pub fn to_vfio_and_back(drive: Address) -> Outcome {
    is_the_kernels(drive)?;
    ensure(To::fitting(&Tree::default(), drive) == To::Vfio, || "vfio does not fit".into())?;
    let bound = bind::take(&Tree::default(), drive, To::Vfio, Word::None)?;
    let device = vfio::open(drive)?;
    through::drive(&device)?;
    drop(device);
    drop(bound);
    is_the_kernels(drive)
}

/// The harness has put a partition on this drive, and swap space on that.
pub fn in_use(drive: Address) -> Outcome {
    is_the_kernels(drive)?;
    let tree = Tree::default();
    let disk = bind::disks(&tree, drive).remove(0);
    let partition = format!("{disk}p1");
    until("its partition is there", || Path::new(&format!("/dev/{partition}")).exists())?;
    let take = |word| bind::take(&tree, drive, To::Vfio, word);
    through::refused(take(Word::None), &[&format!("{partition} is a partition")])?;

    let path = CString::new(format!("/dev/{partition}"))?;
    // SAFETY: a text that ends with a zero byte.
    let on = unsafe { libc::swapon(path.as_ptr(), 0) };
    ensure(on == 0, || format!("swapon: {}", std::io::Error::last_os_error()))?;
    let refused = through::refused(take(Word::None), &[&format!("{partition} is swap space")]);
    // SAFETY: as above.
    unsafe { libc::swapoff(path.as_ptr()) };
    refused?;
    ensure(tree.driver(drive).as_deref() == Some("nvme"), || "it was taken".into())?;

    drop(take(Word::TakeIt)?);
    is_the_kernels(drive)
}
