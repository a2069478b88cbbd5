//! AddressSanitizer refuses to start if another library is loaded before it. Preloaded libraries are, and it works with
//! them if that check is off. It gets its options from the first function of this name, which is this one, unless the
//! program has its own.

use crate::process::symbol;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};

const NO_CHECK: &CStr = c"verify_asan_link_order=0";
const ROOM: usize = 4096;

struct Options(UnsafeCell<[u8; ROOM]>);
// SAFETY: written when the sanitizer begins, before there are other threads.
unsafe impl Sync for Options {}
static OPTIONS: Options = Options(UnsafeCell::new([0; ROOM]));

/// The options of the next library that has some, and the agent's.
#[unsafe(no_mangle)]
pub extern "C" fn __asan_default_options() -> *const c_char {
    let next = symbol::next(c"__asan_default_options");
    if next == 0 {
        return NO_CHECK.as_ptr();
    }
    // SAFETY: the sanitizer's own or a library's function of this name: it has no arguments and returns a string, or null.
    let theirs = unsafe { core::mem::transmute::<usize, extern "C" fn() -> *const c_char>(next)() };
    if theirs.is_null() {
        return NO_CHECK.as_ptr();
    }
    // SAFETY: as above; see Options.
    let (theirs, room) = unsafe { (CStr::from_ptr(theirs), &mut *OPTIONS.0.get()) };
    let (a, b) = (theirs.to_bytes(), NO_CHECK.to_bytes_with_nul());
    let n = a.len() + 1;
    match room.get_mut(..n + b.len()) {
        Some(room) if !a.is_empty() => {
            room[..a.len()].copy_from_slice(a);
            room[a.len()] = b':';
            room[n..].copy_from_slice(b);
            room.as_ptr().cast()
        }
        Some(_) => NO_CHECK.as_ptr(),
        None => theirs.as_ptr(),
    }
}
