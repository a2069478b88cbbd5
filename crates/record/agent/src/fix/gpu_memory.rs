//! Memory of the GPU that is made and freed without the lock for which launches wait.
//!
//! cuMemAlloc of 2 GiB holds that lock for up to 1 ms on an H200, its free for 1.7. [`memory`] needs it only for moments. Each allocation has a small
//! block of CUDA's own next to it. To make that block checks what CUDA checks (errors of earlier work, for example). To free it waits for the context's work,
//! and refuses, as CUDA's free of the memory itself would.
//!
//! CUDA shares no such memory with other processes or devices. The first attempt turns the fix off. With several GPUs it answers nothing.

use super::driver::{Driver, OUT_OF_MEMORY, SUCCESS};
use super::memory;
use super::table::{self, Context, Kind, Row};
use super::{driver, fixes};
use core::sync::atomic::Ordering;
use tape::fix::{self, Count, Why};

/// The smallest that CUDA makes.
const BLOCK: usize = 256;

/// cuMemAlloc
///
/// # Safety
/// `to` is the caller's place for the address.
pub unsafe fn alloc(count: &Count, to: usize, bytes: usize) -> Result<i32, Why> {
    if to == 0 || bytes > isize::MAX as usize {
        return Err(Why::Flags);
    }
    let d = driver(count)?;
    let (mut gpus, mut device, mut block) = (0, 0, 0);
    let context = Context::current(&d).ok_or(Why::Driver)?;
    // SAFETY: places for the numbers.
    unsafe {
        if (d.count)(&raw mut gpus) != SUCCESS || (d.current_device)(&raw mut device) != SUCCESS {
            return Err(Why::Driver);
        }
    }
    if gpus != 1 {
        return Err(Why::Gpus);
    }
    table::end_with_contexts(&d);
    table::lock().ok_or(Why::Full)?.begin_context(context)?;
    let memory = memory::on_gpu(&d, bytes, device).map_err(|_| Why::Driver)?;
    // SAFETY: a place for the block; nobody has seen the memory.
    unsafe {
        let checked = (d.alloc)(&raw mut block, BLOCK);
        if checked != SUCCESS {
            memory::free(&d, memory);
            return if checked == OUT_OF_MEMORY { Err(Why::Driver) } else { Ok(checked) };
        }
    }
    if let Err(why) = table::keep(&d, Row { memory, context, bytes, kind: Kind::OnGpu { block } }) {
        // SAFETY: the block that was just made.
        unsafe { (d.free)(block) };
        return Err(why);
    }
    // SAFETY: the caller's.
    unsafe { (to as *mut usize).write_unaligned(memory.at) };
    count.answered(bytes as u64);
    Ok(SUCCESS)
}

/// cuMemFree. `None`: it is not the agent's memory.
///
/// # Safety
/// As that function.
pub unsafe fn free(at: usize) -> Option<i32> {
    let d = Driver::here()?;
    let row = table::take(|row| row.memory.at == at && row.kind.block().is_some())?;
    let block = row.kind.block()?;
    // SAFETY: the caller's; the block of this memory, which only this thread has now.
    Some(unsafe { table::free(&d, row, d.free, || (d.free)(block)) })
}

/// A program is about to share this address with another process or device.
pub fn shared(address: usize) {
    let is_ours = table::lock().and_then(|table| table.containing(address)?.kind.block()).is_some();
    if let Some(fixes) = fixes().filter(|_| is_ours) {
        let count = &fixes.counts[fix::MEMORY.trailing_zeros() as usize];
        count.passed_on(Why::Shared);
        let _ = count.turned_off.compare_exchange(0, fix::SHARED, Ordering::Relaxed, Ordering::Relaxed);
    }
}
