//! Checks that a route moved the right bytes, and no others.

use crate::error::Error;
use crate::executor::Route;
use crate::inspect::{GUARD, HostEnd, Inspect};
use fastrand::Rng;
use std::fmt;
use std::time::Duration;

/// How the destination differs from the sent bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub bytes: u64,
    /// How many bytes differ.
    pub differing: u64,
    /// Offset of the first one.
    pub first: u64,
    pub expected: u8,
    pub found: u8,
    /// The destination has the same bytes as before the transfer.
    pub nothing_moved: bool,
}

impl Difference {
    /// Where `found` differs from `sent`; `before` is the earlier contents.
    pub fn between(sent: &[u8], found: &[u8], before: Option<&[u8]>) -> Option<Difference> {
        // The bytes are nearly always right, and there are many. So memory is compared as a whole before single bytes are
        // counted.
        if sent == found {
            return None;
        }
        let differing = sent.iter().zip(found).filter(|(a, b)| a != b).count() as u64;
        let first = sent.iter().zip(found).position(|(a, b)| a != b)?;
        Some(Difference {
            bytes: sent.len() as u64,
            differing,
            first: first as u64,
            expected: sent[first],
            found: found[first],
            nothing_moved: before.is_some_and(|b| b == found),
        })
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Difference { bytes, differing, first, expected, found, .. } = self;
        if self.nothing_moved {
            write!(f, "nothing was moved: the destination is what it was before; ")?;
        }
        let verb = if *differing == 1 { "differs" } else { "differ" };
        write!(
            f,
            "{differing} of {bytes} bytes {verb}, the first at offset {first}: {found:#04x} instead of {expected:#04x}"
        )
    }
}

/// The error in the memory after a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// Bytes that the transfer should have moved.
    Data(Difference),
    /// Bytes that it should not have changed; `first` counts from the end of the transfer.
    PastTheEnd { touched: u64, first: u64 },
    /// The same before its start, from which `last` counts.
    BeforeTheStart { touched: u64, last: u64 },
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Wrong::Data(difference) => difference.fmt(f),
            Wrong::PastTheEnd { touched, first } => write!(
                f,
                "{touched} bytes past the end of the transfer were written, the first at {first} bytes behind it"
            ),
            Wrong::BeforeTheStart { touched, last } => write!(
                f,
                "{touched} bytes before the start of the transfer were written, the last at {last} bytes before it"
            ),
        }
    }
}

/// Transfers with different bytes each time, so that a transfer that does not write the destination is detected.
#[derive(Debug)]
pub struct Checked {
    /// The source's bytes.
    sent: Vec<u8>,
    found: Vec<u8>,
    /// The bytes before and after the destination.
    guards: [[u8; GUARD as usize]; 2],
    /// Where transfers begin in source and destination.
    at: [i64; 2],
    footprint: i64,
    state: u64,
}

/// Bytes that are changed at the start, in the middle and at the end between two transfers.
const STAMP: usize = 8;

impl Checked {
    /// Fills the source with random bytes, all different from those at the same places of the destination. Writes the guards at
    /// both ends of the destination, and other bytes around the source.
    ///
    /// # Errors
    /// [`Error::Capacity`] for more bytes than there are, or CUDA's error.
    pub fn new(ends: &dyn Inspect, bytes: u64, seed: u64) -> Result<Checked, Error> {
        Checked::at(ends, [0; 2], bytes, seed)
    }

    /// As [`Checked::new`], for transfers that begin at these offsets of source and destination.
    pub(crate) fn at(ends: &dyn Inspect, at: [u64; 2], bytes: u64, seed: u64) -> Result<Checked, Error> {
        let (mut sent, mut guards) = (vec![0; bytes as usize], [[0; GUARD as usize]; 2]);
        Rng::with_seed(seed).fill(&mut sent);
        Rng::with_seed(!seed).fill(&mut guards[0]);
        Rng::with_seed(seed.rotate_left(32) ^ 0x5a).fill(&mut guards[1]);
        let footprint = ends.footprint(bytes) as i64;
        let at = at.map(|at| at as i64);
        let mut checked = Checked { found: sent.clone(), sent, guards, at, footprint, state: seed | 1 };
        ends.write_source(at[0], &checked.sent)?;
        checked.clear(ends)?;
        for (to, from, guard) in [(-(GUARD as i64), -(GUARD as i64), guards[0]), (footprint, bytes as i64, guards[1])] {
            ends.write_destination(at[1] + to, &guard)?;
            ends.write_source(at[0] + from, &guard.map(|byte| !byte))?;
        }
        Ok(checked)
    }

    /// Makes every byte of the destination wrong. Only a transfer corrects that.
    ///
    /// # Errors
    /// The memory's error.
    pub fn clear(&mut self, ends: &dyn Inspect) -> Result<(), Error> {
        self.found.iter_mut().zip(&self.sent).for_each(|(to, sent)| *to = !sent);
        ends.write_destination(self.at[1], &self.found)
    }

    /// Call before a transfer: changes bytes at the start, in the middle and at the end (all of up to 24), in the memory that the
    /// CPU writes by itself. New bytes at the source must arrive; wrong ones at the destination must be overwritten.
    ///
    /// # Errors
    /// The memory's error.
    pub fn renew(&mut self, ends: &dyn Inspect) -> Result<(), Error> {
        let length = self.sent.len();
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        // The spans do not overlap, because a byte that is changed twice may get its old value.
        let inner = (length.saturating_sub(3 * STAMP) as u64).max(1);
        let middle = STAMP + ((self.state >> 16) % inner) as usize;
        let starts = if length <= 3 * STAMP { [0, STAMP, 2 * STAMP] } else { [0, middle, length - STAMP] };
        for (n, at) in starts.into_iter().enumerate().filter(|(_, at)| *at < length) {
            let span = at..(at + STAMP).min(length);
            // Every byte changes.
            let mut new = (self.state.rotate_left(17 * n as u32) | 0x0101_0101_0101_0101).to_le_bytes();
            new.iter_mut().zip(&self.sent[span.clone()]).for_each(|(new, sent)| *new ^= sent);
            let new = &new[..span.len()];
            match ends.host_end() {
                HostEnd::Source => {
                    ends.write_source(self.at[0] + at as i64, new)?;
                    self.sent[span].copy_from_slice(new);
                }
                HostEnd::Destination => ends.write_destination(self.at[1] + at as i64, new)?,
            }
        }
        Ok(())
    }

    /// Call after a transfer: compares every byte of it, and the guards at both ends.
    ///
    /// # Errors
    /// The memory's error. A difference is not an error; it is returned.
    pub fn check(&mut self, ends: &dyn Inspect) -> Result<Option<Wrong>, Error> {
        self.compare(ends, None)
    }

    fn compare(&mut self, ends: &dyn Inspect, before: Option<&[u8]>) -> Result<Option<Wrong>, Error> {
        ends.read_destination(self.at[1], &mut self.found)?;
        if let Some(d) = Difference::between(&self.sent, &self.found, before) {
            return Ok(Some(Wrong::Data(d)));
        }
        let mut found = [0; GUARD as usize];
        ends.read_destination(self.at[1] + self.footprint, &mut found)?;
        if let Some(d) = Difference::between(&self.guards[1], &found, None) {
            return Ok(Some(Wrong::PastTheEnd { touched: d.differing, first: d.first }));
        }
        ends.read_destination(self.at[1] - GUARD as i64, &mut found)?;
        let last = self.guards[0].iter().zip(&found).rposition(|(guard, found)| guard != found);
        Ok(last.map(|last| {
            let touched = self.guards[0].iter().zip(&found).filter(|(guard, found)| guard != found).count() as u64;
            Wrong::BeforeTheStart { touched, last: GUARD - last as u64 }
        }))
    }
}

/// Two transfers: random bytes, then their complement. A byte that the route does not write cannot be right both times. The 64
/// bytes before and the 64 after the destination must stay unchanged.
///
/// # Errors
/// The route's error. A difference is not an error: the difference of the first wrong transfer is returned.
pub fn verify(route: &mut Route<'_>, bytes: u64, seed: u64, timeout: Duration) -> Result<Option<Wrong>, Error> {
    if bytes > route.capacity() {
        return Err(Error::Capacity { bytes, capacity: route.capacity() });
    }
    let mut checked = Checked::new(&route.ends(), bytes, seed)?;
    for _ in 0..2 {
        one_transfer(route, bytes, timeout)?;
        let before: Vec<u8> = checked.sent.iter().map(|byte| !byte).collect();
        let wrong = checked.compare(&route.ends(), Some(&before))?;
        if wrong.is_some() {
            return Ok(wrong);
        }
        // The next transfer sends the complement of the bytes that have just arrived.
        checked.sent = before;
        route.ends().write_source(0, &checked.sent)?;
    }
    Ok(None)
}

fn one_transfer(route: &mut Route<'_>, bytes: u64, timeout: Duration) -> Result<(), Error> {
    let mut transfer = route.prepare(bytes)?;
    transfer.submit()?;
    transfer.wait(timeout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_says_where_how_many_and_whether_nothing_moved() {
        let d = Difference::between(&[1, 2, 3, 4], &[1, 9, 3, 8], None).unwrap();
        assert_eq!((d.first, d.differing, d.expected, d.found), (1, 2, 2, 9));
        assert_eq!(d.to_string(), "2 of 4 bytes differ, the first at offset 1: 0x09 instead of 0x02");
        let d = Difference::between(&[1, 2], &[0, 2], Some(&[0, 2])).unwrap();
        assert!(d.to_string().starts_with("nothing was moved") && d.to_string().contains("1 of 2 bytes differs"));
        assert_eq!(Difference::between(&[5; 9], &[5; 9], None), None);
    }
}
