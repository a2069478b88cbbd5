//! The memory of another process.

/// Fills `to` from the address `at` of process `pid`. `None` if a part of it cannot be read.
pub fn fill(pid: i32, at: u64, to: &mut [u8]) -> Option<()> {
    (begin(pid, at, to) == to.len()).then_some(())
}

/// As [`fill`], up to the first page that cannot be read: the number of bytes.
pub fn begin(pid: i32, at: u64, to: &mut [u8]) -> usize {
    let here = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let there = libc::iovec { iov_base: at as *mut libc::c_void, iov_len: to.len() };
    // SAFETY: the kernel writes into `to`, no further than its length, or refuses.
    let n = unsafe { libc::process_vm_readv(pid, &here, 1, &there, 1, 0) };
    usize::try_from(n).unwrap_or(0)
}

/// `N` words of 64 bits.
pub fn words<const N: usize>(pid: i32, at: u64) -> Option<[u64; N]> {
    let mut bytes = [[0; 8]; N];
    fill(pid, at, bytes.as_flattened_mut())?;
    Some(bytes.map(u64::from_le_bytes))
}

/// One word of 32 bits.
pub fn half(pid: i32, at: u64) -> Option<u32> {
    let mut bytes = [0; 4];
    fill(pid, at, &mut bytes)?;
    Some(u32::from_le_bytes(bytes))
}
