//! Loads from memory that may be unmapped: such a load returns 0.
//!
//! Each load has a row in a table: the address of its instruction, and the address where its thread continues. The
//! SIGSEGV handler, which the doorbell taps also use, searches that table. So a load that does not fault costs no more
//! than a load.

use crate::fault::Fault;
use core::arch::asm;
use trap::Registers;
use trap::ucontext::Context;

macro_rules! loads {
    ($name:ident, $type:ty, $instruction:literal) => {
        /// The value at an address.
        #[inline(always)]
        pub fn $name(at: usize) -> $type {
            let v: usize;
            // SAFETY: reads memory. If it faults, continues after the instruction with 0 once `answer` is registered: see
            // `answer`.
            unsafe {
                asm!(
                    concat!("2: ", $instruction, " [{at}]"),
                    "3:",
                    ".pushsection doorbell_loads, \"aR\", @progbits",
                    ".balign 4",
                    ".long 2b - .",
                    ".long 3b - .",
                    ".popsection",
                    at = in(reg) at,
                    lateout("rax") v,
                    options(nostack, preserves_flags, readonly)
                );
            }
            v as $type
        }
    };
}

loads!(word, usize, "mov rax, qword ptr");
loads!(half, u32, "mov eax, dword ptr");
loads!(byte, u8, "movzx eax, byte ptr");

unsafe extern "C" {
    /// The table; the linker makes the names.
    static __start_doorbell_loads: [[i32; 2]; 0];
    static __stop_doorbell_loads: [[i32; 2]; 0];
}

/// True if one of these loads faulted, and its thread continues.
pub fn answer(fault: Fault, c: &mut Context) -> bool {
    if matches!(fault, Fault::Breakpoint { .. }) {
        return false;
    }
    let (first, end) = (&raw const __start_doorbell_loads as usize, &raw const __stop_doorbell_loads as usize);
    for at in (first..end).step_by(size_of::<[i32; 2]>()) {
        // SAFETY: a row of the table.
        let [from, to] = unsafe { *(at as *const [i32; 2]) };
        if at.wrapping_add_signed(from as isize) as u64 == c.rip() {
            const RAX: u8 = 0;
            c.set_gpr(RAX, 0);
            c.set_rip((at + size_of::<i32>()).wrapping_add_signed(to as isize) as u64);
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault;
    use crate::signals;

    #[test]
    fn a_load_of_what_is_not_there_is_zero() {
        let value = 0x1122_3344_5566_7788u64;
        let at = &raw const value as usize;
        assert_eq!((word(at), half(at), byte(at)), (0x1122_3344_5566_7788, 0x5566_7788, 0x88));
        assert!(fault::register(answer) && signals::install());
        // Unmapped, the kernel's, and a non-canonical address.
        for at in [8, 0xffff_8000_0000_0000, 0x1234_5678_9abc_def0] {
            assert_eq!((word(at), half(at), byte(at)), (0, 0, 0), "{at:#x}");
        }
        assert_eq!(word(at), value as usize);
    }
}
