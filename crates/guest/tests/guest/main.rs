//! `pcie::sysfs` and `pcie::vfio` in a real Linux: QEMU boots a Debian kernel, whose first program (`guest-init`) drives QEMU's devices and says
//! what worked.

mod cpio;
mod kernel;
mod machine;

use kernel::Kernel;
use machine::Guest;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(240);

/// Boots the guest and holds what it said against how many checks there are. A check that is taken away is to be taken away here, too.
fn passes(guest: &Guest, needed: &[&str], checks: usize) {
    for program in ["qemu-system-x86_64", "busybox", "ldd"] {
        if !trial::installed(program) {
            trial::skip!("no {program}");
        }
    }
    let Some(kernel) = Kernel::find() else {
        trial::skip!("no kernel for the guest: .ci/run unpacks Debian's linux-image below target/guest-kernel");
    };
    if let Some(option) = needed.iter().find(|option| !kernel.is_set(option)) {
        trial::skip!("{} has no {option}", kernel.image.display());
    }
    let mut said = guest.run(&kernel);
    if said.ended && said.lines.is_empty() {
        // The kernel stopped before our program began, so nothing of ours was tested.
        eprintln!("the kernel did not start; once more. {}", said.console);
        said = guest.run(&kernel);
    }
    eprintln!("{}: {:.1} s with {}", guest.part, said.took.as_secs_f64(), kernel.image.display());
    said.lines.iter().for_each(|line| eprintln!("  {line}"));
    let tail: Vec<&str> = said.console.lines().rev().take(40).collect();
    let tail = || tail.iter().rev().copied().collect::<Vec<_>>().join("\n") + "\n" + &said.errors;
    assert!(said.ended, "still running after {LIMIT:?}; its console ends so:\n{}", tail());
    let wrong: Vec<&String> = said.lines.iter().filter(|line| line.starts_with("not ok")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}\n{}", tail());
    assert_eq!(said.lines.last().map(String::as_str), Some("end"), "it stopped early:\n{}", tail());
    assert_eq!(said.lines.iter().filter(|line| line.starts_with("ok ")).count(), checks);
}

/// Drives of two formats, and one with a partition that holds swap space; edu; the memory of another device.
const DEVICES: [&str; 10] = [
    "-device",
    "edu,addr=06.0,dma_mask=0xffffffffffffffff",
    "-device",
    "ivshmem-plain,memdev=peer,addr=05.0",
    "-device",
    "nvme,drive=d0,serial=d0,addr=08.0",
    "-device",
    "nvme,drive=d1,serial=d1,addr=09.0,logical_block_size=4096,physical_block_size=4096",
    "-device",
    "nvme,id=d2,drive=d2,serial=d2,addr=0a.0",
];

/// A port for the last drive, and what `DEVICES` has beside it: as on a real board.
const PORT: [&str; 2] = ["-device", "pcie-root-port,id=rp0,addr=03.0,chassis=1"];

/// The checks of both machines without an IOMMU.
const WITHOUT: usize = 31;

#[test]
#[ignore = "boots a machine without KVM: 20 s; run by .ci/run"]
fn functions_are_driven_through_sysfs_without_an_iommu() {
    let devices = [&PORT[..], &DEVICES[..9], &["nvme,id=d2,drive=d2,serial=d2,bus=rp0"]].concat();
    // With a huge page of 1 GiB beside those of 2 MiB.
    let machine = ["-machine", "q35", "-cpu", "qemu64,+pdpe1gb", "-m", "2304M"];
    let kernel_line = "hugepagesz=1G hugepages=1";
    passes(&Guest { part: "sysfs", machine: &machine, devices: &devices, kernel_line, limit: LIMIT }, &[], WITHOUT);
}

#[test]
#[ignore = "boots a machine without KVM: 20 s; run by .ci/run"]
fn functions_are_driven_through_sysfs_on_a_machine_of_conventional_pci() {
    let machine = ["-machine", "pc", "-m", "768M"];
    passes(&Guest { part: "sysfs", machine: &machine, devices: &DEVICES, kernel_line: "", limit: LIMIT }, &[], WITHOUT);
}

#[test]
#[ignore = "boots a machine without KVM: 20 s; run by .ci/run"]
fn functions_are_driven_through_vfio_behind_an_iommu() {
    let devices = [&PORT[..], &DEVICES[..9], &["nvme,id=d2,drive=d2,serial=d2,bus=rp0"]].concat();
    let machine = ["-machine", "q35", "-m", "768M", "-device", "intel-iommu,intremap=on"];
    let kernel_line = "intel_iommu=on iommu=nopt";
    passes(&Guest { part: "vfio", machine: &machine, devices: &devices, kernel_line, limit: LIMIT }, &[], 30);
}

#[test]
#[ignore = "boots a machine without KVM: 20 s; run by .ci/run"]
fn functions_are_driven_through_iommufd() {
    let machine = ["-machine", "q35", "-m", "768M", "-device", "intel-iommu,intremap=on"];
    let kernel_line = "intel_iommu=on iommu=nopt";
    let guest = Guest { part: "iommufd", machine: &machine, devices: &DEVICES, kernel_line, limit: LIMIT };
    passes(&guest, &["CONFIG_IOMMUFD", "CONFIG_VFIO_DEVICE_CDEV"], 12);
}
