//! Memory of the driver's functions for virtual memory, which make and free it without the lock that launches need.

use super::driver::{Access, Driver, Location, SUCCESS, Wanted};
use core::sync::atomic::{AtomicUsize, Ordering};

/// Pages of such memory: cuMemGetAllocationGranularity for a node of the host.
pub const GRANULE: usize = 2 << 20;
/// CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
const HOST_MEMORY: i32 = 141;
const DEVICES: usize = 32;

/// Memory of the driver's, and where it is mapped.
#[derive(Clone, Copy)]
pub struct Memory {
    pub at: usize,
    pub bytes: usize,
    handle: u64,
}

/// Devices, all of which can use such memory; 0 before they were counted.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// `None` if one of them cannot use such memory.
fn devices(d: &Driver) -> Option<usize> {
    let (mut n, mut has) = (COUNT.load(Ordering::Relaxed) as i32, 0);
    if n == 0 {
        // SAFETY: places for the numbers.
        unsafe {
            if (d.count)(&raw mut n) != SUCCESS || !(1..=DEVICES as i32).contains(&n) {
                return None;
            }
            if (0..n).any(|i| (d.attribute)(&raw mut has, HOST_MEMORY, i) != SUCCESS || has == 0) {
                return None;
            }
        }
        COUNT.store(n as usize, Ordering::Relaxed);
    }
    Some(n as usize)
}

/// Who may use the memory: the CPUs, and every GPU, as for CUDA's.
fn access(d: &Driver, node: i32) -> Option<([Access; DEVICES + 1], usize)> {
    let n = devices(d)?;
    let of = |i: usize| Access::all(if i == 0 { Location::node(node) } else { Location::device(i as i32 - 1) });
    Some((core::array::from_fn(of), n + 1))
}

/// Pinned memory of at least so many bytes on this node of the host, for the CPU and all GPUs; or the driver's answer to the step that failed.
pub fn on_host(d: &Driver, bytes: usize, node: i32) -> Result<Memory, i32> {
    let (access, n) = access(d, node).ok_or(SUCCESS)?;
    make(d, bytes, &Wanted::pinned(Location::node(node), false), access.get(..n).unwrap_or_default())
}

/// Memory of at least so many bytes on this GPU, which alone may use it, as with cuMemAlloc's.
pub fn on_gpu(d: &Driver, bytes: usize, device: i32) -> Result<Memory, i32> {
    /// CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
    const RDMA: i32 = 110;
    let (place, mut has) = (Location::device(device), 0);
    // SAFETY: a place for the number.
    let is_for_rdma = unsafe { (d.attribute)(&raw mut has, RDMA, device) } == SUCCESS && has != 0;
    make(d, bytes, &Wanted::pinned(place, is_for_rdma), &[Access::all(place)])
}

/// `access`: who may use it.
fn make(d: &Driver, bytes: usize, wanted: &Wanted, access: &[Access]) -> Result<Memory, i32> {
    let bytes = bytes.next_multiple_of(GRANULE);
    let (mut at, mut handle) = (0, 0);
    // SAFETY: places for the results; the steps are in the order of the driver's reference, and are undone in the reverse one.
    unsafe {
        let reserved = (d.reserve)(&raw mut at, bytes, 0, 0, 0);
        if reserved != SUCCESS {
            return Err(reserved);
        }
        let mut failed = (d.create)(&raw mut handle, bytes, wanted, 0);
        if failed == SUCCESS {
            failed = (d.map)(at, bytes, 0, handle, 0);
            if failed == SUCCESS {
                failed = (d.set_access)(at, bytes, access.as_ptr(), access.len());
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
pub unsafe fn free(d: &Driver, m: Memory) {
    // SAFETY: the caller's; `make` made it.
    unsafe {
        (d.unmap)(m.at, m.bytes);
        (d.release)(m.handle);
        (d.unreserve)(m.at, m.bytes);
    }
}
