//! Kernels that a plan names are loaded as soon as their code is. Otherwise CUDA loads a kernel at its first launch, which takes milliseconds
//! then and holds other threads up.
//!
//! The thread that has loaded a library loads its kernels, before its call returns. Without a current context it cannot, so the library is kept for the next
//! call after which a thread has one ([`looks_at`]).
//!
//! Invariant: the program's call has its result already. A library is not used here once its unload has begun: that waits for the load.

use super::driver::{Loading, SUCCESS};
use super::{is_capturing, on, relaxed};
use crate::process::sys;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use locks::cancel;
use tape::call::{Effect, Function, number};
use tape::fix::{self, Fixes, Kernels, loaded};

static KERNELS: AtomicPtr<Kernels> = AtomicPtr::new(core::ptr::null_mut());

/// Begins, if the plan names kernels. After [`super::begin`].
pub fn begin(fixes: &Fixes, kernels: &'static Kernels) {
    if fixes.wanted & fix::KERNELS != 0 && on() {
        KERNELS.store(core::ptr::from_ref(kernels).cast_mut(), Ordering::Release);
    }
}

fn wanted() -> Option<&'static Kernels> {
    // SAFETY: null, or what `begin` was given, which is never unmapped.
    unsafe { KERNELS.load(Ordering::Acquire).as_ref() }.filter(|_| on())
}

/// Whether kernels are loaded early.
pub fn are_wanted() -> bool {
    wanted().is_some()
}

/// Calls that load code, after which a context is current, or a library ends. They have entries if kernels are loaded early.
pub fn looks_at(function: &Function) -> bool {
    const CALLS: [u16; 6] = [
        number("cuCtxSetCurrent"),
        number("cuCtxPushCurrent"),
        number("cuCtxCreate"),
        number("cuLibraryGetKernel"),
        number("cuLibraryGetModule"),
        number("cuLibraryUnload"),
    ];
    (function.effect == Effect::LoadsCode || CALLS.contains(&function.number)) && are_wanted()
}

/// A library that waits for a context.
struct Waiting {
    /// Its handle, with [`BUSY`] while a thread uses the place; 0 if it is free.
    library: AtomicUsize,
    hash: AtomicU64,
}

/// (Handles are addresses of objects, which are even.)
const BUSY: usize = 1;
static WAITING: [Waiting; 64] = [const { Waiting { library: AtomicUsize::new(0), hash: AtomicU64::new(0) } }; 64];
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// Code with this hash was loaded.
#[cold]
pub fn after_load(handle: usize, hash: u64, is_library: bool) {
    let Some(kernels) = wanted().filter(|kernels| kernels.of(hash).next().is_some()) else { return };
    if load(kernels, handle, hash, is_library) {
        return;
    }
    let is_kept = is_library && keep(handle, hash);
    set(kernels, hash, if is_kept || !is_library { loaded::NO_MOMENT } else { loaded::NOT_POSSIBLE });
}

/// (Not of kernels that were loaded early before: from another library with the same code, or in another process.)
fn set(kernels: &Kernels, hash: u64, state: u32) {
    for (kernel, _) in kernels.of(hash).filter(|(kernel, _)| kernel.state.load(Ordering::Relaxed) != loaded::EARLY) {
        kernel.state.store(state, Ordering::Relaxed);
    }
}

/// False if there is no place.
fn keep(library: usize, hash: u64) -> bool {
    let free = |w: &&Waiting| w.library.compare_exchange(0, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok();
    let Some(place) = (library & BUSY == 0).then(|| WAITING.iter().find(free)).flatten() else { return false };
    place.hash.store(hash, Ordering::Relaxed);
    COUNT.fetch_add(1, Ordering::Relaxed);
    // ORDERING: Release: whoever finds the library finds its hash.
    place.library.store(library, Ordering::Release);
    true
}

/// A call has returned, after which a context may be current.
#[inline(always)]
pub fn moment() {
    if COUNT.load(Ordering::Relaxed) != 0 {
        load_waiting();
    }
}

#[cold]
#[inline(never)]
fn load_waiting() {
    let Some(kernels) = wanted() else { return };
    for place in &WAITING {
        let library = place.library.load(Ordering::Relaxed);
        let is_taken = || {
            let busy = library | BUSY;
            place.library.compare_exchange(library, busy, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        if library & !BUSY == 0 || library & BUSY != 0 || !is_taken() {
            continue;
        }
        let is_done = load(kernels, library, place.hash.load(Ordering::Relaxed), true);
        if is_done {
            COUNT.fetch_sub(1, Ordering::Relaxed);
        }
        // ORDERING: Release: an unload that waits for this place sees all of the load.
        place.library.store(if is_done { 0 } else { library }, Ordering::Release);
    }
}

/// The program unloads a library: it waits no longer. If another thread loads its kernels now, this thread waits for that.
#[inline(always)]
pub fn unloads(library: usize) {
    if COUNT.load(Ordering::Relaxed) != 0 {
        forget(library);
    }
}

#[cold]
#[inline(never)]
fn forget(library: usize) {
    /// Nanoseconds between two looks, and how often at most: ten seconds.
    const NAP: i64 = 50_000;
    const NAPS: usize = 200_000;
    for place in WAITING.iter().filter(|_| library & !BUSY != 0) {
        for _ in 0..NAPS {
            match place.library.compare_exchange(library, 0, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    COUNT.fetch_sub(1, Ordering::Relaxed);
                }
                Err(now) if now == library | BUSY => {
                    sys::nap(NAP);
                    continue;
                }
                Err(_) => {}
            }
            break;
        }
    }
}

/// Loads the kernels of this code. False if a later call may do it: no context is current, or a stream is being captured.
fn load(kernels: &Kernels, handle: usize, hash: u64, is_library: bool) -> bool {
    let Some(d) = Loading::here() else {
        set(kernels, hash, loaded::NOT_POSSIBLE);
        return true;
    };
    let mut context = 0;
    // SAFETY: a place for the handle.
    if is_capturing() || unsafe { (d.current)(&raw mut context) } != SUCCESS || context == 0 {
        return false;
    }
    let _errno = sys::Errno::keep();
    let cancelled = cancel::defer();
    for (kernel, name) in kernels.of(hash) {
        // SAFETY: CUDA's functions with a library or module that the program has not unloaded (see the head), a text with its NUL and places for handles.
        let result = unsafe {
            relaxed(d.capture_mode, || {
                let mut function = 0;
                let found = if is_library {
                    let mut of_library = 0;
                    match (d.library_kernel)(&raw mut of_library, handle, name.as_ptr()) {
                        SUCCESS => (d.kernel_function)(&raw mut function, of_library),
                        failed => failed,
                    }
                } else {
                    (d.module_function)(&raw mut function, handle, name.as_ptr())
                };
                if found == SUCCESS { (d.load)(function) } else { found }
            })
        };
        let state = if result == SUCCESS { loaded::EARLY } else { loaded::FAILED.saturating_add(result as u32) };
        kernel.state.store(state, Ordering::Relaxed);
    }
    cancelled.put_back();
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_unloaded_waits_no_longer_and_not_before_its_load_is_over() {
        let place = || WAITING.iter().find(|w| w.library.load(Ordering::Relaxed) != 0);
        assert!(keep(0x1000, 7) && !keep(0x1001, 7));
        forget(0x2000);
        assert_eq!((COUNT.load(Ordering::Relaxed), place().is_some()), (1, true));
        forget(0x1000);
        assert_eq!((COUNT.load(Ordering::Relaxed), place().is_some()), (0, false));
        assert!(keep(0x3000, 7));
        let place = place().expect("it waits");
        place.library.store(0x3000 | BUSY, Ordering::Relaxed);
        let unload = std::thread::spawn(|| forget(0x3000));
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(!unload.is_finished());
        COUNT.fetch_sub(1, Ordering::Relaxed);
        place.library.store(0, Ordering::Release);
        unload.join().unwrap();
        assert_eq!(COUNT.load(Ordering::Relaxed), 0);
    }
}
