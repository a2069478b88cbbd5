//! Pinned host memory that is made and freed without the lock for which launches wait.
//!
//! cuMemHostAlloc holds that lock while the kernel pins each page: 23 ms for 64 MiB on an H200. [`memory`] is pinned outside of it. Pointers,
//! attributes and speed are the same.
//!
//! Whatever cuMemHostAlloc checks before it makes memory (a context, errors of earlier work, captures) it also checks for 0 bytes,
//! and then makes nothing. So it is called for 0 bytes first, and an error of it is the answer.

use super::driver::{Driver, OUT_OF_MEMORY, SUCCESS};
use super::memory::{self, GRANULE};
use super::table::{self, Context, Kind, Row};
use super::{driver, node};
use crate::process::restrictions::{may, need};
use crate::process::sys;
use tape::fix::{Count, Why};

/// CU_MEMHOSTALLOC_PORTABLE and DEVICEMAP, which change nothing where addresses are the same for CPU and GPU.
const KNOWN_FLAGS: u32 = 3;
/// A block that CUDA cuts out of memory that is pinned already.
const BLOCK: usize = 4096;

/// cuMemHostAlloc (and cuMemAllocHost, which has no flags).
///
/// # Safety
/// `to` is the caller's place for the pointer.
pub unsafe fn alloc(count: &Count, to: usize, bytes: usize, flags: u32) -> Result<i32, Why> {
    if to == 0 || flags & !KNOWN_FLAGS != 0 {
        return Err(Why::Flags);
    }
    let rounded = bytes.checked_next_multiple_of(GRANULE).ok_or(Why::Rounding)?;
    if (rounded - bytes) as u128 * 100 > bytes as u128 * 12 {
        return Err(Why::Rounding);
    }
    let d = driver(count)?;
    let node = node::of_thread().ok_or(Why::Policy)?;
    let mut none = 0;
    // SAFETY: a place for the pointer, which stays null.
    let checked = unsafe { (d.host_alloc)(&raw mut none, 0, flags) };
    if checked != SUCCESS {
        return Ok(checked);
    }
    let context = Context::current(&d).ok_or(Why::Driver)?;
    table::end_with_contexts(&d);
    begin_context(&d, context)?;
    let memory = memory::on_host(&d, rounded, node).map_err(|_| Why::Driver)?;
    table::keep(&d, Row { memory, context, bytes, kind: Kind::Pinned { flags } })?;
    // SAFETY: the caller's.
    unsafe { (to as *mut usize).write_unaligned(memory.at) };
    count.answered(bytes as u64);
    Ok(SUCCESS)
}

/// At the first memory of a context: a block that stays, so that [`wait`] finds pinned memory to cut its block from. (Without it, a block
/// takes 695 us instead of 4.)
fn begin_context(d: &Driver, context: Context) -> Result<(), Why> {
    let has_block = core::mem::replace(table::lock().ok_or(Why::Full)?.begin_context(context)?, true);
    let mut block = 0;
    // SAFETY: a place for the block.
    if has_block || unsafe { (d.host_alloc)(&raw mut block, BLOCK, 0) } == SUCCESS {
        return Ok(());
    }
    if let Some(mut table) = table::lock() {
        *table.begin_context(context)? = false;
    }
    Err(Why::Driver)
}

/// cuMemFreeHost. `None`: it is not the agent's memory.
///
/// # Safety
/// As that function.
pub unsafe fn free(at: usize) -> Option<i32> {
    let d = Driver::here()?;
    let row = table::take(|row| row.memory.at == at && matches!(row.kind, Kind::Pinned { .. }))?;
    // SAFETY: the caller's.
    Some(unsafe { table::free(&d, row, d.free_host, || wait(&d, row.context)) })
}

/// CUDA's free waits until all work of the memory's context has ended, and refuses while a stream is being captured. To free
/// a block of CUDA's does both, and no launch waits for it.
fn wait(d: &Driver, context: Context) -> i32 {
    in_context(d, context.handle, || {
        let mut block = 0;
        // SAFETY: a place for the block, which is freed again.
        unsafe {
            match (d.host_alloc)(&raw mut block, BLOCK, 0) {
                SUCCESS => (d.free_host)(block),
                // (A capture would have been the answer above: this ends none.)
                OUT_OF_MEMORY => (d.synchronize_context)(),
                failed => failed,
            }
        }
    })
}

/// Before cuMemHostRegister, which holds its lock also while the kernel makes pages that are not there yet. Here they are made
/// before. (It makes and pins the same pages, so what the program can see of them is the same; a page that cannot be made is left
/// to it.)
pub fn populate(count: &Count, at: usize, bytes: usize, flags: u32) {
    /// All but PORTABLE and DEVICEMAP: pages that need not be writable (CU_MEMHOSTREGISTER_IOMEMORY, READ_ONLY), or unknown.
    const OTHER_PAGES: u32 = !3;
    /// madvise(2), Linux 5.14. libc's constant is missing in old versions.
    const MADV_POPULATE_WRITE: usize = 23;
    if flags & OTHER_PAGES != 0 {
        return count.passed_on(Why::Flags);
    }
    if !may(need::MEMORY) || Driver::here().is_none_or(|d| Context::current(&d).is_none()) {
        return count.passed_on(Why::Pages);
    }
    let first = at & !4095;
    let Some(end) = at.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(4096)) else { return };
    // SAFETY: the kernel checks the range. Pages that exist keep their bytes.
    if unsafe { sys::syscall6(libc::SYS_madvise, first, end - first, MADV_POPULATE_WRITE, 0, 0, 0) } == 0 {
        count.answered(bytes as u64);
    } else {
        count.passed_on(Why::Pages);
    }
}

/// Runs `then` in a context, which may be another than the thread's.
fn in_context(d: &Driver, context: usize, then: impl FnOnce() -> i32) -> i32 {
    let mut now = 0;
    // SAFETY: places for handles; the context is pushed and popped in pairs.
    unsafe {
        (d.current)(&raw mut now);
        if now == context {
            return then();
        }
        let pushed = (d.push)(context);
        if pushed != SUCCESS {
            return pushed;
        }
        let result = then();
        (d.pop)(&raw mut now);
        result
    }
}
