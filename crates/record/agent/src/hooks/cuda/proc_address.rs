//! cuGetProcAddress, through which a runtime that is linked into the program finds the driver's functions.

use super::call::real;
use super::{find, slots};
use crate::fix;
use crate::policy::guard;
use crate::record::pauses;
use crate::trace::call::{Words, are_followed};
use core::ffi::{CStr, c_char};
use core::sync::atomic::Ordering;

/// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
const PER_THREAD: usize = 2;

/// Both versions: name, place for the address, version of CUDA, flags (and a place for the reason if there is none).
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn call<const F: usize>(
    name: usize,
    to: usize,
    version: usize,
    flags: usize,
    a4: usize,
    a5: usize,
    number: usize,
    _site: usize,
) -> usize {
    // SAFETY: an entry's number.
    let at = unsafe { slots::slot(number) }.real.load(Ordering::Relaxed);
    let a = Words([name, to, version, flags, a4, a5, 0, 0, 0, 0, 0]);
    // SAFETY: the caller's arguments, for the function that it called.
    let r = unsafe { real(at, 6, &a) };
    // If calls are neither followed, guarded nor answered (a forked child that found no region), the program gets the
    // real functions.
    if r as i32 == 0
        && name != 0
        && to != 0
        && (are_followed() || pauses::profiler_decides() || guard::on() || fix::on())
    {
        // SAFETY: the driver has read the name and written the address.
        unsafe {
            let to = to as *mut usize;
            if *to != 0 {
                let name = CStr::from_ptr(name as *const c_char).to_bytes();
                *to = find::given(name, *to, version as i32, flags & PER_THREAD != 0);
            }
        }
    }
    r
}
