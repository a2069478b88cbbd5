//! A claimed file name: this process has created the file, empty, and no other process has claimed it.

use crate::name::{Pattern, before_extension};
use crate::{Error, Rank};
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Numbers that a counter tries.
pub(crate) const MOST: u64 = 1_000_000;

/// A file to write to.
#[derive(Debug)]
pub struct Claim {
    path: PathBuf,
    /// Device and inode of the file that was created; `None` for a pipe or a device.
    created: Option<(u64, u64)>,
}

impl Claim {
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file again if it is still empty.
    pub fn give_up(self) {
        if self.path.symlink_metadata().is_ok_and(|m| m.len() == 0) {
            self.remove();
        }
    }

    /// Removes the file again, whatever its contents. A pipe or a device stays.
    pub fn remove(self) {
        if self.path.symlink_metadata().is_ok_and(|m| self.created == Some((m.dev(), m.ino()))) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Claims the file with the name `name` (see [`Pattern`]), with this mode.
///
/// # Errors
/// It exists (unless `force`), is a link to a file, or cannot be created.
pub fn claim(name: &Path, mode: u32, force: bool) -> Result<Claim, Error> {
    let pattern = Pattern::new(name)?;
    if pattern.has_counter() { numbered(|n| pattern.path(n), mode) } else { one(&pattern.path(0), mode, force) }
}

/// Claims `name`, else `name` with the first free number from 2 on before its extension. Ranks have separate names.
///
/// # Errors
/// As [`claim`].
pub fn claim_default(name: &Path, mode: u32, force: bool) -> Result<Claim, Error> {
    let name = Rank::of_this_process().map_or(name.into(), |r| before_extension(name, &format!("rank{}", r.rank)));
    if force {
        return one(&name, mode, true);
    }
    numbered(|n| if n == 1 { name.clone() } else { before_extension(&name, &n.to_string()) }, mode)
}

/// Claims the file with the name `name` (see [`Pattern`]). If it exists, the first free number from 2 on is added before its extension.
///
/// # Errors
/// As [`claim`].
pub fn claim_next(name: &Path, mode: u32) -> Result<Claim, Error> {
    let pattern = Pattern::new(name)?;
    if pattern.has_counter() {
        return numbered(|n| pattern.path(n), mode);
    }
    let name = pattern.path(0);
    numbered(|n| if n == 1 { name.clone() } else { before_extension(&name, &n.to_string()) }, mode)
}

/// Claims the file of a later part of what begins in `first`: with `part2` before its extension, or the number from `number` on that is free.
///
/// # Errors
/// As [`claim`].
pub fn claim_part(first: &Path, number: u32, mode: u32) -> Result<Claim, Error> {
    let from = u64::from(number).saturating_sub(1);
    numbered(|n| before_extension(first, &format!("part{}", from.saturating_add(n))), mode)
}

fn numbered(path: impl Fn(u64) -> PathBuf, mode: u32) -> Result<Claim, Error> {
    for n in 1..=MOST {
        match create(&path(n), mode) {
            Err(Error::Exists(_)) => {}
            other => return other,
        }
    }
    Err(Error::NoNumberFree(path(1)))
}

fn one(path: &Path, mode: u32, force: bool) -> Result<Claim, Error> {
    // An existing path is examined through links: `/dev/fd/5` is one, and may lead to a pipe.
    if let Ok(there) = fs::metadata(path) {
        let kind = there.file_type();
        if kind.is_dir() {
            return Err(Error::Directory(path.into()));
        }
        if kind.is_fifo() || kind.is_char_device() || kind.is_block_device() || kind.is_socket() {
            return Ok(Claim { path: path.into(), created: None });
        }
    }
    match fs::symlink_metadata(path) {
        Ok(m) if m.is_symlink() && !force => return Err(Error::Link(path.into())),
        // Removed, not truncated: processes that have it open keep its contents.
        Ok(_) if force => fs::remove_file(path).map_err(|cause| Error::Create { path: path.into(), cause })?,
        _ => {}
    }
    create(path, mode)
}

fn create(path: &Path, mode: u32) -> Result<Claim, Error> {
    // create_new is O_EXCL: it follows no link and gives the name to one process only.
    let made = File::options().write(true).create_new(true).mode(mode).open(path).and_then(|f| f.metadata());
    match made {
        Ok(m) => Ok(Claim { path: path.into(), created: Some((m.dev(), m.ino())) }),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Err(Error::Exists(path.into())),
        Err(cause) => Err(Error::Create { path: path.into(), cause }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn name_of(c: &Claim) -> String {
        c.path().file_name().unwrap().to_string_lossy().into_owned()
    }

    #[test]
    fn existing_files_are_kept_without_force() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a.doorbell");
        fs::write(&path, "old").unwrap();
        assert!(matches!(claim(&path, 0o600, false), Err(Error::Exists(_))));
        assert_eq!(fs::read(&path).unwrap(), b"old");
        let mut open = File::open(&path).unwrap();
        claim(&path, 0o600, true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        let mut kept = String::new();
        io::Read::read_to_string(&mut open, &mut kept).unwrap();
        assert_eq!(kept, "old", "whoever had it open keeps it");
    }

    #[test]
    fn counters_and_the_default_take_the_first_free_number() {
        let dir = tempfile::tempdir().unwrap();
        let names = |of: &dyn Fn() -> Claim| [(); 3].map(|()| name_of(&of()));
        let counted = names(&|| claim(&dir.path().join("a%n"), 0o600, false).unwrap());
        assert_eq!(counted, ["a1", "a2", "a3"]);
        let default = names(&|| claim_default(&dir.path().join("app.doorbell"), 0o600, false).unwrap());
        assert_eq!(default, ["app.doorbell", "app.2.doorbell", "app.3.doorbell"]);
        let next = names(&|| claim_next(&dir.path().join("b.doorbell"), 0o600).unwrap());
        assert_eq!(next, ["b.doorbell", "b.2.doorbell", "b.3.doorbell"]);
        assert_eq!(name_of(&claim_next(&dir.path().join("a%n"), 0o600).unwrap()), "a4");
    }

    #[test]
    fn parts_have_numbers_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let first = dir.path().join("a%.doorbell");
        let part = |n| name_of(&claim_part(&first, n, 0o600).unwrap());
        assert_eq!([part(2), part(3), part(3)], ["a%.part2.doorbell", "a%.part3.doorbell", "a%.part4.doorbell"]);
    }

    #[test]
    fn threads_that_ask_at_once_get_different_files() {
        let dir = tempfile::tempdir().unwrap();
        let name = dir.path().join("t.doorbell");
        let mut all: Vec<PathBuf> = std::thread::scope(|s| {
            let ask = || claim_default(&name, 0o600, false).unwrap().path().to_owned();
            let threads: Vec<_> = (0..16).map(|_| s.spawn(ask)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 16);
    }

    #[test]
    fn links_to_files_are_not_followed_and_pipes_are_written_in_place() {
        let dir = tempfile::tempdir().unwrap();
        let at = |n: &str| dir.path().join(n);
        fs::write(at("file"), "old").unwrap();
        symlink(at("file"), at("link")).unwrap();
        symlink(at("nowhere"), at("dangling")).unwrap();
        symlink("/dev/null", at("null")).unwrap();
        for link in ["link", "dangling"] {
            assert!(matches!(claim(&at(link), 0o600, false), Err(Error::Link(_))), "{link}");
        }
        assert!(!at("nowhere").exists());
        claim(&at("link"), 0o600, true).unwrap();
        assert!(at("link").symlink_metadata().unwrap().is_file(), "the link itself was replaced");
        assert_eq!(fs::read(at("file")).unwrap(), b"old");
        for device in [PathBuf::from("/dev/null"), at("null")] {
            assert_eq!(claim(&device, 0o600, false).unwrap().created, None);
        }
        assert!(matches!(claim(dir.path(), 0o600, true), Err(Error::Directory(_))));
    }

    #[test]
    fn a_released_claim_leaves_no_file_unless_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let (empty, full) = (dir.path().join("empty"), dir.path().join("full"));
        claim(&empty, 0o600, false).unwrap().give_up();
        assert!(!empty.exists());
        let c = claim(&full, 0o600, false).unwrap();
        fs::write(&full, "x").unwrap();
        c.give_up();
        assert!(full.exists());
        let cut = dir.path().join("cut");
        let c = claim(&cut, 0o600, false).unwrap();
        fs::write(&cut, "x").unwrap();
        c.remove();
        assert!(!cut.exists());
    }
}
