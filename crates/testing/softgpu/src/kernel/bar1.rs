//! BAR1: the bus addresses at which GPU memory is mapped for the CPU.
//!
//! An address belongs to one mapping from RM_MAP_MEMORY until RM_UNMAP_MEMORY, or until its memory or client is freed. Other devices on the bus can
//! access only the memory there. Memory of a pool ([`crate::pool`]) has its own addresses, which several of its mappings share.

use super::Machine;
use crate::memory::{Memory, PAGE};
use crate::status::{self, Outcome};
use std::sync::Arc;

/// Bus address and size of the window, as in CARD_INFO.
pub const ADDRESS: u64 = 0x1000_0000_0000;
pub const SIZE: u64 = 128 << 30;

/// A mapping at an address.
#[derive(Debug)]
struct Mapping {
    address: u64,
    client: u32,
    handle: u32,
    memory: Arc<Memory>,
    offset: u64,
    length: u64,
}

/// The mappings, sorted by bus address; their lengths are whole pages.
#[derive(Debug, Default)]
pub struct Bar1(Vec<Mapping>);

impl Bar1 {
    /// Gives a range of memory a bus address: its own, or the first gap that holds it.
    pub fn map(&mut self, client: u32, handle: u32, memory: &Arc<Memory>, offset: u64, length: u64) -> Outcome<u64> {
        let length = length.checked_next_multiple_of(PAGE).ok_or(status::INVALID_LIMIT)?;
        let address = match memory.bus() {
            Some(bus) => bus + offset,
            None => self.gap(length)?,
        };
        let behind = self.0.partition_point(|mapping| mapping.address <= address);
        self.0.insert(behind, Mapping { address, client, handle, memory: memory.clone(), offset, length });
        Ok(address)
    }

    fn gap(&self, length: u64) -> Outcome<u64> {
        let mut at = ADDRESS;
        for mapping in &self.0 {
            if mapping.address - at >= length {
                break;
            }
            at = mapping.address + mapping.length;
        }
        if length > ADDRESS + SIZE - at { Err(status::INSUFFICIENT_RESOURCES) } else { Ok(at) }
    }

    /// RM_UNMAP_MEMORY of the mapping at `address` through this handle.
    pub fn unmap(&mut self, client: u32, handle: u32, address: u64) -> Outcome {
        let is = |mapping: &Mapping| (mapping.address, mapping.client, mapping.handle) == (address, client, handle);
        let found = self.0.iter().position(is).ok_or(status::OBJECT_NOT_FOUND)?;
        self.0.remove(found);
        Ok(())
    }

    /// The memory's handle is gone, and its mappings with it.
    pub fn forget(&mut self, client: u32, handle: u32) {
        self.0.retain(|mapping| (mapping.client, mapping.handle) != (client, handle));
    }

    pub fn forget_client(&mut self, client: u32) {
        self.0.retain(|mapping| mapping.client != client);
    }

    /// The memory at an address and the offset in it, if all `length` bytes are in one mapping.
    fn find(&self, address: u64, length: usize) -> Option<(&Memory, u64)> {
        let end = address.checked_add(length as u64)?;
        let holds = |mapping: &&Mapping| mapping.address <= address && end <= mapping.address + mapping.length;
        let mapping = self.0.iter().find(holds)?;
        Some((&mapping.memory, mapping.offset + (address - mapping.address)))
    }
}

impl Machine {
    /// Another device on the bus reads GPU memory through BAR1. `None`: nothing is mapped there.
    pub fn bus_read(&self, address: u64, into: &mut [u8]) -> Option<()> {
        let bar1 = poison::ignore(self.bar1.lock());
        let (memory, offset) = bar1.find(address, into.len())?;
        memory.read(offset, into)
    }

    /// As [`Machine::bus_read`], the other way.
    pub fn bus_write(&self, address: u64, from: &[u8]) -> Option<()> {
        let bar1 = poison::ignore(self.bar1.lock());
        let (memory, offset) = bar1.find(address, from.len())?;
        memory.write(offset, from)
    }

    /// The current mappings in BAR1: their number, and their bytes.
    pub fn bar1_mappings(&self) -> (usize, u64) {
        let bar1 = poison::ignore(self.bar1.lock());
        (bar1.0.len(), bar1.0.iter().map(|mapping| mapping.length).sum())
    }
}
