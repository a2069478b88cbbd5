//! The exported functions of the preloaded library: system calls on the software GPU's nodes are answered here, all others are passed to the kernel
//! unchanged.
//!
//! They are part of the rlib too, so they check where they are: in the main program's own image they only pass calls on. They answer only if this
//! code was loaded as a shared object, by `LD_PRELOAD`.
//!
//! Passing on means the system call itself, not the next library's function: without a symbol lookup, no call can recurse at start-up, in an
//! allocator or in a constructor. The exception is `sigaction`, whose kernel form needs libc's trampoline.

use crate::doorbell::{self, Changing};
use crate::kernel::{Machine, Node};
use crate::planted::Planted;
use crate::{signal, sys};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// Descriptors that are looked up without a lock; a program that opens more still has its nodes among the first ones.
const FDS: usize = 1 << 16;
static OURS: [AtomicU64; FDS / 64] = [const { AtomicU64::new(0) }; FDS / 64];

fn is_ours(fd: c_int) -> bool {
    usize::try_from(fd)
        .ok()
        .and_then(|fd| OURS.get(fd / 64).map(|word| word.load(Ordering::Acquire) >> (fd % 64) & 1 != 0))
        .unwrap_or(false)
}

fn set_ours(fd: c_int, ours: bool) {
    let Ok(fd) = usize::try_from(fd) else { return };
    let Some(word) = OURS.get(fd / 64) else { return };
    let bit = 1 << (fd % 64);
    if ours {
        word.fetch_or(bit, Ordering::AcqRel);
    } else {
        word.fetch_and(!bit, Ordering::AcqRel);
    }
}

/// The one machine of a preloaded process.
fn machine() -> &'static Machine {
    static MACHINE: OnceLock<&'static Machine> = OnceLock::new();
    MACHINE.get_or_init(Machine::from_environment)
}

/// Whether this code is a shared object and not part of the program.
fn preloaded() -> bool {
    const UNKNOWN: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
    static STATE: AtomicU8 = AtomicU8::new(UNKNOWN);
    match STATE.load(Ordering::Relaxed) {
        UNKNOWN => {
            let state = if in_main_program() { NO } else { YES };
            STATE.store(state, Ordering::Relaxed);
            state == YES
        }
        state => state == YES,
    }
}

/// Compares the address of this code with the main program's segments, which the kernel names in the auxiliary vector.
fn in_main_program() -> bool {
    // SAFETY: the auxiliary vector's program headers are mapped for the life of the process.
    unsafe {
        let headers = libc::getauxval(libc::AT_PHDR) as *const libc::Elf64_Phdr;
        let count = libc::getauxval(libc::AT_PHNUM) as usize;
        if headers.is_null() {
            return true;
        }
        let headers = std::slice::from_raw_parts(headers, count);
        let base = headers
            .iter()
            .find(|h| h.p_type == libc::PT_PHDR)
            .map_or(0, |h| (headers.as_ptr() as u64).wrapping_sub(h.p_vaddr));
        let here = in_main_program as *const () as u64;
        headers.iter().any(|h| {
            let start = base.wrapping_add(h.p_vaddr);
            h.p_type == libc::PT_LOAD && here >= start && here < start + h.p_memsz
        })
    }
}

fn fail(errno: c_int) -> c_int {
    sys::set_errno(errno);
    -1
}

/// The node that a path names.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn node(path: *const c_char) -> Option<Node> {
    if path.is_null() || !preloaded() {
        return None;
    }
    // SAFETY: the caller's contract.
    Node::of_path(unsafe { CStr::from_ptr(path) }.to_bytes())
}

/// # Safety
/// As `openat(2)`.
unsafe fn open_any(dir: c_int, path: *const c_char, flags: c_int, mode: usize) -> c_int {
    // SAFETY: the caller's contract.
    let Some(node) = (unsafe { node(path) }) else {
        // SAFETY: the caller's contract.
        return unsafe { libc::syscall(libc::SYS_openat, dir, path, flags, mode) as c_int };
    };
    match machine().open(node, flags & libc::O_CLOEXEC != 0) {
        Ok(fd) => {
            set_ours(fd, true);
            fd
        }
        Err(errno) => fail(errno),
    }
}

/// Plants a fault while the program runs, as `DOORBELL_SOFTGPU_FAULT` does at its start; null removes it. Tests find this function by its name. Returns 0, or
/// -1 for a fault that does not exist.
///
/// # Safety
/// The text is null or ends with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_softgpu_plant(text: *const c_char) -> c_int {
    if text.is_null() {
        machine().plant(None);
        return 0;
    }
    // SAFETY: the caller's contract.
    let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
    Planted::parse(&text).map_or(-1, |fault| {
        machine().plant(Some(fault));
        0
    })
}

// The variadic last argument of open, openat, fcntl and ioctl is passed in the register that a fixed one would use (System V ABI).

/// # Safety
/// As `open(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { open_any(libc::AT_FDCWD, path, flags, mode) }
}

/// # Safety
/// As `open(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { open_any(libc::AT_FDCWD, path, flags, mode) }
}

/// # Safety
/// As `open(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { open_any(libc::AT_FDCWD, path, flags, 0) }
}

/// # Safety
/// As `open(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { open_any(libc::AT_FDCWD, path, flags, 0) }
}

/// # Safety
/// As `openat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { open_any(dir, path, flags, mode) }
}

/// # Safety
/// As `openat(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(dir: c_int, path: *const c_char, flags: c_int, mode: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { open_any(dir, path, flags, mode) }
}

/// # Safety
/// As `ioctl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: u64, arg: *mut c_void) -> c_int {
    if !is_ours(fd) {
        // SAFETY: the caller's contract.
        return unsafe { libc::syscall(libc::SYS_ioctl, fd, request, arg) as c_int };
    }
    // SAFETY: the caller's contract.
    match unsafe { machine().ioctl(fd, request, arg.cast()) } {
        0 => 0,
        errno => fail(errno),
    }
}

/// # Safety
/// As `mmap(2)`.
unsafe fn map(addr: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, offset: i64) -> *mut c_void {
    // A range that MAP_FIXED replaces is no longer a doorbell, and must be removed before it becomes something else.
    let _changing = if flags & libc::MAP_FIXED != 0 {
        let changing = Changing::begin();
        doorbell::forget(addr as usize, len);
        changing
    } else {
        None
    };
    if flags & libc::MAP_ANONYMOUS != 0 || !is_ours(fd) {
        // SAFETY: the caller's contract.
        return unsafe { sys::mmap(addr as usize, len, prot, flags, fd, offset) };
    }
    // SAFETY: the caller's contract.
    match unsafe { machine().mmap(fd, addr as usize, len, prot, flags, offset) } {
        Ok(at) => at as *mut c_void,
        Err(errno) => {
            sys::set_errno(errno);
            libc::MAP_FAILED
        }
    }
}

/// # Safety
/// As `mmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    a: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    off: i64,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { map(a, len, prot, flags, fd, off) }
}

/// # Safety
/// As `mmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    a: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    off: i64,
) -> *mut c_void {
    // SAFETY: the caller's contract.
    unsafe { map(a, len, prot, flags, fd, off) }
}

/// # Safety
/// As `munmap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    doorbell::forget(addr as usize, len);
    // SAFETY: the caller's contract.
    unsafe { sys::munmap(addr as usize, len) }
}

/// # Safety
/// As `mremap(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let _changing = Changing::begin();
    // SAFETY: the caller's contract.
    let at = unsafe { libc::syscall(libc::SYS_mremap, old, old_len, len, flags, new) as *mut c_void };
    if at != libc::MAP_FAILED {
        if flags & libc::MREMAP_FIXED != 0 {
            doorbell::forget(new as usize, len);
        }
        if old_len == 0 {
            doorbell::doubled(old as usize, len, at as usize);
        } else {
            doorbell::moved(old as usize, old_len, at as usize);
        }
    }
    at
}

/// # Safety
/// As `mprotect(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mprotect(addr: *mut c_void, len: usize, prot: c_int) -> c_int {
    const PAGE: usize = 0x1000;
    let start = addr as usize;
    if !doorbell::touches(start, len) {
        // SAFETY: the caller's contract.
        return unsafe { sys::mprotect(start, len, prot) };
    }
    if !start.is_multiple_of(PAGE) {
        return fail(libc::EINVAL);
    }
    // A trapped page stays without rights; the protection that the program asked for decides who handles its faults.
    for page in (start..start.saturating_add(len)).step_by(PAGE) {
        // SAFETY: the caller's contract, page by page.
        if !doorbell::set_prot(page, prot) && unsafe { sys::mprotect(page, PAGE, prot) } != 0 {
            return -1;
        }
    }
    0
}

#[unsafe(no_mangle)]
pub extern "C" fn close(fd: c_int) -> c_int {
    if is_ours(fd) {
        // Before the number is free for somebody else's file.
        set_ours(fd, false);
        machine().closed(fd);
    }
    sys::close(fd)
}

/// A descriptor was created: it belongs to the software GPU if the one from which it was made does.
fn duplicated(old: c_int, new: c_int) -> c_int {
    if new >= 0 && new != old {
        if is_ours(new) {
            set_ours(new, false);
            machine().closed(new);
        }
        if is_ours(old) {
            machine().duplicated(old, new);
            set_ours(new, true);
        }
    }
    new
}

#[unsafe(no_mangle)]
pub extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: numbers only.
    duplicated(fd, unsafe { libc::syscall(libc::SYS_dup, fd) as c_int })
}

#[unsafe(no_mangle)]
pub extern "C" fn dup2(fd: c_int, new: c_int) -> c_int {
    // SAFETY: numbers only.
    duplicated(fd, unsafe { libc::syscall(libc::SYS_dup2, fd, new) as c_int })
}

#[unsafe(no_mangle)]
pub extern "C" fn dup3(fd: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: numbers only.
    duplicated(fd, unsafe { libc::syscall(libc::SYS_dup3, fd, new, flags) as c_int })
}

/// # Safety
/// As `fcntl(2)`.
unsafe fn control(fd: c_int, command: c_int, arg: usize) -> c_int {
    // SAFETY: the caller's contract.
    let result = unsafe { libc::syscall(libc::SYS_fcntl, fd, command, arg) as c_int };
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => duplicated(fd, result),
        _ => result,
    }
}

/// # Safety
/// As `fcntl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, arg: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { control(fd, command, arg) }
}

/// # Safety
/// As `fcntl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, arg: usize) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { control(fd, command, arg) }
}

/// # Safety
/// As `sigaction(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { signal::sigaction(signal, new, old) }
}

/// # Safety
/// As `signal(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn signal(signal: c_int, handler: usize) -> usize {
    // SAFETY: all zeros is a sigaction.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        let mut old: libc::sigaction = std::mem::zeroed();
        if signal::sigaction(signal, ptr::from_ref(&action), ptr::from_mut(&mut old)) != 0 {
            return libc::SIG_ERR;
        }
        old.sa_sigaction
    }
}
