//! Drives that something uses without a word in this process's /proc or /sys: each is refused, and given as soon as the use ends.

use super::binding::{is_the_kernels, until};
use super::killed::Other;
use super::through;
use crate::report::{Outcome, ensure};
use pcie::bind::{self, To, Word};
use pcie::{Address, Tree};
use std::error::Error;
use std::ffi::CString;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

fn io(said: i32, what: &str) -> Outcome {
    ensure(said >= 0, || format!("{what}: {}", std::io::Error::last_os_error()))
}

/// A device's node, once it is there.
fn open(path: &str) -> Result<File, Box<dyn Error>> {
    until(&format!("{path} is there"), || Path::new(path).exists())?;
    Ok(File::options().read(true).write(true).open(path).map_err(|why| format!("{path}: {why}"))?)
}

fn refused(drive: Address, why: &str) -> Outcome {
    through::refused(bind::take(&Tree::default(), drive, To::Nobody, Word::None).map(drop), &["in use", why])?;
    ensure(Tree::default().driver(drive).as_deref() == Some("nvme"), || "it was taken".into())
}

pub fn drives(drive: Address) -> Outcome {
    is_the_kernels(drive)?;
    let name = bind::disks(&Tree::default(), drive).remove(0);
    let disk = format!("/dev/{name}");
    let number = std::fs::metadata(&disk)?.rdev();

    let other = Other::start("opens", drive)?;
    refused(drive, &format!("has {name} open"))?;
    drop(other);

    let image = romfs();
    let file = open(&disk)?;
    file.write_all_at(&image, 0)?;
    file.sync_all()?;
    drop(file);
    let other = Other::start("mounts", drive)?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    ensure(!mounts.contains("romfs"), || format!("it is mounted here: {mounts}"))?;
    let mounted = refused(drive, &format!("{name} is claimed"));
    drop(other);
    mounted?;
    let claimed = || File::options().read(true).custom_flags(libc::O_EXCL).open(&disk).is_err();
    until("it is not mounted", || !claimed())?;
    let file = open(&disk)?;
    file.write_all_at(&vec![0; image.len()], 0)?;
    file.sync_all()?;
    drop(file);

    under_loop(&disk, || refused(drive, &format!("{name} is part of loop")))?;
    under_mapper(number, || refused(drive, &format!("{name} is part of dm-0 (LVM, used)")))?;
    under_raid(number, || refused(drive, &format!("{name} is part of md0")))?;
    drop(bind::take(&Tree::default(), drive, To::Nobody, Word::None)?);
    is_the_kernels(drive)
}

/// The child's part: it has the drive open, or mounts it where only it sees that.
pub fn hold(what: &str, drive: Address) -> Result<File, Box<dyn Error>> {
    let disk = format!("/dev/{}", bind::disks(&Tree::default(), drive).remove(0));
    if what == "mounts" {
        let text = |text: &str| CString::new(text);
        // SAFETY: this process has one thread; the calls take texts that end with a zero byte.
        unsafe {
            io(libc::unshare(libc::CLONE_NEWNS), "unshare")?;
            let (root, at, kind) = (text("/")?, text("/tmp")?, text("romfs")?);
            let private = libc::MS_PRIVATE | libc::MS_REC;
            io(libc::mount(std::ptr::null(), root.as_ptr(), std::ptr::null(), private, std::ptr::null()), "private")?;
            let source = text(&disk)?;
            let said = libc::mount(source.as_ptr(), at.as_ptr(), kind.as_ptr(), libc::MS_RDONLY, std::ptr::null());
            io(said, "mount")?;
        }
        return Ok(File::open("/dev/null")?);
    }
    Ok(File::open(disk)?)
}

/// An empty file system (Documentation/filesystems/romfs.rst): the volume's header, and a folder.
fn romfs() -> Vec<u8> {
    let mut image = vec![0; 1024];
    image[..8].copy_from_slice(b"-rom1fs-");
    image[8..12].copy_from_slice(&1024u32.to_be_bytes());
    // A searchable folder, whose first entry is itself.
    image[32..36].copy_from_slice(&9u32.to_be_bytes());
    image[36..40].copy_from_slice(&32u32.to_be_bytes());
    image[48] = b'.';
    let words = image[..512].chunks(4).map(|word| u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    let sum = words.fold(0u32, u32::wrapping_add);
    image[12..16].copy_from_slice(&sum.wrapping_neg().to_be_bytes());
    image
}

/// linux/loop.h.
fn under_loop(disk: &str, check: impl FnOnce() -> Outcome) -> Outcome {
    const SET_FD: libc::Ioctl = 0x4c00;
    const CLR_FD: libc::Ioctl = 0x4c01;
    let device = open("/dev/loop0")?;
    // SAFETY: descriptors that are open.
    io(unsafe { libc::ioctl(device.as_raw_fd(), SET_FD, open(disk)?.as_raw_fd()) }, "LOOP_SET_FD")?;
    let checked = check();
    // SAFETY: as above.
    io(unsafe { libc::ioctl(device.as_raw_fd(), CLR_FD, 0) }, "LOOP_CLR_FD")?;
    checked
}

/// linux/dm-ioctl.h: a linear device, as LVM makes them.
fn under_mapper(number: u64, check: impl FnOnce() -> Outcome) -> Outcome {
    const HEAD: usize = 312;
    let control = open("/dev/mapper/control")?;
    let run = |command: libc::Ioctl, targets: u32, behind: &[u8]| -> Outcome {
        let mut words = vec![0u64; 128];
        // SAFETY: bytes of integers; the same memory.
        let bytes = unsafe { std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), 1024) };
        for (at, word) in [(0, 4), (12, 1024), (16, HEAD as u32), (20, targets)] {
            bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        bytes[48..52].copy_from_slice(b"used");
        if command == CREATE {
            bytes[176..183].copy_from_slice(b"LVM-abc");
        }
        bytes[HEAD..HEAD + behind.len()].copy_from_slice(behind);
        // SAFETY: the call's own struct, with the size that it states.
        io(unsafe { libc::ioctl(control.as_raw_fd(), command, words.as_mut_ptr()) }, "a call of the device mapper")
    };
    const CREATE: libc::Ioctl = 0xc138_fd03;
    const REMOVE: libc::Ioctl = 0xc138_fd04;
    const LOAD: libc::Ioctl = 0xc138_fd09;
    run(CREATE, 0, &[])?;
    // First block, blocks, status, offset of the next target; kind; parameters.
    let mut target = [0u64, 2048].map(u64::to_le_bytes).concat();
    target.extend([0; 8]);
    target.extend(b"linear\0\0\0\0\0\0\0\0\0\0");
    target.extend(format!("{}:{} 0\0", libc::major(number), libc::minor(number)).bytes());
    let checked = run(LOAD, 1, &target).and_then(|()| check());
    run(REMOVE, 0, &[])?;
    checked
}

/// linux/raid/md_u.h: a mirror of one device without a superblock.
fn under_raid(number: u64, check: impl FnOnce() -> Outcome) -> Outcome {
    const SET_ARRAY_INFO: libc::Ioctl = 0x4048_0923;
    const ADD_NEW_DISK: libc::Ioctl = 0x4014_0921;
    const STOP_ARRAY: libc::Ioctl = 0x932;
    let path = c"/dev/md0";
    // SAFETY: a text that ends with a zero byte.
    unsafe { libc::mknod(path.as_ptr(), libc::S_IFBLK | 0o600, libc::makedev(9, 0)) };
    let array = open("/dev/md0")?;
    let mut about = [0u32; 18];
    // Version 0.90, level 1, one disk, without metadata on the disk.
    (about[1], about[4], about[6], about[7], about[9]) = (90, 1, 1, 1, 1);
    // SAFETY: the calls' own structs.
    io(unsafe { libc::ioctl(array.as_raw_fd(), SET_ARRAY_INFO, about.as_ptr()) }, "SET_ARRAY_INFO")?;
    let disk = [0, libc::major(number), libc::minor(number), 0, 6];
    // SAFETY: as above.
    let added = io(unsafe { libc::ioctl(array.as_raw_fd(), ADD_NEW_DISK, disk.as_ptr()) }, "ADD_NEW_DISK");
    let checked = added.and_then(|()| check());
    // SAFETY: as above.
    io(unsafe { libc::ioctl(array.as_raw_fd(), STOP_ARRAY, 0) }, "STOP_ARRAY")?;
    checked
}
