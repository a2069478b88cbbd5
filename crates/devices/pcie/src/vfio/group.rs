//! vfio by groups: a group's file is added to a container, whose IOMMU is of type 1.

use super::abi;
use super::space::Space;
use crate::address::Address;
use crate::error::Error;
use crate::tree::Tree;
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::{Arc, Mutex, Weak};

/// A group's file can be opened once: functions of one group that this process drives share it, and its address space.
static OPEN: Mutex<BTreeMap<u32, Weak<Space>>> = Mutex::new(BTreeMap::new());

/// The device's file, and the address space of its group.
pub(super) fn open(tree: &Tree, address: Address) -> Result<(File, Arc<Space>), Error> {
    let refused = |why: String, hint: &str| Error::Refused { address, why, hint: hint.into() };
    let number = tree
        .iommu_group(address)
        .ok_or_else(|| refused("it has no IOMMU group".into(), "see docs/reference/pcie.md"))?;
    let mut open = poison::ignore(OPEN.lock());
    open.retain(|_, space| space.strong_count() > 0);
    let space = match open.get(&number).and_then(Weak::upgrade) {
        Some(space) => space,
        None => Arc::new(container(tree, address, number)?),
    };
    let name = CString::new(address.to_string()).map_err(|why| Error::system("name the device", why.into()))?;
    // SAFETY: the call takes a text that ends with a zero byte, and gives a new file.
    let file = unsafe { abi::with(space.group(), abi::GROUP_GET_DEVICE_FD, name.as_ptr().cast_mut()) };
    let file = file.map_err(|why| Error::system(format!("get {address} from its vfio group {number}"), why))?;
    // SAFETY: made just now, without another owner.
    let file = unsafe { File::from_raw_fd(file) };
    open.insert(number, Arc::downgrade(&space));
    Ok((file, space))
}

fn container(tree: &Tree, address: Address, number: u32) -> Result<Space, Error> {
    let refused = |why: String, hint: String| Error::Refused { address, why, hint };
    let path = tree.path(format!("dev/vfio/{number}"));
    let group = File::options().read(true).write(true).open(&path).map_err(|why| match why.raw_os_error() {
        Some(libc::EBUSY) => {
            refused(format!("another process has its group ({})", path.display()), "end that one".into())
        }
        Some(libc::EACCES | libc::EPERM) => refused(
            format!("no right to {}", path.display()),
            format!("run as root, or: chown $USER {}", path.display()),
        ),
        _ => Error::system(format!("open {}", path.display()), why),
    })?;
    // SAFETY: plain numbers, for which zeros are values.
    let mut status: abi::vfio_group_status = unsafe { std::mem::zeroed() };
    status.argsz = size_of_val(&status) as u32;
    let failed = |what: &str, why| Error::system(format!("{what} (vfio group {number})"), why);
    // SAFETY: the call's own struct.
    unsafe { abi::with(&group, abi::GROUP_GET_STATUS, &raw mut status) }
        .map_err(|why| failed("read its status", why))?;
    if status.flags & abi::VFIO_GROUP_FLAGS_VIABLE == 0 {
        let others = others(tree, address, number);
        let why = format!("other functions of its IOMMU group {number} have drivers of the kernel's: {others}");
        return Err(refused(why, "bind these to vfio-pci, too, or to no driver".into()));
    }
    let path = tree.path("dev/vfio/vfio");
    let container = File::options().read(true).write(true).open(&path);
    let container = container.map_err(|why| Error::system(format!("open {}", path.display()), why))?;
    let version =
        abi::number(&container, abi::GET_API_VERSION, 0).map_err(|why| failed("ask for vfio's version", why))?;
    let type1 = abi::number(&container, abi::CHECK_EXTENSION, abi::VFIO_TYPE1v2_IOMMU.into()).unwrap_or(0);
    if version as u32 != abi::VFIO_API_VERSION || type1 == 0 {
        let why = format!("this kernel's vfio has version {version} and no IOMMU of type 1");
        return Err(refused(why, "load the module vfio_iommu_type1".into()));
    }
    let mut file = container.as_raw_fd();
    // SAFETY: the call takes a pointer to the number of an open file.
    unsafe { abi::with(&group, abi::GROUP_SET_CONTAINER, &raw mut file) }
        .map_err(|why| failed("use its container", why))?;
    abi::number(&container, abi::SET_IOMMU, abi::VFIO_TYPE1v2_IOMMU.into()).map_err(|why| {
        match why.raw_os_error() {
            Some(libc::EPERM) => {
                let why =
                    "the IOMMU cannot remap interrupts, so the kernel does not let devices be driven from user space";
                let hint = "turn interrupt remapping on, or load vfio_iommu_type1 with allow_unsafe_interrupts=1";
                refused(why.into(), hint.into())
            }
            _ => failed("set its IOMMU", why),
        }
    })?;
    Space::new(container, group).map_err(|why| failed("ask for its address ranges", why))
}

/// Functions of the group whose drivers are not vfio-pci.
fn others(tree: &Tree, address: Address, number: u32) -> String {
    let all = tree.in_group(number).into_iter().filter(|other| *other != address);
    let bound = all.filter_map(|other| Some((other, tree.driver(other)?))).filter(|(_, driver)| driver != "vfio-pci");
    bound.map(|(other, driver)| format!("{other} ({driver})")).collect::<Vec<_>>().join(", ")
}
