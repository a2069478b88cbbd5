//! cuGetExportTable, which gives NVIDIA's own libraries tables of functions without names. Calls through them are not
//! recorded. That there are such tables is.

use super::call::real;
use super::slots;
use crate::process::sys;
use crate::record;
use crate::trace::call::{Words, are_followed};
use core::sync::atomic::Ordering;
use tape::call::{ExportTableBody, kind};

/// A place for the table, and which one: a pointer to 16 bytes.
#[allow(clippy::too_many_arguments)]
pub unsafe extern "C" fn call<const F: usize>(
    to: usize,
    which: usize,
    a2: usize,
    a3: usize,
    a4: usize,
    a5: usize,
    number: usize,
    _site: usize,
) -> usize {
    // SAFETY: an entry's number.
    let at = unsafe { slots::slot(number) }.real.load(Ordering::Relaxed);
    let a = Words([to, which, a2, a3, a4, a5, 0, 0, 0, 0, 0]);
    // SAFETY: the caller's arguments, for the function that it called.
    let r = unsafe { real(at, 6, &a) };
    if r as i32 == 0 && which != 0 && are_followed() {
        let _keep = sys::Errno::keep();
        // SAFETY: the driver has read it.
        let id = unsafe { (which as *const [u64; 2]).read_unaligned() };
        record::event(kind::EXPORT_TABLE, 0, sys::tsc(), &ExportTableBody { id }, &[], &[]);
    }
    r
}
