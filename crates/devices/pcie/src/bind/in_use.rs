//! What would be lost if a function's driver were removed: read from /sys, /proc and udev's database, never from the device. Other users of its
//! devices are found in `held`.

use super::held;
use crate::address::Address;
use crate::tree::{Tree, names, text};
use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::PathBuf;

/// One thing that would be lost.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Use {
    /// `nvme0n1p1`, `eth0`.
    pub device: String,
    pub how: How,
}

/// How a device is used.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum How {
    Mounted {
        at: String,
    },
    Swap,
    Partition,
    /// Another block device uses it: LVM, RAID, encryption.
    Under {
        device: String,
        kind: String,
    },
    /// The content that udev found: `ext4`, `LVM2_member`, a partition table.
    Holds {
        kind: String,
    },
    /// A program has it open.
    Open {
        by: String,
    },
    /// It cannot be opened exclusively: someone else has it, maybe in another container.
    Claimed,
    /// It is unknown whether someone has it.
    Unknown {
        why: String,
    },
    Network,
    Display,
    Usb,
    /// It is a bridge to other functions.
    Bridge,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = &self.device;
        match &self.how {
            How::Mounted { at } => write!(f, "{device} is mounted at {at}"),
            How::Swap => write!(f, "{device} is swap space"),
            How::Partition => write!(f, "{device} is a partition"),
            How::Under { device: above, kind } => write!(f, "{device} is part of {above} ({kind})"),
            How::Holds { kind } => write!(f, "{device} holds {kind}"),
            How::Open { by } => write!(f, "{by} has {device} open"),
            How::Claimed => write!(
                f,
                "{device} is claimed: mounted, maybe in another container, or in use by LVM, RAID, encryption or a program"
            ),
            How::Unknown { why } => write!(f, "{device} cannot be opened to see whether it is in use ({why})"),
            How::Network => write!(f, "the network interface {device} is up"),
            How::Display => write!(f, "{device} is a graphics card of the kernel's"),
            How::Usb => write!(f, "{device} is a USB bus"),
            How::Bridge => write!(f, "{device} is a bridge to other functions"),
        }
    }
}

/// All uses that would be lost, sorted; empty if the function has no driver, or one without users.
pub fn uses(tree: &Tree, address: Address) -> Vec<Use> {
    let mut found = BTreeSet::new();
    let mut add = |device: &str, how: How| {
        found.insert(Use { device: device.to_owned(), how });
    };
    let folder = tree.function(address);
    // Class 0x0604: PCI to PCI.
    if text(&folder.join("class")).is_some_and(|class| class.starts_with("0x0604")) {
        add(&address.to_string(), How::Bridge);
    }
    for name in below(tree, "sys/class/net", address) {
        let flags = tree.text(format!("sys/class/net/{name}/flags")).unwrap_or_default();
        // IFF_UP. If it cannot be read, the interface counts as up.
        if u32::from_str_radix(flags.trim_start_matches("0x"), 16).unwrap_or(1) & 1 != 0 {
            add(&name, How::Network);
        }
    }
    for name in below(tree, "sys/class/drm", address).into_iter().filter(|name| !name.contains('-')) {
        add(&name, How::Display);
    }
    for name in names(&folder).into_iter().filter(|name| name.starts_with("usb") && name[3..].parse::<u32>().is_ok()) {
        add(&name, How::Usb);
    }
    let mut blocks = Vec::new();
    for name in disks(tree, address) {
        blocks.extend(block(tree, &name, &mut add));
    }
    held::openings(tree, address, &blocks, &mut add);
    found.into_iter().collect()
}

/// Block devices of the function, whole ones: `nvme0n1`.
pub fn disks(tree: &Tree, address: Address) -> Vec<String> {
    let mut disks: Vec<String> = below(tree, "sys/block", address).iter().map(|name| shown(name)).collect();
    disks.sort();
    disks.dedup();
    disks
}

/// `nvme0c1n2` is the hidden path by controller 1 to the namespace `nvme0n2`, which is outside of the controller's folder.
fn shown(name: &str) -> String {
    let parts = || {
        let (subsystem, rest) = name.strip_prefix("nvme")?.split_once('c')?;
        let (controller, namespace) = rest.split_once('n')?;
        let numbers = [subsystem, controller, namespace].iter().all(|part| part.parse::<u32>().is_ok());
        numbers.then(|| format!("nvme{subsystem}n{namespace}"))
    };
    parts().unwrap_or_else(|| name.to_owned())
}

/// The names in a folder of links that lead below the function.
pub(super) fn below(tree: &Tree, folder: &str, address: Address) -> Vec<String> {
    let Ok(function) = fs::canonicalize(tree.function(address)) else { return Vec::new() };
    let leads = |name: &String| -> bool {
        let path: PathBuf = tree.path(folder).join(name);
        fs::canonicalize(path).is_ok_and(|path| path.starts_with(&function))
    };
    names(&tree.path(folder)).into_iter().filter(leads).collect()
}

/// A block device, its partitions, and the devices on them: all of their names.
fn block(tree: &Tree, name: &str, add: &mut impl FnMut(&str, How)) -> Vec<String> {
    let folder = tree.path(format!("sys/class/block/{name}"));
    let mut all = vec![name.to_owned()];
    for inner in names(&folder).into_iter().filter(|inner| folder.join(inner).join("partition").exists()) {
        add(&inner, How::Partition);
        all.push(inner);
    }
    let mut next = 0;
    // Devices on devices: a file system on LVM on RAID on partitions. Each once.
    while let Some(device) = all.get(next).cloned() {
        next += 1;
        direct(tree, &device, add);
        for above in names(&tree.path(format!("sys/class/block/{device}/holders"))) {
            add(&device, How::Under { device: above.clone(), kind: kind(tree, &above) });
            if !all.contains(&above) {
                all.push(above);
            }
        }
    }
    all
}

/// The uses of a single block device.
fn direct(tree: &Tree, device: &str, add: &mut impl FnMut(&str, How)) {
    let number = tree.text(format!("sys/class/block/{device}/dev")).unwrap_or_default();
    let mapped = tree.text(format!("sys/class/block/{device}/dm/name"));
    let is = |path: &str| {
        let mapped = mapped.as_ref().is_some_and(|name| path.strip_prefix("/dev/mapper/") == Some(name));
        mapped || path.strip_prefix("/dev/") == Some(device)
    };
    // The first process's list includes mounts outside of this process's container.
    for mounts in ["proc/self/mountinfo", "proc/1/mountinfo"] {
        for line in tree.text(mounts).unwrap_or_default().lines() {
            let fields: Vec<&str> = line.split(' ').collect();
            let source = fields.iter().position(|field| *field == "-").and_then(|at| fields.get(at + 2));
            let (Some(at), Some(held)) = (fields.get(4), fields.get(2)) else { continue };
            // Some file systems (btrfs) have different device numbers: use their source instead.
            if !number.is_empty() && *held == number || source.is_some_and(|path| is(path)) {
                add(device, How::Mounted { at: (*at).to_owned() });
            }
        }
    }
    let swaps = tree.text("proc/swaps").unwrap_or_default();
    if swaps.lines().skip(1).filter_map(|line| line.split_whitespace().next()).any(is) {
        add(device, How::Swap);
    }
    let notes = tree.text(format!("run/udev/data/b{number}")).unwrap_or_default();
    let note = |key: &str| notes.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
    if let Some(kind) = note("E:ID_FS_TYPE=") {
        add(device, How::Holds { kind });
    }
    if let Some(kind) =
        note("E:ID_PART_TABLE_TYPE=").filter(|_| !tree.path(format!("sys/class/block/{device}/partition")).exists())
    {
        add(device, How::Holds { kind: format!("a partition table ({kind})") });
    }
}

/// The kind of a block device that uses others.
fn kind(tree: &Tree, device: &str) -> String {
    let file = |name: &str| tree.text(format!("sys/class/block/{device}/{name}"));
    if let Some(level) = file("md/level") {
        return format!("RAID, {level}");
    }
    match file("dm/uuid").as_deref().and_then(|uuid| uuid.split('-').next()) {
        Some("LVM") => format!("LVM, {}", file("dm/name").unwrap_or_default()),
        Some("CRYPT") => format!("encrypted, {}", file("dm/name").unwrap_or_default()),
        _ => "another block device".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::Fixture;

    const AT: &str = "0000:04:00.0";

    fn texts(fixture: &Fixture) -> Vec<String> {
        uses(&fixture.tree, AT.parse().unwrap()).iter().map(ToString::to_string).collect()
    }

    /// A block device below `folder`, as /sys/block and /sys/class/block show it.
    fn disk(fixture: &Fixture, folder: &str, name: &str, number: &str) -> String {
        let folder = format!("{folder}/{name}");
        fixture.file(&format!("{folder}/dev"), number);
        fixture.link(&format!("sys/block/{name}"), &folder);
        fixture.link(&format!("sys/class/block/{name}"), &folder);
        folder
    }

    fn partition(fixture: &Fixture, disk: &str, name: &str, number: &str) -> String {
        let folder = format!("{disk}/{name}");
        fixture.file(&format!("{folder}/dev"), number);
        fixture.file(&format!("{folder}/partition"), "1\n");
        fixture.link(&format!("sys/class/block/{name}"), &folder);
        folder
    }

    #[test]
    fn an_unused_drive_has_no_uses() {
        let fixture = Fixture::new("uses");
        let folder = fixture.function(AT);
        disk(&fixture, &format!("{folder}/nvme/nvme0"), "nvme0n1", "259:0\n");
        fixture.file("proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n");
        fixture.file("proc/swaps", "Filename Type Size Used Priority\n/dev/sda2 partition 1 0 -2\n");
        assert_eq!(texts(&fixture), [""; 0]);
        assert_eq!(disks(&fixture.tree, AT.parse().unwrap()), ["nvme0n1"]);
    }

    #[test]
    fn partitions_mounts_and_swap_are_named() {
        let fixture = Fixture::new("uses");
        let folder = fixture.function(AT);
        let drive = disk(&fixture, &folder, "nvme0n1", "259:0\n");
        for (name, number) in [("nvme0n1p1", "259:1"), ("nvme0n1p2", "259:2"), ("nvme0n1p3", "259:3")] {
            partition(&fixture, &drive, name, number);
        }
        fixture.file("proc/self/mountinfo", "22 1 259:1 / / rw shared:1 - ext4 /dev/root rw\n");
        fixture.file("proc/1/mountinfo", "30 1 0:31 /sub /data rw - btrfs /dev/nvme0n1p3 rw\nnonsense\n\n");
        fixture.file("proc/swaps", "Filename Type Size Used Priority\n/dev/nvme0n1p2 partition 1 0 -2\n");
        fixture.file("run/udev/data/b259:0", "S:disk/by-id/x\nE:ID_PART_TABLE_TYPE=gpt\n");
        fixture.file("run/udev/data/b259:1", "E:ID_PART_TABLE_TYPE=gpt\nE:ID_FS_TYPE=ext4\n");
        let expected = [
            "nvme0n1 holds a partition table (gpt)",
            "nvme0n1p1 is mounted at /",
            "nvme0n1p1 is a partition",
            "nvme0n1p1 holds ext4",
            "nvme0n1p2 is swap space",
            "nvme0n1p2 is a partition",
            "nvme0n1p3 is mounted at /data",
            "nvme0n1p3 is a partition",
        ];
        assert_eq!(texts(&fixture), expected);
    }

    #[test]
    fn uses_on_raid_and_lvm_are_found() {
        let fixture = Fixture::new("uses");
        let folder = fixture.function(AT);
        let drive = disk(&fixture, &folder, "nvme0n1", "259:0\n");
        fixture.folder(&format!("{drive}/holders/md0"));
        let raid = disk(&fixture, "sys/devices/virtual/block", "md0", "9:0\n");
        fixture.file(&format!("{raid}/md/level"), "raid1\n");
        fixture.folder(&format!("{raid}/holders/dm-3"));
        let volume = disk(&fixture, "sys/devices/virtual/block", "dm-3", "253:3\n");
        fixture.file(&format!("{volume}/dm/uuid"), "LVM-abcdef\n");
        fixture.file(&format!("{volume}/dm/name"), "vg-home\n");
        fixture.file("proc/self/mountinfo", "22 1 253:3 / /home rw - xfs /dev/mapper/vg-home rw\n");
        fixture.file("proc/swaps", "Filename\n/dev/mapper/vg-home file 1 0 -2\n");
        let expected = [
            "dm-3 is mounted at /home",
            "dm-3 is swap space",
            "md0 is part of dm-3 (LVM, vg-home)",
            "nvme0n1 is part of md0 (RAID, raid1)",
        ];
        assert_eq!(texts(&fixture), expected);
    }

    #[test]
    fn a_namespace_with_several_paths_is_found_by_its_hidden_one() {
        let fixture = Fixture::new("uses");
        let folder = fixture.function(AT);
        disk(&fixture, &format!("{folder}/nvme/nvme3"), "nvme3c7n1", "259:9\n");
        let drive = disk(&fixture, "sys/devices/virtual/nvme-subsystem/nvme-subsys3", "nvme3n1", "259:0\n");
        partition(&fixture, &drive, "nvme3n1p1", "259:1\n");
        assert_eq!(texts(&fixture), ["nvme3n1p1 is a partition"]);
        assert_eq!((shown("nvme0n1"), shown("sdc1")), ("nvme0n1".into(), "sdc1".into()));
    }

    #[test]
    fn interfaces_that_are_up_and_bridges_are_named() {
        let fixture = Fixture::new("uses");
        let folder = fixture.function(AT);
        for (name, flags) in [("eth0", "0x1003\n"), ("eth1", "0x1002\n")] {
            fixture.file(&format!("{folder}/net/{name}/flags"), flags);
            fixture.link(&format!("sys/class/net/{name}"), &format!("{folder}/net/{name}"));
        }
        fixture.folder(&format!("{folder}/usb2"));
        fixture.file(&format!("{folder}/class"), "0x060400\n");
        assert_eq!(
            texts(&fixture),
            ["0000:04:00.0 is a bridge to other functions", "the network interface eth0 is up", "usb2 is a USB bus",]
        );
    }

    #[test]
    fn programs_that_have_it_open_and_loop_devices_over_it_are_named() {
        let fixture = Fixture::new("uses");
        let folder = fixture.function(AT);
        disk(&fixture, &folder, "nvme0n1", "259:0\n");
        // This machine's own device instead of the controller's.
        fixture.file(&format!("{folder}/nvme/nvme0/dev"), "1:3\n");
        fixture.link("sys/dev/char/1:3", &format!("{folder}/nvme/nvme0"));
        fixture.file("proc/41/comm", "smartd\n");
        fixture.folder("proc/41/fd");
        std::os::unix::fs::symlink("/dev/null", fixture.tree.path("proc/41/fd/3")).unwrap();
        std::os::unix::fs::symlink("/dev/zero", fixture.tree.path("proc/41/fd/4")).unwrap();
        fixture.file("sys/block/loop7/loop/backing_file", "/dev/nvme0n1\n");
        fixture.file("sys/block/loop8/loop/backing_file", "/home/nvme0n1\n");
        let expected = ["smartd (41) has nvme0 open", "nvme0n1 is part of loop7 (a loop device)"];
        assert_eq!(texts(&fixture), expected);
    }
}
