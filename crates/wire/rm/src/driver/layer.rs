use super::Driver;
use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::RawFd;

/// A driver in front of another one, which makes every call that the layer does not make itself. The contract of each function
/// is that of the same function of [`Driver`].
#[allow(clippy::missing_safety_doc, reason = "said once, above")]
pub trait Layer: Send + Sync {
    /// The next driver.
    fn below(&self) -> &dyn Driver;

    fn open(&self, path: &CStr) -> io::Result<RawFd> {
        self.below().open(path)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void) -> io::Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.below().ioctl(fd, request, arg) }
    }

    unsafe fn mmap(
        &self,
        addr: *mut c_void,
        len: usize,
        prot: i32,
        flags: i32,
        fd: RawFd,
        offset: i64,
    ) -> io::Result<*mut c_void> {
        // SAFETY: the caller's contract.
        unsafe { self.below().mmap(addr, len, prot, flags, fd, offset) }
    }

    unsafe fn munmap(&self, addr: *mut c_void, len: usize) -> io::Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.below().munmap(addr, len) }
    }

    fn close(&self, fd: RawFd) -> io::Result<()> {
        self.below().close(fd)
    }
}

impl<L: Layer> Driver for L {
    fn open(&self, path: &CStr) -> io::Result<RawFd> {
        Layer::open(self, path)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void) -> io::Result<()> {
        // SAFETY: the caller's contract.
        unsafe { Layer::ioctl(self, fd, request, arg) }
    }

    unsafe fn mmap(
        &self,
        addr: *mut c_void,
        len: usize,
        prot: i32,
        flags: i32,
        fd: RawFd,
        offset: i64,
    ) -> io::Result<*mut c_void> {
        // SAFETY: the caller's contract.
        unsafe { Layer::mmap(self, addr, len, prot, flags, fd, offset) }
    }

    unsafe fn munmap(&self, addr: *mut c_void, len: usize) -> io::Result<()> {
        // SAFETY: the caller's contract.
        unsafe { Layer::munmap(self, addr, len) }
    }

    fn close(&self, fd: RawFd) -> io::Result<()> {
        Layer::close(self, fd)
    }
}
