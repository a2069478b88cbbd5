//! Whether the program uses CUPTI to time kernels or copies. CUPTI then changes the launches, and doorbell's stamps would
//! be part of its times. While it is active, no kernel is stamped ([`stamps::step_back`]).
//!
//! The calls that turn such records on and off have entries here, through the symbol table of the library that defines
//! them, like CUDA's calls. A CUPTI whose symbols are hidden (linked into a profiler's own library) is not seen.

use crate::tap::stamps;
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// `CUptiResult cuptiActivityEnable(CUpti_ActivityKind)`, `cuptiActivityEnableContext(CUcontext, CUpti_ActivityKind)`,
/// the two that turn them off, and `cuptiFinalize(void)`, which ends all.
pub const NAMES: [&[u8]; 5] = [
    b"cuptiActivityEnable",
    b"cuptiActivityEnableContext",
    b"cuptiActivityDisable",
    b"cuptiActivityDisableContext",
    b"cuptiFinalize",
];
static REAL: [AtomicUsize; 5] = [const { AtomicUsize::new(0) }; 5];

/// CUpti_ActivityKind (`cupti_activity.h`): MEMCPY, MEMSET, KERNEL, CONCURRENT_KERNEL, CDP_KERNEL, GRAPH_TRACE.
const TIMED: u64 = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 10 | 1 << 18 | 1 << 51;
/// CUPTI_ERROR_UNKNOWN, which is never returned: an entry is used only for a function that was found.
const UNKNOWN: u32 = 999;

/// Kinds of records that are on.
static KINDS: AtomicU64 = AtomicU64::new(0);

/// The entry for each of [`NAMES`].
pub fn entry(i: usize) -> usize {
    let entries = [
        enable as extern "C" fn(u32) -> u32 as usize,
        enable_context as extern "C" fn(usize, u32) -> u32 as usize,
        disable as extern "C" fn(u32) -> u32 as usize,
        disable_context as extern "C" fn(usize, u32) -> u32 as usize,
        finalize as extern "C" fn() -> u32 as usize,
    ];
    entries.get(i).copied().unwrap_or(0)
}

/// Stores the address of a name's real function.
pub fn found(i: usize, real: usize) {
    if let Some(to) = REAL.get(i) {
        to.store(real, Ordering::Relaxed);
    }
}

pub fn real(i: usize) -> usize {
    REAL.get(i).map_or(0, |real| real.load(Ordering::Relaxed))
}

extern "C" fn enable(kind: u32) -> u32 {
    let result = of_kind(0, kind);
    changed(result, |on| on | bit(kind))
}

extern "C" fn enable_context(context: usize, kind: u32) -> u32 {
    let result = of_context(1, context, kind);
    changed(result, |on| on | bit(kind))
}

extern "C" fn disable(kind: u32) -> u32 {
    let result = of_kind(2, kind);
    changed(result, |on| on & !bit(kind))
}

/// (The kind may still be on in other contexts, so it counts as on.)
extern "C" fn disable_context(context: usize, kind: u32) -> u32 {
    of_context(3, context, kind)
}

extern "C" fn finalize() -> u32 {
    let result = match real(4) {
        0 => return UNKNOWN,
        // SAFETY: the function of that name.
        f => unsafe { core::mem::transmute::<usize, unsafe extern "C" fn() -> u32>(f)() },
    };
    changed(result, |_| 0)
}

fn of_kind(i: usize, kind: u32) -> u32 {
    match real(i) {
        0 => UNKNOWN,
        // SAFETY: the function of that name.
        f => unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(u32) -> u32>(f)(kind) },
    }
}

fn of_context(i: usize, context: usize, kind: u32) -> u32 {
    match real(i) {
        0 => UNKNOWN,
        // SAFETY: the function of that name.
        f => unsafe { core::mem::transmute::<usize, unsafe extern "C" fn(usize, u32) -> u32>(f)(context, kind) },
    }
}

fn bit(kind: u32) -> u64 {
    1u64.checked_shl(kind).unwrap_or(0) & TIMED
}

/// After a call: the kinds that are on have changed, if it succeeded.
fn changed(result: u32, now: impl Fn(u64) -> u64) -> u32 {
    if result == 0
        && let Ok(before) = KINDS.fetch_update(Ordering::AcqRel, Ordering::Acquire, |on| Some(now(on)))
        && (before == 0) != (now(before) == 0)
    {
        stamps::step_back(before == 0);
    }
    result
}
