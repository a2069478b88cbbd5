//! The machine's memory: one memory file shared with QEMU, and an allocator for its pages.

use crate::error::Error;
use crate::mapped::{Mapped, memory_file};
use crate::memory::{Memory, Pages, Place, Run};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard};

const PAGE: u64 = 4096;
/// The first MiB belongs to the PC: tables, video memory, ROMs.
const FIRST: u64 = 1 << 20;

pub(super) struct Ram {
    pub file: OwnedFd,
    used: Mutex<Vec<bool>>,
    pages: Pages,
}

impl Ram {
    pub fn new(bytes: u64, pages: Pages) -> Result<Ram, Error> {
        let file = memory_file(c"qemu-ram", bytes)?;
        let mut used = vec![false; (bytes / PAGE) as usize];
        used[..(FIRST / PAGE) as usize].fill(true);
        Ok(Ram { file, used: Mutex::new(used), pages })
    }

    fn used(&self) -> MutexGuard<'_, Vec<bool>> {
        poison::ignore(self.used.lock())
    }

    pub fn allocate(self: &Arc<Self>, bytes: u64) -> Result<Memory, Error> {
        let count = bytes.max(1).div_ceil(PAGE);
        let mapped = Mapped::reserve(count * PAGE)?;
        let taken = {
            let mut used = self.used();
            let taken = match self.pages {
                Pages::Together => together(&used, count),
                Pages::Scattered => scattered(&used, count),
            };
            let free = used.iter().filter(|used| !**used).count();
            let taken = taken.ok_or_else(|| {
                let what = format!("{count} pages of the machine's memory ({free} are free, not all of them together)");
                Error::system(what, io::ErrorKind::OutOfMemory.into())
            })?;
            for run in &taken {
                used[(run.bus / PAGE) as usize..][..(run.length / PAGE) as usize].fill(true);
            }
            taken
        };
        let held = Held { ram: Arc::clone(self), runs: taken.clone(), mapped };
        for run in &taken {
            held.mapped.put(run.offset, &self.file, run.bus, run.length)?;
        }
        let at = held.mapped.at;
        // SAFETY: `held` keeps the pages allocated and the addresses mapped, as many bytes as the runs have.
        Ok(unsafe { Memory::new(Place::Host, taken, Some(at), Arc::new(held)) })
    }
}

/// Allocated pages. Drop zeroes and frees them.
struct Held {
    ram: Arc<Ram>,
    runs: Vec<Run>,
    mapped: Mapped,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut used = self.ram.used();
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        for run in &self.runs {
            let (at, length) = (run.bus as libc::off_t, run.length as libc::off_t);
            // SAFETY: these pages stay allocated to this value until `used` changes below.
            let zeroed = unsafe { libc::fallocate(self.ram.file.as_raw_fd(), mode, at, length) } == 0;
            // Pages that could not be zeroed stay allocated, because `allocate` promises zeroed memory.
            used[(run.bus / PAGE) as usize..][..(run.length / PAGE) as usize].fill(!zeroed);
        }
    }
}

fn together(used: &[bool], count: u64) -> Option<Vec<Run>> {
    let mut free = 0;
    for (page, used) in used.iter().enumerate() {
        free = if *used { 0 } else { free + 1 };
        if free == count {
            return Some(vec![Run { offset: 0, bus: (page as u64 + 1 - count) * PAGE, length: count * PAGE }]);
        }
    }
    None
}

/// Every third free page from the top down, then the pages between: adjacent pages follow each other only when memory runs out.
fn scattered(used: &[bool], count: u64) -> Option<Vec<Run>> {
    let free: Vec<u64> = (0..used.len() as u64).rev().filter(|page| !used[*page as usize]).collect();
    let order = (0..3).flat_map(|begin| free.iter().skip(begin).step_by(3));
    let runs: Vec<Run> = order
        .take(count as usize)
        .enumerate()
        .map(|(i, page)| Run { offset: i as u64 * PAGE, bus: page * PAGE, length: PAGE })
        .collect();
    (runs.len() as u64 == count).then_some(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_all(memory: &Memory, byte: u8) -> bool {
        let mut bytes = vec![0; memory.length() as usize];
        memory.load(0, &mut bytes).unwrap();
        bytes.iter().all(|b| *b == byte)
    }

    #[test]
    fn memory_is_given_out_once_and_zeroed() {
        let ram = Arc::new(Ram::new(4 << 20, Pages::Together).unwrap());
        let (first, second) = (ram.allocate(5000).unwrap(), ram.allocate(4096).unwrap());
        assert_eq!(first.runs(), [Run { offset: 0, bus: FIRST, length: 8192 }]);
        assert_eq!(second.bus(0).unwrap().0, FIRST + 8192);
        first.store(0, &[0xab; 8192]).unwrap();
        let clone = first.clone();
        drop(first);
        // The clone keeps the pages allocated.
        assert_ne!(ram.allocate(4096).unwrap().bus(0).unwrap().0, FIRST);
        assert!(is_all(&clone, 0xab));
        drop(clone);
        let again = ram.allocate(8192).unwrap();
        assert_eq!(again.bus(0).unwrap().0, FIRST);
        assert!(is_all(&again, 0));
        assert!(ram.allocate(4 << 20).is_err());
    }

    #[test]
    fn scattered_pages_are_nobodys_neighbours() {
        let ram = Arc::new(Ram::new(4 << 20, Pages::Scattered).unwrap());
        let memory = ram.allocate(64 * PAGE).unwrap();
        assert_eq!(memory.runs().len(), 64);
        assert!(memory.runs().windows(2).all(|pair| pair[0].bus + PAGE != pair[1].bus));
        // The CPU's view is contiguous.
        let written: Vec<u8> = (0..64 * PAGE).map(|at| (at / PAGE) as u8).collect();
        memory.store(0, &written).unwrap();
        let whole = Mapped::of(&ram.file, 4 << 20).unwrap();
        for (i, run) in memory.runs().iter().enumerate() {
            // SAFETY: within the file's mapping.
            assert_eq!(unsafe { whole.at.as_ptr().add(run.bus as usize).read() }, i as u8);
        }
        // Every page can be allocated.
        let rest = ram.allocate((4 << 20) - FIRST - 64 * PAGE).unwrap();
        assert!(ram.allocate(1).is_err());
        drop(rest);
        assert!(ram.allocate(1).is_ok());
    }
}
