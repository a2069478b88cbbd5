//! A driver whose calls are watched, like libcuda's through its import slots: for programs that drive a GPU without
//! libcuda, and for stand-ins.

use crate::watched::Watched;
use rm::driver::Driver;
use rm::graph::MmapRecord;
use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::RawFd;

/// Passes every call on to the first, and reports it to the second.
#[derive(Clone, Copy, Debug)]
pub struct Watching<D>(pub D, pub &'static Watched);

impl<D: Driver> Driver for Watching<D> {
    fn open(&self, path: &CStr) -> io::Result<RawFd> {
        let fd = self.0.open(path)?;
        self.1.opened(fd, path.to_bytes());
        Ok(fd)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void) -> io::Result<()> {
        let mut answer = Ok(());
        let make = || {
            // SAFETY: the caller's contract.
            answer = unsafe { self.0.ioctl(fd, request, arg) };
            if answer.is_ok() { 0 } else { -1 }
        };
        // SAFETY: the caller's contract.
        unsafe { self.1.ioctl(fd, request, arg, make) };
        answer
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
        let at = unsafe { self.0.mmap(addr, len, prot, flags, fd, offset)? };
        let (addr, len, offset) = (at as u64, len as u64, offset as u64);
        self.1.mapped(MmapRecord { addr, len, offset, fd, prot: prot as u32, flags: flags as u32 });
        Ok(at)
    }

    unsafe fn munmap(&self, addr: *mut c_void, len: usize) -> io::Result<()> {
        self.1.unmapped(addr as u64, len as u64);
        // SAFETY: the caller's contract.
        unsafe { self.0.munmap(addr, len) }
    }

    fn close(&self, fd: RawFd) -> io::Result<()> {
        self.1.closed(fd);
        self.0.close(fd)
    }
}
