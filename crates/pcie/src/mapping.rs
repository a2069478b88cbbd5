//! Memory that this process has mapped, until it is dropped.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

pub(crate) struct Mapping {
    at: NonNull<u8>,
    length: usize,
}

// SAFETY: an address range; whoever accesses it says how.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// `length` bytes of a file, shared, from `offset` on. A child of fork(2) does not get them.
    pub(crate) fn of(file: &File, offset: u64, length: u64) -> io::Result<Mapping> {
        let mapping = Mapping::map(file.as_raw_fd(), offset, length, libc::MAP_SHARED)?;
        mapping.not_in_children();
        Ok(mapping)
    }

    /// `length` bytes of memory of its own, zeroed and there; `flags` as MAP_HUGETLB. A child of fork(2) does not get them.
    pub(crate) fn anonymous(length: u64, flags: i32) -> io::Result<Mapping> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE | flags;
        let mapping = Mapping::map(-1, 0, length, flags)?;
        mapping.not_in_children();
        Ok(mapping)
    }

    fn map(file: i32, offset: u64, length: u64, flags: i32) -> io::Result<Mapping> {
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        let offset = i64::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, file, offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let at = NonNull::new(at.cast()).ok_or(io::ErrorKind::Other)?;
        Ok(Mapping { at, length })
    }

    /// A copy that is made on write would leave the device with the page and one of the two processes without it.
    fn not_in_children(&self) {
        // SAFETY: our own mapping. Where it fails, children share it, which harms nothing that they do not touch.
        unsafe { libc::madvise(self.at.as_ptr().cast(), self.length, libc::MADV_DONTFORK) };
    }

    pub(crate) fn at(&self) -> NonNull<u8> {
        self.at
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: our own mapping, which nobody uses any more: what points into it holds it.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.length) };
    }
}
