//! Memory bandwidth, as in STREAM's triad: `a[i] = b[i] + factor * c[i]` over arrays that no cache holds.
//!
//! McCalpin, "STREAM: Sustainable Memory Bandwidth in High Performance Computers": each array has at least four times the size of the last-level
//! cache.

use crate::Difference;
use crate::entry::{Entry, PLAIN, Result as Open};
use crate::{Checks, Did, Error, Opened, Subject, Wanted, Wrong};

pub(crate) const TRIAD: Entry = Entry {
    name: "triad",
    form: "triad",
    about: "a piece of STREAM's triad over three arrays of this many bytes; bytes are counted as in STREAM (24 per element)",
    bytes: 64 << 20,
    open: |_, _, wanted| open(wanted),
    ..PLAIN
};

/// Elements of one piece: a fraction of a millisecond, so that the load ends and rests at once.
const PIECE: usize = 32 << 10;

fn open<'m>(wanted: &Wanted) -> Open<'m> {
    let bytes = wanted.bytes;
    let too_much = || Error::Memory { bytes: bytes.saturating_mul(3) };
    let elements = usize::try_from(bytes.div_ceil(8)).map_err(|_| too_much())?;
    Ok(Box::new(Triad { elements }))
}

struct Triad {
    elements: usize,
}

impl Opened for Triad {
    fn about(&self) -> String {
        format!("STREAM's triad over three arrays of {} bytes", self.elements * 8)
    }

    /// The thread that uses the arrays touches them first, so their pages are near it.
    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        let of = |value: f64| -> Result<Vec<f64>, Error> {
            let mut all = Vec::new();
            let bytes = self.elements as u64 * 8;
            all.try_reserve_exact(self.elements).map_err(|_| Error::Memory { bytes })?;
            all.resize(self.elements, value);
            Ok(all)
        };
        let (b, c) = ((seed % 1000) as f64, 2.0);
        Ok(Box::new(Turn { a: of(0.0)?, b: of(b)?, c: of(c)?, next: 0, last: 0..0, factor: 3.0 }))
    }
}

struct Turn {
    a: Vec<f64>,
    b: Vec<f64>,
    c: Vec<f64>,
    /// Where the next piece begins.
    next: usize,
    last: std::ops::Range<usize>,
    /// A different one for each pass over the arrays.
    factor: f64,
}

impl Subject for Turn {
    fn fire(&mut self) -> Result<(), Error> {
        if self.next >= self.a.len() {
            self.next = 0;
            self.factor += 1.0;
        }
        let piece = self.next..self.a.len().min(self.next + PIECE);
        let (b, c, factor) = (&self.b[piece.clone()], &self.c[piece.clone()], self.factor);
        for ((a, b), c) in self.a[piece.clone()].iter_mut().zip(b).zip(c) {
            *a = b + factor * c;
        }
        self.next = piece.end;
        self.last = piece;
        Ok(())
    }

    fn did(&mut self) -> Did {
        Did { bytes: 24 * self.last.len() as u64, ..Did::ONCE }
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        let Some(first) = self.last.clone().next() else { return Ok(None) };
        // All elements of b are the same, and all of c.
        let right = (self.b[first] + self.factor * self.c[first]).to_le_bytes();
        let found = self.a[self.last.clone()].iter().map(|a| a.to_le_bytes());
        Ok(found.filter_map(|found| Difference::between(&right, &found, None)).map(Wrong::Data).next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn pieces_go_over_all_of_it_and_are_right() {
        let mut triad = Triad { elements: PIECE + 100 };
        assert_eq!(triad.verify(7, Duration::ZERO).unwrap(), None);
        let mut turn = Turn {
            a: vec![0.0; PIECE + 100],
            b: vec![1.0; PIECE + 100],
            c: vec![2.0; PIECE + 100],
            next: 0,
            last: 0..0,
            factor: 3.0,
        };
        let mut pieces = Vec::new();
        for _ in 0..3 {
            turn.fire().unwrap();
            assert_eq!(turn.check().unwrap(), None);
            pieces.push((turn.did().bytes / 24, turn.a[0]));
        }
        // The second pass has another factor.
        assert_eq!(pieces, [(PIECE as u64, 7.0), (100, 7.0), (PIECE as u64, 9.0)]);
        turn.a[5] = 8.0;
        assert!(turn.check().unwrap().is_some());
    }
}
