//! Driver calls. Each is recorded as it happened. The taps also learn from it: which memory is mapped where, which
//! mapping is a doorbell page, the addresses of a channel's GPFIFO and USERD, and its token. [`rm::fact`] decides what a
//! call means.

use super::channels;
use super::model;
use crate::process::{real, sys};
use crate::record;
use crate::tap::stamps;
use core::ffi::{c_int, c_ulong, c_void};
use rm::abi::{self, Branch, nr, uvm};
use rm::call::{self, Call, FileKind};
use rm::class::AMPERE_SMC_PARTITION_REF;
use rm::fact::{Fact, What};
use tape::event::{self, IoctlBody, ioctl_flags, kind};
use tape::region::SLOTS;

/// Longest parameter block of RM_ALLOC or RM_CONTROL that is kept.
const NESTED_MAX: u32 = 4096;
/// Recorded bytes of a UVM call's argument. In longer arguments, the rest is attributes.
const UVM_MAX: usize = 64;

/// A successful call's bytes, as the driver has left them.
struct Seen<'a> {
    arg: &'a [u8],
    /// RM_ALLOC's and RM_CONTROL's parameters, up to [`NESTED_MAX`].
    nested: &'a [u8],
    cut: bool,
}

/// An ioctl on a driver file.
///
/// # Safety
/// As ioctl.
pub unsafe fn ioctl(fd: c_int, file: u32, request: c_ulong, arg: *mut c_void) -> c_int {
    let tsc = sys::tsc();
    let on = FileKind::from_raw(file);
    if on == FileKind::Uvm {
        super::before_uvm(fd);
        // SAFETY: as below.
        unsafe { before_unmapping(request, arg) };
    }
    let mut going = [0u16; SLOTS];
    // SAFETY: the program's argument, of the size that its request declares.
    let freed = unsafe { before_free(on, request, arg, &mut going) };
    // SAFETY: the caller's.
    let ret = unsafe { real::ioctl(fd, request, arg) };
    let errno = if ret < 0 { sys::Errno::get() } else { 0 };
    let _keep = sys::Errno::keep();
    let tsc_end = sys::tsc();
    let seen = if ret == 0 && !arg.is_null() {
        // SAFETY: the driver has just read and written these structs, so they are there.
        unsafe { Seen::of(on, request, arg) }
    } else {
        Seen { arg: &[], nested: &[], cut: false }
    };
    let going = going.get(..freed).unwrap_or(&[]);
    let branch = super::branch();
    let fact = Fact::of(branch, &Call::parse(branch, on, request, seen.arg, seen.nested), ret);
    if !going.is_empty() && !matches!(fact, Some(Fact::Freed { .. })) {
        channels::not_freed(going);
    }
    write_down(tsc, IoctlBody { fd, file, request, ret, errno, arg: 0, nested: 0, tsc_end }, on, &seen);
    if let Some(fact) = fact {
        learn(fd, &fact, going);
    }
    ret
}

impl<'a> Seen<'a> {
    /// # Safety
    /// `arg` is the argument of a call that the driver has just answered; it lives as long as the result.
    unsafe fn of(on: FileKind, request: u64, arg: *mut c_void) -> Seen<'a> {
        let view = |at: u64, length: usize| {
            // SAFETY: memory that the driver has just used with this size.
            unsafe { core::slice::from_raw_parts(at as *const u8, length) }
        };
        let branch = super::branch();
        let arg = view(arg as u64, size_of_argument(branch, on, request, super::is_uvm_known()));
        let Some((at, length)) = call::parameters(branch, request, arg) else {
            return Seen { arg, nested: &[], cut: false };
        };
        if Call::parse(branch, on, request, arg, &[]).status() != Some(0) {
            return Seen { arg, nested: &[], cut: false };
        }
        Seen { arg, nested: view(at, length.min(NESTED_MAX) as usize), cut: length > NESTED_MAX }
    }
}

/// Bytes of a call's argument; 0 if its number does not contain the size and the size is unknown.
fn size_of_argument(branch: &Branch, on: FileKind, request: u64, is_uvm_known: bool) -> usize {
    match (abi::rm_nr(request), on) {
        (Some(_), _) => abi::request_size(request),
        (None, FileKind::Uvm) if is_uvm_known => uvm::size(branch, request),
        _ => 0,
    }
}

fn write_down(tsc: u64, mut body: IoctlBody, on: FileKind, seen: &Seen<'_>) {
    let mut flags = if seen.cut { ioctl_flags::NESTED_CUT } else { 0 };
    let mut arg = seen.arg;
    let short;
    if on == FileKind::Uvm && abi::rm_nr(body.request).is_none() {
        match uvm::map_external_short(super::branch(), arg).filter(|_| body.request == uvm::MAP_EXTERNAL_ALLOCATION) {
            Some(kept) => {
                short = kept;
                arg = &short;
                flags |= ioctl_flags::UVM_MAP_SHORT;
            }
            None => arg = arg.get(..UVM_MAX).unwrap_or(arg),
        }
    }
    body.arg = arg.len() as u32;
    body.nested = seen.nested.len() as u32;
    record::event(kind::IOCTL, flags, tsc, &body, arg, seen.nested);
}

/// Before a call that may unmap memory that the GPU writes to.
///
/// # Safety
/// `arg` is the argument of `request`.
unsafe fn before_unmapping(request: c_ulong, arg: *mut c_void) {
    if request == uvm::FREE && stamps::area() != 0 && sys::is_readable(arg as usize) {
        // SAFETY: readable; UVM_FREE_PARAMS begins with the base address.
        stamps::unmaps(unsafe { arg.cast::<u64>().read_unaligned() });
    }
}

/// The channels that RM_FREE will free: see [`channels::before_free`].
///
/// # Safety
/// `arg` is the argument of `request`.
unsafe fn before_free(on: FileKind, request: c_ulong, arg: *mut c_void, going: &mut [u16; SLOTS]) -> usize {
    if abi::rm_nr(request) != Some(nr::FREE) || arg.is_null() {
        return 0;
    }
    // The kernel has not seen the argument yet, so it may not be readable.
    let size = abi::request_size(request);
    if size < 8 || !sys::is_readable(arg as usize) || !sys::is_readable(arg as usize + size - 8) {
        return 0;
    }
    // SAFETY: readable at its begin and at its end, and shorter than a page; the request declares this size.
    let arg = unsafe { core::slice::from_raw_parts(arg as *const u8, size) };
    match Call::parse(super::branch(), on, request, arg, &[]) {
        Call::Free(f) => channels::before_free(f.root, f.old, going),
        _ => 0,
    }
}

/// A call has shown this fact. `going`: the channels that it has freed.
fn learn(fd: c_int, fact: &Fact<'_>, going: &[u16]) {
    if let Fact::Freed { .. } = fact {
        for &slot in going {
            channels::end(slot as usize);
        }
    }
    let visible = model::learn(fact);
    if visible {
        channels::look_again();
    }
    match fact {
        Fact::Version(v) => v.text().into_iter().for_each(|text| super::version(fd, text)),
        Fact::Created(c) => {
            if c.class == AMPERE_SMC_PARTITION_REF {
                stamps::divided();
            }
            match &c.what {
                What::Client => channels::client_begins(c.client),
                What::Channel(p) => channels::begin(c.client, c.handle, c.class, p),
                _ => {}
            }
        }
        Fact::Token { client, channel, token } => channels::token(*client, *channel, *token),
        _ => {}
    }
}

/// Records that a driver file was opened, closed or duplicated.
pub fn file_event(k: u16, fd: i32, other: i32, file: u32, path: &[u8]) {
    let body = event::FileBody { fd, other, file, path: path.len() as u32 };
    record::event(k, 0, sys::tsc(), &body, path, &[]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_driver_that_is_not_known_no_argument_of_uvm_is_read() {
        let free = abi::rm_request(nr::FREE, 16);
        let sizes = |known| {
            let calls = [(FileKind::Uvm, uvm::FREE), (FileKind::Ctl, free)];
            calls.map(|(on, r)| size_of_argument(Branch::usual(), on, r, known))
        };
        assert_eq!((sizes(true), sizes(false)), ([24, 16], [0, 16]));
        assert_eq!(size_of_argument(Branch::nearest(590), FileKind::Uvm, uvm::FREE, true), 16);
        assert_eq!(size_of_argument(Branch::nearest(535), FileKind::Uvm, uvm::MAP_EXTERNAL_ALLOCATION, true), 1200);
    }
}
