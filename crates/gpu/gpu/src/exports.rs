//! The functions that a loaded library exports: ours in the place of some.
//!
//! The value in its symbol table is changed, so that whoever looks the name up from then on finds ours; and the slots of
//! libraries that are bound to the function already are bound anew. The library's own calls stay as they are.

use crate::elf::{self, Library};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};

/// A function of ours in the place of an exported one, and where the other is kept.
pub(crate) struct Export {
    pub name: &'static CStr,
    pub ours: *mut c_void,
    /// Receives the function; written before anybody can find ours.
    pub theirs: &'static AtomicPtr<c_void>,
}

/// Exchanges what the library behind `handle` exports; the names of those that it has.
///
/// # Safety
/// `handle` is dlopen's, of a library that is never closed; each function of ours has the signature of the one that it replaces
/// and may be called from any thread from now on; no library is unloaded meanwhile.
pub(crate) unsafe fn exchange(handle: *mut c_void, exports: &[Export]) -> Result<Vec<&'static CStr>, String> {
    // SAFETY: the caller's.
    let library = unsafe { Library::of(handle)? };
    let mut exchanged = Vec::new();
    for export in exports {
        // SAFETY: the library is loaded.
        let Some(symbol) = (unsafe { library.defined(export.name) }) else { continue };
        // SAFETY: a word of its symbol table, which the loader reads and nobody writes.
        let value = unsafe { &*(&raw const (*symbol).st_value).cast::<AtomicU64>() };
        let real = library.base().wrapping_add(value.load(Ordering::Relaxed)) as *mut c_void;
        if real == export.ours {
            continue;
        }
        export.theirs.store(real, Ordering::Release);
        let at = value.as_ptr() as u64;
        // SAFETY: in the library's symbol table.
        let rights = unsafe { elf::writable(at)? };
        // ORDERING: whoever finds ours finds the function that it calls.
        value.store((export.ours as u64).wrapping_sub(library.base()), Ordering::Release);
        // SAFETY: as above.
        unsafe { elf::restore(at, rights) };
        // SAFETY: the caller's.
        for other in unsafe { library.all() }.iter().filter(|other| !other.is(&library)) {
            // SAFETY: a loaded library.
            unsafe { bind_anew(other, export, real)? };
        }
        exchanged.push(export.name);
    }
    Ok(exchanged)
}

/// # Safety
/// The library is loaded, and `real` is the function that `export` stands for.
unsafe fn bind_anew(library: &Library, export: &Export, real: *mut c_void) -> Result<(), String> {
    let mut bound = Vec::new();
    // SAFETY: the caller's.
    unsafe { library.slots(|slot| bound.extend((slot.name == export.name).then_some(slot.at))) };
    for at in bound.into_iter().filter(|at| at.is_multiple_of(8)) {
        // SAFETY: a pointer-sized slot of a loaded library. One that is not bound yet will be to ours.
        let slot = unsafe { &*(at as *const AtomicPtr<c_void>) };
        if slot.load(Ordering::Relaxed) == real {
            // SAFETY: as above.
            unsafe { elf::writable(at)? };
            slot.store(export.ours, Ordering::Release);
        }
    }
    Ok(())
}
