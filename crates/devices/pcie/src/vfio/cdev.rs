//! vfio by iommufd (Linux 6.6 and later): each device has a file, which is attached to an address space.

use super::abi;
use super::space::Space;
use crate::address::Address;
use crate::error::Error;
use crate::tree::{self, Tree};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// The device's file, and a new address space.
pub(super) fn open(tree: &Tree, address: Address) -> Result<(File, Arc<Space>), Error> {
    let Some(path) = device(tree, address).filter(|_| tree.path("dev/iommu").exists()) else {
        let why = "this kernel has neither vfio's groups nor iommufd".into();
        return Err(Error::Refused { address, why, hint: "load the modules vfio_iommu_type1 or iommufd".into() });
    };
    let file = |path: std::path::PathBuf| {
        let opened = File::options().read(true).write(true).open(&path);
        opened.map_err(|why| Error::system(format!("open {}", path.display()), why))
    };
    let failed = |what: &str, why| Error::system(format!("{what} {address}"), why);
    let device = file(tree.path(path))?;
    let space =
        Space::iommufd(file(tree.path("dev/iommu"))?).map_err(|why| failed("make an address space for", why))?;
    if let Some((iommu, ioas)) = space.ioas() {
        // SAFETY: plain numbers, for which zeros are values.
        let mut bind: abi::vfio_device_bind_iommufd = unsafe { std::mem::zeroed() };
        bind.argsz = size_of_val(&bind) as u32;
        bind.iommufd = iommu.as_raw_fd();
        // SAFETY: the call's own struct.
        unsafe { abi::with(&device, abi::DEVICE_BIND_IOMMUFD, &raw mut bind) }.map_err(|why| {
            match why.raw_os_error() {
                // A device's file has one owner, and cannot be opened while its group's file is.
                Some(libc::EINVAL | libc::EBUSY) => {
                    let why = "a program drives it already".into();
                    Error::Refused { address, why, hint: "end that one first".into() }
                }
                _ => failed("bind", why),
            }
        })?;
        // SAFETY: as above.
        let mut attach: abi::vfio_device_attach_iommufd_pt = unsafe { std::mem::zeroed() };
        attach.argsz = size_of_val(&attach) as u32;
        attach.pt_id = ioas;
        // SAFETY: as above.
        unsafe { abi::with(&device, abi::DEVICE_ATTACH_IOMMUFD_PT, &raw mut attach) }
            .map_err(|why| failed("attach", why))?;
    }
    space.attached().map_err(|why| failed("ask for the address ranges of", why))?;
    Ok((device, Arc::new(space)))
}

/// `dev/vfio/devices/vfio0`, by the function's folder `vfio-dev`.
fn device(tree: &Tree, address: Address) -> Option<String> {
    let name = tree::names(&tree.function(address).join("vfio-dev")).into_iter().next()?;
    Some(format!("dev/vfio/devices/{name}")).filter(|path| tree.path(path).exists())
}
