//! Memory from huge pages: pieces smaller than a page share pages, larger ones have separate pages.

use super::huge;
use super::pagemap;
use crate::error::Error;
use crate::mapped::Mapped;
use crate::memory::{Memory, Place, Run};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex};

const PAGE: u64 = 4096;

pub(super) struct Pool {
    file: File,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The end of the file. It only grows: freed ranges become holes.
    end: u64,
    shared: Vec<Shared>,
}

/// Consecutive huge pages of the file, mapped.
struct Block {
    mapping: Mapped,
    runs: Vec<Run>,
    offset: u64,
    length: u64,
    pool: Arc<Pool>,
}

/// A huge page that several pieces share, and which of its small pages are taken.
struct Shared {
    block: Arc<Block>,
    taken: Vec<bool>,
}

/// A part of a shared page.
struct Piece {
    block: Arc<Block>,
    first: usize,
    count: usize,
}

impl Pool {
    pub(super) fn new(file: File) -> Arc<Pool> {
        Arc::new(Pool { file, state: Mutex::default() })
    }

    /// The file that keeps the pages, even if other processes die.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Zeroed memory, from a page's begin on.
    pub(super) fn allocate(self: &Arc<Self>, bytes: u64) -> Result<Memory, Error> {
        if bytes == 0 {
            return Err(Error::system("allocate no bytes", io::ErrorKind::InvalidInput.into()));
        }
        if bytes > huge::SIZE / 2 {
            let block = Arc::new(self.block(bytes.div_ceil(huge::SIZE))?);
            let mut runs = block.runs.clone();
            cut(&mut runs, bytes.next_multiple_of(PAGE));
            let at = block.mapping.at;
            // SAFETY: the runs are the mapping's physical addresses, which huge pages keep, and both live as long as the block.
            return Ok(unsafe { Memory::new(Place::Host, runs, Some(at), block) });
        }
        self.piece(bytes.div_ceil(PAGE) as usize)
    }

    fn piece(self: &Arc<Self>, count: usize) -> Result<Memory, Error> {
        let mut state = poison::ignore(self.state.lock());
        let found = state.shared.iter().enumerate().find_map(|(i, page)| Some((i, gap(&page.taken, count)?)));
        let (index, first) = match found {
            Some(found) => found,
            None => {
                drop(state);
                let block = self.block(1)?;
                let taken = vec![false; (huge::SIZE / PAGE) as usize];
                state = poison::ignore(self.state.lock());
                state.shared.push(Shared { block: Arc::new(block), taken });
                (state.shared.len() - 1, 0)
            }
        };
        state.shared[index].taken[first..first + count].fill(true);
        let block = Arc::clone(&state.shared[index].block);
        drop(state);

        let (offset, length) = (first as u64 * PAGE, count as u64 * PAGE);
        let runs = vec![Run { offset: 0, bus: block.runs[0].bus + offset, length }];
        // SAFETY: the piece is within the block, as its pages were found there.
        let at = unsafe { block.mapping.at.add(offset as usize) };
        // SAFETY: only this piece uses these pages until it is dropped.
        unsafe { at.write_bytes(0, length as usize) };
        let piece = Piece { block, first, count };
        // SAFETY: as for a block; the pages belong to the piece until it is dropped.
        Ok(unsafe { Memory::new(Place::Host, runs, Some(at), Arc::new(piece)) })
    }

    /// `count` pages of the file, mapped, with their physical addresses.
    fn block(self: &Arc<Self>, count: u64) -> Result<Block, Error> {
        let length = count.checked_mul(huge::SIZE).filter(|length| *length < 1 << 46);
        let length = length.ok_or_else(|| huge::none(count, "no machine has so much memory"))?;
        let offset = {
            let mut state = poison::ignore(self.state.lock());
            let offset = state.end;
            self.file.set_len(offset + length).map_err(|why| Error::system("grow the file of huge pages", why))?;
            state.end += length;
            offset
        };
        let mapping = Mapped::part(&self.file, offset, length).map_err(|why| match why.raw_os_error() {
            Some(libc::ENOMEM) => huge::none(count, "too few huge pages are free"),
            _ => Error::system("map huge pages", why),
        })?;
        let mut block = Block { mapping, runs: Vec::new(), offset, length, pool: Arc::clone(self) };
        for page in 0..count {
            let within = page * huge::SIZE;
            // SAFETY: within the mapping. The store brings the page in: the kernel reserved it when it was mapped.
            let at = unsafe { block.mapping.at.add(within as usize) };
            // SAFETY: as above; only this block has the memory.
            unsafe { at.write_volatile(0) };
            let bus = pagemap::physical(at.as_ptr() as usize)?;
            if bus % huge::SIZE != 0 {
                let why = "the kernel shows a huge page at an address that is not a multiple of its size";
                return Err(Error::system("read /proc/self/pagemap", io::Error::other(why)));
            }
            append(&mut block.runs, Run { offset: within, bus, length: huge::SIZE });
        }
        Ok(block)
    }
}

/// Merges runs that are contiguous on the bus.
fn append(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last) if last.bus + last.length == run.bus => last.length += run.length,
        _ => runs.push(run),
    }
}

/// Keeps the first `length` bytes.
fn cut(runs: &mut Vec<Run>, length: u64) {
    runs.retain(|run| run.offset < length);
    if let Some(last) = runs.last_mut() {
        last.length = last.length.min(length - last.offset);
    }
}

/// The first `count` free pages in a row.
fn gap(taken: &[bool], count: usize) -> Option<usize> {
    let mut free = 0;
    for (index, taken) in taken.iter().enumerate() {
        free = if *taken { 0 } else { free + 1 };
        if free == count {
            return Some(index + 1 - count);
        }
    }
    None
}

impl Drop for Block {
    fn drop(&mut self) {
        // The pages go back to the machine's pool now, not when the file is closed. A failure leaves them until then.
        let hole = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        // SAFETY: this pool's own file; no pointers into this part remain.
        unsafe { libc::fallocate(self.pool.file.as_raw_fd(), hole, self.offset as i64, self.length as i64) };
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let pool = &self.block.pool;
        let mut state = poison::ignore(pool.state.lock());
        let Some(index) = state.shared.iter().position(|page| Arc::ptr_eq(&page.block, &self.block)) else { return };
        state.shared[index].taken[self.first..self.first + self.count].fill(false);
        if !state.shared[index].taken.contains(&true) {
            let page = state.shared.swap_remove(index);
            drop(state);
            drop(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_is_found_or_not() {
        let taken = [true, false, false, true, false, false, false];
        assert_eq!(gap(&taken, 1), Some(1));
        assert_eq!(gap(&taken, 3), Some(4));
        assert_eq!(gap(&taken, 4), None);
    }

    #[test]
    fn runs_are_joined_and_cut() {
        let mut runs = Vec::new();
        for (offset, bus) in [(0, 0x40_0000), (0x20_0000, 0x60_0000), (0x40_0000, 0x20_0000)] {
            append(&mut runs, Run { offset, bus, length: 0x20_0000 });
        }
        assert_eq!(runs.len(), 2);
        cut(&mut runs, 0x40_1000);
        assert_eq!(runs[1], Run { offset: 0x40_0000, bus: 0x20_0000, length: 0x1000 });
        cut(&mut runs, 0x1000);
        assert_eq!(runs, [Run { offset: 0, bus: 0x40_0000, length: 0x1000 }]);
    }
}
