//! Mappings of driver memory: doorbell pages are tapped, and in other memory the tap finds what the program submits.

use super::channels;
use super::files;
use super::model::{self, Bound, Mapped};
use crate::process::{real, region, sys};
use crate::tap::{answer, hole, page, ranges, site, submit};
use crate::{fault, record, signals};
use core::ffi::{c_int, c_void};
use rm::abi;
use tape::event::{MmapBody, PageBody, file, kind};
use tape::region::{tap as how, trouble};

type Mmap = unsafe fn(*mut c_void, usize, c_int, c_int, c_int, libc::c_long) -> *mut c_void;

/// mmap and mmap64 as the program calls them.
///
/// # Safety
/// As mmap.
pub unsafe fn mmap(
    f: Mmap,
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    off: libc::c_long,
) -> *mut c_void {
    let file = if fd >= 0 && flags & libc::MAP_ANONYMOUS == 0 { files::of(fd) } else { file::OTHER };
    if flags & libc::MAP_FIXED != 0 {
        unmap(addr as u64, len as u64);
    }
    let tsc = sys::tsc();
    // SAFETY: the caller's.
    let at = hole::place(addr as usize, || unsafe { f(addr, len, prot, flags, fd, off) });
    if file == file::OTHER || !region::active_here() {
        return at;
    }
    let _keep = sys::Errno::keep();
    let body = MmapBody {
        addr: at as u64,
        len: len as u64,
        offset: off as u64,
        fd,
        file,
        prot: prot as u32,
        flags: flags as u32,
    };
    record::event(kind::MMAP, 0, tsc, &body, &[], &[]);
    if at == libc::MAP_FAILED {
        return at;
    }
    let Some(b) = model::take_bound(fd) else { return at };
    let class = model::class_of(b.client, b.memory);
    if abi::is_usermode_class(class) {
        // SAFETY: the mapping just made, of a usermode object.
        unsafe { doorbell_page(f, at as u64, len, flags, fd, off, &b, class) };
    } else {
        model::map(Mapped {
            client: b.client,
            memory: b.memory,
            offset: b.offset,
            addr: at as u64,
            len: len as u64,
            video: file >= file::GPU,
            user: false,
        });
        channels::look_again();
    }
    at
}

#[allow(clippy::too_many_arguments)]
unsafe fn doorbell_page(
    f: Mmap,
    at: u64,
    len: usize,
    flags: c_int,
    fd: c_int,
    off: libc::c_long,
    b: &Bound,
    class: u32,
) {
    let off_limits = region::control().is_none_or(|c| c.tap == how::OFF) || !super::is_trusted();
    let mut tapped = false;
    let mut p = u32::MAX;
    if !off_limits {
        // SAFETY: a second mapping of the same page, at an address that the kernel chooses.
        let real = unsafe {
            let free = flags & !(libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE);
            f(core::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, free, fd, off)
        };
        let device = model::device_of(b.client, b.memory);
        if real == libc::MAP_FAILED {
            region::trouble(trouble::NO_SECOND_MAPPING);
        } else if !(fault::register(answer::answer) && signals::install()) {
            record::note(b"SIGSEGV handler refused: doorbells are not tapped");
        } else if let Some(i) = page::add(at, len as u64, real as u64, device) {
            p = i as u32;
            // SAFETY: the program's mapping: loads still work, stores fault into the agent's handler.
            tapped = unsafe { real::mprotect(at as *mut c_void, len, libc::PROT_READ) } == 0
                // SAFETY: the same, where the mapping cannot be read: the handler makes the loads too.
                || unsafe { real::mprotect(at as *mut c_void, len, libc::PROT_NONE) } == 0;
            if tapped {
                site::prepare();
            }
        } else {
            region::trouble(trouble::TABLE_FULL);
        }
    }
    if !tapped {
        submit::give_rings_back();
    }
    let body = PageBody { page: p, class, addr: at, len: len as u64, tapped: u32::from(tapped), handle: b.memory };
    record::event(kind::PAGE, 0, sys::tsc(), &body, &[], &[]);
}

/// A range is about to be unmapped or mapped over.
///
/// True if it held driver memory that the agent follows.
pub fn unmap(addr: u64, len: u64) -> bool {
    if !region::active() {
        return false;
    }
    let Some(end) = addr.checked_add(len) else { return false };
    let pages = page::overlaps(addr, len);
    if (!pages && !ranges::overlaps(addr, len)) || !region::active_here() {
        return false;
    }
    channels::before_unmap(addr, end, || {
        if pages {
            page::remove(addr, len, |real, len| {
                // SAFETY: the agent's second mapping of a page that the program gives up.
                unsafe { real::munmap(real as *mut c_void, len as usize) };
            });
        }
        model::unmap(addr, len);
    });
    true
}
