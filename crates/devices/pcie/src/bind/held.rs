//! Who uses a function's devices: the kernel's exclusive open covers the whole machine, while /proc and /sys show only this container.

use super::in_use::{How, Use, below, disks};
use crate::address::Address;
use crate::tree::{Tree, names};
use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens each of the function's block devices exclusively: while the files live, the devices cannot be mounted, nor used by LVM, RAID, encryption
/// or swap.
///
/// # Errors
/// Returns a device that someone else holds exclusively, in any container, or that cannot be opened.
pub(super) fn alone(tree: &Tree, address: Address) -> Result<Vec<File>, Use> {
    let one = |device: String| {
        let path = tree.path(format!("dev/{device}"));
        // On a block device without O_CREAT this is the kernel's claim (open(2)). The claim of a whole device covers its partitions.
        File::options().read(true).custom_flags(libc::O_EXCL).open(path).map_err(|why| match why.raw_os_error() {
            Some(libc::EBUSY) => Use { device, how: How::Claimed },
            _ => Use { device, how: How::Unknown { why: why.to_string() } },
        })
    };
    disks(tree, address).into_iter().map(one).collect()
}

/// A number of a device, and whether it is a block device's.
type Number = (u32, u32, bool);

/// Adds the programs that have devices of the function open, and loop devices over them.
pub(super) fn openings(tree: &Tree, address: Address, blocks: &[String], add: &mut impl FnMut(&str, How)) {
    let mut devices: BTreeMap<Number, String> = BTreeMap::new();
    for name in blocks {
        let text = tree.text(format!("sys/class/block/{name}/dev")).unwrap_or_default();
        devices.extend(number(&text, true).map(|number| (number, name.clone())));
    }
    // The controller's own device, and namespaces as character devices.
    for text in below(tree, "sys/dev/char", address) {
        let name = std::fs::canonicalize(tree.path(format!("sys/dev/char/{text}")));
        let name = name.ok().and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        devices.extend(number(&text, false).map(|number| (number, name.unwrap_or(text))));
    }
    if devices.is_empty() {
        return;
    }
    for process in names(&tree.path("proc")).into_iter().filter(|name| name.parse::<u32>().is_ok()) {
        let folder = tree.path(format!("proc/{process}/fd"));
        let files = names(&folder).into_iter();
        for device in files.filter_map(|file| devices.get(&of_file(&folder.join(file))?)) {
            let name = tree.text(format!("proc/{process}/comm")).unwrap_or_else(|| "a program".into());
            add(device, How::Open { by: format!("{name} ({process})") });
        }
    }
    for name in names(&tree.path("sys/block")).into_iter().filter(|name| name.starts_with("loop")) {
        let Some(file) = tree.text(format!("sys/block/{name}/loop/backing_file")) else { continue };
        let by_name = blocks.iter().find(|block| Path::new(&file) == Path::new("/dev").join(block));
        let below = behind(&tree.path(format!("dev/{name}"))).and_then(|number| devices.get(&number));
        if let Some(device) = below.or(by_name) {
            add(device, How::Under { device: name, kind: "a loop device".into() });
        }
    }
}

fn number(text: &str, block: bool) -> Option<Number> {
    let (major, minor) = text.split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?, block))
}

/// The device that an open file is; none where it is something else.
fn of_file(path: &Path) -> Option<Number> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: only numbers, for which zeros are valid values.
    let mut found: libc::statx = unsafe { std::mem::zeroed() };
    // Without asking a server that may not answer.
    let flags = libc::AT_STATX_DONT_SYNC;
    // SAFETY: a text that ends with a zero byte; the call fills a struct of this function.
    let said = unsafe { libc::statx(libc::AT_FDCWD, path.as_ptr(), flags, libc::STATX_TYPE, &raw mut found) };
    let kind = u32::from(found.stx_mode) & libc::S_IFMT;
    let is_device = kind == libc::S_IFBLK || kind == libc::S_IFCHR;
    (said == 0 && is_device).then_some((found.stx_rdev_major, found.stx_rdev_minor, kind == libc::S_IFBLK))
}

/// The block device of a loop device, if it has one (linux/loop.h).
fn behind(device: &Path) -> Option<Number> {
    const LOOP_GET_STATUS64: libc::Ioctl = 0x4c05;
    /// `struct loop_info64`, and where its `lo_rdevice` is.
    const WORDS: usize = 232 / 8;
    const BEHIND: usize = 2;
    let file = File::open(device).ok()?;
    let mut info = [0u64; WORDS];
    // SAFETY: the call fills the struct, which has so many bytes.
    let said = unsafe { libc::ioctl(file.as_raw_fd(), LOOP_GET_STATUS64, info.as_mut_ptr()) };
    let number = info[BEHIND];
    (said == 0 && number != 0).then(|| (libc::major(number), libc::minor(number), true))
}

/// Whether a use may end by itself within moments: a program that looks at each new device (udev's).
pub(super) fn is_passing(used: &Use) -> bool {
    matches!(used.how, How::Open { .. } | How::Claimed) || {
        let absent = io::Error::from_raw_os_error(libc::ENOENT).to_string();
        matches!(&used.how, How::Unknown { why } if *why == absent)
    }
}
