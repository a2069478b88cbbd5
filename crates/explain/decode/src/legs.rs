//! Which parts of a recording a walk with a filter has to read, and what it needs to begin each of them.

use crate::checkpoint::Stored;
use crate::filter::Filter;
use crate::merge::Merge;
use crate::recording::{Recording, Source};
use std::collections::{HashMap, VecDeque};

/// Where a walk can begin.
pub struct Start<'r> {
    /// The steps from there on.
    pub merge: Merge<'r>,
    /// The driver's calls until then, each after the number of its image.
    pub calls: Vec<u8>,
    /// What else is known.
    pub state: Vec<u8>,
}

/// The parts of a recording that a sink wants, in order. If a leg cannot be begun, the walk continues from where it is.
#[derive(Default)]
pub struct Legs<'r> {
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
pub fn legs<'r>(r: &'r Recording, from: Option<u64>, filter: Option<&Filter>) -> Legs<'r> {
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

impl<'r> Legs<'r> {
    /// Whether the current leg ends after this many submissions.
    pub fn ends(&self, given: u64) -> bool {
        self.until.is_some_and(|until| given >= until)
    }

    /// Begins the next leg: where. `None`: the walk continues from where it is.
    pub fn start(&mut self) -> Option<Start<'r>> {
        let Leg { place, until } = self.left.pop_front()?;
        self.until = until;
        let start = self.load(place?);
        if start.is_none() {
            (self.left, self.until) = (VecDeque::new(), None);
        }
        start
    }

    fn load(&mut self, place: usize) -> Option<Start<'r>> {
        let r = self.recording?;
        let mut last = None;
        for number in self.places..=place {
            let Stored { position, calls, state, .. } = Stored::read(r, number)?;
            self.calls.extend(calls);
            last = Some((position, state));
        }
        self.places = place + 1;
        let (position, state) = last?;
        Some(Start { merge: Merge::at(r, &position)?, calls: self.calls.clone(), state })
    }
}
