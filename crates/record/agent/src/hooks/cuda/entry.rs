//! The entries, which replace CUDA's functions in a symbol table.
//!
//! An entry pushes its number and calls [`call::call`]. So that function finds, after the arguments in registers: the
//! number, the caller's return address, and the caller's arguments on the stack.

use super::slots::{self, COUNT, EXPORT_TABLE, LOOKUP, STEP, WAYS};
use super::{call, export_table, others, proc_address};
use core::arch::naked_asm;
use tape::call::ROWS;

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

entries!(calls, call::call::<F>);
entries!(rarer, others::call);
entries!(lookups, proc_address::call::<F>);
entries!(export_tables, export_table::call::<F>);

/// Number of functions that fit into [`FIRST`]: 2 to the power of the number of letters below.
const ROOM: usize = 1 << 10;
const _: () = assert!(COUNT <= ROOM, "one letter more");

type Code = extern "C" fn();

/// Pairs of pairs of entries, one level for each letter: a macro cannot count, but it can halve.
macro_rules! pairs {
    ($n:expr;) => {
        match $n {
            EXPORT_TABLE => export_tables::<EXPORT_TABLE> as Code,
            LOOKUP.. => lookups::<LOOKUP> as Code,
            ROWS.. => rarer::<{ if $n < LOOKUP { $n } else { 0 } }> as Code,
            _ => calls::<{ if $n < ROWS { $n } else { 0 } }> as Code,
        }
    };
    ($n:expr; $level:ident $($rest:ident)*) => {
        [pairs!(2 * ($n); $($rest)*), pairs!(2 * ($n) + 1; $($rest)*)]
    };
}

/// The code of each function's entries, from the next multiple of [`STEP`] on. cuGetProcAddress is after the last
/// function.
// SAFETY: nested arrays have the same layout as one array.
static FIRST: [Code; ROOM] = unsafe { core::mem::transmute(pairs!(0; a b c d e f g h i j)) };

/// Stores the addresses of the entries.
pub fn place() {
    for (f, at) in FIRST.iter().take(COUNT).enumerate() {
        slots::place(f, (*at as usize).next_multiple_of(STEP));
    }
}

#[cfg(test)]
mod tests {
    use super::slots::{first, real};
    use super::*;

    #[test]
    fn an_entry_pushes_its_number_and_calls() {
        place();
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
        assert_eq!(real(place as *const () as usize), None);
    }
}
