//! Core files of the program have nothing of the agent's memory: it is 3 MiB of tables, and rings of many MiB that lie in the address space twice.

use super::sys::syscall6;

const PAGE: usize = 4096;

/// Leaves memory of the agent's out of core files. (A kernel that refuses dumps it.)
pub fn leave_out(at: usize, len: usize) {
    // SAFETY: a mapping of our own, whose contents stay.
    unsafe { syscall6(libc::SYS_madvise, at, len, libc::MADV_DONTDUMP as usize, 0, 0, 0) };
}

unsafe extern "C" {
    /// Where the library's zeroed data begins and ends; the linker makes the names.
    static __bss_start: [u8; 0];
    static _end: [u8; 0];
}

/// The same for the library's tables. From the constructor.
pub fn leave_out_tables() {
    let from = (&raw const __bss_start as usize).next_multiple_of(PAGE);
    let to = &raw const _end as usize & !(PAGE - 1);
    if from < to {
        leave_out(from, to - from);
    }
}
