//! `pcie::sysfs` and `pcie::vfio` in a real Linux: QEMU boots a Debian kernel, whose first program (`guest-init`) drives QEMU's devices and reports
//! what worked.

mod cpio;
mod kernel;
mod machine;

use kernel::Kernel;
use machine::Guest;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(240);

/// Boots the guest and compares the number of reported checks. If a check is removed, the number here must change, too.
fn passes(guest: &Guest, checks: usize, resets: &[Reset]) {
    for program in ["qemu-system-x86_64", "busybox", "ldd"] {
        if !test_support::installed(program) {
            test_support::skip!("no {program}");
        }
    }
    let Some(kernel) = Kernel::find() else {
        test_support::skip!("no kernel for the guest: .ci/run unpacks Debian's linux-image below target/guest-kernel");
    };
    let mut said = guest.run(&kernel);
    if said.ended && said.lines.is_empty() {
        // The kernel stopped before guest-init began, so no test ran.
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
    for (mark, device, at, mask, values) in resets {
        assert!(said.configured(*mark, device, *at, *mask, values), "{device} was not reset by {at:#x}");
    }
}

/// Drives of two formats; edu; the memory of another device; a network card that has power states and no function-level reset.
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
    "e1000e,addr=0c.0,romfile=",
];

/// A drive with a partition that holds swap space, and one with blocks that fail.
const ON_THE_BUS: [&str; 4] =
    ["-device", "nvme,id=d2,drive=d2,serial=d2,addr=0a.0", "-device", "nvme,drive=d3,serial=d3,addr=0b.0"];

/// The same in slots, as on a real board.
const IN_SLOTS: [&str; 8] = [
    "-device",
    "pcie-root-port,id=rp0,addr=03.0,chassis=1",
    "-device",
    "nvme,id=d2,drive=d2,serial=d2,bus=rp0",
    "-device",
    "pcie-root-port,id=rp1,addr=04.0,chassis=2,x-speed=5",
    "-device",
    "nvme,drive=d3,serial=d3,bus=rp1",
];

/// What resets a drive by a function-level reset (device control, after 0x80), a network card by its power states (from 0xc8 on), a slot by its
/// port (bridge control). The fields: the mark of `checks::through::reset_by`, the device that is written to, the place, the mask, and the values.
type Reset = (u8, &'static str, u16, u32, &'static [u32]);
const FLR: Reset = (0x11, "nvme", 0x88, 1 << 15, &[1 << 15]);
const POWER_STATES: Reset = (0x22, "e1000e", 0xcc, 3, &[3, 0]);
const PORT: Reset = (0x33, "pcie-root-port", 0x3e, 1 << 6, &[1 << 6, 0]);

#[test]
#[ignore = "boots a machine without KVM: a minute; run by .ci/run"]
fn functions_are_driven_through_sysfs_without_an_iommu() {
    let devices = [&DEVICES[..], &IN_SLOTS].concat();
    let machine = ["-machine", "q35", "-m", "768M"];
    let guest = Guest { part: "sysfs", machine: &machine, devices: &devices, kernel_line: "", limit: LIMIT };
    passes(&guest, 41, &[FLR, POWER_STATES, PORT]);
}

#[test]
#[ignore = "boots a machine without KVM: a minute; run by .ci/run --long"]
fn long_functions_are_driven_through_sysfs_on_a_machine_of_conventional_pci() {
    let machine = ["-machine", "pc", "-m", "768M"];
    let devices = [&DEVICES[..], &ON_THE_BUS].concat();
    let guest = Guest { part: "sysfs", machine: &machine, devices: &devices, kernel_line: "", limit: LIMIT };
    passes(&guest, 39, &[FLR, POWER_STATES]);
}

#[test]
#[ignore = "boots a machine without KVM: a minute; run by .ci/run"]
fn functions_are_driven_through_vfio_with_an_iommu() {
    let devices = [&DEVICES[..], &IN_SLOTS].concat();
    let machine = ["-machine", "q35", "-m", "768M", "-device", "intel-iommu,intremap=on"];
    let kernel_line = "intel_iommu=on iommu=nopt";
    let guest = Guest { part: "vfio", machine: &machine, devices: &devices, kernel_line, limit: LIMIT };
    passes(&guest, 39, &[FLR, POWER_STATES, PORT]);
}

#[test]
#[ignore = "boots a machine without KVM and kills fifty programs in it: minutes"]
fn long_fifty_programs_are_killed_while_they_drive() {
    let devices = [&DEVICES[..], &ON_THE_BUS].concat();
    let machine = ["-machine", "q35", "-m", "768M"];
    let guest = Guest { part: "kills", machine: &machine, devices: &devices, kernel_line: "", limit: LIMIT };
    passes(&guest, 5, &[]);
}
