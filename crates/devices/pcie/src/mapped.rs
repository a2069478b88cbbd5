//! Memory files without names, and address ranges of this process, of memory or of a device, that are unmapped on drop.

use crate::error::Error;
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;

/// Shared memory, which child processes share if they inherit the file.
///
/// # Errors
/// [`Error::System`].
pub fn memory_file(name: &CStr, bytes: u64) -> Result<OwnedFd, Error> {
    // SAFETY: the name is a C string; the result is checked.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(Error::system("a memory file", io::Error::last_os_error()));
    }
    // SAFETY: a descriptor without another owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: sets the length of a file that this function made.
    if unsafe { libc::ftruncate(fd.as_raw_fd(), bytes as libc::off_t) } < 0 {
        return Err(Error::system(format!("a memory file of {bytes} bytes"), io::Error::last_os_error()));
    }
    Ok(fd)
}

const ACCESS: i32 = libc::PROT_READ | libc::PROT_WRITE;
const PRIVATE: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;

pub(crate) struct Mapped {
    pub at: NonNull<u8>,
    length: usize,
}

// SAFETY: memory that stays mapped as long as this lives; all accesses use raw pointers.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Reserved addresses without memory.
    pub fn reserve(length: u64) -> Result<Mapped, Error> {
        let mapped = Mapped::new(-1, 0, length, libc::PROT_NONE, PRIVATE | libc::MAP_NORESERVE);
        mapped.map_err(|why| Error::system(format!("{length} bytes of addresses"), why))
    }

    /// Zeroed memory of this process alone.
    pub fn zeroed(length: u64) -> Result<Mapped, Error> {
        let mapped = Mapped::new(-1, 0, length, ACCESS, PRIVATE);
        mapped.map_err(|why| Error::system(format!("{length} bytes of memory"), why))
    }

    /// A file's begin.
    pub fn of(file: &OwnedFd, length: u64) -> Result<Mapped, Error> {
        let mapped = Mapped::new(file.as_raw_fd(), 0, length, ACCESS, libc::MAP_SHARED);
        mapped.map_err(|why| Error::system("mapping a memory file", why))
    }

    fn new(file: i32, offset: libc::off_t, length: u64, access: i32, flags: i32) -> io::Result<Mapped> {
        let length = usize::try_from(length).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: new addresses, wherever the kernel likes.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), length, access, flags, file, offset) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Mapped { at: NonNull::new(at.cast()).ok_or(io::ErrorKind::Other)?, length })
    }

    /// Puts a part of `file` at `offset` of these addresses.
    ///
    /// # Panics
    /// If it would exceed them.
    pub fn put(&self, offset: u64, file: &OwnedFd, from: u64, length: u64) -> Result<(), Error> {
        assert!(offset.checked_add(length).is_some_and(|end| end <= self.length as u64), "{offset:#x} + {length:#x}");
        // SAFETY: within this value's own addresses, as was just checked.
        let at = unsafe {
            let to = self.at.as_ptr().add(offset as usize).cast();
            libc::mmap(
                to,
                length as usize,
                ACCESS,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_raw_fd(),
                from as libc::off_t,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(Error::system("mapping a memory file", io::Error::last_os_error()));
        }
        Ok(())
    }
}

/// Mappings for a device's DMA or registers.
impl Mapped {
    /// `length` bytes of a device's file, or of one of huge pages, from `offset` on.
    pub fn part(file: &File, offset: u64, length: u64) -> io::Result<Mapped> {
        let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
        Mapped::of_device(file.as_raw_fd(), offset, length, libc::MAP_SHARED)
    }

    /// `length` bytes that are to be pinned: of huge pages that are reserved, or of those that the kernel makes where it can.
    pub fn to_pin(length: u64, reserved: bool) -> io::Result<Mapped> {
        let flags = if reserved { libc::MAP_HUGETLB | libc::MAP_HUGE_2MB } else { 0 };
        let mapped = Mapped::of_device(-1, 0, length, PRIVATE | flags)?;
        mapped.advise(libc::MADV_HUGEPAGE);
        Ok(mapped)
    }

    fn of_device(file: i32, offset: libc::off_t, length: u64, flags: i32) -> io::Result<Mapped> {
        let mapped = Mapped::new(file, offset, length, ACCESS, flags)?;
        // A copy that fork(2) makes on write would leave the device with the page and one of the two processes without it.
        mapped.advise(libc::MADV_DONTFORK);
        Ok(mapped)
    }

    /// Only a request: if the kernel ignores it, everything still works.
    fn advise(&self, advice: i32) {
        // SAFETY: this value's own addresses; neither kind of advice changes the contents.
        unsafe { libc::madvise(self.at.as_ptr().cast(), self.length, advice) };
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: the range that `new` mapped; no references remain.
        unsafe { libc::munmap(self.at.as_ptr().cast(), self.length) };
    }
}
