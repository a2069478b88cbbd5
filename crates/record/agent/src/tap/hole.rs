//! Addresses of the program that are unmapped for a moment, while their pages are exchanged. During that moment nothing
//! else may be mapped there.
//!
//! The kernel itself chooses no address below [`HANDED_OUT`]. Only a mapping that the program requests at an address can
//! take that place, and such calls wait ([`place`]).

use crate::process::sys;
use core::sync::atomic::{AtomicU32, Ordering};

/// The kernel itself places nothing below this: both of its layouts begin far above (a third of the address space, or its
/// end).
const HANDED_OUT: u64 = 1 << 40;
/// Naps of 50 us: the longest wait, above a second, for a thread that was taken off its CPU.
const PATIENCE: u32 = 20_000;

/// A hole is open, or about to be.
static OPEN: AtomicU32 = AtomicU32::new(0);
/// Running calls that map at an address of the program's choice.
static PLACING: AtomicU32 = AtomicU32::new(0);

/// True if only the program itself can place a mapping in such a hole.
pub fn is_safe(at: u64, len: u64) -> bool {
    at.checked_add(len).is_some_and(|end| end <= HANDED_OUT)
}

/// While this exists, no mapping is made at an address that the program chooses.
pub struct Hole(());

impl Hole {
    /// `None` if a running call that maps something does not end in time. One at a time: the caller holds the cold zone's
    /// lock.
    pub fn open() -> Option<Hole> {
        // ORDERING: sequentially consistent with `place`: either it sees this store, or this thread sees it counted.
        OPEN.store(1, Ordering::SeqCst);
        let hole = Hole(());
        for _ in 0..PATIENCE {
            if PLACING.load(Ordering::SeqCst) == 0 {
                return Some(hole);
            }
            sys::nap(50_000);
        }
        None
    }
}

impl Drop for Hole {
    fn drop(&mut self) {
        // ORDERING: Release: the pages are back before any thread maps again.
        OPEN.store(0, Ordering::Release);
    }
}

/// Maps something at `at` (0: the kernel chooses), but not while a hole is open.
pub fn place<R>(at: usize, map: impl FnOnce() -> R) -> R {
    if at == 0 {
        return map();
    }
    for _ in 0..PATIENCE {
        // ORDERING: see `Hole::open`.
        PLACING.fetch_add(1, Ordering::SeqCst);
        if OPEN.load(Ordering::SeqCst) == 0 {
            let r = map();
            PLACING.fetch_sub(1, Ordering::Release);
            return r;
        }
        PLACING.fetch_sub(1, Ordering::Release);
        sys::nap(50_000);
    }
    // The hole was not closed in time: this is a handler that interrupted the thread that opened it.
    map()
}

/// In a forked child: other threads' calls are the parent's.
pub fn renew() {
    for n in [&OPEN, &PLACING].iter().filter(|n| n.load(Ordering::Relaxed) != 0) {
        n.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::AtomicBool;

    #[test]
    fn nothing_is_placed_while_a_hole_is_open() {
        let open = AtomicBool::new(false);
        let place_often = || (0..200).for_each(|_| place(4096, || assert!(!open.load(Ordering::SeqCst))));
        std::thread::scope(|s| {
            let threads: Vec<_> = (0..3).map(|_| s.spawn(place_often)).collect();
            while !threads.iter().all(|t| t.is_finished()) {
                let hole = Hole::open().expect("they come to their ends");
                open.store(true, Ordering::SeqCst);
                (0..100).for_each(|_| core::hint::spin_loop());
                // (The kernel chooses: this need not wait.)
                assert!(place(0, || open.load(Ordering::SeqCst)));
                open.store(false, Ordering::SeqCst);
                drop(hole);
            }
        });
    }

    #[test]
    fn only_low_addresses_are_safe() {
        assert!(is_safe(0x2_0060_0000, 0x3000));
        assert!(!is_safe(0x7f00_0000_0000, 0x3000) && !is_safe((1 << 40) - 0x1000, 0x3000) && !is_safe(u64::MAX, 2));
    }
}
