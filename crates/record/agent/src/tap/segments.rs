//! Copies of segments, with the agent's words among the program's: the GPU reads a copy instead of the program's segment.
//! Their memory is after the slots of [`super::stamps`]; CUDA has mapped both.
//!
//! Invariant: a copy is overwritten only after its ends, and those of many younger ones, have arrived. After the recorder
//! has given up one end, no segment is copied any more.

use super::stamps;
use crate::process::locked;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use pushbuf::gpfifo::Raw;
use pushbuf::header::{Header, Kind};
use tape::region::{Control, SEGMENTS_BYTES};
use tape::stamp::SLOTS;

/// Maximum number of copies in use: more than [`MARGIN`] of copies that store one end each, which are some 200 bytes.
const COPIES: usize = 1 << 14;
/// Number of younger ends that must have arrived before a copy is overwritten.
const MARGIN: u64 = 1 << 12;

#[derive(Clone, Copy)]
struct CopyOf {
    from: usize,
    /// One more than the number of its last end.
    number: u64,
}

struct Area {
    /// Offset of the next copy, and the copies that the GPU may still read.
    at: usize,
    copies: [CopyOf; COPIES],
    first: usize,
    n: usize,
}

/// On a separate cache line: launches read the data that the linker may put next to it.
#[repr(align(128))]
struct Shared {
    busy: AtomicBool,
    /// 256 KiB, mapped when the first kernel is stamped. Null until then.
    area: AtomicPtr<Area>,
}

static SHARED: Shared = Shared { busy: AtomicBool::new(false), area: AtomicPtr::new(core::ptr::null_mut()) };

/// Before the first stamp.
pub fn begin() {
    if !SHARED.area.load(Ordering::Relaxed).is_null() {
        return;
    }
    // All zero is an Area: integers and arrays of them.
    let at = locked::zeroed(size_of::<Area>());
    if let Some(at) = at.filter(|_| SHARED.area.load(Ordering::Relaxed).is_null()) {
        SHARED.area.store(at as *mut Area, Ordering::Release);
    }
}

/// Writes a copy of a segment that stores `ends` ends, and returns the GPFIFO entry for it. `write` gets the number of
/// the first end and writes at most `words` words. `None` if there is no room, or if another thread makes a copy: the GPU
/// then reads the program's own segment. (The tap never waits.)
pub fn copy(gp: Raw, words: usize, ends: u64, c: &Control, write: impl FnOnce(&mut Words, u64)) -> Option<Raw> {
    let taken = c.stamped.load(Ordering::Relaxed);
    let settled = c.settled.load(Ordering::Acquire);
    // ORDERING: the recorder stores `given_up` before `settled`.
    if c.given_up.load(Ordering::Acquire) != 0 || ends > SLOTS / 8 {
        return None;
    }
    if taken.wrapping_sub(settled) + ends >= SLOTS - stamps::SPARE {
        c.slots_full.fetch_add(ends, Ordering::Relaxed);
        return None;
    }
    let memory = stamps::segments()?;
    // ORDERING: Acquire and Release: each thread sees all stores of the one before it.
    if SHARED.busy.swap(true, Ordering::Acquire) {
        return None;
    }
    // SAFETY: null, or the mapping that `begin` made and that is never unmapped. `busy` admits one thread.
    let area = unsafe { SHARED.area.load(Ordering::Acquire).as_mut() };
    let copied = area.and_then(|area| Some((area.room(words, settled)?, area))).and_then(|(from, area)| {
        let number = c.stamped.fetch_add(ends, Ordering::Relaxed);
        area.use_for(from, number + ends);
        let mut to = Words { at: (memory.cpu + from as u64) as *mut u32, n: 0, room: words };
        write(&mut to, number);
        // (A cut copy would lose some of the program's commands.)
        if to.n > words { None } else { gp.moved_to(memory.gpu + from as u64, to.n) }
    });
    SHARED.busy.store(false, Ordering::Release);
    copied
}

impl Area {
    /// The offset of room for `words` words.
    fn room(&mut self, words: usize, settled: u64) -> Option<usize> {
        while self.n > 0 && self.copies[self.first].number + MARGIN <= settled {
            self.first = (self.first + 1) % COPIES;
            self.n -= 1;
        }
        let bytes = (4 * words).next_multiple_of(64);
        if self.n == COPIES {
            return None;
        }
        if self.n == 0 {
            self.at = 0;
        }
        let oldest = if self.n == 0 { SEGMENTS_BYTES } else { self.copies[self.first].from };
        let is_round_the_end = self.n > 0 && self.at <= oldest;
        let from = match self.at + bytes {
            until if is_round_the_end => (until <= oldest).then_some(self.at),
            until if until <= SEGMENTS_BYTES => Some(self.at),
            _ => (bytes <= oldest && self.n > 0).then_some(0),
        }?;
        self.at = from + bytes;
        Some(from)
    }

    fn use_for(&mut self, from: usize, number: u64) {
        let last = (self.first + self.n) % COPIES;
        self.copies[last] = CopyOf { from, number };
        self.n += 1;
    }
}

/// A copy that is being written.
pub struct Words {
    at: *mut u32,
    /// Words so far, including those that did not fit.
    n: usize,
    room: usize,
}

impl Words {
    pub fn put(&mut self, word: u32) {
        if self.n < self.room {
            // SAFETY: `copy` has reserved room for this many words.
            unsafe { self.at.add(self.n).write_volatile(word) };
        }
        self.n += 1;
    }

    pub fn header(&mut self, subch: u8, kind: Kind, address: u16, count: u16) {
        self.put(Header::Methods { kind, subch, address, count }.encode());
    }
}

/// In a forked child: the copies are the parent's.
pub fn renew() {
    SHARED.busy.store(false, Ordering::Relaxed);
    // SAFETY: null, or the mapping that `begin` made. A forked child has one thread.
    if let Some(area) = unsafe { SHARED.area.load(Ordering::Relaxed).as_mut() }.filter(|area| area.n != 0) {
        area.n = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// A copy is overwritten only after its ends, and many younger ones, have arrived.
        #[test]
        fn copies_in_use_stay(steps in prop::collection::vec((1..200_000usize, 0..9000u64), 1..300)) {
            let mut area = Box::new(Area { at: 0, copies: [CopyOf { from: 0, number: 0 }; COPIES], first: 0, n: 0 });
            let (mut live, mut number, mut settled) = (Vec::<(usize, usize, u64)>::new(), 0, 0);
            for (words, ended) in steps {
                settled = (settled + ended).min(number);
                live.retain(|(.., until)| until + MARGIN > settled);
                let Some(from) = area.room(words, settled) else { continue };
                let until = from + 4 * words;
                prop_assert!(until <= SEGMENTS_BYTES);
                prop_assert!(live.iter().all(|(f, u, _)| until <= *f || *u <= from), "{from} {until} {live:?}");
                number += 1000;
                area.use_for(from, number);
                live.push((from, until, number));
            }
        }
    }
}
