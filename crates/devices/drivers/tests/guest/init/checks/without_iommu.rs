//! Through sysfs, on a machine without an IOMMU.

use super::{binding, drivers, faults, killed, many, rights, through, used};
use crate::devices;
use crate::report::{Outcome, check, ensure};
use pcie::bind::{To, Word};
use pcie::{Address, Function, Tree, bind, sysfs, vfio};
use std::fs;

/// Reads and writes of programs that are killed, fifty times.
pub fn kills() -> Outcome {
    let drive = *devices::find(devices::NVME)?.first().ok_or("no drive")?;
    for round in 1..=5 {
        check(&format!("kills {}", 10 * round), || killed::while_driving(drive, 10));
    }
    Ok(())
}

pub fn run() -> Outcome {
    let (edu, ivshmem) = (devices::one(devices::EDU)?, devices::one(devices::IVSHMEM)?);
    let drives = devices::find(devices::NVME)?;
    let [drive, large_blocks, with_partition, failing] = drives[..] else {
        return Err(format!("drives: {drives:?}").into());
    };
    check("sysfs registers", || through::registers(&sysfs::open(edu)?));
    check("sysfs missing bars", || through::missing_bars(&sysfs::open(edu)?));
    check("sysfs configuration", || through::configuration(&sysfs::open(edu)?));
    check("sysfs host dma", || through::host_dma(&sysfs::open(edu)?));
    check("sysfs memory can be allocated again", || through::memory_comes_back(&sysfs::open(edu)?));
    check("sysfs pieces are separate", || through::pieces_are_apart(&sysfs::open(edu)?));
    check("sysfs peer dma", || through::peer_dma(&sysfs::open(edu)?, &sysfs::open(ivshmem)?));
    check("sysfs puts the command register back", || command_register(edu));
    check("sysfs too few huge pages", || {
        through::refused(sysfs::open(edu)?.allocate(1 << 30).map(drop), &["reserve 512 more"])
    });
    check("sysfs no huge pages", || no_huge_pages(edu));
    check("sysfs refuses a second opening", || {
        let _first = sysfs::open(edu)?;
        through::refused(sysfs::open(edu), &["a program drives it already"])
    });
    check("sysfs killed", || killed::with_sysfs(edu));

    check("sysfs stuck", || killed::stuck(edu));
    check("sysfs killed while it drives", || killed::while_driving(drive, 2));

    check("sysfs refuses a bound function", || {
        through::refused(sysfs::open(drive), &["the kernel's driver nvme has it", "--bind"])
    });
    check("vfio refuses without an iommu", || through::refused(vfio::open(edu), &["there is no IOMMU for it"]));
    check("bind refuses vfio without an iommu", || {
        let word = Word::TakeIt;
        through::refused(bind::take(&Tree::default(), drive, To::Vfio, word), &["no IOMMU", "sysfs"])
    });
    check("bind refuses drives in use", || used::drives(drive));
    check("bind takes and gives back", || binding::to_nobody_and_back(drive));
    check("sysfs drive with a partition", || {
        let bound = bind::take(&Tree::default(), with_partition, To::Nobody, Word::TakeIt)?;
        through::drive(&sysfs::open(bound.address())?)
    });
    for (name, drive, block) in [("512", drive, 512), ("4096", large_blocks, 4096)] {
        check(&format!("sysfs blocks of {name}"), || {
            let bound = bind::take(&Tree::default(), drive, To::Nobody, Word::None)?;
            drivers::blocks(Box::new(sysfs::open(bound.address())?), block, Some(&sysfs::open(ivshmem)?))
        });
        check(&format!("sysfs blocks of {name} seen by the kernel"), || drivers::seen_by_the_kernel(drive));
    }
    let take = |drive| bind::take(&Tree::default(), drive, To::Nobody, Word::None);
    for (name, drive) in [("512", drive), ("4096", large_blocks)] {
        check(&format!("sysfs random mix of {name}"), || {
            let bound = take(drive)?;
            let left = many::mix(Box::new(sysfs::open(drive)?), many::MIXED)?;
            drop(bound);
            drivers::kernel_reads(drive, many::BASE, &left)
        });
    }
    let taken = || take(drive);
    check("sysfs blocks that fail", || {
        let bound = take(failing)?;
        let (from, left) = faults::failing(Box::new(sysfs::open(failing)?))?;
        drop(bound);
        drivers::kernel_reads(failing, from, &left)
    });
    check("sysfs late commands", || {
        let _bound = taken()?;
        faults::late(Box::new(sysfs::open(drive)?))
    });
    check("sysfs reset in flight", || {
        let _bound = taken()?;
        faults::reset(Box::new(sysfs::open(drive)?))
    });
    check("sysfs reset in flight by another", || {
        let _bound = taken()?;
        faults::reset_by_another(drive, Box::new(sysfs::open(drive)?))
    });
    check("sysfs reset by flr", || {
        let _bound = taken()?;
        let drive = sysfs::open(drive)?;
        through::reset_by(&drive, "flr", 0x11, || through::drive(&drive))
    });
    check("sysfs reset by power states", || {
        let card = sysfs::open(devices::one(devices::E1000E)?)?;
        through::reset_by(&card, "pm", 0x22, || through::power_states(&card))
    });
    if devices::slot(failing).is_some() {
        check("sysfs reset by its port", || {
            let _bound = take(failing)?;
            let drive = sysfs::open(failing)?;
            through::reset_by(&drive, "bus", 0x33, || through::drive(&drive))
        });
    }
    check("sysfs removal in flight", || {
        let bound = taken()?;
        faults::removal(drive, Box::new(sysfs::open(drive)?))?;
        drop(bound);
        binding::is_the_kernels(drive)
    });
    check("sysfs card", || drivers::card(Box::new(sysfs::open(edu)?), &sysfs::open(ivshmem)?));
    check("sysfs pulled out with commands in flight", || {
        let bound = bind::take(&Tree::default(), with_partition, To::Nobody, Word::TakeIt)?;
        faults::pulled_out(with_partition, Box::new(sysfs::open(bound.address())?))
    });
    if devices::slot(failing).is_some() {
        check("sysfs power cut with commands in flight", || {
            let _bound = take(failing)?;
            faults::vanished(failing, Box::new(sysfs::open(failing)?))
        });
    }
    check("sysfs removal", || removal(edu));
    check("sysfs refuses other users", || rights::not_root(edu));
    check("sysfs hidden addresses", || rights::hidden_addresses(edu));
    check("sysfs refuses a kernel that is locked down", || rights::lockdown(edu));
    Ok(())
}

fn command(at: Address) -> Result<u8, Box<dyn std::error::Error>> {
    Ok(fs::read(format!("/sys/bus/pci/devices/{at}/config"))?[4])
}

fn command_register(edu: Address) -> Outcome {
    let before = command(edu)?;
    let device = sysfs::open(edu)?;
    let open = command(edu)?;
    ensure(open & 6 == 2, || format!("{open:#x} when it is open"))?;
    device.master()?;
    let master = command(edu)?;
    ensure(master & 6 == 6, || format!("{master:#x} when it may master the bus"))?;
    drop(device);
    let after = command(edu)?;
    ensure(after == before & !4, || format!("{before:#x} before, {after:#x} after"))
}

/// The error explains how to get some.
fn no_huge_pages(edu: Address) -> Outcome {
    let path = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";
    let before = fs::read_to_string(path)?;
    let device = sysfs::open(edu)?;
    fs::write(path, "0")?;
    let later = device.allocate(4096).map(drop);
    drop(device);
    let at_once = sysfs::open(edu).map(drop);
    fs::write(path, before.trim())?;
    let command = format!("echo $(( $(cat {path}) + 1 ))");
    through::refused(later, &[&command])?;
    through::refused(at_once, &[&command])?;
    sysfs::open(edu)?.allocate(4096).map(drop).map_err(Into::into)
}

/// A function that is pulled out while it is open.
fn removal(edu: Address) -> Outcome {
    let device = sysfs::open(edu)?;
    let bar = device.bar(0)?;
    fs::write(format!("/sys/bus/pci/devices/{edu}/remove"), "1")?;
    ensure(!device.is_present(), || "it is taken for present".into())?;
    let mut ids = [0; 4];
    let read = device.read_config(0, &mut ids);
    ensure(read.is_err() || ids == [0xff; 4], || format!("configuration reads as {ids:x?}"))?;
    ensure(device.bar(0).is_err(), || "its BAR was mapped again".into())?;
    // Its registers stay mapped (since Linux 5.12), so an access does not end the process. The card is still in its slot, so it answers.
    ensure(bar.load32(0) & 0xff == 0xed, || format!("its register reads as {:#x}", bar.load32(0)))?;
    drop((bar, device));
    fs::write("/sys/bus/pci/rescan", "1")?;
    through::registers(&sysfs::open(edu)?)
}
