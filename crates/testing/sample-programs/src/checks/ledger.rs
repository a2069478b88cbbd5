//! What a driver has handed out and not yet got back: descriptors, mappings, RM objects, UVM ranges, channels.
//!
//! A [`Ledger`] wraps any driver and counts its calls. Other threads of the process do not disturb it, as they would disturb a listing of
//! `/proc/self/fd`.

use rm::abi::{self, nr, uvm};
use rm::driver::{Driver, UvmParams};
use std::collections::HashMap;
use std::ffi::{CStr, c_void};
use std::fmt;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// The open items at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    pub descriptors: i64,
    pub mapped_bytes: i64,
    /// RM objects, by RM_ALLOC and RM_FREE; the children of a freed object are freed, too.
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

/// Objects of all clients: client and handle, and the handle of the parent.
#[derive(Debug, Default)]
struct Tree {
    parents: HashMap<(u32, u32), u32>,
}

impl Tree {
    fn made(&mut self, client: u32, parent: u32, object: u32) {
        self.parents.insert((client, object), parent);
    }

    /// Removes an object with all its children, and a client with all its objects.
    fn freed(&mut self, client: u32, object: u32) {
        if client == object {
            return self.parents.retain(|(owner, _), _| *owner != client);
        }
        let mut gone = vec![object];
        while let Some(object) = gone.pop() {
            self.parents.remove(&(client, object));
            let below = self.parents.iter().filter(|((owner, _), parent)| *owner == client && **parent == object);
            gone.extend(below.map(|((_, handle), _)| *handle));
        }
    }
}

/// A driver whose calls are counted.
pub struct Ledger {
    driver: Arc<dyn Driver>,
    descriptors: AtomicI64,
    mapped_bytes: AtomicI64,
    objects: Mutex<Tree>,
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
        Ledger {
            driver,
            descriptors: zero(),
            mapped_bytes: zero(),
            objects: Mutex::default(),
            ranges: zero(),
            channels: zero(),
        }
    }

    pub fn balance(&self) -> Balance {
        let read = |counter: &AtomicI64| counter.load(Ordering::Relaxed);
        Balance {
            descriptors: read(&self.descriptors),
            mapped_bytes: read(&self.mapped_bytes),
            objects: self.objects().parents.len() as i64,
            ranges: read(&self.ranges),
            channels: read(&self.channels),
        }
    }

    fn objects(&self) -> MutexGuard<'_, Tree> {
        poison::ignore(self.objects.lock())
    }

    /// # Safety
    /// `arg` points to the argument of `request`, as the driver has left it.
    unsafe fn count(&self, request: u64, arg: *const c_void) {
        /// A call's struct.
        unsafe fn read<T: abi::Plain>(arg: *const c_void) -> T {
            // SAFETY: the caller's contract: the struct is the request's.
            unsafe { arg.cast::<T>().read_unaligned() }
        }
        // SAFETY: the caller's contract, for every struct below.
        let (counter, step, status) = unsafe {
            match (abi::rm_nr(request), request) {
                (Some(nr::ALLOC), _) if abi::request_size(request) == size_of::<abi::Nvos21>() => {
                    let call: abi::Nvos21 = read(arg);
                    return self.allocated(call.root, call.parent, call.new, call.status);
                }
                (Some(nr::ALLOC), _) => {
                    let call: abi::Nvos64 = read(arg);
                    return self.allocated(call.root, call.parent, call.new, call.status);
                }
                (Some(nr::DUP_OBJECT), _) => {
                    let call: abi::Nvos55 = read(arg);
                    return self.allocated(call.client, call.parent, call.object, call.status);
                }
                (Some(nr::FREE), _) => {
                    let call: abi::Nvos00 = read(arg);
                    if call.status == 0 {
                        self.objects().freed(call.root, call.old);
                    }
                    return;
                }
                (_, uvm::CREATE_EXTERNAL_RANGE) => (&self.ranges, 1, read::<uvm::Range>(arg).status()),
                (_, uvm::FREE) => (&self.ranges, -1, read::<uvm::Range>(arg).status()),
                (_, uvm::REGISTER_CHANNEL) => (&self.channels, 1, read::<uvm::RegisterChannel>(arg).status()),
                (_, uvm::UNREGISTER_CHANNEL) => (&self.channels, -1, read::<uvm::UnregisterChannel>(arg).status()),
                _ => return,
            }
        };
        if status == 0 {
            counter.fetch_add(step, Ordering::Relaxed);
        }
    }

    fn allocated(&self, client: u32, parent: u32, object: u32, status: u32) {
        if status == 0 {
            // A client is its own root, whatever the call contains.
            let client = if parent == 0 || client == 0 { object } else { client };
            self.objects().made(client, parent, object);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_of_a_freed_object_are_freed() {
        let mut tree = Tree::default();
        for (client, parent, object) in
            [(1, 0, 1), (1, 1, 10), (1, 10, 11), (1, 11, 12), (1, 1, 20), (2, 0, 2), (2, 2, 11)]
        {
            tree.made(client, parent, object);
        }
        tree.freed(1, 10);
        let mut left: Vec<_> = tree.parents.keys().copied().collect();
        left.sort_unstable();
        assert_eq!(left, [(1, 1), (1, 20), (2, 2), (2, 11)]);
        tree.freed(2, 2);
        assert_eq!(tree.parents.len(), 2);
    }
}
