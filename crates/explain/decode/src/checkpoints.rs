//! Places in a recording at which a walk can begin. They are made once, after the recording has ended, and stored after its end.
//!
//! A place stores the state of a walk: decoders, channels, names, ranges, and its position in each thread's chunks. It also stores the driver calls since the
//! previous place, from which the objects are made again, and a [`Span`] of the submissions since then. A walk with a filter skips spans that cannot match.
//!
//! Invariant: from a place on, a walk gives the same as a whole walk. Otherwise the place is not used: if a chunk before it is damaged, or if it was stored by
//! another doorbell or for another recording.

use crate::checkpoint;
use crate::gathering::Gathering;
use crate::merge::Position;
use crate::recording::{Recording, Source};
use crate::span::Span;
use crate::walk::Places;
use pushbuf::snapshot::Snapshot;
use std::cell::RefCell;
use std::rc::Rc;
use tape::file::{MAX_CHUNK, Packer, unpack};

/// Maximum number of places, and minimum number of submissions between two.
const MOST: usize = 64;
pub const APART: u64 = 1 << 14;
/// Bytes that all places together may take, packed: this share of the file, or the minimum.
const SHARE: u64 = 16;
const LEAST: usize = 1 << 20;
/// Maximum bytes of all driver calls, and of the state at a place. With more there is no place.
const CALLS: usize = 64 << 20;
const STATE: usize = MAX_CHUNK / 2;

struct Packed {
    bytes: Vec<u8>,
    /// Bytes when unpacked; 0: it is not packed.
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
    given: u64,
    newest: u64,
    /// Since the place before.
    span: Span,
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
    /// The span since the last place, which the walk's sink gathers.
    span: Rc<RefCell<Gathering>>,
    /// Bytes of all calls so far.
    called: usize,
    room: usize,
    packer: Packer,
}

impl Checkpoints {
    /// With at least this many submissions between two places.
    pub fn of(r: &Recording, apart: u64) -> Checkpoints {
        let room = usize::try_from(r.bytes() / SHARE).unwrap_or(usize::MAX).max(LEAST);
        let (all, calls, span, packer) = Default::default();
        Checkpoints { chunks: r.chunks.len(), apart, next: apart, all, calls, span, called: 0, room, packer }
    }

    /// Takes each submission of the walk.
    pub fn gathering(&self) -> Rc<RefCell<Gathering>> {
        self.span.clone()
    }

    /// Removes every second place.
    fn thin_out(&mut self) {
        let (mut calls, mut span) = (Vec::new(), Span::default());
        let mut kept = Vec::new();
        for (i, mut place) in std::mem::take(&mut self.all).into_iter().enumerate() {
            calls.append(&mut place.calls);
            span.append(std::mem::take(&mut place.span));
            if i % 2 == 1 {
                (place.calls, place.span) = (std::mem::take(&mut calls), std::mem::take(&mut span));
                kept.push(place);
            }
        }
        self.span.borrow_mut().append(span);
        if !calls.is_empty() {
            // The last place is removed, too.
            let mut before: Vec<u8> = calls.iter().filter_map(Packed::unpacked).flatten().collect();
            before.append(&mut self.calls);
            self.calls = before;
        }
        self.all = kept;
        self.apart = self.apart.saturating_mul(2);
    }

    /// The time stamp and the bytes of each place's chunk.
    pub fn stored(&self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        self.all.iter().enumerate().map_while(|(number, place)| {
            let calls = place.calls.iter().map(Packed::unpacked).collect::<Option<Vec<_>>>()?.concat();
            let (position, state) = (place.position.unpacked()?, place.state.unpacked()?);
            let out = checkpoint::bytes(self.chunks, number, (place.given, &place.span), &position, &calls, &state);
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
        // (The state may be smaller at the next place.)
        if known.len() > STATE || self.calls.len() > STATE {
            return;
        }
        let mut at = Vec::new();
        position.save(&mut at);
        let position = Packed::new(&mut self.packer, at);
        let calls = std::mem::take(&mut self.calls);
        let calls = if calls.is_empty() { Vec::new() } else { vec![Packed::new(&mut self.packer, calls)] };
        let state = Packed::new(&mut self.packer, known);
        let span = self.span.borrow_mut().take();
        self.all.push(Place { given, newest, span, position, calls, state });
        while self.all.len() > MOST
            || self.all.len() > 1 && self.all.iter().map(Place::bytes).sum::<usize>() > self.room
        {
            self.thin_out();
            self.next = given.saturating_add(self.apart);
        }
    }
}
