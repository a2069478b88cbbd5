//! The functions in libcuda's import slots: each makes the real call and reports its effect.

use super::{theirs, watched};
use crate::errno::Errno;
use crate::imports::Exchange;
use rm::graph::MmapRecord;
use std::ffi::{CStr, c_int, c_long, c_ulong, c_void};
use std::sync::atomic::AtomicPtr;

static IOCTL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static MMAP: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static MMAP64: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static MUNMAP: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static OPEN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static OPEN64: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static CLOSE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;
type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, c_long) -> *mut c_void;
type Munmap = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
type Open = unsafe extern "C" fn(*const libc::c_char, c_int, libc::mode_t) -> c_int;
type Close = unsafe extern "C" fn(c_int) -> c_int;

pub(super) fn exchanges() -> [Exchange; 7] {
    [
        Exchange { name: c"ioctl", ours: slot_ioctl as *mut c_void, theirs: &IOCTL },
        Exchange { name: c"mmap", ours: slot_mmap as *mut c_void, theirs: &MMAP },
        Exchange { name: c"mmap64", ours: slot_mmap64 as *mut c_void, theirs: &MMAP64 },
        Exchange { name: c"munmap", ours: slot_munmap as *mut c_void, theirs: &MUNMAP },
        Exchange { name: c"open", ours: slot_open as *mut c_void, theirs: &OPEN },
        Exchange { name: c"open64", ours: slot_open64 as *mut c_void, theirs: &OPEN64 },
        Exchange { name: c"close", ours: slot_close as *mut c_void, theirs: &CLOSE },
    ]
}

// ioctl and open are variadic; on x86-64 a third argument that was not passed is garbage, which they and the hooks ignore.
unsafe extern "C" fn slot_ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    // SAFETY: libcuda's call, passed on unchanged.
    unsafe {
        let make = || theirs::<Ioctl>(&IOCTL)(fd, request, arg);
        match watched() {
            Some(watched) => watched.ioctl(fd, request, arg, make),
            None => make(),
        }
    }
}

/// # Safety
/// As mmap.
unsafe fn map(
    real: &AtomicPtr<c_void>,
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    // SAFETY: libcuda's call, passed on unchanged.
    let at = unsafe { theirs::<Mmap>(real)(addr, len, prot, flags, fd, offset) };
    if let Some(watched) = watched() {
        let _errno = Errno::keep();
        let (addr, len) = (at as u64, len as u64);
        watched.mapped(MmapRecord { addr, len, offset: offset as u64, fd, prot: prot as u32, flags: flags as u32 });
    }
    at
}

unsafe extern "C" fn slot_mmap(a: *mut c_void, l: usize, p: c_int, f: c_int, fd: c_int, o: c_long) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { map(&MMAP, a, l, p, f, fd, o) }
}

unsafe extern "C" fn slot_mmap64(a: *mut c_void, l: usize, p: c_int, f: c_int, fd: c_int, o: c_long) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { map(&MMAP64, a, l, p, f, fd, o) }
}

unsafe extern "C" fn slot_munmap(addr: *mut c_void, len: usize) -> c_int {
    // SAFETY: libcuda's call, passed on unchanged.
    let ret = unsafe { theirs::<Munmap>(&MUNMAP)(addr, len) };
    if ret == 0
        && let Some(watched) = watched()
    {
        watched.unmapped(addr as u64, len as u64);
    }
    ret
}

/// # Safety
/// As open.
unsafe fn open(real: &AtomicPtr<c_void>, path: *const libc::c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: libcuda's call, passed on unchanged.
    let fd = unsafe { theirs::<Open>(real)(path, flags, mode) };
    if fd >= 0
        && let Some(watched) = watched()
    {
        let _errno = Errno::keep();
        // SAFETY: the path was opened, so it is a string.
        watched.opened(fd, unsafe { CStr::from_ptr(path) }.to_bytes());
    }
    fd
}

unsafe extern "C" fn slot_open(path: *const libc::c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open(&OPEN, path, flags, mode) }
}

unsafe extern "C" fn slot_open64(path: *const libc::c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open(&OPEN64, path, flags, mode) }
}

unsafe extern "C" fn slot_close(fd: c_int) -> c_int {
    if let Some(watched) = watched() {
        let _errno = Errno::keep();
        watched.closed(fd);
    }
    // SAFETY: libcuda's call, passed on unchanged.
    unsafe { theirs::<Close>(&CLOSE)(fd) }
}
