//! A copy of the kernel's files for tests, removed with it.

use crate::tree::Tree;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct Fixture {
    root: PathBuf,
    pub tree: Tree,
}

impl Fixture {
    pub(crate) fn new(name: &str) -> Fixture {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("pcie-fixture-{}-{name}-{count}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Fixture { tree: Tree::at(&root), root }
    }

    pub(crate) fn file(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    pub(crate) fn folder(&self, path: &str) {
        fs::create_dir_all(self.root.join(path)).unwrap();
    }

    /// A link at `path` to `to`, both below the root.
    pub(crate) fn link(&self, path: &str, to: &str) {
        let path = self.root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(self.root.join(to), path).unwrap();
    }

    /// A function on bus 0, with its link below sys/bus/pci/devices. Its files are in the returned folder.
    pub(crate) fn function(&self, address: &str) -> String {
        let folder = format!("sys/devices/pci0000:00/{address}");
        self.folder(&folder);
        self.link(&format!("sys/bus/pci/devices/{address}"), &folder);
        folder
    }

    pub(crate) fn text(&self, path: &str) -> String {
        fs::read_to_string(self.root.join(path)).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.root);
    }
}
