//! Loads and stores that the agent makes for the program, in the same width.

/// Stores the low `width` bytes of `value`.
///
/// # Safety
/// `at` may be written.
pub unsafe fn store(at: u64, value: u64, width: u8) {
    // SAFETY: the caller's.
    unsafe {
        match width {
            1 => (at as *mut u8).write_volatile(value as u8),
            2 => (at as *mut u16).write_volatile(value as u16),
            4 => (at as *mut u32).write_volatile(value as u32),
            _ => (at as *mut u64).write_volatile(value),
        }
    }
}

/// Loads `width` bytes.
///
/// # Safety
/// `at` may be read.
pub unsafe fn load(at: u64, width: u8) -> u128 {
    // SAFETY: the caller's. Wider loads are made of eight bytes at a time.
    unsafe {
        match width {
            1 => u128::from((at as *const u8).read_volatile()),
            2 => u128::from((at as *const u16).read_volatile()),
            4 => u128::from((at as *const u32).read_volatile()),
            8 => u128::from((at as *const u64).read_volatile()),
            _ => {
                let lo = (at as *const u64).read_volatile();
                let hi = ((at + 8) as *const u64).read_volatile();
                u128::from(hi) << 64 | u128::from(lo)
            }
        }
    }
}
