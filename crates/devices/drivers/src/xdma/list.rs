//! Descriptor lists, by which the card gets a transfer.
//!
//! Descriptors are consecutive in host memory, in blocks. The card may fetch a block in one read, and a block does not cross a border of 4 KiB.
//! `Nxt_adj` of a descriptor is the number of further descriptors that follow the *next* one without a gap, as in the guide's figure of adjacent
//! descriptors.

use crate::xdma::error::Error;
use crate::xdma::registers::descriptor as of;
use pcie::Memory;

/// Blocks begin and end at multiples of this: as many descriptors as six bits can count, and no border of 4 KiB within.
const BLOCK: u64 = (of::MOST_ADJACENT + 1) * of::BYTES;
/// A block is fetched by one read, which must not be longer than the card may ask for (MRRS).
const SMALLEST_READ: u64 = 128;
const _: () = assert!(of::BORDER.is_multiple_of(BLOCK));

/// What one descriptor moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub source: u64,
    pub destination: u64,
    pub bytes: u32,
}

/// Room for a list.
pub(crate) struct List {
    memory: Memory,
    /// Bytes of a block.
    block: u64,
}

impl List {
    /// `largest_read`: the card's limit, in bytes; a power of two.
    pub(crate) fn new(memory: Memory, largest_read: Option<u64>) -> List {
        let block = largest_read.map_or(BLOCK, |most| most.clamp(SMALLEST_READ, BLOCK));
        List { memory, block }
    }

    /// Descriptors that it has room for.
    pub(crate) fn room(&self) -> u64 {
        self.memory.length() / of::BYTES
    }

    pub(crate) fn keep_for_ever(&self) {
        std::mem::forget(self.memory.clone());
    }

    /// Bus address of the n-th.
    fn place(&self, n: u64) -> Result<u64, Error> {
        Ok(self.memory.bus(n * of::BYTES)?.0)
    }

    /// How many of `count` descriptors follow the n-th without a gap, in its block.
    fn adjacent(&self, n: u64, count: u64) -> Result<u64, Error> {
        let (bus, rest) = self.memory.bus(n * of::BYTES)?;
        let to_border = self.block - bus % self.block;
        let block = rest.min(to_border) / of::BYTES;
        Ok((block - 1).min(count - 1 - n))
    }

    /// Writes the list. Returns the first descriptor's address, and how many follow it.
    pub(crate) fn write(&self, pieces: &[Piece]) -> Result<(u64, u32), Error> {
        let count = pieces.len() as u64;
        for (n, piece) in (0u64..).zip(pieces) {
            let is_last = n + 1 == count;
            let (next, adjacent) = if is_last { (0, 0) } else { (self.place(n + 1)?, self.adjacent(n + 1, count)?) };
            let flags = if is_last { of::STOP | of::COMPLETED } else { 0 };
            let words = [
                of::MAGIC << 16 | (adjacent as u32) << 8 | flags,
                piece.bytes,
                piece.source as u32,
                (piece.source >> 32) as u32,
                piece.destination as u32,
                (piece.destination >> 32) as u32,
                next as u32,
                (next >> 32) as u32,
            ];
            let mut bytes = [0; of::BYTES as usize];
            for (into, word) in bytes.chunks_mut(4).zip(words) {
                into.copy_from_slice(&word.to_le_bytes());
            }
            self.memory.store(n * of::BYTES, &bytes)?;
        }
        Ok((self.place(0)?, self.adjacent(0, count)? as u32))
    }
}
