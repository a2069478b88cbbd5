//! A transfer as pieces that the card moves one after the other.

use crate::edu::error::Error;
use crate::edu::registers::{CAPACITY, PIECE};
use pcie::Memory;

/// One end of a transfer.
#[derive(Clone)]
pub enum End {
    /// Offset in the card's buffer.
    Card(u64),
    /// Offset in memory that the function can reach. The memory is kept as long as the card may access it.
    Memory(Memory, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the bus into the card's buffer.
    In,
    Out,
}

/// One command for the card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub way: Way,
    pub bus: u64,
    /// Offset in the card's buffer.
    pub card: u64,
    pub bytes: u64,
}

pub(crate) struct Transfer {
    from: End,
    to: End,
    bytes: u64,
    done: u64,
    /// Bytes in progress. If `half`, the first half of a transfer from memory to memory is done: the bytes are on the card.
    told: u64,
    half: bool,
    ended: bool,
}

impl Transfer {
    /// Checks that both ends contain every byte, and that the card can address it.
    pub(crate) fn new(from: End, to: End, bytes: u64, mask: u64) -> Result<Transfer, Error> {
        if bytes == 0 {
            return Err(Error::Empty);
        }
        if let (End::Card(_), End::Card(_)) = (&from, &to) {
            return Err(Error::Ways);
        }
        for end in [&from, &to] {
            match end {
                End::Card(at) if at.checked_add(bytes).is_none_or(|end| end > CAPACITY) => {
                    return Err(Error::Card { at: *at, bytes });
                }
                End::Card(_) => {}
                End::Memory(memory, at) => addressable(memory, *at, bytes, mask)?,
            }
        }
        Ok(Transfer { from, to, bytes, done: 0, told: 0, half: false, ended: false })
    }

    pub(crate) fn is_done(&self) -> bool {
        self.ended
    }

    /// Bytes moved so far, and in total.
    pub(crate) fn progress(&self) -> (u64, u64) {
        (self.done, self.bytes)
    }

    /// The transfer ends with the current piece.
    pub(crate) fn cut(&mut self) {
        self.bytes = self.done + self.told;
        self.half = matches!((&self.from, &self.to), (End::Memory(..), End::Memory(..))) && self.told > 0;
    }

    /// The current piece is done: returns the next one, or none if it was the last.
    pub(crate) fn next(&mut self) -> Result<Option<Piece>, Error> {
        let through = matches!((&self.from, &self.to), (End::Memory(..), End::Memory(..)));
        if through && self.told > 0 && !self.half {
            self.half = true;
            return self.piece(Way::Out, self.told).map(Some);
        }
        self.done += self.told;
        (self.told, self.half) = (0, false);
        let left = self.bytes - self.done;
        if left == 0 {
            self.ended = true;
            // The card no longer uses them.
            (self.from, self.to) = (End::Card(0), End::Card(0));
            return Ok(None);
        }
        let mut bytes = left.min(PIECE);
        for end in [&self.from, &self.to] {
            if let End::Memory(memory, at) = end {
                bytes = bytes.min(memory.bus(at + self.done)?.1);
            }
        }
        self.told = bytes;
        let way = if matches!(self.from, End::Memory(..)) { Way::In } else { Way::Out };
        self.piece(way, bytes).map(Some)
    }

    fn piece(&self, way: Way, bytes: u64) -> Result<Piece, Error> {
        let (memory, card) = match way {
            Way::In => (&self.from, &self.to),
            Way::Out => (&self.to, &self.from),
        };
        let card = if let End::Card(at) = card { at + self.done } else { 0 };
        let bus = match memory {
            End::Memory(memory, at) => memory.bus(at + self.done)?.0,
            End::Card(_) => return Err(Error::Ways),
        };
        Ok(Piece { way, bus, card, bytes })
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

    fn pieces(from: End, to: End, bytes: u64) -> Vec<(Way, u64, u64, u64)> {
        let mut transfer = Transfer::new(from, to, bytes, u64::MAX).unwrap();
        let mut all = Vec::new();
        while let Some(Piece { way, bus, card, bytes }) = transfer.next().unwrap() {
            assert!(!transfer.is_done());
            all.push((way, bus, card, bytes));
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
            pieces(End::Memory(from.clone(), 0x10), End::Memory(to.clone(), 0), 0x1010),
            [
                (In, 0x1010, 0, 0x800),
                (Out, 0x2_0000, 0, 0x800),
                (In, 0x1810, 0, 0x7f0),
                (Out, 0x3_0000, 0, 0x7f0),
                (In, 0x8000, 0, 0x20),
                (Out, 0x3_07f0, 0, 0x20),
            ]
        );
        assert_eq!(pieces(End::Card(5), End::Memory(to, 0x7ff), 3), [(Out, 0x2_07ff, 5, 1), (Out, 0x3_0000, 6, 2)]);
        assert_eq!(pieces(End::Memory(from, 0), End::Card(0), 4095), [(In, 0x1000, 0, 4088), (In, 0x1ff8, 4088, 7)]);
    }

    #[test]
    fn a_transfer_that_is_cut_ends_with_the_piece_that_was_told() {
        let (from, to) = (memory(&[(0, 0x8000)]), memory(&[(0x1_0000, 0x8000)]));
        let mut transfer = Transfer::new(End::Memory(from, 0), End::Memory(to, 0), 0x8000, u64::MAX).unwrap();
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
        let at = |n| End::Memory(low.clone(), n);
        assert!(matches!(new(at(0), End::Card(0), 0, u64::MAX), Error::Empty));
        assert!(matches!(new(End::Card(0), End::Card(9), 1, u64::MAX), Error::Ways));
        for (start, bytes) in [(0, 4096), (4095, 1), (u64::MAX, 2)] {
            assert!(matches!(new(at(0), End::Card(start), bytes, u64::MAX), Error::Card { .. }), "{start} {bytes}");
        }
        assert!(matches!(new(at(0x1fff), End::Card(0), 2, u64::MAX), Error::Pcie(pcie::Error::OutOfBounds { .. })));
        assert!(matches!(new(End::Card(0), at(0xfff), 2, crate::edu::MASK), Error::Mask { bus: 0x1000_0000, .. }));
        assert!(Transfer::new(End::Card(0), at(0xfff), 1, crate::edu::MASK).is_ok());
    }
}
