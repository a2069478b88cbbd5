//! What CUDA knows of an address.

use super::driver::{Driver, SUCCESS};

/// What CUDA knows of an address: zeros of pageable memory.
#[derive(Default)]
pub struct Known {
    /// None for memory of pools.
    pub context: u64,
    /// `CUmemorytype`
    kind: u64,
    is_managed: u64,
}

impl Known {
    pub fn at(d: &Driver, address: usize) -> Option<Known> {
        /// CU_POINTER_ATTRIBUTE_CONTEXT, MEMORY_TYPE, IS_MANAGED
        const ASKED: [i32; 3] = [1, 2, 8];
        let mut m = Known::default();
        let to = [&raw mut m.context, &raw mut m.kind, &raw mut m.is_managed];
        // (For an address that it does not know, cuPointerGetAttribute would be an error, which sanitizers print.)
        // SAFETY: a place of eight bytes for each, of which the smaller ones take the lower bytes.
        (unsafe { (d.pointer)(ASKED.len() as u32, ASKED.as_ptr(), to.as_ptr(), address) } == SUCCESS).then_some(m)
    }

    pub fn is_pageable(&self) -> bool {
        self.kind == 0
    }

    pub fn is_on_device(&self) -> bool {
        /// CU_MEMORYTYPE_DEVICE
        const DEVICE: u64 = 2;
        self.kind == DEVICE && self.is_managed == 0
    }

    /// Pinned memory of the host's.
    pub fn is_pinned(&self) -> bool {
        /// CU_MEMORYTYPE_HOST
        const HOST: u64 = 1;
        self.kind == HOST && self.is_managed == 0
    }
}
