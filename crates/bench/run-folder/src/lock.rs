//! Write locks of a folder: for one run, and for the processes that measure for it.
//!
//! Two bytes of one file are locked: the first by the run, the second by the processes that it started, together. A new run needs both, so it does
//! not start while a process of a killed run still runs. The kernel releases a lock when its process ends, for any reason.

use crate::Error;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

const RUN: i64 = 0;
const PARTS: i64 = 1;

#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// For a run: no other run writes until this is dropped.
    ///
    /// # Errors
    /// [`Error::Busy`], or the file cannot be written.
    pub fn of_run(folder: &Path) -> Result<Lock, Error> {
        let path = folder.join(".lock");
        let err = || Error::write(&path);
        let mut file = open(&path).map_err(err())?;
        let busy = |what: String| Error::Busy { path: folder.into(), what };
        if !take(&file, RUN, libc::F_WRLCK).map_err(err())? {
            let mut by = String::new();
            let _ = (&file).take(64).read_to_string(&mut by);
            return Err(busy(match by.trim() {
                "" => "another run".into(),
                by => format!("another run (process {by})"),
            }));
        }
        if !take(&file, PARTS, libc::F_WRLCK).map_err(err())? {
            return Err(busy("a process of the run that was killed here still measures and".into()));
        }
        take(&file, PARTS, libc::F_UNLCK).map_err(err())?;
        // Only information for people; a full disk is detected when important data is written.
        let _ = file.rewind().and_then(|()| file.set_len(0)).and_then(|()| writeln!(file, "{}", std::process::id()));
        Ok(Lock { _file: file })
    }

    /// For a process that measures a part of a run.
    ///
    /// # Errors
    /// A run is about to begin, or the file cannot be written.
    pub fn of_part(folder: &Path) -> Result<Lock, Error> {
        let path = folder.join(".lock");
        let file = open(&path).map_err(Error::write(&path))?;
        if take(&file, PARTS, libc::F_RDLCK).map_err(Error::write(&path))? {
            Ok(Lock { _file: file })
        } else {
            Err(Error::Busy { path: folder.into(), what: "another run begins and".into() })
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).create(true).truncate(false).open(path)
}

/// Returns whether it was free.
fn take(file: &File, byte: i64, kind: i32) -> io::Result<bool> {
    // SAFETY: all fields are numbers, and zero is one.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as i16;
    lock.l_whence = libc::SEEK_SET as i16;
    lock.l_start = byte;
    lock.l_len = 1;
    // SAFETY: an open descriptor and a lock that outlives the call. The lock belongs to the open file, not to the process: a second one of the same
    // process conflicts, and closing another descriptor of the file does not release the lock.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) } == 0 {
        return Ok(true);
    }
    match io::Error::last_os_error() {
        e if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        // Some cluster file systems have no locks: a run there is better than none.
        e if matches!(e.raw_os_error(), Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS)) => Ok(true),
        e => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_run_and_no_process_of_the_one_before() {
        let dir = tempfile::tempdir().unwrap();
        let run = Lock::of_run(dir.path()).unwrap();
        let e = Lock::of_run(dir.path()).unwrap_err().to_string();
        assert!(e.contains(&format!("process {}", std::process::id())), "{e}");
        let parts = [Lock::of_part(dir.path()).unwrap(), Lock::of_part(dir.path()).unwrap()];
        drop(run);
        let e = Lock::of_run(dir.path()).unwrap_err().to_string();
        assert!(e.contains("still measures"), "{e}");
        drop(parts);
        Lock::of_run(dir.path()).unwrap();
    }
}
