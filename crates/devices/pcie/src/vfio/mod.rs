//! Functions behind an IOMMU, through the kernel's vfio-pci: a device reaches only memory that is mapped for it.
//!
//! By groups and containers (type 1), because only these can map another device's BAR. A kernel with iommufd alone is refused.

mod abi;
mod group;
mod iova;
mod removal;
mod space;

use crate::address::Address;
use crate::bar::{Bar, Registers};
use crate::error::Error;
use crate::function::{Function, Identity};
use crate::identity::{self, COMMAND, MASTER, MEMORY};
use crate::mapped::Mapped;
use crate::memory::{Memory, Peer, Place, Run};
use crate::sysfs::resource;
use crate::tree::Tree;
use removal::Removal;
use space::Space;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

const PAGE: u64 = 4096;
const HUGE: u64 = 2 << 20;
/// The revision and the class code after it, in configuration space.
const CLASS: u16 = 8;

/// Opens a function that is bound to vfio-pci.
///
/// # Errors
/// [`Error::Refused`] with the obstacle and the remedy; [`Error::System`].
pub fn open(address: Address) -> Result<Device, Error> {
    let tree = Tree::default();
    if let Some((why, hint)) = reason(&tree, address) {
        return Err(Error::Refused { address, why, hint });
    }
    let (file, space) = group::open(&tree, address)?;
    Device::new(&tree, address, file, space)
}

/// Obstacles that are visible before anything is opened.
fn reason(tree: &Tree, address: Address) -> Option<(String, String)> {
    if !tree.exists(address) {
        return Some(("there is no such function".into(), "see `lspci -D`".into()));
    }
    let Some(group) = tree.iommu_group(address) else {
        let hint =
            "turn the IOMMU on (firmware; intel_iommu=on), or take vfio-pci off the function and say --without-iommu";
        return Some(("there is no IOMMU for it".into(), hint.into()));
    };
    if tree.path(format!("dev/vfio/noiommu-{group}")).exists() {
        let hint = "turn the IOMMU on, or take vfio-pci off the function and say --without-iommu";
        return Some(("vfio has it without an IOMMU, so it cannot map memory".into(), hint.into()));
    }
    match tree.driver(address) {
        Some(driver) if driver == "vfio-pci" && !tree.path("dev/vfio/vfio").exists() => {
            let hint = "use a kernel with CONFIG_VFIO_GROUP and CONFIG_VFIO_CONTAINER, or load the module vfio";
            Some(("this kernel has no vfio groups (/dev/vfio/vfio)".into(), hint.into()))
        }
        Some(driver) if driver == "vfio-pci" => None,
        Some(driver) => {
            let hint = "--bind takes it from that driver, after listing what would be lost";
            Some((format!("the kernel's driver {driver} has it"), hint.into()))
        }
        None => Some(("it is not bound to vfio-pci".into(), "--bind does that".into())),
    }
}

/// One region of a device's file.
#[derive(Clone, Copy, Debug)]
struct Region {
    flags: u32,
    size: u64,
    offset: u64,
}

/// A function, opened through vfio.
pub struct Device {
    address: Address,
    identity: Identity,
    functional: bool,
    tree: Tree,
    file: Arc<File>,
    space: Arc<Space>,
    config: Region,
    removal: Option<Removal>,
    /// What the command register was before.
    command: u16,
}

impl Device {
    fn new(tree: &Tree, address: Address, file: File, space: Arc<Space>) -> Result<Device, Error> {
        let config = region(&file, abi::VFIO_PCI_CONFIG_REGION_INDEX)
            .map_err(|why| Error::system(format!("find {address}'s configuration space"), why))?;
        let mut head = [0; 64];
        file.read_exact_at(&mut head, config.offset)
            .map_err(|why| Error::system(format!("read {address}'s configuration space"), why))?;
        let identity = identity::parse(address, &head).ok_or(Error::Gone { address })?;
        let command = u16::from_le_bytes([head[4], head[5]]);
        let functional = identity::is_emulated(&head);
        let (tree, removal, file) = (tree.clone(), Removal::of(&file), Arc::new(file));
        let device = Device { address, identity, functional, tree, file, space, config, removal, command };
        // Mapped BARs fault if memory decoding is off.
        device.write_config(COMMAND, &(command & !MASTER | MEMORY).to_le_bytes())?;
        Ok(device)
    }

    fn within_config(&self, offset: u16, bytes: usize) -> Result<u64, Error> {
        let (at, end) = (u64::from(offset), u64::from(offset) + bytes as u64);
        if end > self.config.size {
            return Err(Error::OutOfBounds { what: "configuration space", at, end, length: self.config.size });
        }
        Ok(self.config.offset + at)
    }
}

fn region(file: &File, index: u32) -> io::Result<Region> {
    // SAFETY: plain numbers, for which zeros are values.
    let mut info: abi::vfio_region_info = unsafe { std::mem::zeroed() };
    info.argsz = size_of_val(&info) as u32;
    info.index = index;
    // SAFETY: the call's own struct.
    unsafe { abi::with(file, abi::DEVICE_GET_REGION_INFO, &raw mut info)? };
    Ok(Region { flags: info.flags, size: info.size, offset: info.offset })
}

impl Function for Device {
    fn identity(&self) -> Identity {
        self.identity
    }

    fn is_functional(&self) -> bool {
        self.functional
    }

    fn read_config(&self, offset: u16, into: &mut [u8]) -> Result<(), Error> {
        let at = self.within_config(offset, into.len())?;
        match self.file.read_exact_at(into, at) {
            Ok(()) => Ok(()),
            Err(why) if gone(&why) => {
                into.fill(0xff);
                Ok(())
            }
            Err(why) => Err(Error::system(format!("read {}'s configuration space", self.address), why)),
        }
    }

    fn write_config(&self, offset: u16, from: &[u8]) -> Result<(), Error> {
        let at = self.within_config(offset, from.len())?;
        let written = self.file.write_all_at(from, at);
        written.map_err(|why| Error::system(format!("write {}'s configuration space", self.address), why))
    }

    fn bar(&self, index: u8) -> Result<Bar, Error> {
        let no = |why: String| Error::NoBar { address: self.address, index, why };
        if index > 5 {
            return Err(no("there are BARs 0 to 5".into()));
        }
        let found = resource::read(&self.tree.function(self.address))?;
        let found = found.get(usize::from(index)).ok_or_else(|| no("the kernel does not list it".into()))?;
        found.usable().map_err(|why| no(why.into()))?;
        // BAR n is region n (VFIO_PCI_BAR0_REGION_INDEX is 0).
        let region = region(&self.file, index.into()).map_err(|why| no(why.to_string()))?;
        if region.size == 0 {
            return Err(no("vfio does not show it".into()));
        }
        if region.flags & abi::VFIO_REGION_INFO_FLAG_MMAP == 0 {
            // A BAR that shares a page with another function's.
            let registers = Window { file: Arc::clone(&self.file), offset: region.offset };
            return Ok(Bar::elsewhere(Arc::new(registers), region.size, found.start));
        }
        let mapping = Mapped::part(&self.file, region.offset, region.size).map_err(|why| no(why.to_string()))?;
        let at = mapping.at;
        // SAFETY: the whole BAR, mapped as long as the mapping lives, which also keeps the device's file open.
        Ok(unsafe { Bar::mapped(at, region.size, found.start, Arc::new(mapping)) })
    }

    fn allocate(&self, bytes: u64) -> Result<Memory, Error> {
        let length = bytes.max(1).checked_next_multiple_of(PAGE).filter(|length| *length < 1 << 46);
        let length =
            length.ok_or_else(|| Error::system("allocate so much memory", io::ErrorKind::OutOfMemory.into()))?;
        let failed = |why| Error::system(format!("allocate {length:#x} bytes"), why);
        let whole = length.next_multiple_of(HUGE);
        let huge = || Mapped::to_pin(whole, true).ok();
        let (mapping, mapped) = match (length >= HUGE).then(huge).flatten() {
            Some(mapping) => (mapping, whole),
            None => (Mapped::to_pin(length, false).map_err(failed)?, length),
        };
        let align = if length >= HUGE { HUGE } else { PAGE };
        let at = mapping.at;
        let mapped = self.space.map(at.as_ptr(), mapped, align, Box::new(mapping))?;
        let run = Run { offset: 0, bus: mapped.at, length };
        // SAFETY: the kernel has pinned the memory and mapped it there until `mapped` is dropped.
        Ok(unsafe { Memory::new(Place::Host, vec![run], Some(at), Arc::new(mapped)) })
    }

    fn reach(&self, peer: &Peer) -> Result<Memory, Error> {
        let unreachable = |why: String| {
            Error::Unreachable {
            address: self.address,
            what: peer.what.clone(),
            why,
            hint: "have the IOMMU pass through (iommu=pt), take vfio-pci off the function and say --without-iommu, or go through host memory (path [B])"
                .into(),
        }
        };
        let bar = peer.keep.downcast_ref::<Bar>();
        let Some((bar, at)) = bar.and_then(|bar| Some((bar, bar.mapped_at()?))) else {
            let why = "the IOMMU is between them, and vfio maps only BARs that this process has mapped through vfio";
            return Err(unreachable(why.into()));
        };
        let offset = peer.bus.checked_sub(bar.bus_address()).filter(|offset| bar.holds(*offset, peer.length).is_ok());
        let whole = |n: u64| n.is_multiple_of(PAGE);
        let Some(offset) = offset.filter(|offset| whole(*offset) && whole(peer.length)) else {
            return Err(unreachable("it is not of whole pages within its BAR".into()));
        };
        // SAFETY: within the BAR, as was just checked.
        let from = unsafe { at.add(offset as usize) };
        let align = if peer.length >= HUGE { HUGE } else { PAGE };
        let mapped = self.space.map(from.as_ptr(), peer.length, align, Box::new(peer.keep.clone()));
        let mapped = mapped.map_err(|why| unreachable(format!("the kernel does not map it: {why:?}")))?;
        let run = Run { offset: 0, bus: mapped.at, length: peer.length };
        // SAFETY: mapped until `mapped` is dropped, which keeps the peer's BAR.
        Ok(unsafe { Memory::new(Place::Peer, vec![run], None, Arc::new(mapped)) })
    }

    fn reset(&self) -> Result<(), Error> {
        match abi::number(&self.file, abi::DEVICE_RESET, 0) {
            Ok(_) => Ok(()),
            Err(why) if matches!(why.raw_os_error(), Some(libc::EINVAL | libc::ENOTTY)) => {
                let why = "it has no reset (no FLR, no power states, not alone on its bus)".into();
                let hint = "reset it by its own registers".into();
                Err(Error::Refused { address: self.address, why, hint })
            }
            Err(why) => Err(Error::system(format!("reset {}", self.address), why)),
        }
    }

    fn is_present(&self) -> bool {
        let mut class = [0; 4];
        // Someone who removes it waits until it is closed: it counts as gone once they ask.
        let asked = self.removal.as_ref().is_some_and(Removal::is_asked);
        // The kernel answers for the vendor from its own copy (drivers/vfio/pci/vfio_pci_config.c), also when the function is gone. The revision and the
        // class come from the function.
        !asked && self.read_config(CLASS, &mut class).is_ok() && class != [0xff; 4]
    }
}

/// The kernel's error for a function that was removed.
fn gone(why: &io::Error) -> bool {
    why.kind() == io::ErrorKind::UnexpectedEof || matches!(why.raw_os_error(), Some(libc::ENODEV | libc::EIO))
}

impl Drop for Device {
    fn drop(&mut self) {
        // The kernel resets the device when its file is closed, but a mapped BAR may keep the file open. The memory that its registers point to is
        // about to be freed.
        let _ = self.write_config(COMMAND, &(self.command & !MASTER | MEMORY).to_le_bytes());
    }
}

/// A BAR by system calls.
struct Window {
    file: Arc<File>,
    offset: u64,
}

impl Registers for Window {
    fn load32(&self, offset: u64) -> u32 {
        let mut bytes = [0xff; 4];
        // A function that is gone reads as ones.
        if self.file.read_exact_at(&mut bytes, self.offset + offset).is_err() {
            return u32::MAX;
        }
        u32::from_le_bytes(bytes)
    }

    fn store32(&self, offset: u64, value: u32) {
        // As on hardware: a store to a function that is gone has no effect.
        let _ = self.file.write_all_at(&value.to_le_bytes(), self.offset + offset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    #[test]
    fn functions_without_vfio_are_refused_by_name() {
        let fixture = Fixture::new("vfio");
        let folder = fixture.function("0000:04:00.0");
        let address = "04:00.0".parse().unwrap();
        let why = || reason(&fixture.tree, address).map(|(why, hint)| format!("{why}; {hint}")).unwrap_or_default();
        assert!(reason(&fixture.tree, "05:00.0".parse().unwrap()).unwrap().0.contains("no such function"));
        assert!(why().starts_with("there is no IOMMU for it"), "{}", why());
        fixture.link(&format!("{folder}/iommu_group"), "sys/kernel/iommu_groups/7");
        assert!(why().starts_with("it is not bound to vfio-pci"), "{}", why());
        fixture.link(&format!("{folder}/driver"), "sys/bus/pci/drivers/vfio-pci");
        assert!(why().starts_with("this kernel has no vfio groups"), "{}", why());
        fixture.file("dev/vfio/vfio", "");
        assert_eq!(why(), "");
        fixture.file("dev/vfio/noiommu-7", "");
        assert!(why().starts_with("vfio has it without an IOMMU"), "{}", why());
    }
}
