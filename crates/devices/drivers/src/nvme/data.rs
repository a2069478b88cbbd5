//! The place of a command's data: PRP entries and lists (Base 1.4, section 4.3), SGLs (section 4.4). Every address comes from a [`Memory`].

use crate::nvme::command::Pointer;
use crate::nvme::error::{Error, Unfit};
use crate::nvme::identify::Sgl;
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

/// How the data is described.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Form {
    /// PRPs, or an SGL if PRPs cannot describe the data and the controller supports SGLs.
    #[default]
    Any,
    Prp,
    Sgl,
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

/// Maximum number of list pages for data of so many bytes, described by PRPs (or by an SGL of as many descriptors of a page).
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

/// Describes the data, with lists in the slot's pages.
pub(crate) fn describe(
    pieces: &[Piece<'_>],
    most: u64,
    form: Form,
    sgl: Option<Sgl>,
    lists: &Lists<'_>,
) -> Result<Pointer, Error> {
    match total(pieces) {
        0 => return Err(Unfit::Nothing.into()),
        bytes if bytes > most => return Err(Unfit::TooLong { bytes, most }.into()),
        _ => {}
    }
    match (form, sgl) {
        (Form::Prp, _) | (Form::Any, None) => prp(pieces, lists),
        (Form::Sgl, None) => Err(Unfit::NoSgl.into()),
        (Form::Sgl, Some(sgl)) => scattered(pieces, sgl, lists),
        (Form::Any, Some(sgl)) => match prp(pieces, lists) {
            Err(Error::Data(Unfit::Broken { .. } | Unfit::Misaligned { .. })) => scattered(pieces, sgl, lists),
            told => told,
        },
    }
}

/// PRP entries: only the first may begin within a page, and only the last may end within one.
fn prp(pieces: &[Piece<'_>], lists: &Lists<'_>) -> Result<Pointer, Error> {
    let mut entries = Prps { first: None, second: 0, page: 0, word: 0, lists };
    let mut ended_a_page = true;
    segments(pieces, |at, bus, bytes| {
        if !bus.is_multiple_of(4) {
            return Err(Unfit::Misaligned { bus, alignment: 4 });
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
        Pointer::Prp(self.first.unwrap_or(0), second)
    }
}

/// Descriptor types (figure 115).
const DATA_BLOCK: u8 = 0;
const SEGMENT: u8 = 2;
const LAST_SEGMENT: u8 = 3;

fn descriptor(kind: u8, bus: u64, bytes: u64) -> [u64; 2] {
    [bus, bytes & 0xffff_ffff | u64::from(kind) << 60]
}

fn scattered(pieces: &[Piece<'_>], sgl: Sgl, lists: &Lists<'_>) -> Result<Pointer, Error> {
    let mut list = Descriptors { first: None, count: 0, page: 0, lists, head: [0; 2], link: None };
    segments(pieces, |_, bus, bytes| {
        for part in [bus, bytes] {
            if !part.is_multiple_of(sgl.alignment) {
                return Err(Unfit::Misaligned { bus, alignment: sgl.alignment });
            }
        }
        // A descriptor has 32 bits of length; `describe` has bounded the data far below.
        list.push(descriptor(DATA_BLOCK, bus, bytes))
    })?;
    Ok(Pointer::Sgl(list.pointer()?))
}

struct Descriptors<'a> {
    first: Option<[u64; 2]>,
    /// In the list page.
    count: usize,
    page: usize,
    lists: &'a Lists<'a>,
    /// The command's own descriptor, where there is a list.
    head: [u64; 2],
    /// Which descriptor points to the page: none for the command's own.
    link: Option<(usize, usize)>,
}

const PER_PAGE: usize = WORDS / 2;

impl Descriptors<'_> {
    fn set(&self, page: usize, index: usize, value: [u64; 2]) -> Result<(), Unfit> {
        self.lists.set(page, 2 * index, value[0])?;
        self.lists.set(page, 2 * index + 1, value[1])
    }

    fn push(&mut self, value: [u64; 2]) -> Result<(), Unfit> {
        let Some(first) = self.first else {
            self.first = Some(value);
            return Ok(());
        };
        if self.page == 0 && self.count == 0 {
            self.set(0, 0, first)?;
            self.count = 1;
        }
        if self.count == PER_PAGE {
            let moved = [self.lists.get(self.page, WORDS - 2)?, self.lists.get(self.page, WORDS - 1)?];
            self.close(SEGMENT)?;
            self.link = Some((self.page, PER_PAGE - 1));
            self.set(self.page + 1, 0, moved)?;
            (self.page, self.count) = (self.page + 1, 1);
        }
        self.set(self.page, self.count, value)?;
        self.count += 1;
        Ok(())
    }

    /// Writes the descriptor that points to this page.
    fn close(&mut self, kind: u8) -> Result<(), Unfit> {
        let value = descriptor(kind, self.lists.page(self.page)?.bus, 16 * self.count as u64);
        match self.link {
            None => self.head = value,
            Some((page, index)) => self.set(page, index, value)?,
        }
        Ok(())
    }

    fn pointer(mut self) -> Result<[u8; 16], Unfit> {
        let value = match self.count {
            0 => self.first.unwrap_or_default(),
            _ => {
                self.close(LAST_SEGMENT)?;
                self.head
            }
        };
        Ok((u128::from(value[0]) | u128::from(value[1]) << 64).to_le_bytes())
    }
}

#[cfg(test)]
#[path = "data_tests.rs"]
mod tests;
