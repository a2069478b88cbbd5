//! Doorbell pages: the program's usermode mappings, and the agent's second mapping of each.
//!
//! The program's mapping is made read-only. Its loads (the GPU's clock, a flush) still reach the hardware; its stores
//! fault until their site is rewritten. The store itself is made through the agent's mapping.

use crate::fault;
use crate::process::real;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

pub const PAGES: usize = 32;
/// Device of a page that a forked child has inherited: its doorbells are passed through.
pub const INHERITED: u32 = u32::MAX;

struct Page {
    /// The program's mapping; [`FREE`] or [`TAKEN`] if there is none.
    addr: AtomicU64,
    len: AtomicU64,
    real: AtomicU64,
    device: AtomicU32,
}

static TABLE: [Page; PAGES] = [const {
    Page { addr: AtomicU64::new(0), len: AtomicU64::new(0), real: AtomicU64::new(0), device: AtomicU32::new(0) }
}; PAGES];

const FREE: u64 = 0;
/// A thread is writing the entry. There is no page yet.
const TAKEN: u64 = 1;

impl Page {
    /// Address of the program's mapping, if there is one.
    fn at(&self) -> Option<u64> {
        // ORDERING: Acquire: a thread that sees the address also sees the rest of the page's data.
        Some(self.addr.load(Ordering::Acquire)).filter(|a| ![FREE, TAKEN].contains(a))
    }

    fn overlaps(&self, from: u64, len: u64) -> bool {
        let end = |a: u64| a + self.len.load(Ordering::Relaxed);
        self.at().is_some_and(|a| a < from.saturating_add(len) && end(a) > from)
    }
}

/// Page and offset of an address, if it is in a doorbell page.
#[inline]
pub fn find(addr: u64) -> Option<(usize, u64)> {
    TABLE.iter().enumerate().find_map(|(i, p)| {
        let offset = addr.checked_sub(p.at()?)?;
        (offset < p.len.load(Ordering::Relaxed)).then_some((i, offset))
    })
}

/// Address of the agent's mapping of page `p`.
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
    let at = |f: &dyn Fn(&Page) -> bool| TABLE.iter().position(|p| p.at().is_some() && f(p));
    at(&|p| p.device.load(Ordering::Relaxed) == device).or_else(|| at(&|_| true))
}

/// Adds a page; `None` if the table is full. Several threads may do that at once.
pub fn add(addr: u64, len: u64, real: u64, device: u32) -> Option<usize> {
    // ORDERING: Acquire: the thread that gave the entry back has read all of it.
    let take = |p: &Page| p.addr.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let i = TABLE.iter().position(take)?;
    let p = &TABLE[i];
    p.len.store(len, Ordering::Relaxed);
    p.real.store(real, Ordering::Relaxed);
    p.device.store(device, Ordering::Relaxed);
    // ORDERING: Release: the rest of the page before its address makes it findable.
    p.addr.store(addr, Ordering::Release);
    Some(i)
}

/// Gives a page back to the program: its later stores reach the hardware unseen. True on success.
pub fn open(p: usize) -> bool {
    let Some(page) = TABLE.get(p) else { return false };
    let (addr, len) = (page.at(), page.len.load(Ordering::Relaxed));
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: the program's own mapping, given the rights that it asked for.
    let open = addr.is_some_and(|addr| unsafe { real::mprotect(addr as *mut _, len as usize, rw) } == 0);
    fault::allowed();
    open
}

/// True if at least one doorbell page is tapped.
pub fn any() -> bool {
    TABLE.iter().any(|p| p.at().is_some())
}

/// True if a page overlaps `from..from+len`.
pub fn overlaps(from: u64, len: u64) -> bool {
    TABLE.iter().any(|p| p.overlaps(from, len))
}

/// Removes pages that overlap `from..from+len` and passes their real mappings to `each`. Cold zone only.
pub fn remove(from: u64, len: u64, mut each: impl FnMut(u64, u64)) {
    for p in TABLE.iter().filter(|p| p.overlaps(from, len)) {
        let (real, len) = (p.real.swap(0, Ordering::Relaxed), p.len.load(Ordering::Relaxed));
        // ORDERING: Release: from here on another thread may write the entry.
        p.addr.store(FREE, Ordering::Release);
        each(real, len);
        fault::allowed();
    }
}

/// In a forked child: the pages are the parent's.
pub fn renew() {
    for p in TABLE.iter().filter(|p| p.at().is_some()) {
        p.device.store(INHERITED, Ordering::Relaxed);
    }
    // (Other threads of the parent were writing these.)
    for p in &TABLE {
        if p.addr.load(Ordering::Relaxed) == TAKEN {
            p.addr.store(FREE, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_of_several_threads_finds_its_own_page_and_what_belongs_to_it() {
        const LEN: u64 = 0x10000;
        std::thread::scope(|s| {
            for thread in 1..5u64 {
                s.spawn(move || {
                    for time in 0..25_000 {
                        let (addr, real) = (thread << 32, thread << 40 | time);
                        let i = add(addr, LEN, real, thread as u32).expect("there is room");
                        assert_eq!(find(addr + 0x90), Some((i, 0x90)));
                        assert_eq!((self::real(i), device(i)), (Some(real), thread as u32));
                        assert!(overlaps(addr + 1, 1) && !overlaps(addr + LEN, 1));
                        let mut gone = Vec::new();
                        remove(addr, LEN, |real, len| gone.push((real, len)));
                        assert_eq!(gone, [(real, LEN)]);
                        assert_eq!(find(addr + 0x90), None);
                    }
                });
            }
        });
        assert!(!any());
    }
}
