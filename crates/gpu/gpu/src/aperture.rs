//! A window of BAR1 that is moved over a larger object in GPU memory, like the BAR0 window of older GPUs.
//!
//! A move costs as much as a new mapping: a file for it (the driver allows one mapping in a file's life), REGISTER_FD,
//! RM_MAP_MEMORY and mmap, then munmap, RM_UNMAP_MEMORY and close for the old one. The new window is mapped before the
//! old one is unmapped, so a move that fails leaves the window where it was.

use crate::bar1::{Bar1Map, Duplicate, check};
use crate::error::Error;
use crate::memory::Memory;
use crate::pin::Pin;
use std::ops::Range;
use std::sync::Arc;

const PAGE: u64 = 0x1000;

/// A window over an object in GPU memory, moved on demand.
pub struct Aperture {
    object: Arc<Duplicate>,
    /// Bytes of a window, a multiple of the page.
    length: u64,
    /// The window, and the offset in the object where it begins.
    window: Option<(u64, Bar1Map)>,
    moves: u64,
}

impl std::fmt::Debug for Aperture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Aperture").field("window", &self.window()).field("moves", &self.moves).finish_non_exhaustive()
    }
}

impl Aperture {
    /// The default length of a window in bytes.
    pub const WINDOW: u64 = 4 << 20;

    /// A window of [`Aperture::WINDOW`] over doorbell's own memory. It is not mapped before the first move.
    ///
    /// # Errors
    /// As [`Aperture::with_window`].
    pub fn of(memory: &Arc<Memory>) -> Result<Aperture, Error> {
        Aperture::with_window(memory, Aperture::WINDOW)
    }

    /// A window of `length` bytes, rounded up to pages, or of the whole memory if that is shorter.
    ///
    /// # Errors
    /// [`Error::NotVideo`] for host memory, [`Error::Length`] for an empty window.
    pub fn with_window(memory: &Arc<Memory>, length: u64) -> Result<Aperture, Error> {
        Aperture::new(Duplicate::of(memory)?, length)
    }

    /// As [`Aperture::with_window`], over a pinned range of CUDA memory.
    ///
    /// # Errors
    /// As [`Aperture::with_window`] and [`Bar1Map::of_pin`].
    pub fn of_pin(pin: &Arc<Pin>, length: u64) -> Result<Aperture, Error> {
        Aperture::new(Duplicate::of_pin(pin)?, length)
    }

    fn new(object: Arc<Duplicate>, length: u64) -> Result<Aperture, Error> {
        let length = length.checked_next_multiple_of(PAGE).filter(|&n| n != 0).ok_or(Error::Length(length))?;
        let length = length.min(object.size());
        Ok(Aperture { object, length, window: None, moves: 0 })
    }

    /// The object's length in bytes.
    pub fn size(&self) -> u64 {
        self.object.size()
    }

    /// The part that the window shows now, as offsets in the object.
    pub fn window(&self) -> Option<Range<u64>> {
        self.window.as_ref().map(|(start, map)| *start..*start + map.length())
    }

    /// How often the window was moved, its first place included.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Unmaps the window. The next access maps it again.
    pub fn close(&mut self) {
        self.window = None;
    }

    /// Moves the window so that it begins in the page of `offset`, or ends with the object if that is earlier. If the
    /// window is already there, no call is made.
    ///
    /// # Errors
    /// [`Error::Outside`] if the object has no byte `offset`, or the driver's error. The window stays where it was.
    pub fn move_to(&mut self, offset: u64) -> Result<(), Error> {
        check(offset, 1, self.size())?;
        self.place(self.start_of(offset)).map(drop)
    }

    /// Windows begin on pages; the last one is as long as the others.
    fn start_of(&self, offset: u64) -> u64 {
        let last = (self.size() - self.length).next_multiple_of(PAGE);
        (offset & !(PAGE - 1)).min(last)
    }

    /// The window that begins at `start`: a new one unless it is already there.
    fn place(&mut self, start: u64) -> Result<&(u64, Bar1Map), Error> {
        let window = match self.window.take() {
            Some(window) if window.0 == start => window,
            old => match Bar1Map::new(&self.object, start, self.length.min(self.size() - start)) {
                Ok(map) => {
                    self.moves += 1;
                    (start, map)
                }
                Err(error) => {
                    self.window = old;
                    return Err(error);
                }
            },
        };
        Ok(self.window.insert(window))
    }

    /// A window that shows `offset`: the current one, or one moved to begin there.
    fn holding(&mut self, offset: u64) -> Result<&(u64, Bar1Map), Error> {
        let start = match self.window() {
            Some(window) if window.contains(&offset) => window.start,
            _ => self.start_of(offset),
        };
        self.place(start)
    }

    /// Stores bytes at an offset in the object, and moves the window as needed.
    ///
    /// # Errors
    /// [`Error::Outside`] if the range is not within the object: then no byte was written. The driver's error if a move
    /// fails: then the bytes before the new window were written.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error> {
        check(offset, bytes.len() as u64, self.size())?;
        self.each(offset, bytes.len(), |map, at, part| map.write(at, &bytes[part]))
    }

    /// As [`Aperture::write`], but reads.
    ///
    /// # Errors
    /// As there.
    pub fn read(&mut self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        check(offset, into.len() as u64, self.size())?;
        self.each(offset, into.len(), |map, at, part| map.read(at, &mut into[part]))
    }

    /// Calls `copy` for each window that a range needs, with the offset in the window and the part of the range.
    fn each(
        &mut self,
        offset: u64,
        length: usize,
        mut copy: impl FnMut(&Bar1Map, u64, Range<usize>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut done = 0;
        while done < length {
            let at = offset + done as u64;
            let (start, map) = self.holding(at)?;
            let within = at - start;
            let step = (length - done).min((map.length() - within) as usize);
            copy(map, within, done..done + step)?;
            done += step;
        }
        Ok(())
    }
}
