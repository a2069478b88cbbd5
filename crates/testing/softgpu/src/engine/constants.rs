//! The cache of constant banks: what a kernel has read stays the same until the cache is invalidated.
//!
//! Known: CUDA sends INVALIDATE_SHADER_CACHES_NO_WFI with CONSTANT after the inline writes of an upload. Assumed: no other method invalidates,
//! and no entry is ever evicted, so a kernel whose parameters were written without it sees the old ones.

use super::Fault;
use crate::space::AddressSpace;
use std::collections::HashMap;

/// Maximum number of cached banks; with one more all are dropped.
const BANKS: usize = 4096;

/// Banks, by address space ([`AddressSpace::id`]) and address.
#[derive(Debug, Default)]
pub struct Constants {
    banks: HashMap<(u64, u64), Vec<u8>>,
}

impl Constants {
    pub(super) fn invalidate(&mut self) {
        self.banks.clear();
    }

    pub(super) fn invalidate_bank(&mut self, space: &AddressSpace, bank: u64) {
        self.banks.remove(&(space.id(), bank));
    }

    /// The cached bytes of a bank that is `bytes` long.
    pub(super) fn read(&mut self, space: &AddressSpace, bank: u64, bytes: u32) -> Result<&[u8], Fault> {
        let key = (space.id(), bank);
        if self.banks.len() >= BANKS && !self.banks.contains_key(&key) {
            self.banks.clear();
        }
        let kept = self.banks.entry(key).or_default();
        if kept.len() < bytes as usize {
            let mut now = vec![0; bytes as usize];
            space.read(bank, &mut now)?;
            *kept = now;
        }
        Ok(kept)
    }
}
