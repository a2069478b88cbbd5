//! Libraries, whose kernels are loaded late: a kernel's first launch, or its load by name, takes the lock that launches need.

use crate::kernels;
use crate::lock::exclusive;
use std::ffi::{CStr, c_int};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// What an H200 takes for a library of 400 kernels and its first one.
const LOAD: Duration = Duration::from_millis(3);

/// Handles, as far from each other as CUDA's objects.
const LIBRARY: u64 = 0x100_0000;
const KERNEL: u64 = 0x200_0000;
const STEP: u64 = 0x100;

struct Kernel {
    library: u64,
    /// Its handle among all kernels.
    function: u64,
    name: &'static CStr,
    is_loaded: bool,
}

static KERNELS: Mutex<Vec<Kernel>> = Mutex::new(Vec::new());

fn with<T>(handle: u64, then: impl FnOnce(&mut Kernel) -> T) -> Option<T> {
    let at = usize::try_from(handle.checked_sub(KERNEL)? / STEP).ok()?;
    KERNELS.lock().ok()?.get_mut(at).map(then)
}

pub(crate) fn create() -> u64 {
    static LIBRARIES: AtomicU64 = AtomicU64::new(0);
    LIBRARY + STEP * LIBRARIES.fetch_add(1, Ordering::SeqCst)
}

/// The kernel of this name, which is not loaded by that.
pub(crate) fn kernel(library: u64, name: &CStr) -> Option<u64> {
    let (function, name) = kernels::named(name)?;
    let mut all = KERNELS.lock().ok()?;
    let known = all.iter().position(|kernel| kernel.library == library && kernel.function == function);
    let at = known.unwrap_or_else(|| {
        all.push(Kernel { library, function, name, is_loaded: false });
        all.len() - 1
    });
    Some(KERNEL + STEP * at as u64)
}

pub(crate) fn name(handle: u64) -> Option<&'static CStr> {
    with(handle, |kernel| kernel.name)
}

/// Loads it, if that has not been done.
pub(crate) fn load(handle: u64) -> Result<(), c_int> {
    let is_loaded = with(handle, |kernel| kernel.is_loaded).ok_or(crate::status::INVALID_HANDLE)?;
    if !is_loaded {
        exclusive(LOAD, || with(handle, |kernel| kernel.is_loaded = true));
    }
    Ok(())
}

/// The handle among all kernels of one that is launched, which is loaded now.
pub(crate) fn function(handle: u64) -> u64 {
    match load(handle) {
        Ok(()) => with(handle, |kernel| kernel.function).unwrap_or(handle),
        Err(_) => handle,
    }
}
