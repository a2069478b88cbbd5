//! The real function of each entry.
//!
//! Each function of the table has several entries, because several real functions may exist at a time: its variants,
//! results of cuGetProcAddress, and libraries that are loaded twice. The entries themselves are code ([`super::entry`]),
//! whose addresses are passed to [`place`].

use crate::process::maps::{self, EXECUTE};
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tape::call::FUNCTIONS;

/// Indices of cuGetProcAddress and cuGetExportTable, after the functions.
pub const LOOKUP: usize = FUNCTIONS.len();
pub const EXPORT_TABLE: usize = LOOKUP + 1;
pub const COUNT: usize = EXPORT_TABLE + 1;
/// Entries of a function.
pub const WAYS: usize = 8;
/// Bytes of an entry.
pub const STEP: usize = 16;

/// The real function of an entry.
pub struct Slot {
    /// Its address; 0 while the entry is not in use.
    pub real: AtomicUsize,
    /// [`tape::call::flag`]
    pub flags: AtomicU32,
}

static SLOTS: [Slot; COUNT * WAYS] =
    [const { Slot { real: AtomicUsize::new(0), flags: AtomicU32::new(0) } }; COUNT * WAYS];

/// Address of each function's first entry; 0 before [`place`].
static FIRST: [AtomicUsize; COUNT] = [const { AtomicUsize::new(0) }; COUNT];

/// The slot of entry number `i`.
///
/// # Safety
/// The number is from an entry.
#[inline(always)]
pub unsafe fn slot(i: usize) -> &'static Slot {
    // SAFETY: the caller's.
    unsafe { SLOTS.get_unchecked(i) }
}

/// Stores that the entries of function `f` begin at `first`, [`STEP`] bytes each.
pub fn place(f: usize, first: usize) {
    if let Some(to) = FIRST.get(f) {
        to.store(first, Ordering::Relaxed);
    }
}

pub fn first(f: usize) -> usize {
    FIRST.get(f).map_or(0, |at| at.load(Ordering::Relaxed))
}

/// The entry of function `f` (its index in the table, [`LOOKUP`] or [`EXPORT_TABLE`]) for the real function at `real`. `None` if the index
/// is out of range, or all its entries are used by others. One thread at a time: see [`super::find`].
pub fn of(f: usize, real: usize, flags: u16) -> Option<usize> {
    let ways = SLOTS.get(f * WAYS..(f + 1) * WAYS)?;
    let is = |e: &Slot| e.real.load(Ordering::Relaxed) == real;
    let way = ways.iter().position(is).or_else(|| {
        let free = || ways.iter().position(|e| e.real.load(Ordering::Relaxed) == 0);
        let free = free().or_else(|| {
            forget_unloaded(ways);
            free()
        })?;
        let e = ways.get(free)?;
        e.flags.store(u32::from(flags), Ordering::Relaxed);
        // ORDERING: Release: code that gets the entry's address sees the rest.
        e.real.store(real, Ordering::Release);
        Some(free)
    })?;
    Some(first(f) + way * STEP)
}

/// Frees entries whose function was unloaded with its library. (Not from the loader's list, which has one namespace
/// only.)
#[cold]
fn forget_unloaded(ways: &[Slot]) {
    let (mut there, mut shown) = (0u32, false);
    maps::each(&mut [0; 2048], |m, _| {
        shown = true;
        for (i, e) in ways.iter().enumerate() {
            let inside = (m.start..m.end).contains(&e.real.load(Ordering::Relaxed));
            there |= u32::from(inside && m.rights & EXECUTE != 0) << i;
        }
        false
    });
    // (If the kernel shows no mappings, no function counts as unloaded.)
    if shown {
        let gone = ways.iter().enumerate().filter(|(i, _)| there >> i & 1 == 0);
        gone.for_each(|(_, e)| e.real.store(0, Ordering::Relaxed));
    }
}

/// A function has one of these entries.
pub fn is_used(f: usize) -> bool {
    let ways = SLOTS.get(f * WAYS..(f + 1) * WAYS);
    ways.is_some_and(|ways| ways.iter().any(|e| e.real.load(Ordering::Relaxed) != 0))
}

/// The real function of an entry, if `at` is the address of one.
pub fn real(at: usize) -> Option<usize> {
    let f = (0..COUNT).find(|&f| at.wrapping_sub(first(f)) < WAYS * STEP)?;
    let e = SLOTS.get(f * WAYS + (at - first(f)) / STEP)?;
    Some(e.real.load(Ordering::Relaxed))
}
