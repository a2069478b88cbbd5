//! The device, its memory and its channel. As in CUDA, small blocks of device memory share a mapping that is kept when they are freed: they are
//! given out again, the lowest first, without a driver call.

use crate::channel::GraphicsChannel;
use crate::context::CURRENT;
use crate::status::{NOT_SUPPORTED, give};
use gpu::{AddressSpace, Device, DeviceOptions, Memory};
use rm::abi::{DeviceAlloc, SubdeviceAlloc};
use rm::class;
use rm::driver::{self, Driver, Libc, RmError};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{c_int, c_void};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

/// An allocation.
pub(crate) struct Block {
    pub bytes: u64,
    pub video: bool,
    /// CUDA's number of it: never used twice.
    pub number: u64,
    /// `None` for a small block.
    memory: Option<Arc<Memory>>,
    /// Virtual memory: it does not end with the context.
    pub outlives: bool,
    /// Those of cuMemHostAlloc.
    flags: u32,
    context: usize,
}

impl Block {
    /// For work of a stream that is still queued when the memory is freed. (CUDA's free waits for such work.)
    pub fn memory(&self) -> Option<Arc<Memory>> {
        self.memory.clone()
    }
}

/// Bytes of the mapping from which small blocks are cut, and of the largest of them.
const CHUNK: u64 = 2 << 20;
const SMALL: u64 = 64 << 10;

pub(crate) struct Soft {
    pub device: Arc<Device>,
    pub space: Arc<AddressSpace>,
    pub channel: GraphicsChannel,
    /// The code of the kernels of graphs.
    pub code: Arc<Memory>,
    #[allow(dead_code, reason = "kept alive")]
    chunk: Arc<Memory>,
    /// Addresses of free small blocks.
    small: Mutex<BTreeSet<u64>>,
}

static SOFT: OnceLock<Option<Soft>> = OnceLock::new();
static BLOCKS: Mutex<(u64, BTreeMap<u64, Block>)> = Mutex::new((0, BTreeMap::new()));

/// Opened by the first call; `None` without a software GPU.
pub(crate) fn soft() -> Option<&'static Soft> {
    SOFT.get_or_init(|| {
        if std::env::var_os(FAULT).is_some_and(|fault| fault == "divided") {
            part().ok()?;
        }
        let device = DeviceOptions::default().as_cuda().open(Arc::new(Libc), 0).ok()?;
        let space = AddressSpace::new(&device).ok()?;
        let chunk = space.alloc_video(CHUNK).ok()?;
        let small = Mutex::new((0..CHUNK / SMALL).map(|n| chunk.va() + n * SMALL).collect());
        let channel = GraphicsChannel::open(&space).ok()?;
        let code = crate::code::write(&space).ok()?;
        Some(Soft { device, space, channel, code, chunk, small })
    })
    .as_ref()
}

/// A variable of the software GPU. CUDA finds a part of a divided GPU in the list of devices, which does not exist here.
const FAULT: &str = "DOORBELL_SOFTGPU_FAULT";

/// As CUDA does on a divided GPU (MIG): takes a part of it. Its file stays open.
fn part() -> Result<(), RmError> {
    let io = |cause| RmError::Io { operation: "open", subject: driver::Subject::None, cause };
    let ctl = Libc.open(c"/dev/nvidiactl").map_err(io)?;
    let client = driver::alloc_client(&Libc, ctl)?;
    let mut params = DeviceAlloc { client_share: client, ..Default::default() };
    let device = driver::alloc(&Libc, ctl, client, client, 0, class::NV01_DEVICE_0, &mut params)?;
    let mut params = SubdeviceAlloc::default();
    let subdevice = driver::alloc(&Libc, ctl, client, device, 0, class::NV20_SUBDEVICE_0, &mut params)?;
    driver::alloc_bytes(&Libc, ctl, client, subdevice, 0, class::AMPERE_SMC_PARTITION_REF, &mut []).map(drop)
}

fn blocks() -> MutexGuard<'static, (u64, BTreeMap<u64, Block>)> {
    poison::ignore(BLOCKS.lock())
}

/// Bytes of the device's memory, as cuMemGetInfo has them.
pub(crate) const VIDEO: usize = 80 << 30;

/// Those of its allocations.
pub(crate) fn used() -> usize {
    blocks().1.values().filter(|block| block.video).map(|block| block.bytes as usize).sum()
}

pub(crate) fn allocate(bytes: usize, video: bool) -> Option<u64> {
    let Soft { space, small, .. } = soft()?;
    let small = || poison::ignore(small.lock()).pop_first();
    let (at, memory) = match if video && bytes as u64 <= SMALL { small() } else { None } {
        Some(at) => (at, None),
        None => {
            let memory = if video { space.alloc_video(bytes as u64) } else { space.alloc_host(bytes as u64) }.ok()?;
            (memory.va(), Some(memory))
        }
    };
    remember(at, bytes, video, memory, false);
    Some(at)
}

fn remember(at: u64, bytes: usize, video: bool, memory: Option<Arc<Memory>>, outlives: bool) {
    let mut blocks = blocks();
    blocks.0 += 1;
    let number = blocks.0;
    // (Virtual memory has the flags that cuMemHostGetFlags gives on an H200, and no context.)
    let context = if outlives { 0 } else { CURRENT.get() as usize };
    blocks.1.insert(at, Block { bytes: bytes as u64, video, number, memory, outlives, flags: 3, context });
}

pub(crate) fn set_flags(at: u64, flags: u32) {
    if let Some(block) = blocks().1.get_mut(&at) {
        block.flags = flags;
    }
}

/// (Memory of the GPU has none, but virtual memory on it does.)
pub(crate) fn flags(at: u64) -> Option<u32> {
    find(at, |_, block| (!block.video || block.outlives).then_some(block.flags))?
}

/// Memory that was made elsewhere is an allocation from here on.
pub(crate) fn show(at: u64, bytes: usize, video: bool, memory: Arc<Memory>) {
    remember(at, bytes, video, Some(memory), true);
}

/// It is none any more.
pub(crate) fn hide(at: u64) {
    let gone = blocks().1.remove(&at);
    // (Not while the lock is held.)
    drop(gone);
}

/// Maps pages of the program's for the GPU, at the CPU's address.
///
/// # Safety
/// They stay until they are freed here.
pub(crate) unsafe fn register(at: *mut u8, bytes: usize) -> bool {
    let (Some(soft), Some(pages)) = (soft(), NonNull::new(at)) else { return false };
    // SAFETY: the caller's.
    let Ok(memory) = (unsafe { soft.space.adopt_host(pages, bytes as u64, Arc::new(())) }) else { return false };
    remember(at as u64, bytes, false, Some(memory), false);
    true
}

/// As CUDA's frees, which wait for the work of streams: a while, as this may be such work.
fn wait_for_others(memory: Arc<Memory>) {
    let (others, until) = (Arc::downgrade(&memory), Instant::now() + Duration::from_secs(1));
    drop(memory);
    while others.strong_count() > 0 && Instant::now() < until {
        std::thread::yield_now();
    }
}

pub(crate) fn free(at: u64, video: bool) -> bool {
    let taken = {
        let mut blocks = blocks();
        if blocks.1.get(&at).is_some_and(|block| block.video == video && !block.outlives) {
            blocks.1.remove(&at)
        } else {
            None
        }
    };
    let Some(block) = taken else { return false };
    match block.memory {
        // Not while the lock is held: this waits for running copies.
        Some(memory) => wait_for_others(memory),
        None => {
            if let Some(soft) = soft() {
                poison::ignore(soft.small.lock()).insert(at);
            }
        }
    }
    true
}

/// The context has ended, and its memory with it.
pub(crate) fn end_with_context() {
    let all: Vec<(u64, bool)> =
        blocks().1.iter().filter(|(_, block)| !block.outlives).map(|(at, block)| (*at, block.video)).collect();
    for (at, video) in all {
        free(at, video);
    }
}

/// The allocation that contains `address`, and its first address.
pub(crate) fn find<T>(address: u64, look: impl FnOnce(u64, &Block) -> T) -> Option<T> {
    let blocks = blocks();
    let (base, block) = blocks.1.range(..=address).next_back()?;
    (address - base < block.bytes).then(|| look(*base, block))
}

/// Gives a `CUpointer_attribute` of memory. `None`: of an address that is not known.
pub(crate) fn attribute(to: *mut c_void, attribute: c_int, address: u64) -> Option<c_int> {
    find(address, |base, block| match attribute {
        1 => give(to.cast(), block.context),
        2 => give(to.cast(), if block.video { 2u32 } else { 1 }),
        7 => give(to.cast(), block.number),
        8 | 9 => give(to.cast(), 0u32),
        10 => give(to.cast(), u32::from(block.video && !block.outlives)),
        11 => give(to.cast(), base),
        12 => give(to.cast(), block.bytes),
        _ => NOT_SUPPORTED,
    })
}

/// Copies, whatever is where: the CPU sees all of it.
///
/// # Safety
/// `bytes` of memory at both.
pub(crate) unsafe fn copy(to: u64, from: u64, bytes: usize) {
    // SAFETY: the caller's.
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, bytes) };
}
