//! Whether a program's glibc has the symbols that the agent's libraries need. If not, its loader would end the program:
//! in a root directory of an older system, or with a loader that came with the program.
//!
//! Usually the program's loader is the one that has loaded the agent, and no more is checked. Otherwise libc, next to the
//! loader, is searched: it contains the versions of its symbols as text.
//!
//! Invariant: as for [`super::target`].

use super::target::{File, Target, read};
use crate::process::{symbol, sys};
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU64, Ordering};

/// File numbers of the loader that has loaded the agent: device and inode. 0: unknown.
static OURS: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// Keeps which loader that is. Called by the constructor, before the program can have changed its root directory.
pub fn begin() {
    if let Some(id) = symbol::loader().and_then(identity) {
        OURS.iter().zip(id).for_each(|(to, n)| to.store(n, Ordering::Relaxed));
    }
}

fn identity(path: &CStr) -> Option<[u64; 2]> {
    sys::status(path).map(|s| [s.st_dev, s.st_ino])
}

/// The target for a program with this loader: followed, if its glibc can load the agent's libraries.
pub fn target_of(loader: &CStr) -> Target {
    let ours = [0, 1].map(|i: usize| OURS.get(i).map_or(0, |n| n.load(Ordering::Relaxed)));
    if ours == [0, 0] {
        return Target::Followed;
    }
    match identity(loader) {
        // The kernel reports the reason.
        None => Target::Missing,
        Some(id) if id == ours => Target::Followed,
        Some(_) if libc_of(loader).is_some_and(|libc| has(&libc, symbol::glibc_needed())) => Target::Followed,
        Some(_) => Target::Glibc,
    }
}

/// The libc next to a loader, or in the system's usual place.
fn libc_of(loader: &CStr) -> Option<File> {
    let mut path = [0u8; 256];
    let f = File::open(libc::AT_FDCWD, loader.as_ptr()).ok()?;
    let n = sys::fd_path(f.0, &mut path);
    let next_to = path.get(..n).and_then(|p| Some(p.iter().rposition(|b| *b == b'/')? + 1)).unwrap_or(0);
    let name = b"libc.so.6\0";
    let next_to =
        path.get_mut(next_to..next_to + name.len()).filter(|_| next_to > 0).map(|to| to.copy_from_slice(name));
    let places = [c"/lib/x86_64-linux-gnu/libc.so.6", c"/lib64/libc.so.6", c"/usr/lib/libc.so.6"];
    let open = |path: *const c_char| File::open(libc::AT_FDCWD, path).ok();
    next_to.and_then(|()| open(path.as_ptr().cast())).or_else(|| places.iter().find_map(|p| open(p.as_ptr())))
}

/// Bytes that are searched for the names of versions: symbols and their names are at the start of the file.
const LOOKED_AT: u64 = 1 << 20;

/// True if this library has symbols of version 2.MINOR.
fn has(libc: &File, minor: u32) -> bool {
    let mut wanted = [0u8; 20];
    let mut room = [0; 10];
    let mut n = 0;
    for piece in [b"\0GLIBC_2.", sys::decimal(minor, &mut room), b"\0"] {
        let Some(to) = wanted.get_mut(n..n + piece.len()) else { return false };
        to.copy_from_slice(piece);
        n += piece.len();
    }
    let wanted = wanted.get(..n).unwrap_or(&[]);
    let mut piece = [0u8; 1024];
    let mut at = 0;
    while at < LOOKED_AT {
        let got = read(libc.0, at, &mut piece);
        if got.windows(n).any(|w| w == wanted) {
            return true;
        }
        if got.len() <= n {
            return false;
        }
        at += (got.len() - n) as u64;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_glibc_of_another_place_is_known_by_its_versions() {
        let loader = symbol::loader().expect("it has loaded us");
        let libc = libc_of(loader).expect("it is next to the loader");
        let needed = symbol::glibc_needed();
        assert!((2..100).contains(&needed), "{needed}");
        assert!(has(&libc, needed) && has(&libc, 17) && !has(&libc, 999));
        // Before `begin` the own loader is unknown, so any loader passes. Afterwards another loader is checked.
        assert_eq!([loader, c"/nowhere"].map(target_of), [Target::Followed; 2]);
        begin();
        assert_eq!([loader, c"/nowhere"].map(target_of), [Target::Followed, Target::Missing]);
        let dir = tempfile::tempdir().expect("a folder");
        let copy = dir.path().join("ld-linux-x86-64.so.2");
        std::fs::copy(loader.to_str().expect("text"), &copy).expect("a copy");
        let path = std::ffi::CString::new(copy.as_os_str().as_encoded_bytes()).expect("a path");
        std::fs::write(dir.path().join("libc.so.6"), b"\0GLIBC_2.2.5\0").expect("it is written");
        assert_eq!(target_of(&path), Target::Glibc);
        let new = format!("{}\0GLIBC_2.{needed}\0", "x".repeat(5000));
        std::fs::write(dir.path().join("libc.so.6"), new).expect("it is written");
        assert_eq!(target_of(&path), Target::Followed);
    }
}
