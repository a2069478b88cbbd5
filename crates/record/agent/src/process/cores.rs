//! Keeps the agent's memory out of the program's core files: 3 MiB of tables, and rings of many MiB that are mapped
//! twice.

use super::sys::syscall6;

const PAGE: usize = 4096;

/// Leaves the agent's memory out of core files. (A kernel that refuses dumps it.)
pub fn leave_out(at: usize, len: usize) {
    // SAFETY: the agent's own mapping, whose contents do not change.
    unsafe { syscall6(libc::SYS_madvise, at, len, libc::MADV_DONTDUMP as usize, 0, 0, 0) };
}

unsafe extern "C" {
    /// Where the library's zeroed data begins and ends; the linker makes the names.
    static __bss_start: [u8; 0];
    static _end: [u8; 0];
}

/// The same for the library's tables. Called by the constructor.
pub fn leave_out_tables() {
    let from = (&raw const __bss_start as usize).next_multiple_of(PAGE);
    let to = &raw const _end as usize & !(PAGE - 1);
    if from < to {
        leave_out(from, to - from);
    }
}
