//! Replaces functions that a loaded library exports.
//!
//! The value in the library's symbol table is changed, so later lookups find doorbell's function. Slots of other
//! libraries that are already bound to the function are bound again. The library's own calls do not change.

use crate::elf::{self, Library};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// A replacement for an exported function, and the place where the original is kept.
pub(crate) struct Export {
    pub name: &'static CStr,
    pub ours: *mut c_void,
    /// Receives the original; written before any lookup can find the replacement.
    pub theirs: &'static AtomicPtr<c_void>,
}

/// Replaces exports of the library of `handle`. Returns the names of those that it has.
///
/// # Safety
/// `handle` is dlopen's, of a library that is never closed. Each replacement has the signature of its original and may
/// be called from any thread from now on. No library is unloaded during the call.
pub(crate) unsafe fn exchange(handle: *mut c_void, exports: &[Export]) -> Result<Vec<&'static CStr>, String> {
    // SAFETY: the caller's promise.
    let library = unsafe { Library::of(handle)? };
    let mut exchanged = Vec::new();
    for export in exports {
        // SAFETY: the library is loaded.
        let Some(symbol) = (unsafe { library.defined(export.name) }) else { continue };
        // SAFETY: a word of its symbol table, which the loader reads and no other code writes.
        let value = unsafe { &*(&raw const (*symbol).st_value).cast::<AtomicU64>() };
        let real = library.base().wrapping_add(value.load(Ordering::Relaxed)) as *mut c_void;
        if real == export.ours {
            continue;
        }
        export.theirs.store(real, Ordering::Release);
        let at = value.as_ptr() as u64;
        // SAFETY: in the library's symbol table.
        let rights = unsafe { elf::writable(at)? };
        // ORDERING: a thread that finds the replacement also finds the original that it calls.
        value.store((export.ours as u64).wrapping_sub(library.base()), Ordering::Release);
        // SAFETY: as above.
        unsafe { elf::restore(at, rights) };
        // SAFETY: the caller's promise.
        for other in unsafe { library.all() }.iter().filter(|other| !other.is(&library)) {
            // SAFETY: a loaded library.
            unsafe { bind_anew(other, export, real)? };
        }
        exchanged.push(export.name);
    }
    Ok(exchanged)
}

/// # Safety
/// The library is loaded, and `real` is the function that `export` replaces.
unsafe fn bind_anew(library: &Library, export: &Export, real: *mut c_void) -> Result<(), String> {
    let mut bound = Vec::new();
    // SAFETY: the caller's promise.
    unsafe { library.slots(|slot| bound.extend((slot.name == export.name).then_some(slot.at))) };
    for at in bound.into_iter().filter(|at| at.is_multiple_of(8)) {
        // SAFETY: a pointer-sized slot of a loaded library. A slot that is not bound yet will be bound to the replacement.
        let slot = unsafe { &*(at as *const AtomicPtr<c_void>) };
        if slot.load(Ordering::Relaxed) == real {
            // SAFETY: as above.
            unsafe { elf::writable(at)? };
            slot.store(export.ours, Ordering::Release);
        }
    }
    Ok(())
}
