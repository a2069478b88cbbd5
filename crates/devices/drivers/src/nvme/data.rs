//! The place of a command's data: PRP entries and lists (Base 1.4, section 4.3). Every address comes from a [`Memory`].

use crate::nvme::command::Pointer;
use crate::nvme::error::{Error, Unfit};
use crate::nvme::registers::PAGE;
use pcie::Memory;
use std::ptr::NonNull;

/// A part of a command's data: bytes of a memory of the host or of a peer. A command's pieces are consecutive on the device.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    pub memory: &'a Memory,
    pub offset: u64,
    pub bytes: u64,
}

impl<'a> Piece<'a> {
    pub fn new(memory: &'a Memory, offset: u64, bytes: u64) -> Piece<'a> {
        Piece { memory, offset, bytes }
    }

    /// # Errors
    /// [`pcie::Error::OutOfBounds`] if it is not within its memory.
    pub fn check(&self) -> Result<(), Error> {
        Ok(self.memory.holds(self.offset, self.bytes)?)
    }
}

/// A page for a list: its CPU address and its bus address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ListPage {
    pub(crate) cpu: NonNull<u64>,
    pub(crate) bus: u64,
}

/// The pages of one slot's lists.
///
/// The creator guarantees: each page is mapped, has [`PAGE`] bytes, and only the slot writes it.
pub(crate) struct Lists<'a>(pub(crate) &'a [ListPage]);

const WORDS: usize = PAGE as usize / 8;

impl Lists<'_> {
    fn page(&self, page: usize) -> Result<ListPage, Unfit> {
        self.0.get(page).copied().ok_or(Unfit::TooManyPieces(self.0.len()))
    }

    fn set(&self, page: usize, word: usize, value: u64) -> Result<(), Unfit> {
        let page = self.page(page)?;
        assert!(word < WORDS);
        // SAFETY: within a page that is mapped and the slot's own (`Lists`). Volatile: the controller reads it.
        unsafe { page.cpu.as_ptr().add(word).write_volatile(value.to_le()) };
        Ok(())
    }

    fn get(&self, page: usize, word: usize) -> Result<u64, Unfit> {
        let page = self.page(page)?;
        assert!(word < WORDS);
        // SAFETY: as in `set`.
        Ok(u64::from_le(unsafe { page.cpu.as_ptr().add(word).read_volatile() }))
    }
}

/// Maximum number of list pages for data of so many bytes, described by PRPs.
pub(crate) fn list_pages(bytes: u64) -> u64 {
    let entries = bytes.div_ceil(PAGE);
    entries.saturating_sub(1).div_ceil(WORDS as u64 - 1).max(1)
}

/// Calls `each` with (place within the data, bus address, bytes) for each range that is contiguous on the bus.
fn segments(pieces: &[Piece<'_>], mut each: impl FnMut(u64, u64, u64) -> Result<(), Unfit>) -> Result<(), Error> {
    let (mut at, mut open) = (0, None::<(u64, u64)>);
    for piece in pieces {
        piece.check()?;
        let (mut offset, mut left) = (piece.offset, piece.bytes);
        while left > 0 {
            let (bus, rest) = piece.memory.bus(offset)?;
            let bytes = rest.min(left);
            (offset, left) = (offset + bytes, left - bytes);
            open = match open {
                Some((begin, so_far)) if begin.checked_add(so_far) == Some(bus) => Some((begin, so_far + bytes)),
                Some((begin, so_far)) => {
                    each(at, begin, so_far)?;
                    at += so_far;
                    Some((bus, bytes))
                }
                None => Some((bus, bytes)),
            };
        }
    }
    if let Some((begin, bytes)) = open {
        each(at, begin, bytes)?;
    }
    Ok(())
}

/// Total bytes of the pieces.
pub(crate) fn total(pieces: &[Piece<'_>]) -> u64 {
    pieces.iter().fold(0, |sum: u64, piece| sum.saturating_add(piece.bytes))
}

/// Describes the data, with lists in the slot's pages. Only the first PRP entry may begin within a page, and only the last may end within one.
pub(crate) fn describe(pieces: &[Piece<'_>], most: u64, lists: &Lists<'_>) -> Result<Pointer, Error> {
    match total(pieces) {
        0 => return Err(Unfit::Nothing.into()),
        bytes if bytes > most => return Err(Unfit::TooLong { bytes, most }.into()),
        _ => {}
    }
    let mut entries = Prps { first: None, second: 0, page: 0, word: 0, lists };
    let mut ended_a_page = true;
    segments(pieces, |at, bus, bytes| {
        if !bus.is_multiple_of(4) {
            return Err(Unfit::Misaligned { bus });
        }
        if !ended_a_page || (entries.first.is_some() && !bus.is_multiple_of(PAGE)) {
            return Err(Unfit::Broken { at });
        }
        let mut place = bus;
        while place - bus < bytes {
            entries.push(place)?;
            place = (place / PAGE + 1) * PAGE;
        }
        ended_a_page = place - bus == bytes;
        Ok(())
    })?;
    Ok(entries.pointer(lists))
}

struct Prps<'a> {
    first: Option<u64>,
    second: u64,
    page: usize,
    /// Entries in the list page, or 0 where there is no list yet.
    word: usize,
    lists: &'a Lists<'a>,
}

impl Prps<'_> {
    fn push(&mut self, bus: u64) -> Result<(), Unfit> {
        if self.first.is_none() {
            self.first = Some(bus);
            return Ok(());
        }
        if self.page == 0 && self.word == 0 {
            self.second = bus;
        }
        if self.word == WORDS {
            // The last entry of a full page becomes the address of the next page, and moves there.
            let moved = self.lists.get(self.page, WORDS - 1)?;
            let next = self.lists.page(self.page + 1)?;
            self.lists.set(self.page, WORDS - 1, next.bus)?;
            self.lists.set(self.page + 1, 0, moved)?;
            (self.page, self.word) = (self.page + 1, 1);
        }
        self.lists.set(self.page, self.word, bus)?;
        self.word += 1;
        Ok(())
    }

    fn pointer(&self, lists: &Lists<'_>) -> Pointer {
        let second = match (self.page, self.word) {
            (0, 0) => 0,
            (0, 1) => self.second,
            _ => lists.0[0].bus,
        };
        Pointer(self.first.unwrap_or(0), second)
    }
}

#[cfg(test)]
mod tests;
