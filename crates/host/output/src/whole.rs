//! A result file that is either complete or absent; whether it can be written is known before the measurement.

use crate::name::Pattern;
use crate::{Error, claim, claim_next};
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A file that is written under another name in the same folder and then renamed. Its final name is claimed from the start.
#[derive(Debug)]
pub struct WholeFile {
    path: PathBuf,
    kind: Kind,
    mode: u32,
}

#[derive(Debug)]
enum Kind {
    /// A pipe, a terminal or a device: it is written directly.
    Direct(File),
    /// `claim` is the empty file with the final name, until the first write; `None` if an old file keeps the name until then.
    Renamed { folder: PathBuf, claim: Option<crate::Claim>, room: Option<File> },
}

impl WholeFile {
    /// Makes sure that about `room` bytes can be written to `name` (see [`Pattern`]).
    ///
    /// # Errors
    /// It exists (unless `force`), is a link to a file, or cannot be written.
    pub fn open(name: &Path, room: u64, force: bool) -> Result<WholeFile, Error> {
        let pattern = Pattern::new(name)?;
        let old = pattern.path(0);
        // An old file that is to be replaced stays until the new one is whole.
        if force && !pattern.has_counter() && old.symlink_metadata().is_ok_and(|m| m.is_file()) {
            return WholeFile::at(old, None, room);
        }
        let claim = claim(name, MODE, force)?;
        WholeFile::at(claim.path().to_owned(), Some(claim), room)
    }

    /// As [`WholeFile::open`]; if the file exists, the first free number from 2 on is added to its name.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn open_next(name: &Path, room: u64) -> Result<WholeFile, Error> {
        let claim = claim_next(name, MODE)?;
        WholeFile::at(claim.path().to_owned(), Some(claim), room)
    }

    fn at(path: PathBuf, claim: Option<crate::Claim>, room: u64) -> Result<WholeFile, Error> {
        let err = |cause| Error::Write { path: path.clone(), cause };
        if fs::metadata(&path).is_ok_and(|m| !m.is_file()) {
            let mut file = File::options().write(true).open(&path).map_err(err)?;
            // JSON may begin with a blank line; a device that refuses it would refuse the JSON, too.
            file.write_all(b"\n").map_err(err)?;
            return Ok(WholeFile { path, kind: Kind::Direct(file), mode: MODE });
        }
        let folder = folder_of(&path);
        let held = match reserve(&folder, room) {
            Ok(file) => file,
            Err(cause) => {
                let e = err(cause);
                if let Some(c) = claim {
                    c.give_up();
                }
                return Err(e);
            }
        };
        Ok(WholeFile { path, kind: Kind::Renamed { folder, claim, room: Some(held) }, mode: MODE })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For this user alone, as a recording is.
    pub fn private(mut self) -> WholeFile {
        self.mode = 0o600;
        self
    }

    /// Writes the output of `f`, completely or not at all. May be called again: the file is then replaced.
    ///
    /// # Errors
    /// The file is unchanged.
    pub fn write<E: From<io::Error>>(&mut self, f: impl FnOnce(&mut dyn Write) -> Result<(), E>) -> Result<(), E> {
        match &mut self.kind {
            Kind::Direct(file) => through_a_buffer(file, f),
            Kind::Renamed { folder, claim, room } => {
                // The reserved space.
                drop(room.take());
                renamed_into(folder, &self.path, self.mode, |file| through_a_buffer(file, f))?;
                *claim = None;
                Ok(())
            }
        }
    }

    /// As [`WholeFile::write`], for output with seeks or a separate file mode; not for a pipe or a device.
    ///
    /// # Errors
    /// The file is unchanged.
    pub fn write_file<E: From<io::Error>>(&mut self, f: impl FnOnce(&mut File) -> Result<(), E>) -> Result<(), E> {
        let Kind::Renamed { folder, claim, room } = &mut self.kind else {
            return Err(io::Error::from(io::ErrorKind::NotSeekable).into());
        };
        drop(room.take());
        renamed_into(folder, &self.path, self.mode, f)?;
        *claim = None;
        Ok(())
    }
}

impl Drop for WholeFile {
    fn drop(&mut self) {
        if let Kind::Renamed { claim, .. } = &mut self.kind
            && let Some(claim) = claim.take()
        {
            claim.give_up();
        }
    }
}

/// As for any new file: the umask decides.
const MODE: u32 = 0o666;

/// Space for so many bytes, in a file without a name.
fn reserve(folder: &Path, room: u64) -> io::Result<File> {
    let file = tempfile::tempfile_in(folder)?;
    // SAFETY: an open descriptor and two numbers.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, room.max(1) as i64) } {
        0 | libc::EINVAL | libc::EOPNOTSUPP => Ok(file),
        e => Err(io::Error::from_raw_os_error(e)),
    }
}

/// Writes the output of `f` to `path`, completely or not at all: under another name in the same folder, which is then renamed. An old file is
/// replaced. A process that is killed in between leaves a file with a name of [`is_part`].
///
/// # Errors
/// There is no new file, and an old one is unchanged.
pub fn replace<T, E: From<io::Error>>(path: &Path, f: impl FnOnce(&mut File) -> Result<T, E>) -> Result<T, E> {
    let folder = folder_of(path);
    let done = renamed_into(&folder, path, MODE, f)?;
    // The name itself is durable only once the folder is on the disk.
    File::open(&folder)?.sync_all()?;
    Ok(done)
}

/// Whether a file of this name was being written when its process was killed.
pub fn is_part(name: &str) -> bool {
    name.starts_with(PREFIX) && name.ends_with(SUFFIX)
}

/// Removes the unfinished files in a folder that a killed process has left.
///
/// # Errors
/// The folder cannot be read, or something cannot be removed.
pub fn remove_parts(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name().to_str().is_some_and(is_part) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

pub(crate) const PREFIX: &str = ".doorbell-";
pub(crate) const SUFFIX: &str = ".part";

pub(crate) fn folder_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_path_buf(),
        _ => PathBuf::from("."),
    }
}

fn renamed_into<T, E: From<io::Error>>(
    folder: &Path,
    path: &Path,
    mode: u32,
    f: impl FnOnce(&mut File) -> Result<T, E>,
) -> Result<T, E> {
    let mut file = tempfile::Builder::new()
        .prefix(PREFIX)
        .suffix(SUFFIX)
        .permissions(Permissions::from_mode(mode))
        .tempfile_in(folder)?;
    let done = f(file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(done)
}

fn through_a_buffer<E: From<io::Error>>(
    file: &mut File,
    f: impl FnOnce(&mut dyn Write) -> Result<(), E>,
) -> Result<(), E> {
    let mut out = BufWriter::with_capacity(1 << 16, file);
    f(&mut out)?;
    Ok(out.flush()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entries(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn text(bytes: &'static [u8]) -> impl FnOnce(&mut dyn Write) -> io::Result<()> {
        move |out| out.write_all(bytes)
    }

    #[test]
    fn the_file_is_there_as_a_whole_or_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        fs::write(&path, "old").unwrap();
        assert!(matches!(WholeFile::open(&path, 1, false), Err(Error::Exists(_))));
        let mut r = WholeFile::open(&path, 100_000, true).unwrap();
        assert_eq!(entries(dir.path()), ["r.json"], "nothing stays behind if the program is killed now");
        let failed = r.write(|out| {
            out.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert!(failed.is_err());
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), entries(dir.path()).len()), ("old", 1));
        for content in [&b"new"[..], b"newer"] {
            r.write(text(content)).unwrap();
            assert_eq!((fs::read(&path).unwrap().as_slice(), entries(dir.path()).len()), (content, 1));
        }
        drop(r);
        assert_eq!(entries(dir.path()), ["r.json"]);
    }

    #[test]
    fn a_name_is_claimed_before_measuring_and_released_if_unused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        let first = WholeFile::open(&path, 1, false).unwrap();
        assert!(matches!(WholeFile::open(&path, 1, false), Err(Error::Exists(_))), "two results in one file");
        drop(first);
        assert!(entries(dir.path()).is_empty());
        let mut again = WholeFile::open(&path, 1, false).unwrap();
        again.write(text(b"x")).unwrap();
        drop(again);
        assert_eq!(fs::read(&path).unwrap(), b"x");
    }

    #[test]
    fn a_file_is_replaced_as_a_whole_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        let mut seen = Vec::new();
        let put = |bytes: &'static [u8]| move |file: &mut File| file.write_all(bytes);
        replace(&path, put(b"old")).unwrap();
        let failed = replace(&path, |file| {
            file.write_all(b"half")?;
            seen = entries(dir.path());
            Err::<(), _>(io::Error::from(io::ErrorKind::StorageFull))
        });
        assert!(failed.is_err());
        assert_eq!(seen.iter().filter(|name| is_part(name)).count(), 1, "what a killed process leaves has such a name");
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), entries(dir.path()).len()), ("old", 1));
        assert_eq!(replace(&path, |file| file.write_all(b"new").map(|()| 7)).unwrap(), 7);
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), entries(dir.path()).len()), ("new", 1));
        assert!(replace(&dir.path().join("no/such"), put(b"x")).is_err());
    }

    #[test]
    fn an_unwritable_result_file_is_known_before_measuring() {
        let dir = tempfile::tempdir().unwrap();
        for bad in [dir.path().join("no/such/folder"), dir.path().to_path_buf(), "/dev/full".into()] {
            let e = WholeFile::open(&bad, 1, false).unwrap_err();
            assert!(e.to_string().contains(&bad.display().to_string()), "{e}");
        }
        assert!(entries(dir.path()).is_empty());
    }
}
