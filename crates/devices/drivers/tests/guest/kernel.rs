//! The kernel that the guest boots: a Debian package, unpacked below `target/guest-kernel` (`.ci/run` does it), or the folder in `GUEST_KERNEL`,
//! with `boot` and `lib/modules`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Modules that the checks need in addition to those built into the kernel. Missing ones are left out: for example, 6.1 has no separate
/// vfio_virqfd.
const WANTED: [&str; 7] = ["vfio_iommu_type1", "vfio-pci", "nvme", "loop", "dm-mod", "md-mod", "romfs"];

pub struct Kernel {
    pub image: PathBuf,
    /// Its configuration; empty if that file is missing.
    config: String,
    modules: BTreeMap<String, PathBuf>,
}

impl Kernel {
    /// Below `GUEST_KERNEL` or the target folder.
    pub fn find() -> Option<Kernel> {
        let target = Path::new(env!("CARGO_BIN_EXE_guest-init")).parent()?.parent()?;
        let chosen = std::env::var_os("GUEST_KERNEL").map(PathBuf::from);
        chosen.into_iter().chain([target.join("guest-kernel")]).find_map(|root| Kernel::below(&root))
    }

    fn below(root: &Path) -> Option<Kernel> {
        let mut images: Vec<PathBuf> =
            fs::read_dir(root.join("boot")).ok()?.flatten().map(|entry| entry.path()).collect();
        images.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-")));
        images.sort();
        // The newest last, as far as the names show.
        images.into_iter().rev().find_map(|image| {
            let version = image.file_name()?.to_str()?.strip_prefix("vmlinuz-")?.to_owned();
            let mut modules = BTreeMap::new();
            collect(&root.join("lib/modules").join(&version).join("kernel"), &mut modules);
            let config = fs::read_to_string(root.join("boot").join(format!("config-{version}"))).unwrap_or_default();
            let kernel = Kernel { image, config, modules };
            // A package that was unpacked by an earlier `.ci/run` lacks some.
            let whole = kernel.modules.contains_key("romfs") && kernel.modules.contains_key("mtd");
            (whole && (kernel.modules.contains_key("vfio_pci") || kernel.is_set("CONFIG_VFIO_PCI"))).then_some(kernel)
        })
    }

    /// An option is built in, or a module.
    fn is_set(&self, option: &str) -> bool {
        self.config.lines().any(|line| matches!(line.split_once('='), Some((name, "y" | "m")) if name == option))
    }

    /// The modules that the checks need, each after those on which it depends.
    pub fn modules(&self) -> Vec<(String, Vec<u8>)> {
        let mut found = Vec::new();
        WANTED.iter().for_each(|name| self.add(name, &mut found));
        found
    }

    fn add(&self, name: &str, found: &mut Vec<(String, Vec<u8>)>) {
        let name = name.replace('-', "_");
        let Some(path) = self.modules.get(&name).filter(|_| found.iter().all(|(have, _)| *have != name)) else {
            return;
        };
        let bytes = contents(path);
        for needed in depends(&bytes) {
            self.add(&needed, found);
        }
        found.push((name, bytes));
    }
}

fn collect(folder: &Path, modules: &mut BTreeMap<String, PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, modules);
        } else if let Some((name, _)) = entry.file_name().to_string_lossy().split_once(".ko") {
            modules.insert(name.replace('-', "_"), path);
        }
    }
}

/// A module's bytes, unpacked here: the guest's processor is slow.
fn contents(path: &Path) -> Vec<u8> {
    let packer = match path.extension().and_then(|end| end.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return fs::read(path).unwrap(),
    };
    let out = Command::new(packer).arg("-dc").arg(path).output().unwrap_or_else(|why| panic!("{packer}: {why}"));
    assert!(out.status.success(), "{packer} {}: {}", path.display(), String::from_utf8_lossy(&out.stderr));
    out.stdout
}

/// The names after `depends=` in a module's section .modinfo.
fn depends(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = module.windows(key.len()).position(|window| window == key) else { return Vec::new() };
    let rest = &module[at + key.len()..];
    let text = &rest[..rest.iter().position(|byte| *byte == 0).unwrap_or(0)];
    String::from_utf8_lossy(text).split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
}
