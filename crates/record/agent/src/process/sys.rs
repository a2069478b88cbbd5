//! System calls without libc: no PLT (so the agent's own interposers are not entered), no errno, no cancellation point.

use crate::process::restrictions::SOCKET;
use core::arch::asm;
use core::ffi::CStr;
use tape::compile::{self, Answer};

/// Hint for the address of the agent's large mappings. It is far from the program's libraries, whose neighbourhood is
/// kept for stubs, and from the low addresses that CUDA prefers.
pub const AWAY: usize = 0x5d00_0000_0000;

/// A raw system call. Negative results are `-errno`.
///
/// # Safety
/// As for the system call itself.
#[inline]
pub unsafe fn syscall6(n: i64, a: usize, b: usize, c: usize, d: usize, e: usize, f: usize) -> isize {
    let r: isize;
    // SAFETY: the kernel's convention on x86-64; rcx and r11 are clobbered, memory may be written.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") n as isize => r,
            in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d, in("r8") e, in("r9") f,
            lateout("rcx") _, lateout("r11") _,
            options(nostack)
        );
    }
    r
}

/// Copies the memory at `from` in this process, as much of it as is mapped. `pid`: this process.
pub fn peek(pid: i32, from: usize, to: &mut [u8]) -> usize {
    let here = libc::iovec { iov_base: to.as_mut_ptr().cast(), iov_len: to.len() };
    let there = libc::iovec { iov_base: from as *mut _, iov_len: to.len() };
    let [here, there] = [&raw const here, &raw const there].map(|v| v as usize);
    // SAFETY: a buffer with its length; an unmapped source address is an error.
    let n = unsafe { syscall6(libc::SYS_process_vm_readv, pid as usize, here, 1, there, 1, 0) };
    n.max(0) as usize
}

/// mmap; `None` on failure.
///
/// # Safety
/// As mmap: with MAP_FIXED an existing mapping there is replaced.
pub unsafe fn mmap(addr: usize, len: usize, prot: i32, flags: i32, fd: i32, off: usize) -> Option<usize> {
    // SAFETY: the caller's.
    let r = unsafe { syscall6(libc::SYS_mmap, addr, len, prot as usize, flags as usize, fd as usize, off) };
    if (-4095..0).contains(&r) { None } else { Some(r as usize) }
}

/// # Safety
/// The range is not used any more.
pub unsafe fn munmap(addr: usize, len: usize) {
    // SAFETY: the caller's.
    unsafe { syscall6(libc::SYS_munmap, addr, len, 0, 0, 0, 0) };
}

/// Maps the shared memory at `from` a second time, at `to`, where it replaces any mapping.
///
/// # Safety
/// `from` is a shared mapping of at least `len` bytes; `to` belongs to the agent and may be replaced.
pub unsafe fn map_again(from: usize, len: usize, to: usize) -> bool {
    // mremap with an old length of 0 duplicates a shared mapping.
    let how = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as usize;
    // SAFETY: the caller's.
    unsafe { syscall6(libc::SYS_mremap, from, 0, len, how, to, 0) == to as isize }
}

/// mremap; `None` on failure.
///
/// # Safety
/// As mremap.
pub unsafe fn mremap(from: usize, old: usize, new: usize, flags: i32, to: usize) -> Option<usize> {
    // SAFETY: the caller's.
    let r = unsafe { syscall6(libc::SYS_mremap, from, old, new, flags as usize, to, 0) };
    if (-4095..0).contains(&r) { None } else { Some(r as usize) }
}

/// Changes protection; false if refused.
///
/// # Safety
/// As mprotect.
pub unsafe fn mprotect(addr: usize, len: usize, prot: i32) -> bool {
    // SAFETY: the caller's.
    unsafe { syscall6(libc::SYS_mprotect, addr, len, prot as usize, 0, 0, 0) == 0 }
}

pub fn getpid() -> i32 {
    // SAFETY: no arguments, no memory.
    unsafe { syscall6(libc::SYS_getpid, 0, 0, 0, 0, 0, 0) as i32 }
}

pub fn getppid() -> i32 {
    // SAFETY: no arguments, no memory.
    unsafe { syscall6(libc::SYS_getppid, 0, 0, 0, 0, 0, 0) as i32 }
}

pub fn gettid() -> i32 {
    // SAFETY: no arguments, no memory.
    unsafe { syscall6(libc::SYS_gettid, 0, 0, 0, 0, 0, 0) as i32 }
}

/// Changes the thread's signal mask by a system call (`how` as in sigprocmask, the kernel's 64 bits). Returns the old
/// mask.
pub fn signal_mask(how: i32, bits: u64) -> u64 {
    let mut old = 0u64;
    let (new, old_at) = (&raw const bits as usize, &raw mut old as usize);
    // SAFETY: two words, of the given size.
    unsafe { syscall6(libc::SYS_rt_sigprocmask, how as usize, new, old_at, 8, 0, 0) };
    old
}

/// True if eight bytes at `at` can be written. (This writes the thread's signal mask there.)
pub fn is_writable(at: usize) -> bool {
    // SAFETY: the kernel writes there or returns EFAULT.
    unsafe { syscall6(libc::SYS_rt_sigprocmask, 0, 0, at, 8, 0, 0) == 0 }
}

/// Memory that the kernel can read; keeps the last pages that were checked.
#[derive(Default)]
pub struct Readable([usize; 2]);

impl Readable {
    const PAGE: usize = 4096;

    /// True if these bytes can be read.
    pub fn holds(&mut self, at: usize, len: usize) -> bool {
        let Some(last) = at.checked_add(len.max(1) - 1) else { return false };
        self.page(at & !(Self::PAGE - 1)) && self.page(last & !(Self::PAGE - 1))
    }

    fn page(&mut self, page: usize) -> bool {
        if page != 0 && self.0.contains(&page) {
            return true;
        }
        let good = page != 0 && is_readable(page);
        if good {
            self.0 = [page, self.0[0]];
        }
        good
    }
}

/// True if eight bytes at `at` can be read.
pub fn is_readable(at: usize) -> bool {
    // (The kernel reads the set before it looks at the operation, which here is an unknown one.)
    const NOTHING: usize = 99;
    // SAFETY: nothing is changed.
    unsafe { syscall6(libc::SYS_rt_sigprocmask, NOTHING, at, 0, 8, 0, 0) != -(libc::EFAULT as isize) }
}

/// Sleeps about `ns` nanoseconds (below a second).
pub fn nap(ns: i64) {
    let t = [0i64, ns];
    // SAFETY: a timespec of two words that outlives the call.
    unsafe { syscall6(libc::SYS_nanosleep, t.as_ptr() as usize, 0, 0, 0, 0, 0) };
}

/// Opens a file with O_CLOEXEC. Uses openat, as libc does: sandboxes may allow no other call.
pub fn open(path: &core::ffi::CStr, flags: i32) -> Option<i32> {
    let flags = (flags | libc::O_CLOEXEC) as usize;
    // SAFETY: a NUL-terminated path.
    let fd =
        unsafe { syscall6(libc::SYS_openat, libc::AT_FDCWD as isize as usize, path.as_ptr() as usize, flags, 0, 0, 0) };
    (fd >= 0).then_some(fd as i32)
}

/// # Safety
/// `fd` is one of the agent's descriptors and is not used any more.
pub unsafe fn close(fd: i32) {
    // SAFETY: the caller's.
    unsafe { syscall6(libc::SYS_close, fd as usize, 0, 0, 0, 0, 0) };
}

/// The beginning of a file.
pub fn read_file<'a>(path: &core::ffi::CStr, room: &'a mut [u8]) -> Option<&'a [u8]> {
    let fd = open(path, libc::O_RDONLY)?;
    // SAFETY: an own descriptor, and a buffer with its length.
    let got = unsafe {
        let got = syscall6(libc::SYS_read, fd as usize, room.as_mut_ptr() as usize, room.len(), 0, 0, 0);
        close(fd);
        got
    };
    room.get(..usize::try_from(got).ok()?)
}

/// Reads a link's target; returns the number of bytes that fitted.
pub fn readlink(path: &core::ffi::CStr, out: &mut [u8]) -> usize {
    let (path, to) = (path.as_ptr() as usize, out.as_mut_ptr() as usize);
    // SAFETY: a NUL-terminated path and a buffer with its length.
    unsafe { syscall6(libc::SYS_readlink, path, to, out.len(), 0, 0, 0) }.max(0) as usize
}

/// Waits until a word in shared memory differs from `is`, a wake-up arrives, or `ms` have passed.
pub fn futex_wait(word: &core::sync::atomic::AtomicU32, is: u32, ms: u32) {
    let time = [i64::from(ms / 1000), i64::from(ms % 1000) * 1_000_000];
    let (at, op) = (word.as_ptr() as usize, libc::FUTEX_WAIT as usize);
    // SAFETY: a word and a timespec that outlive the call.
    unsafe { syscall6(libc::SYS_futex, at, op, is as usize, time.as_ptr() as usize, 0, 0) };
}

/// Wakes all threads that wait for a word in shared memory.
pub fn futex_wake(word: &core::sync::atomic::AtomicU32) {
    let (at, op) = (word.as_ptr() as usize, libc::FUTEX_WAKE as usize);
    // SAFETY: a word that outlives the call.
    unsafe { syscall6(libc::SYS_futex, at, op, i32::MAX as usize, 0, 0, 0) };
}

/// How long the agent waits for each part of an answer, in seconds.
const PATIENCE: i64 = 60;

/// Sends pieces to the socket of this name (unix(7), abstract), and waits for the answer. `None`: no process of this user's or root's listens there, it has
/// ended, or it does not answer.
pub fn ask(name: &[u8; compile::NAME], pieces: &[&[u8]]) -> Option<Answer> {
    let [family, kind] = SOCKET.map(|word| word as usize);
    // SAFETY: no memory is passed.
    let fd = usize::try_from(unsafe { syscall6(libc::SYS_socket, family, kind, 0, 0, 0, 0) }).ok()?;
    // (A program without standard files may write to their numbers.)
    let answer = if fd > 2 { asked(fd, name, pieces) } else { None };
    // SAFETY: the descriptor that was just made.
    unsafe { close(fd as i32) };
    answer
}

fn asked(fd: usize, name: &[u8; compile::NAME], pieces: &[&[u8]]) -> Option<Answer> {
    let mut address = [0u8; 3 + compile::NAME];
    address[0] = libc::AF_UNIX as u8;
    address[3..].copy_from_slice(name);
    let limit = [PATIENCE, 0];
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: 0 };
    let mut length = size_of::<libc::ucred>() as u32;
    let mut answer = Answer::default();
    let (at, of) = ((&raw mut answer) as usize, size_of::<Answer>());
    // SAFETY: the calls get buffers with their lengths, which outlive them.
    unsafe {
        let set = |which: i32| {
            let (at, bytes) = (limit.as_ptr() as usize, size_of_val(&limit));
            syscall6(libc::SYS_setsockopt, fd, libc::SOL_SOCKET as usize, which as usize, at, bytes, 0) == 0
        };
        if !set(libc::SO_RCVTIMEO) || !set(libc::SO_SNDTIMEO) {
            return None;
        }
        if syscall6(libc::SYS_connect, fd, address.as_ptr() as usize, address.len(), 0, 0, 0) != 0 {
            return None;
        }
        let (to, bytes) = ((&raw mut peer) as usize, (&raw mut length) as usize);
        let (level, which) = (libc::SOL_SOCKET as usize, libc::SO_PEERCRED as usize);
        let known = syscall6(libc::SYS_getsockopt, fd, level, which, to, bytes, 0) == 0;
        let own = syscall6(libc::SYS_geteuid, 0, 0, 0, 0, 0, 0) as u32;
        if !known || peer.uid != own && peer.uid != 0 {
            return None;
        }
        let sent = pieces.iter().all(|piece| {
            whole(piece.len(), |done| {
                let at = piece.as_ptr() as usize + done;
                syscall6(libc::SYS_sendto, fd, at, piece.len() - done, libc::MSG_NOSIGNAL as usize, 0, 0)
            })
        });
        let came = sent && whole(of, |done| syscall6(libc::SYS_recvfrom, fd, at + done, of - done, 0, 0, 0));
        came.then_some(answer)
    }
}

/// Repeats a call until it has moved all bytes. False after an error or an end.
fn whole(bytes: usize, mut some: impl FnMut(usize) -> isize) -> bool {
    let mut done = 0;
    while done < bytes {
        match some(done) {
            n if n == -(libc::EINTR as isize) => {}
            n if n <= 0 => return false,
            n => done += n as usize,
        }
    }
    true
}

/// A number as text, at the end of `room`.
pub fn decimal(mut n: u32, room: &mut [u8; 10]) -> &[u8] {
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 || at == 0 {
            return &room[at..];
        }
    }
}

/// The kernel's status of the file at a path; follows links.
pub fn status(path: &CStr) -> Option<libc::stat> {
    // SAFETY: plain integers; all zero is one.
    let mut s: libc::stat = unsafe { core::mem::zeroed() };
    let (dir, path) = (libc::AT_FDCWD as isize as usize, path.as_ptr() as usize);
    // SAFETY: a NUL-terminated path, and a struct that outlives the call.
    let r = unsafe { syscall6(libc::SYS_newfstatat, dir, path, &raw mut s as usize, 0, 0, 0) };
    (r == 0).then_some(s)
}

/// Path of `fd`, from /proc; returns the number of bytes that fitted.
pub fn fd_path(fd: i32, out: &mut [u8]) -> usize {
    let mut name = [0u8; 32];
    let prefix = b"/proc/self/fd/";
    let mut room = [0; 10];
    let digits = decimal(fd as u32, &mut room);
    name[..prefix.len()].copy_from_slice(prefix);
    name[prefix.len()..prefix.len() + digits.len()].copy_from_slice(digits);
    // SAFETY: a NUL-terminated path and a buffer with its length.
    let r =
        unsafe { syscall6(libc::SYS_readlink, name.as_ptr() as usize, out.as_mut_ptr() as usize, out.len(), 0, 0, 0) };
    r.max(0) as usize
}

/// membarrier commands used for rewriting code.
pub fn membarrier(cmd: i32) -> bool {
    // SAFETY: no memory.
    unsafe { syscall6(libc::SYS_membarrier, cmd as usize, 0, 0, 0, 0, 0) == 0 }
}

/// Time stamp counter; 0 after the program has forbidden itself to read it.
#[inline]
pub fn tsc() -> u64 {
    if super::restrictions::no_tsc() { 0 } else { rdtsc() }
}

/// Time stamp counter, for code that does not run after the counter has been forbidden.
#[inline(always)]
pub fn rdtsc() -> u64 {
    // SAFETY: rdtsc is there on every x86-64.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// The program's errno, preserved while the agent works.
pub struct Errno(i32);

impl Errno {
    pub fn keep() -> Errno {
        Errno(Errno::get())
    }
    pub fn kept(&self) -> i32 {
        self.0
    }
    pub fn set(errno: i32) {
        // SAFETY: as in `get`.
        unsafe { *libc::__errno_location() = errno };
    }
    pub fn get() -> i32 {
        // SAFETY: libc's errno location is valid for the thread's life.
        unsafe { *libc::__errno_location() }
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        Errno::set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_read_is_known_without_reading_it() {
        // SAFETY: the test's own page, which is unmapped again.
        unsafe {
            let page = mmap(AWAY, 8192, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0).unwrap();
            assert!(!is_readable(page) && !is_readable(8) && !is_readable(usize::MAX - 100));
            munmap(page, 8192);
        }
        let (word, mask) = (7u64, signal_mask(libc::SIG_BLOCK, 0));
        assert!(is_readable(&raw const word as usize) && is_readable("text that cannot be written".as_ptr() as usize));
        assert_eq!(signal_mask(libc::SIG_BLOCK, 0), mask);
    }
}
