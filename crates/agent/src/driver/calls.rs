//! Driver calls: each is recorded as it happened, and what the taps need is learnt from it: which memory is mapped where, which
//! mapping is a doorbell page, where a channel's GPFIFO and USERD lie, and its token.

use super::channels;
use super::model::{self, Bound, External, Mapped};
use crate::process::{real, sys};
use crate::record;
use core::ffi::{c_int, c_ulong, c_void};
use rm::abi::{self, ChannelAlloc, Nvos00, Nvos02Fd, Nvos21, Nvos33Fd, Nvos54, Nvos64, nr, uvm};
use tape::event::{self, IoctlBody, file, ioctl_flags, kind};
use tape::region::SLOTS;

/// Longest parameter block of RM_ALLOC or RM_CONTROL that is kept.
const NESTED_MAX: u32 = 4096;

/// An ioctl on a driver file.
///
/// # Safety
/// As ioctl.
pub unsafe fn ioctl(fd: c_int, file: u32, request: c_ulong, arg: *mut c_void) -> c_int {
    let tsc = sys::tsc();
    let mut going = [0u16; SLOTS];
    // SAFETY: the program's argument, of the size that its request declares.
    let freed = unsafe { before_free(request, arg, &mut going) };
    // SAFETY: the caller's.
    let ret = unsafe { real::ioctl(fd, request, arg) };
    let errno = if ret < 0 { sys::Errno::get() } else { 0 };
    let _keep = sys::Errno::keep();
    let tsc_end = sys::tsc();
    let body = IoctlBody { fd, file, request, ret, errno, arg: 0, nested: 0, tsc_end };
    // SAFETY: the driver has just read and written these structs, so they are there.
    unsafe {
        if freed > 0 && !(ret == 0 && has_freed(arg)) {
            channels::not_freed(going.get(..freed).unwrap_or(&[]));
        }
        write_down(tsc, body, arg);
        if ret == 0 && !arg.is_null() {
            match (abi::rm_nr(request), file) {
                (Some(nr::CHECK_VERSION_STR), _) => version(abi::request_size(request), arg),
                (Some(n), _) => rm_call(n, abi::request_size(request), arg, going.get(..freed).unwrap_or(&[])),
                (None, file::UVM) => uvm_call(request, arg),
                _ => {}
            }
        }
    }
    ret
}

unsafe fn write_down(tsc: u64, mut body: IoctlBody, arg: *mut c_void) {
    let mut flags = 0;
    let mut short = [0u8; 84];
    let (mut a, mut b): (&[u8], &[u8]) = (&[], &[]);
    let view = |p: u64, n: usize| {
        // SAFETY: memory that the driver has just used with this size.
        unsafe { core::slice::from_raw_parts(p as *const u8, n) }
    };
    if body.ret == 0 && !arg.is_null() {
        match abi::rm_nr(body.request) {
            Some(n) => {
                a = view(arg as u64, abi::request_size(body.request));
                let (at, size) = match (n, a.len()) {
                    (nr::ALLOC, 32) => {
                        // SAFETY: the size says that it is an NVOS21.
                        let p = unsafe { &*(arg as *const Nvos21) };
                        (p.params, abi::alloc_params_size(p.class, p.params_size))
                    }
                    (nr::ALLOC, 48) => {
                        // SAFETY: the size says that it is an NVOS64.
                        let p = unsafe { &*(arg as *const Nvos64) };
                        (p.params, abi::alloc_params_size(p.class, p.params_size))
                    }
                    (nr::CONTROL, 32) => {
                        // SAFETY: the size says that it is an NVOS54.
                        let p = unsafe { &*(arg as *const Nvos54) };
                        (p.params, p.params_size)
                    }
                    _ => (0, 0),
                };
                if at != 0 && status_of(n, a) == Some(0) {
                    if size > NESTED_MAX {
                        flags |= ioctl_flags::NESTED_CUT;
                    }
                    b = view(at, size.min(NESTED_MAX) as usize);
                }
            }
            None if body.file == file::UVM && body.request == uvm::MAP_EXTERNAL_ALLOCATION => {
                let whole = view(arg as u64, uvm::MAP_EXTERNAL_SIZE);
                short[..60].copy_from_slice(&whole[..60]);
                short[60..].copy_from_slice(&whole[9240..9264]);
                a = &short;
                flags |= ioctl_flags::UVM_MAP_SHORT;
            }
            // Of a semaphore pool only where it lies: the rest is attributes.
            None if body.file == file::UVM => a = view(arg as u64, uvm::size(body.request).min(64)),
            None => {}
        }
    }
    body.arg = a.len() as u32;
    body.nested = b.len() as u32;
    record::event(kind::IOCTL, flags, tsc, &body, a, b);
}

/// The driver has said its version: of a branch that we do not know no layout is trusted.
///
/// # Safety
/// `arg` is the argument of a CHECK_VERSION_STR of this size that succeeded.
unsafe fn version(size: usize, arg: *mut c_void) {
    if size != size_of::<abi::CheckVersion>() {
        return;
    }
    // SAFETY: the size says that it is one.
    let v = unsafe { (arg as *const abi::CheckVersion).read_unaligned() };
    if v.text().is_some_and(|text| abi::Abi::insist(text).is_err()) {
        super::distrust();
    }
}

/// `.status` of an RM call, if it is one whose status we know to find.
fn status_of(n: u32, a: &[u8]) -> Option<u32> {
    let at = match (n, a.len()) {
        (nr::ALLOC, 32) => 28,
        (nr::ALLOC, 48) => 40,
        (nr::CONTROL, 32) => 28,
        (nr::FREE, 16) => 12,
        (nr::MAP_MEMORY, 56) => 40,
        (nr::ALLOC_MEMORY, 56) => 40,
        _ => return None,
    };
    let b = a.get(at..at + 4)?;
    Some(u32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
}

unsafe fn rm_call(n: u32, size: usize, arg: *mut c_void, going: &[u16]) {
    // SAFETY: the request declares this size and the call succeeded.
    let a = unsafe { core::slice::from_raw_parts(arg as *const u8, size) };
    if status_of(n, a).is_none_or(|s| s != 0) {
        return;
    }
    // SAFETY: in each arm the size was matched to the struct by `status_of`.
    unsafe {
        match n {
            nr::ALLOC if size == 32 => {
                let p = &*(arg as *const Nvos21);
                allocated(p.root, p.parent, p.new, p.class, p.params);
            }
            nr::ALLOC => {
                let p = &*(arg as *const Nvos64);
                allocated(p.root, p.parent, p.new, p.class, p.params);
            }
            nr::CONTROL => {
                let p = &*(arg as *const Nvos54);
                if p.cmd == abi::CTRL_WORK_SUBMIT_TOKEN && p.params != 0 {
                    channels::token(p.client, p.object, (p.params as *const u32).read_unaligned());
                }
            }
            nr::MAP_MEMORY => {
                let p = &*(arg as *const Nvos33Fd);
                model::bind(Bound { fd: p.fd, client: p.client, memory: p.memory, offset: p.offset });
            }
            nr::ALLOC_MEMORY => {
                let p = &*(arg as *const Nvos02Fd);
                // 0x71 NV01_MEMORY_SYSTEM_OS_DESCRIPTOR: the program's own pages.
                if p.class == 0x71 && p.memory != 0 {
                    let len = p.limit.saturating_add(1);
                    mapped(Mapped { client: p.root, memory: p.new, offset: 0, addr: p.memory, len, video: false });
                } else if p.fd >= 0 {
                    model::bind(Bound { fd: p.fd, client: p.root, memory: p.new, offset: 0 });
                }
            }
            nr::FREE => {
                let p = &*(arg as *const Nvos00);
                for &slot in going {
                    channels::end(slot as usize);
                }
                model::free(p.root, p.old);
            }
            _ => {}
        }
    }
}

/// Which channels RM_FREE will take: see [`channels::before_free`].
///
/// # Safety
/// `arg` is the argument of `request`.
unsafe fn before_free(request: c_ulong, arg: *mut c_void, going: &mut [u16; SLOTS]) -> usize {
    if abi::rm_nr(request) != Some(nr::FREE) || abi::request_size(request) != 16 || arg.is_null() {
        return 0;
    }
    // SAFETY: an NVOS00 by its size.
    let p = unsafe { *(arg as *const Nvos00) };
    channels::before_free(p.root, p.old, going)
}

/// True if RM_FREE said so.
///
/// # Safety
/// `arg` is its argument.
unsafe fn has_freed(arg: *mut c_void) -> bool {
    // SAFETY: the caller's.
    unsafe { (arg as *const Nvos00).read_unaligned() }.status == 0
}

/// Memory is mapped into the process.
pub fn mapped(m: Mapped) {
    model::map(m);
    channels::look_again();
}

/// # Safety
/// `params` is 0 or the allocation parameters of `class`.
unsafe fn allocated(client: u32, parent: u32, handle: u32, class: u32, params: u64) {
    let follow = matches!(class, 0x0 | 0x1 | 0x41 | 0x80 | 0x2080 | abi::CLASS_CHANNEL_GROUP)
        || abi::is_channel_class(class)
        || abi::is_usermode_class(class);
    if !follow {
        return;
    }
    model::add(client, parent, handle, class);
    if abi::is_channel_class(class) && params != 0 {
        // SAFETY: the class's parameters begin with this struct in every version that we know.
        let p = unsafe { (params as *const ChannelAlloc).read_unaligned() };
        channels::begin(client, handle, class, &p);
    }
}

/// # Safety
/// `arg` is the argument of a UVM call that succeeded.
unsafe fn uvm_call(request: u64, arg: *mut c_void) {
    let word = |at: usize| {
        // SAFETY: inside the call's struct.
        unsafe { ((arg as usize + at) as *const u64).read_unaligned() }
    };
    let half = |at: usize| {
        // SAFETY: inside the call's struct.
        unsafe { ((arg as usize + at) as *const u32).read_unaligned() }
    };
    match request {
        uvm::MAP_EXTERNAL_ALLOCATION if half(9260) == 0 => {
            let e = External { client: half(9252), memory: half(9256), offset: word(16), va: word(0), len: word(8) };
            model::map_external(e);
        }
        uvm::FREE | uvm::UNMAP_EXTERNAL => model::unmap_external(word(0)),
        _ => {}
    }
}

/// Driver files opened, closed and doubled.
pub fn file_event(k: u16, fd: i32, other: i32, file: u32, path: &[u8]) {
    let body = event::FileBody { fd, other, file, path: path.len() as u32 };
    record::event(k, 0, sys::tsc(), &body, path, &[]);
}
