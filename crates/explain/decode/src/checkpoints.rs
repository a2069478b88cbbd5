//! Places in a recording from which it can be read without all that comes before: made once, when it has ended, and stored in the file behind its end.
//!
//! A place has what a walk knows there: decoders, channels, names, ranges, and where it is in each thread's chunks. The driver's calls stand in the places
//! as they came, each since the one before: objects are made from them anew.
//!
//! Invariant: a walk from a place gives what a whole walk gives from there on, or there is no walk from it: the chunks before it must be whole, and one of
//! another doorbell or recording is not taken.

use crate::merge::{Merge, Position};
use crate::recording::{Recording, Source};
use crate::walk::{Places, Start};
use pushbuf::snapshot::Snapshot;
use std::collections::HashMap;
use tape::file::{MAX_CHUNK, Packer, unpack};

/// Of what is stored. To be raised where a walk or anything in it has other fields.
const LAYOUT: u32 = 1;
/// The doorbell that stored it.
const DOORBELL: &str = env!("CARGO_PKG_VERSION");

/// Places at most, and submissions between them at the least: a walk goes on for half of that on average.
const MOST: usize = 64;
pub const APART: u64 = 1 << 14;
/// What all places may take, packed: of the file, and in any case.
const SHARE: u64 = 16;
const LEAST: usize = 1 << 20;
/// Bytes of the driver's calls, and of what is known at a place. A program with more is walked through.
const CALLS: usize = 64 << 20;
const STATE: usize = MAX_CHUNK / 2;

struct Packed {
    bytes: Vec<u8>,
    /// When unpacked; 0: it is not packed.
    unpacked: usize,
}

impl Packed {
    fn new(packer: &mut Packer, bytes: Vec<u8>) -> Packed {
        match packer.pack(&bytes) {
            Some(packed) => Packed { bytes: packed.to_vec(), unpacked: bytes.len() },
            None => Packed { bytes, unpacked: 0 },
        }
    }

    fn unpacked(&self) -> Option<Vec<u8>> {
        let mut into = Vec::new();
        match self.unpacked {
            0 => Some(self.bytes.clone()),
            n => unpack(&self.bytes, n, &mut into).ok().map(|()| into),
        }
    }
}

struct Place {
    newest: u64,
    position: Packed,
    /// Since the place before.
    calls: Vec<Packed>,
    state: Packed,
}

impl Place {
    fn bytes(&self) -> usize {
        let calls: usize = self.calls.iter().map(|c| c.bytes.len()).sum();
        self.position.bytes.len() + calls + self.state.bytes.len()
    }
}

/// Gathers places while a recording is walked through.
pub struct Checkpoints {
    /// Event chunks of the recording.
    chunks: usize,
    apart: u64,
    next: u64,
    all: Vec<Place>,
    calls: Vec<u8>,
    /// Bytes of all calls so far.
    called: usize,
    room: usize,
    packer: Packer,
}

impl Checkpoints {
    /// So many submissions between them, or more.
    pub fn of(r: &Recording, apart: u64) -> Checkpoints {
        let room = usize::try_from(r.bytes() / SHARE).unwrap_or(usize::MAX).max(LEAST);
        let (all, calls, packer) = Default::default();
        Checkpoints { chunks: r.chunks.len(), apart, next: apart, all, calls, called: 0, room, packer }
    }

    /// Keeps every second.
    fn thin_out(&mut self) {
        let mut calls = Vec::new();
        let mut kept = Vec::new();
        for (i, mut place) in std::mem::take(&mut self.all).into_iter().enumerate() {
            calls.append(&mut place.calls);
            if i % 2 == 1 {
                place.calls = std::mem::take(&mut calls);
                kept.push(place);
            }
        }
        if !calls.is_empty() {
            // Those of the last one, which goes.
            let mut before: Vec<u8> = calls.iter().filter_map(Packed::unpacked).flatten().collect();
            before.append(&mut self.calls);
            self.calls = before;
        }
        self.all = kept;
        self.apart = self.apart.saturating_mul(2);
    }

    /// Each with the time that its chunk has, and the bytes of that.
    pub fn stored(&self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        self.all.iter().enumerate().map_while(|(number, place)| {
            let mut out = Vec::new();
            (LAYOUT, DOORBELL.to_owned(), self.chunks, number).save(&mut out);
            out.extend(place.position.unpacked()?);
            let calls = place.calls.iter().map(Packed::unpacked).collect::<Option<Vec<_>>>()?.concat();
            let state = place.state.unpacked()?;
            (calls.len(), state.len()).save(&mut out);
            out.extend(calls);
            out.extend(state);
            (out.len() <= MAX_CHUNK).then_some((place.newest, out))
        })
    }
}

impl Places for Checkpoints {
    /// (A submission takes some hundred bytes.)
    fn apart(&self) -> Option<usize> {
        Some(usize::try_from(self.apart).unwrap_or(usize::MAX).saturating_mul(64).max(1 << 10))
    }

    fn call(&mut self, source: Source, bytes: &[u8]) {
        self.called += bytes.len();
        if self.called > CALLS {
            (self.calls, self.next) = (Vec::new(), u64::MAX);
            return;
        }
        source.process.save(&mut self.calls);
        self.calls.extend_from_slice(bytes);
    }

    fn is_due(&self, given: u64) -> bool {
        given >= self.next
    }

    fn place(&mut self, given: u64, newest: u64, position: &Position, state: &mut dyn FnMut(&mut Vec<u8>) -> bool) {
        let mut known = Vec::new();
        if !state(&mut known) {
            return;
        }
        self.next = given.saturating_add(self.apart);
        // (What has no room at one place may have some at another.)
        if known.len() > STATE || self.calls.len() > STATE {
            return;
        }
        let mut at = Vec::new();
        position.save(&mut at);
        let position = Packed::new(&mut self.packer, at);
        let calls = std::mem::take(&mut self.calls);
        let calls = if calls.is_empty() { Vec::new() } else { vec![Packed::new(&mut self.packer, calls)] };
        let state = Packed::new(&mut self.packer, known);
        self.all.push(Place { newest, position, calls, state });
        while self.all.len() > MOST
            || self.all.len() > 1 && self.all.iter().map(Place::bytes).sum::<usize>() > self.room
        {
            self.thin_out();
            self.next = given.saturating_add(self.apart);
        }
    }
}

/// What is stored at one place.
struct Stored {
    position: Position,
    calls: Vec<u8>,
    state: Vec<u8>,
}

impl Stored {
    fn read(r: &Recording, number: usize) -> Option<Stored> {
        let mut bytes = Vec::new();
        r.load_checkpoint(number, &mut bytes)?;
        let mut from = &bytes[..];
        let (layout, doorbell, chunks, of): (u32, String, usize, usize) = Snapshot::load(&mut from)?;
        if (layout, doorbell.as_str(), chunks, of) != (LAYOUT, DOORBELL, r.chunks.len(), number) {
            return None;
        }
        let position = Position::load(&mut from)?;
        let (calls, state): (usize, usize) = Snapshot::load(&mut from)?;
        let (calls, from) = from.split_at_checked(calls)?;
        (from.len() == state).then(|| Stored { position, calls: calls.to_vec(), state: from.to_vec() })
    }
}

/// The last place before all submissions from a time stamp on; `None`: there is none that can be taken.
pub(crate) fn before(r: &Recording, from: u64) -> Option<Start> {
    if r.is_selected() || r.damage().is_some() {
        return None;
    }
    let number = r.checkpoints().take_while(|newest| *newest < from).count().checked_sub(1)?;
    let mut calls = Vec::new();
    let mut last = None;
    for number in 0..=number {
        let Stored { position, calls: since, state } = Stored::read(r, number)?;
        calls.extend(since);
        last = Some((position, state));
    }
    let (position, state) = last?;
    // (A walk over damage finds other things.)
    let begun: HashMap<Source, usize> = position.begun().collect();
    (r.are_whole(&begun) && Merge::at(r, &position).is_some()).then_some(Start { position, calls, state })
}
