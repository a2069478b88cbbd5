//! Access to the kernel driver, and calls whose results are always checked fully.
//!
//! [`Driver`] is the five system calls that the driver needs. [`Libc`] makes them through libc's exported functions, so
//! that libraries preloaded into the process see them; a software GPU implements the trait in the same process.
//! The functions [`alloc`] to [`uvm_call`] look at both the ioctl's return and the status inside, and name what failed.

mod calls;
mod error;
mod layer;

pub use calls::*;
pub use error::{RmError, Subject};
pub use layer::Layer;

use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::RawFd;

/// What the kernel offers for the driver's files.
pub trait Driver: Send + Sync {
    /// Opens a device node for reading and writing, close-on-exec.
    fn open(&self, path: &CStr) -> io::Result<RawFd>;

    /// One ioctl; a negative return becomes the error of errno.
    ///
    /// # Safety
    /// `arg` points to what `request` takes, and so do the pointers inside, until the call returns.
    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void) -> io::Result<()>;

    /// Maps `len` bytes of `fd` at `offset`; `addr` null lets the kernel choose.
    ///
    /// # Safety
    /// With MAP_FIXED the range holds no memory that is still in use.
    unsafe fn mmap(
        &self,
        addr: *mut c_void,
        len: usize,
        prot: i32,
        flags: i32,
        fd: RawFd,
        offset: i64,
    ) -> io::Result<*mut c_void>;

    /// Unmaps a range.
    ///
    /// # Safety
    /// Nothing refers to the range any more.
    unsafe fn munmap(&self, addr: *mut c_void, len: usize) -> io::Result<()>;

    /// Closes a descriptor.
    fn close(&self, fd: RawFd) -> io::Result<()>;
}

/// The real driver, or whatever is preloaded in front of it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Libc;

impl Driver for Libc {
    fn open(&self, path: &CStr) -> io::Result<RawFd> {
        // SAFETY: the path is a C string.
        let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) };
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(fd) }
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void) -> io::Result<()> {
        // SAFETY: the caller's promise about `arg`.
        let r = unsafe { libc::ioctl(fd, request as _, arg) };
        if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
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
        // SAFETY: the caller's promise about MAP_FIXED.
        let p = unsafe { libc::mmap(addr, len, prot, flags, fd, offset) };
        if p == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(p) }
    }

    unsafe fn munmap(&self, addr: *mut c_void, len: usize) -> io::Result<()> {
        // SAFETY: the caller guarantees that there are no references to the range.
        if unsafe { libc::munmap(addr, len) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn close(&self, fd: RawFd) -> io::Result<()> {
        // SAFETY: close takes any number.
        if unsafe { libc::close(fd) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
