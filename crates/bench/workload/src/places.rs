//! Transfers at different places of their buffers each time, with known bytes at every place.
//!
//! Source and destination are filled once. From then on the expected value of every byte of both is known. Each transfer updates
//! the expected destination. So if an earlier one lost a byte or wrote one outside its place, a later comparison there finds it.

use crate::error::Error;
use crate::inspect::{GUARD, HostEnd, Inspect};
use crate::verify::{Difference, Wrong};
use fastrand::Rng;

/// Places are multiples of this, after the route's offsets. So they differ in address but not in alignment.
const GRAIN: usize = 4096;
/// Spans that are changed before a transfer, and the bytes of each.
const SPANS: usize = 3;
const STAMP: usize = 8;

/// Transfers at newly drawn places.
#[derive(Debug)]
pub struct Places {
    bytes: usize,
    /// The source's bytes.
    source: Vec<u8>,
    /// The destination's expected bytes after all earlier transfers, including guards.
    destination: Vec<u8>,
    /// Places of the next transfer, or of the last.
    from: usize,
    to: usize,
    /// The last transfer's bytes are not yet in `destination`.
    open: bool,
    found: Vec<u8>,
    random: Rng,
}

const G: usize = GUARD as usize;

impl Places {
    /// Fills both memories with random bytes: `capacity` bytes each, and the guards.
    ///
    /// # Errors
    /// [`Error::Capacity`] for more bytes than there are, or CUDA's error.
    pub fn new(ends: &dyn Inspect, capacity: u64, bytes: u64, seed: u64) -> Result<Places, Error> {
        if bytes > capacity {
            return Err(Error::Capacity { bytes, capacity });
        }
        let room = capacity as usize;
        let (mut source, mut destination) = (vec![0; room + 2 * G], vec![0; room + 2 * G]);
        Rng::with_seed(seed).fill(&mut source);
        Rng::with_seed(!seed).fill(&mut destination);
        ends.write_source(-(GUARD as i64), &source)?;
        ends.write_destination(-(GUARD as i64), &destination)?;
        source.drain(..G);
        source.truncate(room);
        let bytes = bytes as usize;
        let found = vec![0; bytes + 2 * G];
        Ok(Places {
            bytes,
            source,
            destination,
            from: 0,
            to: 0,
            open: false,
            found,
            random: Rng::with_seed(seed.rotate_left(16)),
        })
    }

    /// Size of a buffer for transfers of `bytes` at different places: eight times as many, at least 16 MiB, at most 1 GiB unless
    /// two transfers do not fit.
    pub fn room(bytes: u64) -> u64 {
        bytes.saturating_mul(8).clamp(16 << 20, 1 << 30).max(bytes.saturating_mul(2))
    }

    fn place(&mut self) -> usize {
        let last = (self.source.len() - self.bytes) / GRAIN;
        self.random.usize(..=last) * GRAIN
    }

    /// Call before a transfer: draws its place in source and destination. Bytes at the start, in the middle and at the end (all
    /// of up to 24) then differ between the two. For that the CPU changes the end that it writes by itself. It changes the source
    /// only with `fresh`, because that changes the moved bytes.
    ///
    /// # Errors
    /// The memory's error.
    pub fn renew(&mut self, ends: &dyn Inspect, fresh: bool) -> Result<(u64, u64), Error> {
        self.settle();
        (self.from, self.to) = (self.place(), self.place());
        if fresh || ends.host_end() == HostEnd::Destination {
            self.stamp(ends)?;
        }
        Ok((self.from as u64, self.to as u64))
    }

    fn stamp(&mut self, ends: &dyn Inspect) -> Result<(), Error> {
        let inner = (self.bytes.saturating_sub(SPANS * STAMP)).max(1);
        let middle = STAMP + self.random.usize(..inner);
        let last = self.bytes.saturating_sub(STAMP);
        let starts = if self.bytes <= SPANS * STAMP { [0, STAMP, 2 * STAMP] } else { [0, middle, last] };
        let bytes = self.bytes;
        for at in starts.into_iter().filter(|at| *at < bytes) {
            let length = STAMP.min(bytes - at);
            let mut new = (self.random.u64(..) | 0x0101_0101_0101_0101).to_le_bytes();
            let new = &mut new[..length];
            let (source, destination) = (self.from + at, G + self.to + at);
            match ends.host_end() {
                HostEnd::Source => {
                    // Every byte differs from the destination's.
                    new.iter_mut().zip(&self.destination[destination..]).for_each(|(new, held)| *new ^= held);
                    ends.write_source(source as i64, new)?;
                    self.source[source..source + length].copy_from_slice(new);
                }
                HostEnd::Destination => {
                    new.iter_mut().zip(&self.source[source..]).for_each(|(new, sent)| *new ^= sent);
                    ends.write_destination((self.to + at) as i64, new)?;
                    self.destination[destination..destination + length].copy_from_slice(new);
                }
            }
        }
        Ok(())
    }

    /// Call when the transfer is made: its bytes are then expected in the destination.
    #[inline]
    pub fn made(&mut self) {
        self.open = true;
    }

    fn settle(&mut self) {
        if std::mem::take(&mut self.open) {
            let sent = &self.source[self.from..self.from + self.bytes];
            self.destination[G + self.to..G + self.to + self.bytes].copy_from_slice(sent);
        }
    }

    /// Call after a transfer: compares every byte of it, and the bytes before and after it.
    ///
    /// # Errors
    /// The memory's error. A difference is not an error; it is returned.
    pub fn check(&mut self, ends: &dyn Inspect) -> Result<Option<Wrong>, Error> {
        let before = &self.destination[G + self.to..G + self.to + self.bytes];
        let before: Option<Vec<u8>> = self.open.then(|| before.to_vec());
        self.settle();
        ends.read_destination(self.to as i64 - GUARD as i64, &mut self.found)?;
        let expected = &self.destination[self.to..self.to + self.bytes + 2 * G];
        let inside = G..G + self.bytes;
        let difference = Difference::between(&expected[inside.clone()], &self.found[inside], before.as_deref());
        if let Some(difference) = difference {
            return Ok(Some(Wrong::Data(difference)));
        }
        let behind = G + self.bytes..;
        if let Some(d) = Difference::between(&expected[behind.clone()], &self.found[behind], None) {
            return Ok(Some(Wrong::PastTheEnd { touched: d.differing, first: d.first }));
        }
        let (expected, found) = (&expected[..G], &self.found[..G]);
        let differ = || expected.iter().zip(found).map(|(a, b)| a != b);
        Ok(differ().rposition(|differs| differs).map(|last| {
            let touched = differ().filter(|differs| *differs).count() as u64;
            Wrong::BeforeTheStart { touched, last: GUARD - last as u64 }
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    struct Memory {
        host: HostEnd,
        source: RefCell<Vec<u8>>,
        destination: RefCell<Vec<u8>>,
    }

    impl Memory {
        fn new(host: HostEnd, room: usize) -> Memory {
            let empty = || RefCell::new(vec![0xee; room + 2 * G]);
            Memory { host, source: empty(), destination: empty() }
        }

        /// Moves some of the bytes. Can also start one byte early or end one byte late.
        fn transfer(&self, (from, to): (u64, u64), bytes: usize, before: usize) {
            let (from, to) = (G + from as usize, G + to as usize);
            let (source, mut destination) = (self.source.borrow(), self.destination.borrow_mut());
            destination[to - before..to + bytes].copy_from_slice(&source[from - before..from + bytes]);
        }
    }

    fn part(at: i64, bytes: usize) -> std::ops::Range<usize> {
        let start = usize::try_from(at + G as i64).unwrap();
        start..start + bytes
    }

    impl Inspect for Memory {
        fn host_end(&self) -> HostEnd {
            self.host
        }
        fn write_source(&self, at: i64, data: &[u8]) -> Result<(), Error> {
            self.source.borrow_mut()[part(at, data.len())].copy_from_slice(data);
            Ok(())
        }
        fn write_destination(&self, at: i64, data: &[u8]) -> Result<(), Error> {
            self.destination.borrow_mut()[part(at, data.len())].copy_from_slice(data);
            Ok(())
        }
        fn read_destination(&self, at: i64, into: &mut [u8]) -> Result<(), Error> {
            into.copy_from_slice(&self.destination.borrow()[part(at, into.len())]);
            Ok(())
        }
    }

    const ROOM: usize = 40_000;

    fn each(mut work: impl FnMut(HostEnd, usize, Memory, Places)) {
        for host in [HostEnd::Source, HostEnd::Destination] {
            for bytes in [1, 8, 17, 24, 25, 4096, 5000, ROOM] {
                let memory = Memory::new(host, ROOM);
                let places = Places::new(&memory, ROOM as u64, bytes as u64, 77).unwrap();
                work(host, bytes, memory, places);
            }
        }
    }

    #[test]
    fn right_transfers_are_right_wherever_they_go() {
        each(|host, bytes, memory, mut places| {
            let mut seen = std::collections::BTreeSet::new();
            for n in 0..300 {
                let at = places.renew(&memory, n % 2 == 0).unwrap();
                assert!(at.0 % GRAIN as u64 == 0 && at.1 % GRAIN as u64 == 0, "{at:?}");
                seen.insert(at);
                memory.transfer(at, bytes, 0);
                places.made();
                if n % 3 != 0 {
                    assert_eq!(places.check(&memory).unwrap(), None, "{host:?}, {bytes} bytes, the {n}th");
                }
            }
            assert!(seen.len() > 50 || bytes == ROOM, "{} places", seen.len());
        });
    }

    #[test]
    fn what_goes_wrong_is_found() {
        each(|host, bytes, memory, mut places| {
            for n in 0..100 {
                let at = places.renew(&memory, true).unwrap();
                let (moved, before) = [(0, 0), (bytes - 1, 0), (bytes + 1, 0), (bytes, 1)][n % 4];
                let text = format!("{host:?}, {bytes} bytes, {moved} moved, {before} before");
                memory.transfer(at, moved, before);
                places.made();
                let wrong = places.check(&memory).unwrap();
                // A random byte equals the old one in 1 of 256 cases.
                let beside = moved > bytes || before > 0;
                match &wrong {
                    Some(Wrong::Data(d)) if !beside => assert_eq!(d.nothing_moved, moved == 0, "{text}"),
                    Some(Wrong::PastTheEnd { first: 0, touched: 1 }) if moved > bytes => {}
                    Some(Wrong::BeforeTheStart { last: 1, touched: 1 }) if before > 0 => {}
                    None if beside => {}
                    other => panic!("{text}: {other:?}"),
                }
                // Restores the bytes, or the next comparison at this place would find the same error again.
                let held = &places.destination;
                *memory.destination.borrow_mut() = held.clone();
            }
        });
    }

    #[test]
    fn a_transfer_that_was_not_compared_is_found_by_one_beside_it() {
        let memory = Memory::new(HostEnd::Source, ROOM);
        let mut places = Places::new(&memory, ROOM as u64, 4096, 5).unwrap();
        let lost = places.renew(&memory, true).unwrap();
        places.made();
        let mut found = false;
        for _ in 0..200 {
            let at = places.renew(&memory, true).unwrap();
            memory.transfer(at, 4096, 0);
            places.made();
            found |= places.check(&memory).unwrap().is_some();
            if at.1 == lost.1 {
                break;
            }
        }
        assert!(found, "its neighbours' guards lie in it");
    }

    #[test]
    fn buffers_have_room_for_several_places() {
        assert_eq!(Places::room(8), 16 << 20);
        assert_eq!(Places::room(64 << 20), 512 << 20);
        assert_eq!(Places::room(1 << 30), 2 << 30);
        assert!(Places::new(&Memory::new(HostEnd::Source, 8), 8, 9, 1).is_err());
    }
}
