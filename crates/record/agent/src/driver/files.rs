//! Which descriptors are driver files. One entry per descriptor, set at open and dup, or at first use from /proc.

use crate::process::sys;
use core::sync::atomic::{AtomicU16, Ordering};
use rm::call::FileKind;
use tape::event::file;

const MAX: usize = 65536;
/// 0 unknown, 1 not the driver's, else a code of [`encode`].
static KIND: [AtomicU16; MAX] = [const { AtomicU16::new(0) }; MAX];

fn encode(f: u32) -> u16 {
    match f {
        file::OTHER => 1,
        file::CTL => 2,
        file::UVM => 3,
        file::NODE => 4,
        gpu => 0x100 + (gpu - file::GPU).min(0xff) as u16,
    }
}

fn decode(k: u16) -> u32 {
    match k {
        2 => file::CTL,
        3 => file::UVM,
        4 => file::NODE,
        k if k >= 0x100 => file::GPU + u32::from(k - 0x100),
        _ => file::OTHER,
    }
}

/// The kind of file at a path.
pub fn by_path(path: &[u8]) -> u32 {
    FileKind::of_path(path).to_raw()
}

/// The kind of `fd`; a system call the first time only.
pub fn of(fd: i32) -> u32 {
    let Some(k) = usize::try_from(fd).ok().and_then(|i| KIND.get(i)) else { return ask(fd) };
    match k.load(Ordering::Relaxed) {
        0 => {
            let f = ask(fd);
            k.store(encode(f), Ordering::Relaxed);
            f
        }
        k => decode(k),
    }
}

/// The kind of `fd` if it is already known.
pub fn known(fd: i32) -> u32 {
    usize::try_from(fd).ok().and_then(|i| KIND.get(i)).map_or(file::OTHER, |k| decode(k.load(Ordering::Relaxed)))
}

fn ask(fd: i32) -> u32 {
    if fd < 0 {
        return file::OTHER;
    }
    let mut path = [0u8; 64];
    let n = sys::fd_path(fd, &mut path);
    by_path(path.get(..n).unwrap_or(&[]))
}

pub fn set(fd: i32, f: u32) {
    if let Some(k) = usize::try_from(fd).ok().and_then(|i| KIND.get(i)) {
        k.store(encode(f), Ordering::Relaxed);
    }
}

/// A closed descriptor: its number may be used for any other file.
pub fn forget(fd: i32) {
    if let Some(k) = usize::try_from(fd).ok().and_then(|i| KIND.get(i)) {
        k.store(0, Ordering::Relaxed);
    }
}
