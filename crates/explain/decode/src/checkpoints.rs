//! Places in a recording at which a walk can begin. They are made once, after the recording has ended, and stored after its end.
//!
//! A place stores the state of a walk: decoders, channels, names, ranges, and its position in each thread's chunks. It also stores the driver calls since the
//! previous place, from which the objects are made again, and a [`Span`] of the submissions since then. A walk with a filter skips spans that cannot match.
//!
//! Invariant: from a place on, a walk gives the same as a whole walk. Otherwise the place is not used: if a chunk before it is damaged, or if it was stored by
//! another doorbell or for another recording.

use crate::merge::{Merge, Position};
use crate::recording::{Recording, Source};
use crate::span::{Gathering, Span};
use crate::walk::{Filter, Places, Start};
use pushbuf::snapshot::Snapshot;
use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use tape::file::{MAX_CHUNK, Packer, unpack};

/// Version of the stored data. Raise it when the saved fields of a walk change.
const LAYOUT: u32 = 2;
/// The doorbell that stored it.
const DOORBELL: &str = env!("CARGO_PKG_VERSION");

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
            let mut out = Vec::new();
            (LAYOUT, DOORBELL.to_owned(), self.chunks, number).save(&mut out);
            place.given.save(&mut out);
            place.span.save(&mut out);
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

/// The stored data of one place.
struct Stored {
    given: u64,
    span: Span,
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
        let (given, span) = Snapshot::load(&mut from)?;
        let position = Position::load(&mut from)?;
        let (calls, state): (usize, usize) = Snapshot::load(&mut from)?;
        let (calls, from) = from.split_at_checked(calls)?;
        (from.len() == state).then(|| Stored { given, span, position, calls: calls.to_vec(), state: from.to_vec() })
    }
}

/// The parts of a recording that a sink wants, in order. If a leg cannot be begun, the walk continues from where it is.
#[derive(Default)]
pub(crate) struct Legs<'r> {
    recording: Option<&'r Recording>,
    left: VecDeque<Leg>,
    /// The end of the current leg, as in [`Leg`].
    until: Option<u64>,
    /// The driver calls of the first `places` places.
    calls: Vec<u8>,
    places: usize,
}

struct Leg {
    /// The place where it begins; `None`: the begin of the recording.
    place: Option<usize>,
    /// The number of submissions given when it ends; `None`: the end of the recording.
    until: Option<u64>,
}

/// The legs with the submissions from a time stamp on that may pass the filter.
pub(crate) fn legs<'r>(r: &'r Recording, from: Option<u64>, filter: Option<&Filter>) -> Legs<'r> {
    let filter = filter.filter(|filter| filter.chooses());
    if from.is_none() && filter.is_none() || r.is_selected() || r.damage().is_some() {
        return Legs::default();
    }
    let left = wanted(r, from.unwrap_or(0), filter).unwrap_or_default();
    Legs { recording: Some(r), left, ..Legs::default() }
}

fn wanted(r: &Recording, from: u64, filter: Option<&Filter>) -> Option<VecDeque<Leg>> {
    let places = r.checkpoints().count();
    let first = r.checkpoints().take_while(|newest| *newest < from).count();
    let (mut legs, mut begin, mut given) = (VecDeque::new(), None, 0);
    // (No span is stored for the part after the last place.)
    for number in first..places {
        let Some(filter) = filter else { break };
        let stored = Stored::read(r, number)?;
        if stored.span.may_have(filter) {
            begin.get_or_insert(number);
        } else if let Some(begin) = begin.take() {
            legs.push_back(Leg::new(begin, Some(given)));
        }
        given = stored.given;
    }
    let last = begin.unwrap_or(if filter.is_some() { places } else { first });
    legs.push_back(Leg::new(last, None));
    // (A walk over damage finds other things.)
    let begun: HashMap<Source, usize> = match legs.back().and_then(|leg| leg.place) {
        Some(place) => Stored::read(r, place)?.position.begun().collect(),
        None => return Some(legs),
    };
    r.are_whole(&begun).then_some(legs)
}

impl Leg {
    /// From the begin of span `begin` on.
    fn new(begin: usize, until: Option<u64>) -> Leg {
        Leg { place: begin.checked_sub(1), until }
    }
}

impl Legs<'_> {
    /// Whether the current leg ends after this many submissions.
    pub fn ends(&self, given: u64) -> bool {
        self.until.is_some_and(|until| given >= until)
    }

    /// Begins the next leg: where. `None`: the walk continues from where it is.
    pub fn start(&mut self) -> Option<Start> {
        let Leg { place, until } = self.left.pop_front()?;
        self.until = until;
        let start = self.load(place?);
        if start.is_none() {
            (self.left, self.until) = (VecDeque::new(), None);
        }
        start
    }

    fn load(&mut self, place: usize) -> Option<Start> {
        let r = self.recording?;
        let mut last = None;
        for number in self.places..=place {
            let Stored { position, calls, state, .. } = Stored::read(r, number)?;
            self.calls.extend(calls);
            last = Some((position, state));
        }
        self.places = place + 1;
        let (position, state) = last?;
        Merge::at(r, &position)?;
        Some(Start { position, calls: self.calls.clone(), state })
    }
}
