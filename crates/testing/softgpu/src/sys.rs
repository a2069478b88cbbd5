//! System calls that bypass libc's exported functions, which this library may be interposing, so that no caller causes a recursion.

use std::ffi::c_void;

/// The smallest unit of memory.
pub const PAGE: u64 = 0x1000;

/// # Safety
/// As `mmap(2)`.
pub unsafe fn mmap(addr: usize, len: usize, prot: i32, flags: i32, fd: i32, offset: i64) -> *mut c_void {
    // SAFETY: the caller's contract; the kernel checks the rest.
    unsafe { libc::syscall(libc::SYS_mmap, addr, len, prot, flags, fd, offset) as *mut c_void }
}

/// # Safety
/// As `munmap(2)`.
pub unsafe fn munmap(addr: usize, len: usize) -> i32 {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_munmap, addr, len) as i32 }
}

/// # Safety
/// As `mprotect(2)`.
pub unsafe fn mprotect(addr: usize, len: usize, prot: i32) -> i32 {
    // SAFETY: as above.
    unsafe { libc::syscall(libc::SYS_mprotect, addr, len, prot) as i32 }
}

/// Whether all bytes of a range can be read, as a kernel finds that out when it copies from a program.
pub fn readable(at: usize, len: usize) -> bool {
    // The kernel reads the set of eight bytes before it refuses the unknown operation.
    let word = |at: usize| {
        const NOTHING: i32 = 99;
        let before = errno();
        // SAFETY: nothing is changed.
        let refused = unsafe { libc::syscall(libc::SYS_rt_sigprocmask, NOTHING, at, 0, 8) };
        let readable = refused != -1 || errno() != libc::EFAULT;
        set_errno(before);
        readable
    };
    let Some(last) = len.checked_sub(8).and_then(|n| at.checked_add(n)) else { return len < 8 };
    let inner = (at..last).step_by(PAGE as usize);
    inner.into_iter().all(word) && word(last)
}

pub fn close(fd: i32) -> i32 {
    // SAFETY: closing a number is memory safe.
    unsafe { libc::syscall(libc::SYS_close, fd) as i32 }
}

/// An empty memory file of `len` bytes, or the errno.
pub fn memfd(name: &std::ffi::CStr, len: u64) -> Result<i32, i32> {
    // SAFETY: a C string and a flag.
    let fd = unsafe { libc::syscall(libc::SYS_memfd_create, name.as_ptr(), libc::MFD_CLOEXEC) as i32 };
    if fd < 0 {
        return Err(errno());
    }
    // SAFETY: a descriptor that was just made here.
    if len > 0 && unsafe { libc::syscall(libc::SYS_ftruncate, fd, len) } != 0 {
        let error = errno();
        close(fd);
        return Err(error);
    }
    Ok(fd)
}

pub fn errno() -> i32 {
    // SAFETY: errno's place in this thread.
    unsafe { *libc::__errno_location() }
}

pub fn set_errno(value: i32) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}

/// Sleeps while `*word == value`, at most `nanoseconds`.
pub fn futex_wait(word: &std::sync::atomic::AtomicU32, value: u32, nanoseconds: u64) {
    let timeout =
        libc::timespec { tv_sec: (nanoseconds / 1_000_000_000) as i64, tv_nsec: (nanoseconds % 1_000_000_000) as i64 };
    let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word outlives the call, the timeout too.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, &raw const timeout) };
}

/// Wakes one sleeping thread. Async-signal-safe; errno is kept.
pub fn futex_wake(word: &std::sync::atomic::AtomicU32) {
    let saved = errno();
    // SAFETY: the word is alive.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
    set_errno(saved);
}

/// Copies from this process's address space without a fault if it is not readable; returns the bytes copied. Async-signal-safe.
pub fn read_self(address: u64, into: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: into.len() };
    let saved = errno();
    // SAFETY: `local` is a live buffer; the kernel checks `remote`.
    let n = unsafe {
        libc::syscall(
            libc::SYS_process_vm_readv,
            libc::getpid(),
            &raw const local,
            1usize,
            &raw const remote,
            1usize,
            0usize,
        )
    };
    set_errno(saved);
    usize::try_from(n).unwrap_or(0)
}

/// As [`read_self`], the other way.
pub fn write_self(address: u64, from: &[u8]) -> usize {
    let local = libc::iovec { iov_base: from.as_ptr() as *mut c_void, iov_len: from.len() };
    let remote = libc::iovec { iov_base: address as *mut c_void, iov_len: from.len() };
    // SAFETY: `local` is a live buffer; the kernel checks `remote`.
    let n = unsafe {
        libc::syscall(
            libc::SYS_process_vm_writev,
            libc::getpid(),
            &raw const local,
            1usize,
            &raw const remote,
            1usize,
            0usize,
        )
    };
    usize::try_from(n).unwrap_or(0)
}

/// The GPU's nanosecond clock: steps of 32 ns, as TIME_0 has (NSEC 31:5).
pub fn gpu_clock() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid place for the time. Async-signal-safe.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64) & !31
}

/// Sets the thread's signal mask (the kernel's 64 bits) and returns the old one. Async-signal-safe.
pub fn signal_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    // SAFETY: two words that outlive the call, of the stated size.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const mask, &raw mut before, 8usize) };
    before
}
