//! A GPU address space: which range of addresses is which piece of which memory object.

use crate::fault::Fault;
use crate::memory::Memory;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, RwLock};

#[derive(Clone, Debug)]
struct Mapping {
    len: u64,
    memory: Arc<Memory>,
    offset: u64,
    writable: bool,
}

/// A number that no other address space of the process has or had.
#[derive(Debug)]
struct Id(u64);

impl Default for Id {
    fn default() -> Id {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Id(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The page tables of one VA space object (class 0x90F1).
#[derive(Debug, Default)]
pub struct AddressSpace {
    id: Id,
    table: RwLock<BTreeMap<u64, Mapping>>,
    /// UVM_REGISTER_GPU_VASPACE has been called: it has a page directory.
    registered: AtomicBool,
}

/// A contiguous piece of one memory object.
#[derive(Clone, Debug)]
pub struct Piece {
    pub memory: Arc<Memory>,
    pub offset: u64,
    pub len: u64,
}

impl AddressSpace {
    /// An id that is never reused, also after its end.
    pub fn id(&self) -> u64 {
        self.id.0
    }

    pub fn registered(&self) -> bool {
        self.registered.load(Ordering::Acquire)
    }

    pub fn set_registered(&self, registered: bool) {
        self.registered.store(registered, Ordering::Release);
    }

    /// Maps, or returns `None` if something is mapped already.
    pub fn map(&self, va: u64, len: u64, memory: Arc<Memory>, offset: u64, writable: bool) -> Option<()> {
        let end = va.checked_add(len)?;
        let mut table = poison::ignore(self.table.write());
        if let Some((&start, below)) = table.range(..end).next_back()
            && start + below.len > va
        {
            return None;
        }
        table.insert(va, Mapping { len, memory, offset, writable });
        Some(())
    }

    /// Unmaps everything within the range; a mapping that only overlaps is cut.
    pub fn unmap(&self, va: u64, len: u64) {
        let end = va.saturating_add(len);
        let mut table = poison::ignore(self.table.write());
        let touched: Vec<u64> =
            table.range(..end).rev().take_while(|(start, m)| *start + m.len > va).map(|(start, _)| *start).collect();
        for start in touched {
            let Some(old) = table.remove(&start) else { continue };
            if start < va {
                table.insert(start, Mapping { len: va - start, ..old.clone() });
            }
            if start + old.len > end {
                let cut = end - start;
                table.insert(end, Mapping { len: old.len - cut, offset: old.offset + cut, ..old });
            }
        }
    }

    pub fn clear(&self) {
        poison::ignore(self.table.write()).clear();
    }

    /// The piece at `va`, at most `len` bytes of it.
    pub fn piece(&self, va: u64, len: u64, write: bool) -> Result<Piece, Fault> {
        let table = poison::ignore(self.table.read());
        let (&start, mapping) = table.range(..=va).next_back().ok_or(Fault::unmapped(va))?;
        let inside = va - start;
        if inside >= mapping.len {
            return Err(Fault::unmapped(va));
        }
        if write && !mapping.writable {
            return Err(Fault::read_only(va));
        }
        Ok(Piece {
            memory: mapping.memory.clone(),
            offset: mapping.offset + inside,
            len: len.min(mapping.len - inside),
        })
    }

    /// Checks that a whole range is mapped, as for an engine that accesses all of it.
    pub fn check(&self, va: u64, len: u64, write: bool) -> Result<(), Fault> {
        let end = va.checked_add(len).ok_or(Fault::unmapped(va))?;
        let mut at = va;
        while at < end {
            at += self.piece(at, end - at, write)?.len;
        }
        Ok(())
    }

    pub fn read(&self, va: u64, into: &mut [u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < into.len() {
            let at = va.checked_add(done as u64).ok_or(Fault::unmapped(va))?;
            let piece = self.piece(at, (into.len() - done) as u64, false)?;
            let part = &mut into[done..done + piece.len as usize];
            piece.memory.read(piece.offset, part).ok_or(Fault::unmapped(at))?;
            done += piece.len as usize;
        }
        Ok(())
    }

    pub fn write(&self, va: u64, from: &[u8]) -> Result<(), Fault> {
        let mut done = 0;
        while done < from.len() {
            let at = va.checked_add(done as u64).ok_or(Fault::unmapped(va))?;
            let piece = self.piece(at, (from.len() - done) as u64, true)?;
            piece.memory.write(piece.offset, &from[done..done + piece.len as usize]).ok_or(Fault::unmapped(at))?;
            done += piece.len as usize;
        }
        Ok(())
    }

    pub fn read_u32(&self, va: u64) -> Result<u32, Fault> {
        let piece = self.piece(va, 4, false)?;
        piece.memory.read_u32(piece.offset).ok_or(Fault::unmapped(va))
    }

    pub fn read_u64(&self, va: u64) -> Result<u64, Fault> {
        let piece = self.piece(va, 8, false)?;
        piece.memory.read_u64(piece.offset).ok_or(Fault::unmapped(va))
    }

    pub fn write_u32(&self, va: u64, value: u32) -> Result<(), Fault> {
        let piece = self.piece(va, 4, true)?;
        piece.memory.write_u32(piece.offset, value).ok_or(Fault::unmapped(va))
    }

    pub fn write_u64(&self, va: u64, value: u64) -> Result<(), Fault> {
        let piece = self.piece(va, 8, true)?;
        piece.memory.write_u64(piece.offset, value).ok_or(Fault::unmapped(va))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_space_has_a_new_id() {
        let ids: std::collections::HashSet<u64> = (0..100).map(|_| AddressSpace::default().id()).collect();
        assert_eq!(ids.len(), 100);
    }
}
