//! An open file for block transfers: O_DIRECT where its file system accepts it, with the alignment that the file system requires.

use crate::error::Error;
use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Why the page cache is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buffered {
    Wanted,
    /// The file system has no direct I/O for the file: tmpfs, some FUSE and network file systems, encrypted or journaled files.
    Refused(String),
}

impl std::fmt::Display for Buffered {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Buffered::Wanted => f.write_str("as asked for"),
            Buffered::Refused(why) => f.write_str(why),
        }
    }
}

/// The alignment where the kernel does not report one: drives have blocks of 512 or 4096 bytes.
const ALIGNMENT: usize = 4096;

/// An open file.
#[derive(Debug)]
pub struct Source {
    pub(crate) file: File,
    path: PathBuf,
    length: u64,
    /// None for O_DIRECT.
    buffered: Option<Buffered>,
    alignment: usize,
    /// Length and times of the last change, when the file was opened.
    stamp: Stamp,
}

impl Source {
    /// Opens a regular file or a block device for reading, without the page cache unless `buffered`.
    ///
    /// # Errors
    /// [`Error::Open`], [`Error::Kind`] for directories, pipes and devices of characters.
    pub fn open(path: &Path, buffered: bool) -> Result<Source, Error> {
        let failed = |cause| Error::Open { path: path.to_owned(), cause };
        let kind = |what| Error::Kind { path: path.to_owned(), what };
        // The type is checked first, because opening a pipe would wait for its other end.
        let metadata = std::fs::metadata(path).map_err(failed)?;
        let what = metadata.file_type();
        if what.is_dir() {
            return Err(kind("a directory"));
        }
        if !what.is_file() && !what.is_block_device() {
            return Err(kind("neither a regular file nor a block device"));
        }
        let open = |flags| File::options().read(true).custom_flags(flags | libc::O_CLOEXEC).open(path);
        let (mut file, buffered) = match buffered {
            true => (open(0).map_err(failed)?, Some(Buffered::Wanted)),
            false => match open(libc::O_DIRECT) {
                Ok(file) => (file, None),
                Err(e) if e.raw_os_error() == Some(libc::EINVAL) => (open(0).map_err(failed)?, Some(refused())),
                Err(e) => return Err(failed(e)),
            },
        };
        let length = match what.is_block_device() {
            true => file.seek(SeekFrom::End(0)).map_err(failed)?,
            false => file.metadata().map_err(failed)?.len(),
        };
        let mut source = Source::of(file, path, length, buffered)?;
        if source.buffered.is_none() {
            let why = pretends(&source.file).or_else(|| (!source.takes_direct()).then(refused));
            if why.is_some() {
                source.file = open(0).map_err(failed)?;
                source.buffered = why;
            }
        }
        Ok(source)
    }

    /// A file that the caller has opened, of that length or to be written to that length; through the page cache.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub fn of_file(file: File, path: &Path, length: u64) -> Result<Source, Error> {
        Source::of(file, path, length, Some(Buffered::Wanted))
    }

    /// A file to write, opened by the caller.
    ///
    /// # Errors
    /// [`Error::Open`].
    pub(crate) fn to_write(file: File, path: &Path, length: u64, buffered: bool) -> Result<Source, Error> {
        let buffered = match buffered {
            true => Some(Buffered::Wanted),
            false => pretends(&file).or_else(|| set_direct(&file).err().map(|_| refused())),
        };
        Source::of(file, path, length, buffered)
    }

    fn of(file: File, path: &Path, length: u64, buffered: Option<Buffered>) -> Result<Source, Error> {
        let asked = alignment(&file).filter(|asked| asked.is_power_of_two() && *asked <= 1 << 20);
        let stamp = stamp(&file).map_err(|cause| Error::Open { path: path.to_owned(), cause })?;
        Ok(Source { file, path: path.to_owned(), length, buffered, alignment: asked.unwrap_or(ALIGNMENT), stamp })
    }

    /// Tries a read, because some file systems accept the flag and refuse the reads.
    fn takes_direct(&self) -> bool {
        let Ok(room) = std::alloc::Layout::from_size_align(self.alignment, self.alignment.max(ALIGNMENT)) else {
            return false;
        };
        // SAFETY: the layout is not empty. The allocation is freed with the same layout, after a read of that many bytes.
        unsafe {
            let to = std::alloc::alloc(room);
            let read = (!to.is_null()).then(|| libc::pread64(self.fd(), to.cast(), self.alignment, 0));
            let refused =
                read.is_some_and(|n| n < 0) && io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
            if !to.is_null() {
                std::alloc::dealloc(to, room);
            }
            !refused
        }
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes when the file was opened.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Why the page cache is used; none with O_DIRECT.
    pub fn buffered(&self) -> Option<&Buffered> {
        self.buffered.as_ref()
    }

    /// Offsets and lengths of single reads and writes must be multiples of this.
    pub fn alignment(&self) -> usize {
        if self.buffered.is_some() { 1 } else { self.alignment }
    }

    /// Checks that the file has not changed since it was opened.
    ///
    /// # Errors
    /// [`Error::Changed`], [`Error::Truncated`].
    pub fn unchanged(&self) -> Result<(), Error> {
        let path = || self.path.clone();
        let now = stamp(&self.file).map_err(|cause| Error::Open { path: path(), cause })?;
        match now {
            _ if now == self.stamp => Ok(()),
            (end, ..) if end < self.stamp.0 => Err(Error::Truncated { path: path(), end, expected: self.stamp.0 }),
            (end, ..) if end > self.stamp.0 => Err(Error::Changed { path: path(), what: "it has grown" }),
            _ => Err(Error::Changed { path: path(), what: "it was written to" }),
        }
    }
}

fn refused() -> Buffered {
    Buffered::Refused("the file system refuses O_DIRECT".into())
}

/// Length, and the times of the last write and the last change. Setting the first time back changes the second.
type Stamp = (u64, i64, i64, i64, i64);

fn stamp(file: &File) -> io::Result<Stamp> {
    let of = file.metadata()?;
    Ok((of.len(), of.mtime(), of.mtime_nsec(), of.ctime(), of.ctime_nsec()))
}

/// O_DIRECT for a file that is open.
fn set_direct(file: &File) -> io::Result<()> {
    // SAFETY: flags of an open descriptor.
    let done = unsafe {
        match libc::fcntl(file.as_raw_fd(), libc::F_GETFL) {
            -1 => -1,
            flags => libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_DIRECT),
        }
    };
    if done == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The alignment that direct I/O on this file requires, as the kernel reports it (STATX_DIOALIGN, Linux 6.1); 0 where the file
/// has no direct I/O. Memory is always aligned: slots begin on pages.
fn alignment(file: &File) -> Option<usize> {
    const STATX_DIOALIGN: libc::c_uint = 0x2000;
    // Words of struct statx: stx_mask, stx_dio_mem_align, stx_dio_offset_align.
    const MASK: usize = 0;
    const MEMORY: usize = 38;
    const OFFSET: usize = 39;
    let mut answer = [0u32; 64];
    // SAFETY: an empty path means the descriptor; the answer has the 256 bytes of a struct statx.
    let done = unsafe {
        libc::syscall(
            libc::SYS_statx,
            file.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            STATX_DIOALIGN,
            answer.as_mut_ptr(),
        )
    };
    (done == 0 && answer[MASK] & STATX_DIOALIGN != 0).then_some(answer[OFFSET].max(answer[MEMORY]) as usize)
}

/// Why O_DIRECT on this file would still use the page cache, where the kernel accepts the flag.
fn pretends(file: &File) -> Option<Buffered> {
    // SAFETY: zeroed is a valid statfs, and the descriptor is open.
    let kind = unsafe {
        let mut answer: libc::statfs = std::mem::zeroed();
        (libc::fstatfs(file.as_raw_fd(), &mut answer) == 0).then_some(answer.f_type)
    };
    if kind == Some(libc::TMPFS_MAGIC) {
        return Some(Buffered::Refused("the file lies in memory (tmpfs)".into()));
    }
    let none = alignment(file) == Some(0);
    none.then(|| Buffered::Refused("the file system has no direct I/O for this file".into()))
}
