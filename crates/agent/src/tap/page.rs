//! Doorbell pages: usermode mappings that the program was given, and our second mapping of each.
//!
//! The program's mapping is made read-only: its loads (the GPU's clock, a flush) go to the hardware unhindered, its
//! stores fault until their site is rewritten. Ours is where the store is made in the end.

use crate::fault;
use crate::process::real;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub const PAGES: usize = 32;
/// Device of a page that a forked child has inherited: its doorbells are passed through.
pub const INHERITED: u32 = u32::MAX;

struct Page {
    /// The program's mapping; 0 is free.
    addr: AtomicU64,
    len: AtomicU64,
    real: AtomicU64,
    device: AtomicU32,
}

static TABLE: [Page; PAGES] = [const {
    Page { addr: AtomicU64::new(0), len: AtomicU64::new(0), real: AtomicU64::new(0), device: AtomicU32::new(0) }
}; PAGES];

/// Page and offset of an address, if it lies in a doorbell page.
#[inline]
pub fn find(addr: u64) -> Option<(usize, u64)> {
    for (i, p) in TABLE.iter().enumerate() {
        let a = p.addr.load(Ordering::Acquire);
        if a != 0 && addr >= a && addr - a < p.len.load(Ordering::Relaxed) {
            return Some((i, addr - a));
        }
    }
    None
}

/// Where page `p` is really mapped.
#[inline]
pub fn real(p: usize) -> Option<u64> {
    TABLE.get(p).map(|p| p.real.load(Ordering::Relaxed)).filter(|&r| r != 0)
}

/// Device handle that the page belongs to, 0 if unknown.
#[inline]
pub fn device(p: usize) -> u32 {
    TABLE.get(p).map_or(0, |p| p.device.load(Ordering::Relaxed))
}

/// A page of this device, or any if the device is not known.
pub fn of_device(device: u32) -> Option<usize> {
    let used = |p: &&Page| p.addr.load(Ordering::Acquire) != 0;
    let at = |f: &dyn Fn(&Page) -> bool| TABLE.iter().position(|p| used(&p) && f(p));
    at(&|p| p.device.load(Ordering::Relaxed) == device).or_else(|| at(&|_| true))
}

/// Adds a page; `None` if the table is full. Cold zone only.
pub fn add(addr: u64, len: u64, real: u64, device: u32) -> Option<usize> {
    let i = TABLE.iter().position(|p| p.addr.load(Ordering::Relaxed) == 0)?;
    let p = &TABLE[i];
    p.len.store(len, Ordering::Relaxed);
    p.real.store(real, Ordering::Relaxed);
    p.device.store(device, Ordering::Relaxed);
    // ORDERING: Release: the rest of the page before its address makes it findable.
    p.addr.store(addr, Ordering::Release);
    Some(i)
}

/// Gives a page back to the program: its stores go to the hardware unseen from now on. True if that worked.
pub fn open(p: usize) -> bool {
    let Some(page) = TABLE.get(p) else { return false };
    let (addr, len) = (page.addr.load(Ordering::Relaxed), page.len.load(Ordering::Relaxed));
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the program's own mapping, given the rights that it asked for.
    let open = addr != 0 && unsafe { real::mprotect(addr as *mut _, len as usize, rw) } == 0;
    fault::allowed();
    open
}

/// True if there is a doorbell page that we tap.
pub fn any() -> bool {
    TABLE.iter().any(|p| p.addr.load(Ordering::Relaxed) != 0)
}

/// True if a page lies in `from..from+len`.
pub fn overlaps(from: u64, len: u64) -> bool {
    TABLE.iter().any(|p| {
        let a = p.addr.load(Ordering::Relaxed);
        a != 0 && a < from.saturating_add(len) && a + p.len.load(Ordering::Relaxed) > from
    })
}

/// Forgets pages that lie in `from..from+len` and hands their real mappings to `each`. Cold zone only.
pub fn remove(from: u64, len: u64, mut each: impl FnMut(u64, u64)) {
    for p in &TABLE {
        let a = p.addr.load(Ordering::Relaxed);
        if a != 0 && a < from.saturating_add(len) && a + p.len.load(Ordering::Relaxed) > from {
            p.addr.store(0, Ordering::Release);
            let real = p.real.swap(0, Ordering::Relaxed);
            each(real, p.len.load(Ordering::Relaxed));
            fault::allowed();
        }
    }
}

/// In a forked child: the pages are the parent's.
pub fn renew() {
    for p in TABLE.iter().filter(|p| p.addr.load(Ordering::Relaxed) != 0) {
        p.device.store(INHERITED, Ordering::Relaxed);
    }
}
