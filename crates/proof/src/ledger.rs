//! What a driver was asked for and has not been given back: descriptors, mappings, RM objects, UVM ranges, channels.
//!
//! A [`Ledger`] stands in front of any driver and counts. Other threads of the process do not disturb it, as they would a
//! look at `/proc/self/fd`.

use rm::abi::{self, nr, uvm};
use rm::driver::{Driver, UvmParams};
use std::ffi::{CStr, c_void};
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// What is out at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    pub descriptors: i64,
    pub mapped_bytes: i64,
    /// RM objects, by RM_ALLOC and RM_FREE. What goes with its parent, without a call of its own, stays counted.
    pub objects: i64,
    pub ranges: i64,
    pub channels: i64,
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Balance { descriptors, mapped_bytes, objects, ranges, channels } = self;
        write!(
            f,
            "{descriptors} descriptors, {mapped_bytes} mapped bytes, {objects} RM objects, {ranges} UVM ranges, \
             {channels} registered channels"
        )
    }
}

/// A driver whose calls are counted.
pub struct Ledger {
    driver: Arc<dyn Driver>,
    descriptors: AtomicI64,
    mapped_bytes: AtomicI64,
    objects: AtomicI64,
    ranges: AtomicI64,
    channels: AtomicI64,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.balance().fmt(f)
    }
}

impl Ledger {
    pub fn new(driver: Arc<dyn Driver>) -> Ledger {
        let zero = || AtomicI64::new(0);
        Ledger { driver, descriptors: zero(), mapped_bytes: zero(), objects: zero(), ranges: zero(), channels: zero() }
    }

    pub fn balance(&self) -> Balance {
        let read = |counter: &AtomicI64| counter.load(Ordering::Relaxed);
        Balance {
            descriptors: read(&self.descriptors),
            mapped_bytes: read(&self.mapped_bytes),
            objects: read(&self.objects),
            ranges: read(&self.ranges),
            channels: read(&self.channels),
        }
    }

    /// # Safety
    /// `arg` is what `request` takes, as the driver has left it.
    unsafe fn count(&self, request: u64, arg: *const c_void) {
        /// The status of a UVM call's struct.
        unsafe fn status<T: UvmParams>(arg: *const c_void) -> u32 {
            // SAFETY: the caller's contract: the struct is the request's.
            unsafe { arg.cast::<T>().read_unaligned() }.status()
        }
        // SAFETY: the caller's contract, for every struct below.
        let (counter, step, status) = unsafe {
            match (abi::rm_nr(request), request) {
                (Some(nr::ALLOC), _) if abi::request_size(request) == size_of::<abi::Nvos21>() => {
                    (&self.objects, 1, arg.cast::<abi::Nvos21>().read_unaligned().status)
                }
                (Some(nr::ALLOC), _) => (&self.objects, 1, arg.cast::<abi::Nvos64>().read_unaligned().status),
                (Some(nr::FREE), _) => (&self.objects, -1, arg.cast::<abi::Nvos00>().read_unaligned().status),
                (_, uvm::CREATE_EXTERNAL_RANGE) => (&self.ranges, 1, status::<uvm::Range>(arg)),
                (_, uvm::FREE) => (&self.ranges, -1, status::<uvm::Range>(arg)),
                (_, uvm::REGISTER_CHANNEL) => (&self.channels, 1, status::<uvm::RegisterChannel>(arg)),
                (_, uvm::UNREGISTER_CHANNEL) => (&self.channels, -1, status::<uvm::UnregisterChannel>(arg)),
                _ => return,
            }
        };
        if status == 0 {
            counter.fetch_add(step, Ordering::Relaxed);
        }
    }
}

impl Driver for Ledger {
    fn open(&self, path: &CStr) -> io::Result<RawFd> {
        let fd = self.driver.open(path)?;
        self.descriptors.fetch_add(1, Ordering::Relaxed);
        Ok(fd)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void) -> io::Result<()> {
        // SAFETY: the caller's contract.
        unsafe {
            self.driver.ioctl(fd, request, arg)?;
            self.count(request, arg);
        }
        Ok(())
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
        let at = unsafe { self.driver.mmap(addr, len, prot, flags, fd, offset) }?;
        self.mapped_bytes.fetch_add(len as i64, Ordering::Relaxed);
        Ok(at)
    }

    unsafe fn munmap(&self, addr: *mut c_void, len: usize) -> io::Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.driver.munmap(addr, len) }?;
        self.mapped_bytes.fetch_sub(len as i64, Ordering::Relaxed);
        Ok(())
    }

    fn close(&self, fd: RawFd) -> io::Result<()> {
        self.driver.close(fd)?;
        self.descriptors.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}
