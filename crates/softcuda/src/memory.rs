//! The device and its memory.

use gpu::{AddressSpace, Device, DeviceOptions, Memory};
use rm::driver::Libc;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// An allocation.
pub(crate) struct Block {
    pub bytes: u64,
    pub video: bool,
    /// CUDA's number of it: never used twice.
    pub number: u64,
    memory: Arc<Memory>,
}

pub(crate) struct Soft {
    pub device: Arc<Device>,
    space: Arc<AddressSpace>,
}

static SOFT: OnceLock<Option<Soft>> = OnceLock::new();
static BLOCKS: Mutex<(u64, BTreeMap<u64, Block>)> = Mutex::new((0, BTreeMap::new()));

/// Opened by the first call; `None` where there is no software GPU.
pub(crate) fn soft() -> Option<&'static Soft> {
    SOFT.get_or_init(|| {
        let device = DeviceOptions::default().open(Arc::new(Libc), 0).ok()?;
        let space = AddressSpace::new(&device).ok()?;
        Some(Soft { device, space })
    })
    .as_ref()
}

fn blocks() -> MutexGuard<'static, (u64, BTreeMap<u64, Block>)> {
    BLOCKS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn allocate(bytes: usize, video: bool) -> Option<u64> {
    let space = &soft()?.space;
    let memory = if video { space.alloc_video(bytes as u64) } else { space.alloc_host(bytes as u64) }.ok()?;
    let at = memory.va();
    let mut blocks = blocks();
    blocks.0 += 1;
    let number = blocks.0;
    blocks.1.insert(at, Block { bytes: bytes as u64, video, number, memory });
    Some(at)
}

pub(crate) fn free(at: u64, video: bool) -> bool {
    let taken = {
        let mut blocks = blocks();
        if blocks.1.get(&at).is_some_and(|block| block.video == video) { blocks.1.remove(&at) } else { None }
    };
    // Outside of the lock: it waits for what is under way.
    taken.map(|block| drop(block.memory)).is_some()
}

/// The allocation that `address` is in, and where it begins.
pub(crate) fn find<T>(address: u64, look: impl FnOnce(u64, &Block) -> T) -> Option<T> {
    let blocks = blocks();
    let (base, block) = blocks.1.range(..=address).next_back()?;
    (address - base < block.bytes).then(|| look(*base, block))
}
