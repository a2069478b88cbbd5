//! The entries: what stands in a symbol table instead of a function of CUDA's.
//!
//! Each function of the table has several, for the real functions that it may stand for at a time: its variants, what
//! cuGetProcAddress gives, and libraries that are loaded twice. An entry pushes its number and calls [`tap::call`],
//! which so finds, behind the arguments in registers: that number, the address that the caller goes on at, and the
//! caller's arguments on the stack.

use super::{proc_address, tap};
use core::arch::naked_asm;
use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use tape::call::FUNCTIONS;

/// Functions, and behind them cuGetProcAddress.
pub const LOOKUP: usize = FUNCTIONS.len();
const COUNT: usize = LOOKUP + 1;
/// Entries of a function.
const WAYS: usize = 8;
/// Bytes of an entry.
const STEP: usize = 16;

/// An entry.
pub struct Entry {
    /// The function behind it; 0 while it is not in use.
    pub real: AtomicUsize,
    /// [`tape::call::flag`]
    pub flags: AtomicU32,
}

static ENTRIES: [Entry; COUNT * WAYS] =
    [const { Entry { real: AtomicUsize::new(0), flags: AtomicU32::new(0) } }; COUNT * WAYS];

/// Entry number `i`.
///
/// # Safety
/// The number comes from an entry.
#[inline(always)]
pub unsafe fn entry(i: usize) -> &'static Entry {
    // SAFETY: the caller's.
    unsafe { ENTRIES.get_unchecked(i) }
}

macro_rules! entries {
    ($name:ident, $to:path) => {
        /// The entries of function `F`.
        #[unsafe(naked)]
        extern "C" fn $name<const F: usize>() {
            naked_asm!(
                ".set .Lway, 0",
                ".rept {ways}",
                ".p2align 4, 0xcc",
                ".cfi_startproc",
                // push imm32, which the assembler would take for a load
                ".byte 0x68",
                ".long {first} + .Lway",
                ".cfi_adjust_cfa_offset 8",
                "call {to}",
                "add rsp, 8",
                ".cfi_adjust_cfa_offset -8",
                "ret",
                ".cfi_endproc",
                ".set .Lway, .Lway + 1",
                ".endr",
                ways = const WAYS,
                first = const F * WAYS,
                to = sym $to,
            )
        }
    };
}

entries!(calls, tap::call::<F>);
entries!(lookups, proc_address::call::<F>);

macro_rules! table {
    ($($n:literal)*) => {
        [$(if $n < LOOKUP { calls::<{ if $n < LOOKUP { $n } else { 0 } }> } else { lookups::<LOOKUP> }),*]
    };
}

/// The first entry of each function, from the next multiple of [`STEP`] on.
static FIRST: [extern "C" fn(); COUNT] = table!(
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37 38 39 40
    41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77
    78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108
);

fn first(f: usize) -> usize {
    FIRST.get(f).map_or(0, |at| (*at as usize).next_multiple_of(STEP))
}

/// The entry of function `f` (its place in the table, or [`LOOKUP`]) for the real function at `real`. `None` if it is no
/// function's place, or all its entries stand for others. One thread at a time: see [`super::find`].
pub fn of(f: usize, real: usize, flags: u16) -> Option<usize> {
    let ways = ENTRIES.get(f * WAYS..(f + 1) * WAYS)?;
    let is = |e: &Entry| e.real.load(Ordering::Relaxed) == real;
    let way = ways.iter().position(is).or_else(|| {
        let free = ways.iter().position(|e| e.real.load(Ordering::Relaxed) == 0)?;
        let e = ways.get(free)?;
        e.flags.store(u32::from(flags), Ordering::Relaxed);
        // ORDERING: Release: whoever gets the entry's address finds the rest.
        e.real.store(real, Ordering::Release);
        Some(free)
    })?;
    Some(first(f) + way * STEP)
}

/// The function behind an entry, if `at` is the address of one.
pub fn real(at: usize) -> Option<usize> {
    let f = (0..COUNT).find(|&f| at.wrapping_sub(first(f)) < WAYS * STEP)?;
    let e = ENTRIES.get(f * WAYS + (at - first(f)) / STEP)?;
    Some(e.real.load(Ordering::Relaxed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_pushes_its_number_and_calls() {
        for f in 0..COUNT {
            for way in 0..WAYS {
                let at = first(f) + way * STEP;
                assert_eq!(real(at), Some(0));
                // SAFETY: code of this library.
                let code = unsafe { core::slice::from_raw_parts(at as *const u8, STEP) };
                let number = u32::from_le_bytes(code[1..5].try_into().unwrap());
                assert_eq!((code[0], number as usize, code[5]), (0x68, f * WAYS + way, 0xe8), "{f} {way}");
                assert_eq!(code[10..15], [0x48, 0x83, 0xc4, 0x08, 0xc3], "{f} {way}");
            }
        }
        assert_eq!(real(first as *const () as usize), None);
    }
}
