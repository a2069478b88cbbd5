//! Memory objects: GPU memory and system memory as memory files with a private mapping, and pages of the program itself.
//!
//! The GPU reads and writes through its own mapping only, so the program may move, protect or unmap its view as it likes. Pages of the program
//! (class 0x71) are accessed by `process_vm_readv`: an unmapped page there is a fault of the GPU, not a crash.

use crate::pool::{Part, Pool};
use crate::status::{self, Outcome};
use crate::sys;
pub use crate::sys::PAGE;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Where a memory object lives, as the program asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Video,
    System,
    /// Class 0x71: pages of the program.
    User,
}

#[derive(Debug)]
enum Backing {
    File {
        fd: i32,
        at: *mut u8,
    },
    /// A part of a file that others have mapped, too.
    Part {
        part: Part,
        at: *mut u8,
    },
    Program {
        address: u64,
    },
}

#[derive(Debug)]
pub struct Memory {
    pub place: Place,
    pub size: u64,
    backing: Backing,
}

// SAFETY: the mapping belongs to the object and lives as long as it. It is only accessed by volatile or atomic accesses and plain copies of bytes
// that the program, as with a real GPU, may change at any time.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// New zeroed memory; `size` is rounded up to pages.
    pub fn new(place: Place, size: u64) -> Outcome<Memory> {
        let size = size.checked_next_multiple_of(PAGE).filter(|&size| size > 0).ok_or(status::INVALID_ARGUMENT)?;
        let name = if place == Place::Video { c"softgpu-video" } else { c"softgpu-system" };
        let fd = sys::memfd(name, size).map_err(|_| status::NO_MEMORY)?;
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // SAFETY: a new mapping of the object's own file at an address of the kernel's choice.
        let at = unsafe { sys::mmap(0, size as usize, prot, flags, fd, 0) };
        if at == libc::MAP_FAILED {
            sys::close(fd);
            return Err(status::NO_MEMORY);
        }
        Ok(Memory { place, size, backing: Backing::File { fd, at: at.cast() } })
    }

    /// As [`Memory::new`], out of a file of the caller's.
    pub fn of_pool(pool: &Arc<Pool>, size: u64) -> Outcome<Memory> {
        let size = size.checked_next_multiple_of(PAGE).filter(|&size| size > 0).ok_or(status::INVALID_ARGUMENT)?;
        let part = Pool::take(pool, size).ok_or(status::NO_MEMORY)?;
        let at = part.as_ptr();
        Ok(Memory { place: Place::Video, size, backing: Backing::Part { part, at } })
    }

    /// Pages of the program, as they are.
    pub fn of_program(address: u64, size: u64) -> Memory {
        Memory { place: Place::User, size, backing: Backing::Program { address } }
    }

    /// What a CPU mapping maps: the file, and the object's offset in it. `None` for pages of the program, which are already mapped.
    pub fn file(&self) -> Option<(i32, u64)> {
        match &self.backing {
            Backing::File { fd, .. } => Some((*fd, 0)),
            Backing::Part { part, .. } => Some((part.file(), part.offset())),
            Backing::Program { .. } => None,
        }
    }

    /// The bus address by which other devices find it during its life, if its place determines that.
    pub fn bus(&self) -> Option<u64> {
        match &self.backing {
            Backing::Part { part, .. } => Some(part.bus()),
            Backing::File { .. } | Backing::Program { .. } => None,
        }
    }

    fn bounds(&self, offset: u64, len: usize) -> Option<()> {
        (offset.checked_add(len as u64)? <= self.size).then_some(())
    }

    /// `None`: outside the object, or pages that the program no longer has.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Option<()> {
        self.bounds(offset, into.len())?;
        match self.backing {
            // SAFETY: within the mapping, which lives as long as self; `into` is exclusive memory of this thread.
            Backing::File { at, .. } | Backing::Part { at, .. } => unsafe {
                at.add(offset as usize).copy_to_nonoverlapping(into.as_mut_ptr(), into.len());
            },
            Backing::Program { address } => {
                (sys::read_self(address + offset, into) == into.len()).then_some(())?;
            }
        }
        Some(())
    }

    /// As [`Memory::read`], the other way.
    pub fn write(&self, offset: u64, from: &[u8]) -> Option<()> {
        self.bounds(offset, from.len())?;
        match self.backing {
            // SAFETY: within the mapping, which lives as long as self; `from` is exclusive memory of this thread.
            Backing::File { at, .. } | Backing::Part { at, .. } => unsafe {
                at.add(offset as usize).copy_from_nonoverlapping(from.as_ptr(), from.len());
            },
            Backing::Program { address } => {
                (sys::write_self(address + offset, from) == from.len()).then_some(())?;
            }
        }
        Some(())
    }

    /// The word at `offset` for atomic use. `None`: out of bounds, misaligned, or pages of the program.
    pub fn word(&self, offset: u64) -> Option<&AtomicU32> {
        self.bounds(offset, 4)?;
        match self.backing {
            // SAFETY: in bounds, aligned (pages are), alive as long as self.
            Backing::File { at, .. } | Backing::Part { at, .. } if offset.is_multiple_of(4) => unsafe {
                Some(&*at.add(offset as usize).cast())
            },
            _ => None,
        }
    }

    /// As [`Memory::word`], 64 bits.
    pub fn word64(&self, offset: u64) -> Option<&AtomicU64> {
        self.bounds(offset, 8)?;
        match self.backing {
            // SAFETY: in bounds, aligned (pages are), alive as long as self.
            Backing::File { at, .. } | Backing::Part { at, .. } if offset.is_multiple_of(8) => unsafe {
                Some(&*at.add(offset as usize).cast())
            },
            _ => None,
        }
    }

    pub fn read_u32(&self, offset: u64) -> Option<u32> {
        if let Some(word) = self.word(offset) {
            return Some(word.load(Ordering::Acquire));
        }
        let mut bytes = [0; 4];
        self.read(offset, &mut bytes)?;
        Some(u32::from_le_bytes(bytes))
    }

    pub fn read_u64(&self, offset: u64) -> Option<u64> {
        if let Some(word) = self.word64(offset) {
            return Some(word.load(Ordering::Acquire));
        }
        let mut bytes = [0; 8];
        self.read(offset, &mut bytes)?;
        Some(u64::from_le_bytes(bytes))
    }

    pub fn write_u32(&self, offset: u64, value: u32) -> Option<()> {
        match self.word(offset) {
            // ORDERING: everything written before is visible to who sees this word.
            Some(word) => word.store(value, Ordering::Release),
            None => self.write(offset, &value.to_le_bytes())?,
        }
        Some(())
    }

    pub fn write_u64(&self, offset: u64, value: u64) -> Option<()> {
        match self.word64(offset) {
            // ORDERING: as in write_u32.
            Some(word) => word.store(value, Ordering::Release),
            None => self.write(offset, &value.to_le_bytes())?,
        }
        Some(())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if let Backing::File { fd, at } = self.backing {
            // SAFETY: the object's own mapping, to which no other code refers any more.
            unsafe { sys::munmap(at as usize, self.size as usize) };
            sys::close(fd);
        }
    }
}
