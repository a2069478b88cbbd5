//! Through vfio, on a machine with an IOMMU.

use super::{binding, drivers, faults, killed, many, through};
use crate::devices::{self, Edu, contents, pattern};
use crate::report::{Outcome, check, ensure};
use pcie::bind::{To, Word};
use pcie::peers::Machine;
use pcie::{Address, Function, Peer, Tree, bind, sysfs, vfio};
use std::fs;
use std::sync::Arc;

pub fn run() -> Outcome {
    let (edu, ivshmem) = (devices::one(devices::EDU)?, devices::one(devices::IVSHMEM)?);
    let drives = devices::find(devices::NVME)?;
    let [drive, large_blocks, in_use, failing] = drives[..] else { return Err(format!("drives: {drives:?}").into()) };
    let tree = Tree::default();
    check("sysfs refuses translation", || through::refused(sysfs::open(edu), &["translates", "iommu=pt"]));
    check("vfio refuses functions that are not bound to it", || {
        through::refused(vfio::open(edu), &["not bound to vfio-pci"])
    });
    check("vfio refuses a bound function", || {
        through::refused(vfio::open(drive), &["the kernel's driver nvme has it"])
    });
    check("sysfs where the iommu passes through", || passes_through(edu, ivshmem));

    let bound = [edu, ivshmem].map(|at| bind::take(&tree, at, To::Vfio, Word::None));
    check("bind to vfio", || {
        bound.iter().try_for_each(|bound| ensure(bound.is_ok(), || format!("{:?}", bound.as_ref().err())))
    });
    check("vfio registers", || through::registers(&vfio::open(edu)?));
    check("vfio missing bars", || through::missing_bars(&vfio::open(edu)?));
    check("vfio configuration", || through::configuration(&vfio::open(edu)?));
    check("vfio host dma", || through::host_dma(&vfio::open(edu)?));
    check("vfio memory can be allocated again", || through::memory_comes_back(&vfio::open(edu)?));
    check("vfio pieces are separate", || through::pieces_are_apart(&vfio::open(edu)?));
    check("vfio peer dma", || through::peer_dma(&vfio::open(edu)?, &vfio::open(ivshmem)?));
    check("vfio refuses other peers", || other_peers(edu, ivshmem));
    check("vfio unmaps", || unmaps(&vfio::open(edu)?));
    check("vfio keeps memory after the function", || {
        outlives(vfio::open(edu)?)?;
        // The group is shared by openings of this process.
        let (first, second) = (vfio::open(edu)?, vfio::open(ivshmem)?);
        through::registers(&first)?;
        through::peer_dma(&vfio::open(edu)?, &second)
    });
    check("sysfs refuses what vfio has", || through::refused(sysfs::open(edu), &["vfio-pci has it", "through vfio"]));
    check("bind to none refuses a function that vfio has", || {
        through::refused(bind::take(&tree, edu, To::Nobody, Word::TakeIt), &["vfio-pci has it"])
    });
    for (name, drive, block) in [("512", drive, 512), ("4096", large_blocks, 4096)] {
        check(&format!("vfio blocks of {name}"), || {
            let bound = bind::take(&tree, drive, To::Vfio, Word::None)?;
            drivers::blocks(Box::new(vfio::open(bound.address())?), block, Some(&vfio::open(ivshmem)?))
        });
        check(&format!("vfio blocks of {name} seen by the kernel"), || drivers::seen_by_the_kernel(drive));
    }
    let take = |drive| bind::take(&Tree::default(), drive, To::Vfio, Word::None);
    for (name, drive) in [("512", drive), ("4096", large_blocks)] {
        check(&format!("vfio random mix of {name}"), || {
            let bound = take(drive)?;
            let left = many::mix(Box::new(vfio::open(drive)?), many::MIXED)?;
            drop(bound);
            drivers::kernel_reads(drive, many::BASE, &left)
        });
    }
    let taken = || take(drive);
    check("vfio blocks that fail", || {
        let bound = take(failing)?;
        let (from, left) = faults::failing(Box::new(vfio::open(failing)?))?;
        drop(bound);
        drivers::kernel_reads(failing, from, &left)
    });
    check("vfio late commands", || {
        let _bound = taken()?;
        faults::late(Box::new(vfio::open(drive)?))
    });
    check("vfio reset in flight", || {
        let _bound = taken()?;
        faults::reset(Box::new(vfio::open(drive)?))
    });
    check("vfio reset in flight by another", || {
        let _bound = taken()?;
        faults::reset_by_another(drive, Box::new(vfio::open(drive)?))
    });
    check("vfio reset by flr", || {
        let _bound = taken()?;
        let drive = vfio::open(drive)?;
        through::reset_by(&drive, "flr", 0x11, || through::drive(&drive))
    });
    check("vfio reset by power states", || {
        let bound = take(devices::one(devices::E1000E)?)?;
        let card = vfio::open(bound.address())?;
        through::reset_by(&card, "pm", 0x22, || through::power_states(&card))
    });
    check("vfio reset by its port", || {
        let _bound = take(failing)?;
        let drive = vfio::open(failing)?;
        through::reset_by(&drive, "bus", 0x33, || through::drive(&drive))
    });
    check("vfio removal in flight", || {
        let bound = taken()?;
        faults::removal(drive, Box::new(vfio::open(drive)?))?;
        drop(bound);
        binding::is_the_kernels(drive)
    });
    check("vfio card", || drivers::card(Box::new(vfio::open(edu)?), &vfio::open(ivshmem)?));
    check("vfio removal", || removal(edu));
    drop(bound);
    check("bind gives back to no driver", || {
        for at in [edu, ivshmem] {
            ensure(tree.driver(at).is_none(), || format!("{at} is bound to {:?}", tree.driver(at)))?;
        }
        Ok(())
    });

    check("bind refuses a drive in use", || binding::in_use(in_use));
    check("vfio drive", || binding::to_vfio_and_back(drive));
    check("vfio killed", || killed::with_vfio(drive));
    check("vfio power cut with commands in flight", || {
        let _bound = take(failing)?;
        faults::vanished(failing, Box::new(vfio::open(failing)?))
    });
    check("vfio pulled out with commands in flight", || {
        let _bound = bind::take(&tree, in_use, To::Vfio, Word::TakeIt)?;
        faults::asked_for(in_use, Box::new(vfio::open(in_use)?))
    });
    Ok(())
}

/// The group's type can be changed while all its functions are unused.
fn passes_through(edu: Address, ivshmem: Address) -> Outcome {
    let types = [edu, ivshmem].map(|at| {
        let group = Tree::default().iommu_group(at).unwrap_or_default();
        format!("/sys/kernel/iommu_groups/{group}/type")
    });
    let before: Vec<String> = types.iter().map(fs::read_to_string).collect::<Result<_, _>>()?;
    judged(edu, ivshmem, &["translation"])?;
    types.iter().try_for_each(|path| fs::write(path, "identity"))?;
    let checked = || {
        judged(edu, ivshmem, &[])?;
        let edu = sysfs::open(edu)?;
        through::host_dma(&edu)?;
        through::peer_dma(&edu, &sysfs::open(ivshmem)?)
    };
    let result: Outcome = checked();
    types.iter().zip(before).try_for_each(|(path, kind)| fs::write(path, kind.trim()))?;
    result
}

/// What `doctor` reports about the pair before anything is tried: these obstacles, and the doubt because of a virtual machine.
fn judged(edu: Address, ivshmem: Address, obstacles: &[&str]) -> Outcome {
    let pair = Machine::this()?.between(edu, ivshmem).ok_or("the pair is not listed")?;
    let found: Vec<&str> = pair.obstacles.iter().map(|one| one.what).collect();
    ensure(found == obstacles, || format!("{:?}", pair.obstacles))?;
    ensure(pair.doubts.iter().any(|one| one.what == "guest"), || format!("{:?}", pair.doubts))?;
    ensure(pair.needs.is_empty(), || format!("{:?}", pair.needs))
}

/// Memory that was not mapped through vfio is not reached.
fn other_peers(edu: Address, ivshmem: Address) -> Outcome {
    let (device, other) = (vfio::open(edu)?, vfio::open(ivshmem)?);
    let bar = other.bar(2)?;
    let mut peer = Peer { keep: Arc::new(()), ..bar.peer("GPU 0", ivshmem) };
    through::refused(device.reach(&peer).map(drop), &["cannot reach GPU 0", "path [B]"])?;
    // Beyond the BAR, and parts of pages.
    for (bus, length) in [(bar.bus_address() - 4096, 4096), (bar.bus_address(), 4097), (bar.bus_address() + 8, 4096)] {
        peer = Peer { bus, length, ..bar.peer("ivshmem", ivshmem) };
        through::refused(device.reach(&peer).map(drop), &["whole pages within its BAR"])?;
    }
    Ok(())
}

/// Dropped memory is no longer reached: edu does not read its bytes, and does not store there.
pub fn unmaps(function: &dyn Function) -> Outcome {
    let device = Edu::new(function)?;
    let (kept, dropped) = (function.allocate(8192)?, function.allocate(4096)?);
    let (sent, other) = (pattern(7, 256), pattern(8, 256));
    dropped.store(0, &sent)?;
    let stale = dropped.bus(0)?.0;
    device.fetch(&dropped, 0, 256)?;
    drop(dropped);
    // edu's buffer has the first pattern; a fetch that the IOMMU stops must not bring it other bytes of memory.
    kept.store(0, &other)?;
    device.dma(0x40000, stale, 256, 2)?;
    let now = contents(&kept, 0, 256)?;
    ensure(now == other, || "a store to an unmapped address changed other memory".into())?;
    let again = function.allocate(4096)?;
    ensure(again.bus(0)?.0 == stale, || "a freed address is not reused".into())?;
    ensure(contents(&again, 0, 4096)?.iter().all(|byte| *byte == 0), || "new memory is not zeroed".into())
}

/// Memory and BARs stay valid when the function is dropped first.
pub fn outlives(function: vfio::Device) -> Outcome {
    let (memory, bar) = (function.allocate(3 << 20)?, function.bar(0)?);
    memory.store(0x20_0000, &[9; 64])?;
    drop(function);
    ensure(contents(&memory, 0x20_0000, 64)? == [9; 64], || "the memory changed".into())?;
    ensure(bar.load32(0) & 0xff == 0xed, || "the BAR is gone".into())
}

/// The function is removed while it is open: it reports that, and the removal completes as soon as it is closed.
fn removal(edu: Address) -> Outcome {
    let folder = format!("/sys/bus/pci/devices/{edu}");
    let device = vfio::open(edu)?;
    let (memory, bar) = (device.allocate(4096)?, device.bar(0)?);
    ensure(device.is_present(), || "it is taken for gone".into())?;
    let remove = format!("{folder}/remove");
    let other = std::thread::spawn(move || fs::write(remove, "1"));
    binding::until("the kernel requests the removal", || !device.is_present())?;
    ensure(fs::exists(&folder)? && !other.is_finished(), || "it was taken out while it was open".into())?;
    drop((device, bar, memory));
    other.join().map_err(|_| "the thread panicked")??;
    ensure(!fs::exists(&folder)?, || "it is there still".into())?;
    fs::write("/sys/bus/pci/rescan", "1")?;
    let bound = bind::take(&Tree::default(), edu, To::Vfio, Word::None)?;
    through::registers(&vfio::open(bound.address())?)
}
