//! The memory of channels' rings: blocks of 2 MiB, as in CUDA. Each ring is 1024 GPFIFO entries and a page with USERD.

use crate::error::Error;
use crate::memory::Memory;
use crate::place::Place;
use crate::space::{AddressSpace, RingBlock};
use std::any::Any;
use std::sync::{Arc, Weak};

/// Bytes between rings: 1024 entries, then a page with USERD.
pub(crate) const RING_STRIDE: u64 = 0x3000;
pub(crate) const USERD_OFFSET: u64 = 0x2000;
/// Bytes of a block: video or host memory.
const BLOCK: u64 = 2 << 20;
const RINGS: usize = (BLOCK / RING_STRIDE) as usize;
/// A ring's place in its block.
#[derive(Debug)]
pub(crate) struct Ring {
    pub memory: Arc<Memory>,
    index: usize,
}

impl Ring {
    pub fn take(space: &Arc<AddressSpace>, place: Place) -> Result<Ring, Error> {
        let mut blocks = space.rings();
        blocks.retain(|block| block.memory.strong_count() > 0);
        if let Some(block) = blocks.iter_mut().find(|block| block.place == place)
            && let Some(memory) = block.memory.upgrade().and_then(|memory| memory.downcast::<Memory>().ok())
        {
            let index = block.used.iter().position(|used| !used).ok_or(Error::TooManyChannels(RINGS))?;
            block.used[index] = true;
            return Ok(Ring { memory, index });
        }
        let memory = space.alloc_own(place, BLOCK)?;
        let mut used = vec![false; RINGS];
        used[0] = true;
        let weak: Weak<Memory> = Arc::downgrade(&memory);
        let memory_of_block: Weak<dyn Any + Send + Sync> = weak;
        blocks.push(RingBlock { place, memory: memory_of_block, used });
        Ok(Ring { memory, index: 0 })
    }

    /// The offset of its GPFIFO in the memory.
    pub fn offset(&self) -> u64 {
        self.index as u64 * RING_STRIDE
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut blocks = self.memory.space().rings();
        let ours = |block: &&mut RingBlock| block.memory.as_ptr().addr() == Arc::as_ptr(&self.memory).addr();
        if let Some(block) = blocks.iter_mut().find(ours) {
            block.used[self.index] = false;
        }
    }
}
