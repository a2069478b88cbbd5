//! The functions for files and mappings. Each passes straight through unless it is given a driver file.

use crate::driver::calls::{self, file_event};
use crate::driver::{files, mappings};
use crate::process::{real, region, session, sys};
use crate::record;
use crate::start;
use crate::tap::site;
use core::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use tape::event::{MremapBody, MunmapBody, file, kind};

/// # Safety
/// As ioctl. (The variadic argument of the C prototype also arrives in the third register.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    if region::active() {
        let f = files::of(fd);
        if f != file::OTHER && region::active_here() {
            // SAFETY: the caller's.
            return unsafe { calls::ioctl(fd, f, request, arg) };
        }
    }
    // SAFETY: the caller's.
    unsafe { real::ioctl(fd, request, arg) }
}

/// After an open: remembers driver files. Another library's constructor, which runs before the agent's, may open the
/// first one.
unsafe fn opened(fd: c_int, path: *const c_char) -> c_int {
    if fd >= 0 && !path.is_null() && (session::is_there() || !start::has_begun()) {
        let _keep = sys::Errno::keep();
        // SAFETY: open succeeded with this path, so it is a string.
        let p = unsafe { CStr::from_ptr(path) }.to_bytes();
        let f = files::by_path(p);
        if f != file::OTHER {
            start::begin();
            // The event for which a process is recorded.
            if region::arrive() && region::active_here() {
                files::set(fd, f);
                site::reserve();
                file_event(kind::OPEN, fd, -1, f, p.get(..256).unwrap_or(p));
            }
        } else {
            files::forget(fd);
        }
    }
    fd
}

macro_rules! opens {
    ($($name:ident => $real:ident [$path:ident] ($($a:ident: $t:ty),*);)*) => {$(
        /// # Safety
        /// As the C function of that name.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($a: $t),*) -> c_int {
            // SAFETY: the caller's.
            unsafe { opened(real::$real($($a),*), $path) }
        }
    )*};
}

opens! {
    open => open [path] (path: *const c_char, flags: c_int, mode: c_int);
    open64 => open64 [path] (path: *const c_char, flags: c_int, mode: c_int);
    openat => openat [path] (dir: c_int, path: *const c_char, flags: c_int, mode: c_int);
    openat64 => openat64 [path] (dir: c_int, path: *const c_char, flags: c_int, mode: c_int);
    __open_2 => open_2 [path] (path: *const c_char, flags: c_int);
    __open64_2 => open64_2 [path] (path: *const c_char, flags: c_int);
    __openat_2 => openat_2 [path] (dir: c_int, path: *const c_char, flags: c_int);
    __openat64_2 => openat64_2 [path] (dir: c_int, path: *const c_char, flags: c_int);
}

/// # Safety
/// As close.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    if region::active() {
        let f = files::known(fd);
        if f == file::OTHER {
            files::forget(fd);
        } else if region::active_here() {
            files::forget(fd);
            let _keep = sys::Errno::keep();
            file_event(kind::CLOSE, fd, -1, f, &[]);
        }
    }
    // SAFETY: the caller's.
    unsafe { real::close(fd) }
}

/// # Safety
/// As close_range.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: u32, last: u32, flags: c_int) -> c_int {
    if region::active_here() && flags == 0 {
        for fd in first..=last.min(65535) {
            let f = files::known(fd as i32);
            if f != file::OTHER {
                let _keep = sys::Errno::keep();
                file_event(kind::CLOSE, fd as i32, -1, f, &[]);
            }
            files::forget(fd as i32);
        }
    }
    // SAFETY: the caller's.
    unsafe { real::close_range(first, last, flags) }
}

fn doubled(old: c_int, new: c_int) -> c_int {
    if new >= 0 && region::active() {
        let f = files::known(old);
        if (f != file::OTHER || files::known(new) != file::OTHER) && region::active_here() {
            files::set(new, f);
            let _keep = sys::Errno::keep();
            file_event(kind::DUP, old, new, f, &[]);
        } else {
            files::forget(new);
        }
    }
    new
}

/// # Safety
/// As dup.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup(fd: c_int) -> c_int {
    // SAFETY: the caller's.
    doubled(fd, unsafe { real::dup(fd) })
}

/// # Safety
/// As dup2.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(old: c_int, new: c_int) -> c_int {
    // SAFETY: the caller's.
    doubled(old, unsafe { real::dup2(old, new) })
}

/// # Safety
/// As dup3.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int {
    // SAFETY: the caller's.
    doubled(old, unsafe { real::dup3(old, new, flags) })
}

macro_rules! mmaps {
    ($($name:ident)*) => {$(
        /// # Safety
        /// As mmap.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            addr: *mut c_void,
            len: usize,
            prot: c_int,
            flags: c_int,
            fd: c_int,
            off: c_long,
        ) -> *mut c_void {
            if !region::active() {
                // SAFETY: the caller's.
                return unsafe { real::$name(addr, len, prot, flags, fd, off) };
            }
            // SAFETY: the caller's.
            unsafe { mappings::mmap(real::$name, addr, len, prot, flags, fd, off) }
        }
    )*};
}

mmaps! { mmap mmap64 }

/// # Safety
/// As munmap.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, len: usize) -> c_int {
    let tsc = sys::tsc();
    let ours = mappings::unmap(addr as u64, len as u64);
    // SAFETY: the caller's.
    let r = unsafe { real::munmap(addr, len) };
    if r == 0 && ours {
        let _keep = sys::Errno::keep();
        record::event(kind::MUNMAP, 0, tsc, &MunmapBody { addr: addr as u64, len: len as u64 }, &[], &[]);
    }
    r
}

/// # Safety
/// As mremap. (The optional fifth argument also arrives in its register.)
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mremap(
    addr: *mut c_void,
    old: usize,
    new: usize,
    flags: c_int,
    to: *mut c_void,
) -> *mut c_void {
    let tsc = sys::tsc();
    // A mapping of the driver that moves is no longer followed; one that is replaced no longer exists.
    let ours = mappings::unmap(addr as u64, old as u64);
    if flags & libc::MREMAP_FIXED != 0 {
        mappings::unmap(to as u64, new as u64);
    }
    // SAFETY: the caller's.
    let r = unsafe { real::mremap(addr, old, new, flags, to) };
    if ours && r != libc::MAP_FAILED {
        let _keep = sys::Errno::keep();
        let body = MremapBody { old: addr as u64, old_len: old as u64, new: r as u64, new_len: new as u64 };
        record::event(kind::MREMAP, 0, tsc, &body, &[], &[]);
    }
    r
}
