//! The software GPU as a [`Driver`] in the same process: for tests, each with its own machine.
//!
//! Doorbell pages trap here as they do under preload: the first one that is mapped installs the SIGSEGV handler.

use crate::counters::Counters;
use crate::kernel::{Machine, Mode, Node};
use crate::planted::Planted;
use crate::pool::Pool;
use crate::{doorbell, sys};
use rm::driver::Driver;
use std::ffi::{CStr, c_void};
use std::io;
use std::os::fd::{BorrowedFd, RawFd};

/// A machine with one software GPU.
#[derive(Clone, Copy, Debug)]
pub struct SoftDriver {
    pub machine: &'static Machine,
}

impl SoftDriver {
    /// A new machine with private counters.
    pub fn new(mode: Mode) -> SoftDriver {
        SoftDriver { machine: Machine::new(mode, Counters::private()) }
    }

    /// A new machine whose GPU memory is in one file, contiguous and at the bus address `bus`, so that a device on another bus can access it.
    ///
    /// # Errors
    /// Where the file cannot be mapped.
    pub fn with_video(mode: Mode, file: BorrowedFd<'_>, bus: u64) -> io::Result<SoftDriver> {
        let pool = Pool::new(file, bus)?;
        Ok(SoftDriver { machine: Machine::with_video(mode, Counters::private(), Some(pool)) })
    }

    /// A new machine whose driver reports `version` and has the structs of branch `structs`.
    pub fn of_driver(mode: Mode, version: &str, structs: u32) -> SoftDriver {
        SoftDriver { machine: Machine::with_driver(mode, Counters::private(), version, structs) }
    }

    /// A new machine whose GPU is broken in one way.
    pub fn broken(mode: Mode, fault: Planted) -> SoftDriver {
        let driver = SoftDriver::new(mode);
        driver.machine.plant(Some(fault));
        driver
    }

    pub fn counters(&self) -> &'static Counters {
        self.machine.counters
    }
}

fn error(errno: i32) -> io::Error {
    io::Error::from_raw_os_error(errno)
}

impl Driver for SoftDriver {
    fn open(&self, path: &CStr) -> io::Result<RawFd> {
        let node = Node::of_path(path.to_bytes()).ok_or(error(libc::ENOENT))?;
        self.machine.open(node, true).map_err(error)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void) -> io::Result<()> {
        // SAFETY: the caller's contract.
        match unsafe { self.machine.ioctl(fd, request, arg.cast()) } {
            0 => Ok(()),
            errno => Err(error(errno)),
        }
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
        if !self.machine.owns(fd) {
            // SAFETY: the caller's contract.
            let at = unsafe { sys::mmap(addr as usize, len, prot, flags, fd, offset) };
            return if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at) };
        }
        // SAFETY: the caller's contract.
        let at = unsafe { self.machine.mmap(fd, addr as usize, len, prot, flags, offset) };
        at.map(|at| at as *mut c_void).map_err(error)
    }

    unsafe fn munmap(&self, addr: *mut c_void, len: usize) -> io::Result<()> {
        doorbell::forget(addr as usize, len);
        // SAFETY: the caller's contract.
        if unsafe { sys::munmap(addr as usize, len) } < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn close(&self, fd: RawFd) -> io::Result<()> {
        self.machine.closed(fd);
        if sys::close(fd) < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}
