//! The primary context, which a reset ends with all memory that was made in it.

use crate::memory;
use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Its handle, the same one after a reset.
pub(crate) const HANDLE: usize = 0x10;

/// Its number, another one after a reset.
static ID: AtomicU64 = AtomicU64::new(1);
static HAS_ENDED: AtomicBool = AtomicBool::new(false);

thread_local! {
    pub(crate) static CURRENT: Cell<*mut c_void> = const { Cell::new(std::ptr::null_mut()) };
    /// Contexts below the current one.
    pub(crate) static PUSHED: RefCell<Vec<*mut c_void>> = const { RefCell::new(Vec::new()) };
}

pub(crate) fn retain() -> *mut c_void {
    if HAS_ENDED.swap(false, Ordering::SeqCst) {
        ID.fetch_add(1, Ordering::SeqCst);
    }
    std::ptr::without_provenance_mut(HANDLE)
}

pub(crate) fn reset() {
    HAS_ENDED.store(true, Ordering::SeqCst);
    memory::end_with_context();
}

/// `None` once it has ended.
pub(crate) fn id() -> Option<u64> {
    (!HAS_ENDED.load(Ordering::SeqCst)).then(|| ID.load(Ordering::SeqCst))
}
