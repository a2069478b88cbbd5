//! The memory that graphs use, and its expected contents.

use crate::data::{bytes, check};
use crate::{Error, Result};
use cuda::{Context, DeviceBuffer, PinnedBuffer};
use fastrand::Rng;
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Space {
    Device,
    Pinned,
    /// Heap memory, unknown to CUDA.
    Pageable,
}

impl Space {
    const ALL: [Space; 3] = [Space::Device, Space::Pinned, Space::Pageable];

    fn name(self) -> &'static str {
        match self {
            Space::Device => "memory of the GPU",
            Space::Pinned => "pinned memory",
            Space::Pageable => "pageable memory",
        }
    }
}

/// Some bytes of a shape's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub space: Space,
    pub offset: usize,
    pub bytes: usize,
}

impl Place {
    /// The first bytes of it.
    pub fn first(self, bytes: usize) -> Place {
        self.part(0, bytes)
    }

    pub fn part(self, offset: usize, bytes: usize) -> Place {
        assert!(offset + bytes <= self.bytes, "{bytes} bytes at {offset} of {}", self.bytes);
        Place { offset: self.offset + offset, bytes, ..self }
    }
}

/// Most of each space that a shape takes.
const HOST: usize = 2 << 20;
/// The alignment of pieces.
const ALIGNED: usize = 256;

pub(super) struct Memory<'c> {
    device: DeviceBuffer<'c>,
    pinned: PinnedBuffer<'c>,
    pageable: Box<[AtomicU64]>,
    used: [Cell<usize>; 3],
    /// Words that are 0 at first.
    zeros: RefCell<Vec<Place>>,
}

impl<'c> Memory<'c> {
    /// With this many bytes of GPU memory.
    pub fn new(context: &'c Context, device: usize) -> Result<Memory<'c>> {
        Ok(Memory {
            device: DeviceBuffer::new(context, device)?,
            pinned: PinnedBuffer::new(context, HOST)?,
            pageable: (0..HOST / 8).map(|_| AtomicU64::new(0)).collect(),
            used: Default::default(),
            zeros: RefCell::default(),
        })
    }

    /// Takes back all places.
    pub fn clear(&self) {
        self.used.iter().for_each(|used| used.set(0));
        self.zeros.borrow_mut().clear();
    }

    pub fn take(&self, space: Space, bytes: usize) -> Result<Place> {
        let (used, len) = (&self.used[space as usize], self.len(space));
        let offset = used.get();
        let end = offset.checked_add(bytes).filter(|end| *end <= len);
        let end = end.ok_or(Error::Option { what: "count", value: format!("{bytes} bytes for one shape") })?;
        used.set(end.next_multiple_of(ALIGNED).min(len));
        Ok(Place { space, offset, bytes })
    }

    /// As [`Memory::take`], of the GPU's; the first word is 0 when the first launch begins.
    pub fn take_log(&self, bytes: usize) -> Result<Place> {
        let place = self.take(Space::Device, bytes)?;
        self.zeros.borrow_mut().push(place.first(4));
        Ok(place)
    }

    fn len(&self, space: Space) -> usize {
        if space == Space::Device { self.device.len() } else { HOST }
    }

    /// For CPU or GPU, whoever sees it.
    pub fn address(&self, place: Place) -> u64 {
        let base = match place.space {
            Space::Device => self.device.address(),
            Space::Pinned => self.pinned.as_ptr() as u64,
            Space::Pageable => self.pageable.as_ptr() as u64,
        };
        base + place.offset as u64
    }

    pub fn slice(&self, place: Place) -> cuda::Result<cuda::DeviceSlice<'_>> {
        self.device.slice(place.offset, place.bytes)
    }

    /// Rng words everywhere; no graph runs.
    pub fn start(&self, random: &mut Rng) -> Result<Model> {
        let mut model = Model(Space::ALL.map(|space| bytes(random, self.used[space as usize].get() / 8 * 8)));
        self.zeros.borrow().iter().for_each(|zero| model.set(*zero, 0, 0));
        let [device, pinned, pageable] = &model.0;
        if !device.is_empty() {
            self.device.write(device)?;
        }
        // SAFETY: this many bytes are there, and they are unused while no graph runs.
        unsafe { std::ptr::copy_nonoverlapping(pinned.as_ptr(), self.pinned.as_ptr(), pinned.len()) };
        for (to, word) in self.pageable.iter().zip(pageable.as_chunks::<8>().0) {
            to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
        }
        Ok(model)
    }

    /// New bytes for a place of the host's, here and in the model; no graph runs.
    pub fn renew(&self, place: Place, random: &mut Rng, model: &mut Model) {
        model.bytes(place).copy_from_slice(&bytes(random, place.bytes));
        let bytes = &model.0[place.space as usize];
        match place.space {
            Space::Device => {}
            Space::Pinned => {
                let to = self.pinned.as_ptr().wrapping_add(place.offset);
                // SAFETY: the place is within the buffer, and it is unused while no graph runs.
                unsafe { std::ptr::copy_nonoverlapping(bytes[place.offset..].as_ptr(), to, place.bytes) };
            }
            Space::Pageable => {
                let words = place.offset / 8..(place.offset + place.bytes).div_ceil(8);
                for (to, word) in self.pageable[words.clone()].iter().zip(&bytes.as_chunks::<8>().0[words]) {
                    to.store(u64::from_ne_bytes(*word), Ordering::Relaxed);
                }
            }
        }
    }

    fn read(&self, space: Space, bytes: usize) -> Result<Vec<u8>> {
        let mut got = vec![0; bytes];
        match space {
            Space::Device if bytes > 0 => self.device.read(&mut got)?,
            Space::Device => {}
            Space::Pinned => got.copy_from_slice(&self.pinned.bytes()[..bytes]),
            Space::Pageable => {
                let words = self.pageable.iter().map(|word| word.load(Ordering::Relaxed).to_ne_bytes());
                got.as_chunks_mut::<8>().0.iter_mut().zip(words).for_each(|(to, word)| *to = word);
            }
        }
        Ok(got)
    }

    /// Compares all of it. No graph may run at that time. Returns the contents.
    pub fn check(&self, model: &Model, what: impl Fn() -> String) -> Result<[Vec<u8>; 3]> {
        let mut found: [Vec<u8>; 3] = Default::default();
        for (space, expected) in Space::ALL.into_iter().zip(&model.0) {
            let got = self.read(space, expected.len())?;
            check(|| format!("{}, {}", what(), space.name()), expected, &got)?;
            found[space as usize] = got;
        }
        Ok(found)
    }
}

/// The contents of each space, as the CPU computes them.
pub(super) struct Model([Vec<u8>; 3]);

impl Model {
    pub fn bytes(&mut self, place: Place) -> &mut [u8] {
        &mut self.0[place.space as usize][place.offset..place.offset + place.bytes]
    }

    /// A word of a place, by its index.
    pub fn word(&self, place: Place, index: usize) -> u32 {
        let at = place.offset + 4 * index;
        let bytes = &self.0[place.space as usize][at..at + 4];
        bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
    }

    pub fn set(&mut self, place: Place, index: usize, word: u32) {
        self.bytes(place)[4 * index..][..4].copy_from_slice(&word.to_le_bytes());
    }

    /// Computes each of the first words from its index and its old value.
    pub fn each(&mut self, place: Place, words: usize, next: impl Fn(usize, u32) -> u32) {
        (0..words).for_each(|i| self.set(place, i, next(i, self.word(place, i))));
    }

    /// As the kernel `log`.
    pub fn log(&mut self, log: Place, value: u32) {
        let n = self.word(log, 0);
        self.set(log, 1 + n as usize, value);
        self.set(log, 0, n.wrapping_add(1));
    }

    pub fn copy(&mut self, to: Place, from: Place) {
        let bytes = self.bytes(from).to_vec();
        self.bytes(to).copy_from_slice(&bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_logs_and_copies() {
        let mut model = Model([vec![0; 64], vec![1; 8], Vec::new()]);
        let log = Place { space: Space::Device, offset: 16, bytes: 48 };
        model.log(log, 7);
        model.log(log, 9);
        assert_eq!([0, 1, 2, 3].map(|i| model.word(log, i)), [2, 7, 9, 0]);
        let pinned = Place { space: Space::Pinned, offset: 0, bytes: 8 };
        model.copy(pinned, log.part(4, 8));
        assert_eq!([0, 1].map(|i| model.word(pinned, i)), [7, 9]);
    }
}
