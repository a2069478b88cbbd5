//! A transfer as pieces that the card moves one after the other: each into its buffer, and from there to its target.

use crate::edu::error::Error;
use crate::edu::registers::PIECE;
use pcie::Memory;

/// One end of a transfer: memory that the function can reach, and an offset in it. The memory is kept as long as the card may access it.
pub type End = (Memory, u64);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the bus into the card's buffer.
    In,
    Out,
}

/// One command for the card, which uses its buffer from the begin on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub way: Way,
    pub bus: u64,
    pub bytes: u64,
}

pub(crate) struct Transfer {
    /// None when the card no longer uses them.
    ends: Option<[End; 2]>,
    bytes: u64,
    done: u64,
    /// Bytes in progress. If `half`, they are on the card.
    told: u64,
    half: bool,
}

impl Transfer {
    /// Checks that both ends contain every byte, and that the card can address it.
    pub(crate) fn new(from: End, to: End, bytes: u64, mask: u64) -> Result<Transfer, Error> {
        if bytes == 0 {
            return Err(Error::Empty);
        }
        for (memory, at) in [&from, &to] {
            addressable(memory, *at, bytes, mask)?;
        }
        Ok(Transfer { ends: Some([from, to]), bytes, done: 0, told: 0, half: false })
    }

    pub(crate) fn is_done(&self) -> bool {
        self.ends.is_none()
    }

    /// Bytes moved so far, and in total.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.done, self.bytes)
    }

    /// The transfer ends with the current piece.
    pub(crate) fn cut(&mut self) {
        self.bytes = self.done + self.told;
        self.half = self.told > 0;
    }

    /// The current piece is done: returns the next one, or none if it was the last.
    pub(crate) fn next(&mut self) -> Result<Option<Piece>, Error> {
        let Some([from, to]) = &self.ends else { return Ok(None) };
        if self.told > 0 && !self.half {
            self.half = true;
            let bus = to.0.bus(to.1 + self.done)?.0;
            return Ok(Some(Piece { way: Way::Out, bus, bytes: self.told }));
        }
        self.done += self.told;
        (self.told, self.half) = (0, false);
        let left = self.bytes - self.done;
        if left == 0 {
            self.ends = None;
            return Ok(None);
        }
        let ((bus, here), (_, there)) = (from.0.bus(from.1 + self.done)?, to.0.bus(to.1 + self.done)?);
        self.told = left.min(PIECE).min(here).min(there);
        Ok(Some(Piece { way: Way::In, bus, bytes: self.told }))
    }
}

/// Checks that the card can address all of `bytes` at `at`.
fn addressable(memory: &Memory, at: u64, bytes: u64, mask: u64) -> Result<(), Error> {
    memory.holds(at, bytes)?;
    let end = at + bytes;
    for run in memory.runs() {
        let (first, behind) = (run.offset.max(at), (run.offset + run.length).min(end));
        if first < behind {
            // A mask is ones from the lowest bit on: if the last address fits, all do.
            let last = run.bus + (behind - 1 - run.offset);
            if last & !mask != 0 {
                return Err(Error::Mask { bus: last, mask });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use pcie::{Place, Run};
    use std::sync::Arc;

    fn memory(runs: &[(u64, u64)]) -> Memory {
        let mut offset = 0;
        let mut all = Vec::new();
        for &(bus, length) in runs {
            all.push(Run { offset, bus, length });
            offset += length;
        }
        // SAFETY: the memory is never accessed.
        unsafe { Memory::new(Place::Host, all, None, Arc::new(())) }
    }

    fn pieces(from: End, to: End, bytes: u64) -> Vec<(Way, u64, u64)> {
        let mut transfer = Transfer::new(from, to, bytes, u64::MAX).unwrap();
        let mut all = Vec::new();
        while let Some(Piece { way, bus, bytes }) = transfer.next().unwrap() {
            assert!(!transfer.is_done());
            all.push((way, bus, bytes));
        }
        assert!(transfer.is_done());
        assert_eq!(transfer.progress(), (bytes, bytes));
        all
    }

    #[test]
    fn pieces_end_where_runs_and_the_buffer_do() {
        use Way::{In, Out};
        let from = memory(&[(0x1000, 0x1000), (0x8000, 0x1000)]);
        let to = memory(&[(0x2_0000, 0x800), (0x3_0000, 0x1800)]);
        assert_eq!(
            pieces((from.clone(), 0x10), (to.clone(), 0), 0x1010),
            [
                (In, 0x1010, 0x800),
                (Out, 0x2_0000, 0x800),
                (In, 0x1810, 0x7f0),
                (Out, 0x3_0000, 0x7f0),
                (In, 0x8000, 0x20),
                (Out, 0x3_07f0, 0x20),
            ]
        );
        let wide = memory(&[(0x10_0000, 0x2000)]);
        assert_eq!(
            pieces((wide.clone(), 0), (wide, 0x1000), 4095),
            [(In, 0x10_0000, 4088), (Out, 0x10_1000, 4088), (In, 0x10_0ff8, 7), (Out, 0x10_1ff8, 7)]
        );
    }

    #[test]
    fn a_transfer_that_is_cut_ends_with_the_piece_that_was_told() {
        let (from, to) = (memory(&[(0, 0x8000)]), memory(&[(0x1_0000, 0x8000)]));
        let mut transfer = Transfer::new((from, 0), (to, 0), 0x8000, u64::MAX).unwrap();
        for _ in 0..3 {
            transfer.next().unwrap();
        }
        transfer.cut();
        assert_eq!(transfer.next().unwrap(), None);
        assert!(transfer.is_done());
    }

    #[test]
    fn transfers_out_of_range_or_reach_are_refused() {
        let new = |from, to, bytes, mask| Transfer::new(from, to, bytes, mask).map(drop).unwrap_err();
        let low = memory(&[(0xfff_f000, 0x2000)]);
        let at = |n| (low.clone(), n);
        assert!(matches!(new(at(0), at(8), 0, u64::MAX), Error::Empty));
        for (from, to) in [(0x1fff, 0), (0, 0x1fff), (u64::MAX, 0)] {
            let refused = new(at(from), at(to), 2, u64::MAX);
            assert!(matches!(refused, Error::Pcie(pcie::Error::OutOfBounds { .. })), "{refused}");
        }
        assert!(matches!(new(at(0), at(0xfff), 2, crate::edu::MASK), Error::Mask { bus: 0x1000_0000, .. }));
        assert!(Transfer::new(at(0), at(0xfff), 1, crate::edu::MASK).is_ok());
    }
}
