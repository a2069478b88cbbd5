//! Pinned host memory that is made and freed without the lock for which launches wait.
//!
//! cuMemHostAlloc holds that lock while the kernel pins each page: 23 ms for 64 MiB on an H200. Memory of the driver's functions for
//! virtual memory, on a node of the host, is pinned outside of it. Pointers, attributes and speed are the same.
//!
//! Whatever cuMemHostAlloc checks before it makes memory (a context, errors of earlier work, captures) it also checks for 0 bytes,
//! and then makes nothing. So it is called for 0 bytes first, and an error of it is the answer.

use super::driver::{Access, Driver, Location, SUCCESS, Wanted};
use super::{driver, node};
use crate::process::own_lock::OwnLock;
use crate::process::wiped::word;
use crate::process::{locked, sys};
use core::sync::atomic::{AtomicU64, Ordering};
use tape::fix::{Count, Why};

/// Below this CUDA cuts pieces of memory that is pinned already, which holds nobody up.
const SMALLEST: usize = 2 << 20;
/// Pages of such memory: cuMemGetAllocationGranularity for a node of the host.
const GRANULE: usize = 2 << 20;
/// CU_MEMHOSTALLOC_PORTABLE and DEVICEMAP, which change nothing where addresses are the same for CPU and GPU.
const KNOWN_FLAGS: u32 = 3;
/// CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
const HOST_MEMORY: i32 = 141;
const DEVICES: usize = 32;

/// Allocations at a time.
const ROWS: usize = 4096;

/// Memory of the driver's, mapped for the CPU and all GPUs.
#[derive(Clone, Copy)]
pub struct Memory {
    pub at: usize,
    pub bytes: usize,
    handle: u64,
}

#[derive(Clone, Copy)]
struct Row {
    memory: Memory,
    context: usize,
}

struct Table {
    rows: *mut Row,
    n: usize,
}

static TABLE: OwnLock<Table, { word::PINS }> = OwnLock::new(Table { rows: core::ptr::null_mut(), n: 0 });

impl Table {
    fn rows(&mut self) -> &mut [Row] {
        if self.rows.is_null() {
            return &mut [];
        }
        // SAFETY: a mapping of ROWS rows, of which `n` are written.
        unsafe { core::slice::from_raw_parts_mut(self.rows, self.n) }
    }

    fn put(&mut self, row: Row) -> bool {
        if self.rows.is_null() || self.n == ROWS {
            return false;
        }
        // SAFETY: a row behind the written ones, in the mapping.
        unsafe { self.rows.add(self.n).write(row) };
        self.n += 1;
        true
    }

    fn find(&mut self, at: usize) -> Option<usize> {
        self.rows().iter().position(|row| row.memory.at == at)
    }

    fn take(&mut self, i: usize) {
        let last = self.n - 1;
        self.rows().swap(i, last);
        self.n = last;
    }
}

/// Makes room for the table. False without memory.
pub fn begin() -> bool {
    let (Some(at), Some(mut table)) = (locked::zeroed(ROWS * size_of::<Row>()), TABLE.lock()) else { return false };
    table.rows = at as *mut Row;
    true
}

/// Devices that may have such memory, as a bit each; 0 before they are counted. Bit 63 is set once they are.
static MASK: AtomicU64 = AtomicU64::new(0);

/// Who may use the memory: the CPUs, and every GPU, as for CUDA's.
fn access(d: &Driver, node: i32) -> Option<([Access; DEVICES + 1], usize)> {
    let mut mask = MASK.load(Ordering::Relaxed);
    if mask == 0 {
        let (mut n, mut has) = (0, 0);
        // SAFETY: places for the numbers.
        unsafe {
            if (d.count)(&raw mut n) != SUCCESS || !(1..=DEVICES as i32).contains(&n) {
                return None;
            }
            for i in 0..n {
                if (d.attribute)(&raw mut has, HOST_MEMORY, i) != SUCCESS || has == 0 {
                    return None;
                }
                mask |= 1 << i;
            }
        }
        mask |= 1 << 63;
        MASK.store(mask, Ordering::Relaxed);
    }
    let mut all = [Access::all(Location::node(node)); DEVICES + 1];
    let mut n = 1;
    for i in (0..DEVICES).filter(|i| mask >> i & 1 != 0) {
        *all.get_mut(n)? = Access::all(Location::device(i as i32));
        n += 1;
    }
    Some((all, n))
}

/// Memory of at least so many bytes on this node, or the driver's answer to the step that failed.
pub fn make(d: &Driver, bytes: usize, node: i32) -> Result<Memory, i32> {
    let bytes = bytes.next_multiple_of(GRANULE);
    let (access, n) = access(d, node).ok_or(SUCCESS)?;
    let (mut at, mut handle) = (0, 0);
    // SAFETY: places for the results; the steps are in the order of the driver's reference, and are undone in the reverse one.
    unsafe {
        let wanted = Wanted::pinned(Location::node(node));
        let reserved = (d.reserve)(&raw mut at, bytes, 0, 0, 0);
        if reserved != SUCCESS {
            return Err(reserved);
        }
        let mut failed = (d.create)(&raw mut handle, bytes, &raw const wanted, 0);
        if failed == SUCCESS {
            failed = (d.map)(at, bytes, 0, handle, 0);
            if failed == SUCCESS {
                failed = (d.set_access)(at, bytes, access.as_ptr(), n);
                if failed == SUCCESS {
                    return Ok(Memory { at, bytes, handle });
                }
                (d.unmap)(at, bytes);
            }
            (d.release)(handle);
        }
        (d.unreserve)(at, bytes);
        Err(failed)
    }
}

/// # Safety
/// Nothing uses it any more.
unsafe fn free_memory(d: &Driver, m: Memory) {
    // SAFETY: the caller's; `make` made it.
    unsafe {
        (d.unmap)(m.at, m.bytes);
        (d.release)(m.handle);
        (d.unreserve)(m.at, m.bytes);
    }
}

/// cuMemHostAlloc (and cuMemAllocHost, which has no flags).
///
/// # Safety
/// `to` is the caller's place for the pointer.
pub unsafe fn alloc(count: &Count, to: usize, bytes: usize, flags: u32) -> Result<i32, Why> {
    if bytes < SMALLEST || to == 0 {
        return Err(Why::Small);
    }
    let rounded = bytes.checked_next_multiple_of(GRANULE).ok_or(Why::Rounding)?;
    if (rounded - bytes) as u128 * 100 > bytes as u128 * 12 {
        return Err(Why::Rounding);
    }
    if flags & !KNOWN_FLAGS != 0 {
        return Err(Why::Flags);
    }
    let d = driver(count)?;
    let node = node::of_thread().ok_or(Why::Policy)?;
    if TABLE.lock().is_none_or(|table| table.n == ROWS) {
        return Err(Why::Full);
    }
    let (mut none, mut context) = (0, 0);
    // SAFETY: places for the results.
    unsafe {
        let checked = (d.host_alloc)(&raw mut none, 0, flags);
        if checked != SUCCESS {
            return Ok(checked);
        }
        (d.current)(&raw mut context);
    }
    let memory = make(&d, rounded, node).map_err(|_| Why::Driver)?;
    if TABLE.lock().is_none_or(|mut table| !table.put(Row { memory, context })) {
        // SAFETY: nobody has seen it.
        unsafe { free_memory(&d, memory) };
        return Err(Why::Full);
    }
    // SAFETY: the caller's.
    unsafe { (to as *mut usize).write_unaligned(memory.at) };
    count.answered(bytes as u64);
    Ok(SUCCESS)
}

/// cuMemFreeHost. `None`: it is not the agent's memory.
///
/// # Safety
/// As that function.
pub unsafe fn free(at: usize) -> Option<i32> {
    let d = Driver::here()?;
    let row = {
        let mut table = TABLE.lock()?;
        let i = table.find(at)?;
        *table.rows().get(i)?
    };
    // CUDA's free waits until all work of the memory's context has ended, and refuses while a stream is being captured. A small
    // block of CUDA's own is freed first, which does both, and holds nobody up.
    let waited = in_context(&d, row.context, || {
        let mut block = 0;
        // SAFETY: a place for the block, which is freed again.
        unsafe {
            match (d.host_alloc)(&raw mut block, 4096, 0) {
                SUCCESS => (d.free_host)(block),
                failed => failed,
            }
        }
    });
    if waited != SUCCESS {
        return Some(waited);
    }
    {
        let mut table = TABLE.lock()?;
        let i = table.find(at)?;
        table.take(i);
    }
    // SAFETY: the row was this thread's to take, and the work that could use the memory has ended.
    unsafe { free_memory(&d, row.memory) };
    Some(SUCCESS)
}

/// Before cuMemHostRegister, which holds its lock also while the kernel makes pages that are not there yet. Here they are made
/// before. (It makes and pins the same pages, so what the program can see of them is the same; a page that cannot be made is left
/// to it.)
pub fn populate(count: &Count, at: usize, bytes: usize, flags: u32) {
    /// CU_MEMHOSTREGISTER_IOMEMORY, READ_ONLY: pages that need not be writable.
    const OTHER_PAGES: u32 = 4 | 8;
    /// madvise(2), Linux 5.14. libc's constant is missing in old versions.
    const MADV_POPULATE_WRITE: usize = 23;
    if bytes < SMALLEST {
        return count.passed_on(Why::Small);
    }
    if flags & OTHER_PAGES != 0 {
        return count.passed_on(Why::Flags);
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
        if now == context || (d.push)(context) != SUCCESS {
            return then();
        }
        let result = then();
        (d.pop)(&raw mut now);
        result
    }
}
