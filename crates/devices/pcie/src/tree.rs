//! What the kernel reports about functions in /sys, /proc and /dev, below a root that tests choose.

use crate::address::Address;
use std::fs;
use std::path::{Path, PathBuf};

/// The root of /sys, /proc and /dev.
#[derive(Clone, Debug)]
pub struct Tree {
    root: PathBuf,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree { root: "/".into() }
    }
}

impl Tree {
    /// A copy of the kernel's files below another folder.
    pub fn at(root: impl Into<PathBuf>) -> Tree {
        Tree { root: root.into() }
    }

    /// `path` (`sys/...`, without a slash in front) below the root.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// The folder of a function.
    pub fn function(&self, address: Address) -> PathBuf {
        self.path(format!("sys/bus/pci/devices/{address}"))
    }

    pub fn exists(&self, address: Address) -> bool {
        self.function(address).exists()
    }

    /// The kernel's driver that has the function.
    pub fn driver(&self, address: Address) -> Option<String> {
        link_name(&self.function(address).join("driver"))
    }

    /// The number of its IOMMU group; none if no IOMMU is used.
    pub fn iommu_group(&self, address: Address) -> Option<u32> {
        link_name(&self.function(address).join("iommu_group"))?.parse().ok()
    }

    /// Functions of the same IOMMU group, itself among them.
    pub fn in_group(&self, group: u32) -> Vec<Address> {
        let mut all: Vec<Address> = names(&self.path(format!("sys/kernel/iommu_groups/{group}/devices")))
            .iter()
            .filter_map(|name| name.parse().ok())
            .collect();
        all.sort_unstable();
        all
    }

    /// The trimmed text of a file below the root; none if it does not exist.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        text(&self.path(path))
    }
}

/// The trimmed text of a file.
pub(crate) fn text(path: &Path) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

/// The last name of what a link points to.
pub(crate) fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// The names in a folder, sorted; none where there is none.
pub(crate) fn names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    names
}
