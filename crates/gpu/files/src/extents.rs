//! Pieces of a file, and their places in memory.

use crate::error::Error;

/// Maximum pieces in one block of a file: one submission of a channel has room for this many.
pub const PIECES: usize = 4096;

/// A piece of a file and its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Offset in the file.
    pub offset: u64,
    /// Offset in memory.
    pub at: u64,
    pub bytes: u64,
}

impl Extent {
    fn end(&self) -> u64 {
        self.offset + self.bytes
    }
}

/// Pieces in the order of the file, which do not overlap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extents(Box<[Extent]>);

/// A part of a block: its offset in the block, and its place in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub within: u64,
    pub at: u64,
    pub bytes: u64,
}

impl Extents {
    /// Pieces in any order; empty ones are dropped.
    ///
    /// # Errors
    /// [`Error::Argument`] where two overlap, in the file or in memory, or where an end is not a valid offset.
    pub fn new(pieces: impl IntoIterator<Item = Extent>) -> Result<Extents, Error> {
        let mut all: Vec<Extent> = pieces.into_iter().filter(|e| e.bytes > 0).collect();
        if all.iter().any(|e| e.offset.checked_add(e.bytes).is_none() || e.at.checked_add(e.bytes).is_none()) {
            return Err(Error::Argument("a piece of a file ends beyond all offsets".into()));
        }
        all.sort_unstable_by_key(|e| e.at);
        if all.windows(2).any(|pair| pair[0].at + pair[0].bytes > pair[1].at) {
            return Err(Error::Argument("two pieces of a file have one place in memory".into()));
        }
        all.sort_unstable_by_key(|e| e.offset);
        if all.windows(2).any(|pair| pair[0].end() > pair[1].offset) {
            return Err(Error::Argument("two pieces of a file overlap".into()));
        }
        Ok(Extents(all.into()))
    }

    /// A whole file of that length, placed at the start of the memory.
    pub fn whole(length: u64) -> Extents {
        let all = Extent { offset: 0, at: 0, bytes: length };
        Extents(if length > 0 { [all].into() } else { [].into() })
    }

    pub fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.0.iter()
    }

    /// Bytes of all pieces.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|e| e.bytes).sum()
    }

    /// The start of the first piece in the file, and the end of the last.
    pub fn range(&self) -> (u64, u64) {
        (self.0.first().map_or(0, |e| e.offset), self.0.last().map_or(0, Extent::end))
    }

    /// Bytes of memory that the places need.
    pub fn memory(&self) -> u64 {
        self.0.iter().map(|e| e.at + e.bytes).max().unwrap_or(0)
    }

    /// The parts of a block of the file, with their places.
    pub(crate) fn of_block(&self, offset: u64, bytes: u64) -> impl Iterator<Item = Part> + '_ {
        let first = self.0.partition_point(|e| e.end() <= offset);
        let end = offset + bytes;
        self.0[first..].iter().take_while(move |e| e.offset < end).map(move |e| {
            let from = e.offset.max(offset);
            Part { within: from - offset, at: e.at + (from - e.offset), bytes: e.end().min(end) - from }
        })
    }

    /// Checks that no block of that size has more than [`PIECES`] pieces.
    ///
    /// # Errors
    /// [`Error::Argument`].
    pub(crate) fn fit(&self, block: u64) -> Result<(), Error> {
        let crowded = self.0.windows(PIECES).any(|w| w[PIECES - 1].offset - w[0].offset < block);
        if crowded {
            return Err(Error::Argument(format!(
                "a block of {block} bytes has over {PIECES} tensors: take smaller blocks"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn piece(offset: u64, at: u64, bytes: u64) -> Extent {
        Extent { offset, at, bytes }
    }

    #[test]
    fn overlaps_are_refused() {
        assert!(Extents::new([piece(0, 0, 10), piece(9, 10, 5)]).is_err());
        assert!(Extents::new([piece(0, 0, 10), piece(10, 9, 5)]).is_err());
        assert!(Extents::new([piece(u64::MAX, 0, 10)]).is_err());
        assert_eq!(Extents::new([piece(10, 0, 5), piece(3, 8, 0), piece(0, 5, 10)]).unwrap().bytes(), 15);
    }

    #[test]
    fn crowded_blocks_are_refused() {
        let tiny = (0..5000).map(|n| piece(n * 2, n * 256, 2));
        let tiny = Extents::new(tiny).unwrap();
        assert!(tiny.fit(16384).is_err());
        assert!(tiny.fit(4096).is_ok());
    }

    proptest! {
        /// Consecutive blocks give every byte of every piece its place, once.
        #[test]
        fn blocks_cover_all_pieces_once(pieces in proptest::collection::vec((0u64..40, 0u64..60), 1..20), block in 1u64..50) {
            let (mut offset, mut at) = (0, 0);
            let mut all = Vec::new();
            for (gap, bytes) in pieces {
                offset += gap;
                all.push(piece(offset, at, bytes));
                offset += bytes;
                at += bytes + gap;
            }
            let extents = Extents::new(all.clone()).unwrap();
            let mut found = std::collections::BTreeMap::new();
            for start in (0..offset + block).step_by(block as usize) {
                for part in extents.of_block(start, block) {
                    for n in 0..part.bytes {
                        prop_assert_eq!(found.insert(part.at + n, start + part.within + n), None);
                    }
                }
            }
            let wanted: std::collections::BTreeMap<_, _> =
                all.iter().flat_map(|e| (0..e.bytes).map(move |n| (e.at + n, e.offset + n))).collect();
            prop_assert_eq!(found, wanted);
        }
    }
}
