//! A result file: there as a whole, or not at all; and whether it can be written is known before anything is measured.

use crate::failure::Failure;
use anyhow::Context;
use report::ReportError;
use std::fs::{self, File, Permissions};
use std::io::{self, BufWriter, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub enum ResultFile {
    Stdout,
    /// A pipe, a terminal or a device: there is nothing beside it to rename.
    Direct {
        file: File,
        path: PathBuf,
    },
    /// Written beside its place and renamed. `_room` has no name and keeps the space until then.
    Renamed {
        folder: PathBuf,
        path: PathBuf,
        _room: File,
    },
}

/// Makes sure that about `room` bytes can be written to `path`; `-` is standard output.
pub fn open(path: &Path, room: u64) -> anyhow::Result<ResultFile> {
    if path.as_os_str() == "-" {
        return Ok(ResultFile::Stdout);
    }
    try_open(path, room).with_context(|| format!("{} cannot be written", path.display()))
}

fn try_open(path: &Path, room: u64) -> anyhow::Result<ResultFile> {
    // What a link leads to is replaced, not the link.
    let path = match fs::canonicalize(path) {
        Ok(p) => p,
        Err(e) if e.kind() == io::ErrorKind::NotFound => path.to_path_buf(),
        Err(e) => return Err(e.into()),
    };
    match fs::metadata(&path) {
        Ok(m) if m.is_dir() => return Err(io::Error::from(io::ErrorKind::IsADirectory).into()),
        Ok(m) if !m.is_file() => {
            let mut file = File::options().write(true).open(&path)?;
            // JSON may begin with a blank line, and a device that takes none takes no JSON.
            file.write_all(b"\n")?;
            return Ok(ResultFile::Direct { file, path });
        }
        _ => {}
    }
    let folder = match path.parent() {
        Some(p) if !p.as_os_str().is_empty() => p.to_path_buf(),
        _ => PathBuf::from("."),
    };
    if path.file_name().is_none() {
        return Err(Failure::new("it is no name of a file", "give a file, not a folder").into());
    }
    let file = tempfile::tempfile_in(&folder)?;
    // Past a limit on file sizes the answer is to be an error, not the end of the program.
    // SAFETY: ignoring a signal runs no code of ours.
    unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
    // SAFETY: a descriptor of ours and two numbers.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, room.max(1) as i64) } {
        0 | libc::EINVAL | libc::EOPNOTSUPP => Ok(ResultFile::Renamed { folder, path, _room: file }),
        e => Err(io::Error::from_raw_os_error(e).into()),
    }
}

impl ResultFile {
    pub fn is_stdout(&self) -> bool {
        matches!(self, ResultFile::Stdout)
    }

    pub fn write(self, f: impl FnOnce(&mut dyn Write) -> Result<(), ReportError>) -> anyhow::Result<()> {
        let (path, done) = match self {
            ResultFile::Stdout => return Ok(report::table::to_stdout(f)?),
            ResultFile::Direct { mut file, path } => {
                let done = through_a_buffer(&mut file, f);
                (path, done)
            }
            ResultFile::Renamed { folder, path, _room } => {
                drop(_room);
                let done = renamed(&folder, &path, f);
                (path, done)
            }
        };
        done.with_context(|| format!("{} was not written", path.display()))
    }
}

fn renamed(
    folder: &Path,
    path: &Path,
    f: impl FnOnce(&mut dyn Write) -> Result<(), ReportError>,
) -> anyhow::Result<()> {
    // As any new file: what the umask leaves.
    let mut file = tempfile::Builder::new()
        .prefix(".doorbell-")
        .suffix(".json")
        .permissions(Permissions::from_mode(0o666))
        .tempfile_in(folder)?;
    through_a_buffer(file.as_file_mut(), f)?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

fn through_a_buffer(file: &mut File, f: impl FnOnce(&mut dyn Write) -> Result<(), ReportError>) -> anyhow::Result<()> {
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

    #[test]
    fn the_file_is_there_as_a_whole_or_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        fs::write(&path, "old").unwrap();
        let r = open(&path, 100_000).unwrap();
        assert_eq!(entries(dir.path()), ["r.json"], "nothing stays behind if the program is killed now");
        let failed = r.write(|out| {
            out.write_all(b"half")?;
            Err(io::Error::from(io::ErrorKind::StorageFull).into())
        });
        assert!(failed.is_err());
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), entries(dir.path()).len()), ("old", 1));
        open(&path, 1).unwrap().write(|out| Ok(out.write_all(b"new")?)).unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), entries(dir.path()).len()), ("new", 1));
    }

    #[test]
    fn a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&real, "").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        open(&link, 1).unwrap().write(|out| Ok(out.write_all(b"new")?)).unwrap();
        assert_eq!(fs::read_to_string(&real).unwrap(), "new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    }

    #[test]
    fn what_cannot_be_written_is_known_before() {
        let dir = tempfile::tempdir().unwrap();
        for bad in [dir.path().join("no/such/folder"), dir.path().to_path_buf(), "/dev/full".into()] {
            let e = open(&bad, 1).unwrap_err();
            assert!(e.to_string().contains(&bad.display().to_string()), "{e:#}");
        }
        assert!(entries(dir.path()).is_empty());
    }
}
