//! A flight recorder: the newest part of what is recorded, in memory, and a file of it when something happens.
//!
//! Packed pieces wait in a queue instead of going to the file. When the queue is full the oldest goes, and what lasts of it is [`Kept`]. A saved file
//! begins at a cut: nothing before it but what lasts, and everything after it.
//!
//! Invariant: queue and kept things together take no more than was asked for. What is left out is counted.

use crate::beside::Beside;
use crate::kept::{Kept, Lasting, Pack, left_out, time_of};
use crate::saving::{Request, Saver, Saves, Snapshot};
use crate::triggers::{Triggers, When, Why};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tape::event::{Body, Event, LeftOutBody, NO_SLOT};
use tape::file::{Clock, Header, Packer, Process, ProcessEnd, Saved, Unwatched};

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// As much as this memory holds.
    Bytes(u64),
    /// What happened in this time, if [`MOST`] bytes hold it.
    Time(Duration),
}

/// Bytes for a span of time, at most.
pub const MOST: u64 = 1 << 30;

/// What a flight recorder is asked for.
#[derive(Clone, Debug)]
pub struct Last {
    pub span: Span,
    pub when: Vec<When>,
    /// The file's name ([`output::Pattern`]); the first that is free is taken.
    pub name: PathBuf,
    /// The first file takes the place of one that is there.
    pub force: bool,
    /// Files, at most, but for the one at the end.
    pub most_files: u32,
}

/// What a piece in the queue costs beside its bytes, about.
const COST: usize = 192;
/// Clocks that are kept: one comes each minute.
const CLOCKS: usize = 64;

/// A piece in the queue.
pub struct Held {
    pub pack: Pack,
    /// When its first event was over, and its last one.
    pub first: u64,
    pub last: u64,
    /// What lasts of it, and how far channels have come in it.
    lasting: Vec<u8>,
    left: Left,
}

/// What a part lacks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub events: u64,
    pub bytes: u64,
    pub doorbells: u64,
    pub processes: u64,
}

impl Left {
    pub fn add(&mut self, other: Left) {
        self.events += other.events;
        self.bytes += other.bytes;
        self.doorbells += other.doorbells;
        self.processes += other.processes;
    }
}

/// The part that is in memory.
pub struct Newest {
    header: Header,
    span: Span,
    bound: usize,
    /// Ticks a second, and the time now.
    hz: f64,
    now: fn() -> u64,
    kept: Kept,
    queue: VecDeque<Arc<Held>>,
    bytes: usize,
    /// Pieces that came.
    came: u64,
    /// Everything that was over before this is gone, but for what lasts.
    cut: u64,
    /// The newest event that came. (What is gathered may be behind the clock.)
    newest: u64,
    left: Left,
    pub processes: BTreeMap<u32, Process>,
    /// Those that have ended, in the order of their ends, and when.
    ended: VecDeque<(u64, ProcessEnd)>,
    notes: Vec<String>,
    unwatched: Vec<Unwatched>,
    clocks: Vec<Clock>,
    triggers: Triggers,
    saver: Saver,
    packer: Packer,
}

impl Newest {
    /// `now`: the time stamp counter.
    pub fn new(header: Header, o: &Last, saver: Saver, now: fn() -> u64) -> Newest {
        let bound = match o.span {
            Span::Bytes(n) => n,
            Span::Time(_) => MOST,
        } as usize;
        let hz = if header.tsc_hz.is_finite() && header.tsc_hz > 1.0 { header.tsc_hz } else { 1e9 };
        Newest {
            kept: Kept::new(&header.driver, bound / 2),
            triggers: Triggers::new(&o.when, hz),
            header,
            span: o.span,
            bound,
            hz,
            now,
            queue: VecDeque::new(),
            bytes: 0,
            came: 0,
            cut: 0,
            newest: 0,
            left: Left::default(),
            processes: BTreeMap::new(),
            ended: VecDeque::new(),
            notes: Vec::new(),
            unwatched: Vec::new(),
            clocks: Vec::new(),
            saver,
            packer: Packer::default(),
        }
    }

    /// Bytes that it may take.
    pub fn bound(&self) -> usize {
        self.bound
    }

    /// Bytes in memory, about.
    pub fn bytes(&self) -> usize {
        self.bytes + self.kept.bytes()
    }

    /// Takes whole events of one thread, and what they are packed.
    pub fn events(&mut self, process: u32, tid: i32, events: &[u8], packed: Option<&[u8]>) {
        let now = (self.now)();
        let mut looked = Looked::default();
        look(&self.kept, tid, events, u64::MAX, &mut looked, |e| {
            if let Some(why) = self.triggers.look(tid, e) {
                self.saver.happened(why);
            }
        });
        let tsc = events.get(8..16).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        let (payload, unpacked) = match packed {
            Some(packed) => (packed.into(), events.len() as u32),
            None => (events.into(), 0),
        };
        // A time that has not come is none: the program wrote over its ring.
        let (first, last) = (looked.first.min(now), looked.last.min(now));
        let pack = Pack { process, tid, tsc, unpacked, payload };
        let held = Held { pack, first, last, lasting: looked.lasting, left: looked.left };
        let is_new = matches!(Event::parse(events), Some((Event { body: Body::Thread(_), .. }, _)));
        if tid > 0 && !is_new && !self.kept.knows(process, tid) {
            // It was silent for long, and what it is called is forgotten. (Or what said it did not fit into the ring.)
            self.kept.forgotten += 1;
        }
        self.newest = self.newest.max(last);
        self.came += 1;
        let oldest = self.came - self.queue.len() as u64;
        self.kept.heard(process, tid, self.came, oldest);
        self.bytes += held.cost();
        self.queue.push_back(Arc::new(held));
        self.make_room(now);
    }

    /// Lets the oldest pieces go.
    fn make_room(&mut self, now: u64) {
        let from = self.from(now);
        while let Some(oldest) = self.queue.front() {
            if self.bytes() <= self.bound && oldest.last >= from {
                break;
            }
            let Some(held) = self.queue.pop_front() else { break };
            self.bytes -= held.cost();
            self.cut = self.cut.max(held.last.saturating_add(1));
            self.left.add(held.left);
            let Pack { process, tid, .. } = held.pack;
            self.kept.absorb(process, tid, &held.lasting, &mut self.packer);
        }
        while self.ended.front().is_some_and(|(at, _)| *at < self.cut) {
            let Some((_, end)) = self.ended.pop_front() else { break };
            self.kept.forget(end.index);
            self.processes.remove(&end.index);
            self.left.processes += 1;
        }
    }

    /// What was over before is not wanted any more.
    fn from(&self, now: u64) -> u64 {
        match self.span {
            Span::Bytes(_) => 0,
            Span::Time(span) => now.saturating_sub((span.as_secs_f64() * self.hz) as u64),
        }
    }

    pub fn beside(&mut self, what: Beside) {
        match what {
            Beside::Note(text) => self.notes.push(text),
            Beside::Clock(c) => {
                if self.clocks.len() >= CLOCKS {
                    // The first stays.
                    self.clocks.remove(1);
                }
                self.clocks.push(c);
            }
            Beside::Process(p) => drop(self.processes.insert(p.index, p)),
            Beside::ProcessEnd(e) => self.ended.push_back((self.newest, e)),
            Beside::Unwatched(u) => self.unwatched.push(u),
        }
    }

    /// Saves what there is, on a thread of its own.
    pub fn save(&mut self, request: Request) {
        let snapshot = self.snapshot(request);
        self.saver.start(snapshot);
    }

    /// The recording ends: saves what there is if `request` says so, and waits for what is being saved.
    pub fn finish(mut self, request: Option<Request>) -> Saves {
        if let Some(request) = request {
            let snapshot = self.snapshot(request);
            self.saver.finish_with(snapshot);
        }
        self.saver.finish()
    }

    fn snapshot(&mut self, request: Request) -> Snapshot {
        let now = (self.now)();
        self.make_room(now);
        let from = self.cut.max(self.from(now));
        let from =
            if self.left == Left::default() && self.queue.front().is_none_or(|h| h.first >= from) { 0 } else { from };
        let begin = if from > 0 { from } else { self.clocks.first().map_or(now, |c| c.tsc) };
        let saved = Saved {
            reason: request.why.reason.clone(),
            what: request.why.what.clone(),
            tsc: request.why.tsc,
            number: self.saver.next_number(),
            from_tsc: from,
            seconds: now.saturating_sub(begin) as f64 / self.hz,
            ..Saved::default()
        };
        Snapshot {
            header: self.header.clone(),
            saved,
            left: self.left,
            from,
            kept: self.kept.clone(),
            queue: self.queue.iter().cloned().collect(),
            processes: self.processes.values().cloned().collect(),
            ended: self.ended.iter().cloned().collect(),
            notes: self.notes.clone(),
            unwatched: self.unwatched.clone(),
            clocks: self.clocks.clone(),
            request,
        }
    }
}

impl Held {
    fn cost(&self) -> usize {
        self.pack.payload.len() + self.lasting.capacity() + COST
    }
}

/// What a look at events finds.
pub struct Looked {
    pub first: u64,
    pub last: u64,
    pub lasting: Vec<u8>,
    pub left: Left,
    /// Events that were over later than asked for.
    pub rest: Vec<u8>,
}

impl Default for Looked {
    fn default() -> Looked {
        Looked { first: u64::MAX, last: 0, lasting: Vec::new(), left: Left::default(), rest: Vec::new() }
    }
}

/// Events without those of one moment that was not before `until`.
pub fn before(kept: &Kept, tid: i32, mut events: &[u8], until: u64) -> Vec<u8> {
    let mut out = Vec::with_capacity(events.len());
    while let Some((e, n)) = Event::parse(events) {
        let (bytes, rest) = events.split_at(n);
        events = rest;
        if time_of(&e) < until || Lasting::of(kept.branch(), tid, &e) != Lasting::Moment {
            out.extend_from_slice(bytes);
        }
    }
    out
}

/// How far a channel has come in these events.
struct Came {
    token: u32,
    tsc: u64,
    body: LeftOutBody,
}

/// Looks at events of one thread that were over before `until`.
pub fn look(kept: &Kept, tid: i32, mut events: &[u8], until: u64, out: &mut Looked, mut each: impl FnMut(&Event<'_>)) {
    let branch = kept.branch();
    let mut channels: Vec<Came> = Vec::new();
    let say = |came: Came, lasting: &mut Vec<u8>| lasting.extend(left_out(came.tsc, &came.body));
    while let Some((e, n)) = Event::parse(events) {
        let (bytes, rest) = events.split_at(n);
        events = rest;
        let time = time_of(&e);
        (out.first, out.last) = (out.first.min(time), out.last.max(time));
        if time >= until {
            out.rest.extend_from_slice(bytes);
            continue;
        }
        each(&e);
        match Lasting::of(branch, tid, &e) {
            Lasting::Moment => {
                out.left.events += 1;
                out.left.bytes += n as u64;
            }
            Lasting::Channel(slot) | Lasting::ChannelEnd(slot) => {
                // What was rung before was of another channel.
                if let Some(i) = channels.iter().position(|c| c.body.slot == slot) {
                    say(channels.swap_remove(i), &mut out.lasting);
                }
                out.lasting.extend_from_slice(bytes);
            }
            _ => out.lasting.extend_from_slice(bytes),
        }
        match &e.body {
            Body::Ring(r) => {
                out.left.doorbells += 1;
                if r.slot == NO_SLOT {
                    continue;
                }
                let another = |c: &Came| c.body.slot == r.slot && (c.token != r.token || r.seq < c.body.rings);
                if let Some(i) = channels.iter().position(another) {
                    say(channels.swap_remove(i), &mut out.lasting);
                }
                let c = of_slot(&mut channels, r.slot, r.token);
                (c.tsc, c.body.rings) = (e.head.tsc, r.seq.saturating_add(1));
            }
            Body::Entry(b, _) if b.slot != NO_SLOT => {
                let c = of_slot(&mut channels, b.slot, 0);
                (c.tsc, c.body.entries) = (e.head.tsc, b.seq.saturating_add(1));
            }
            _ => {}
        }
    }
    channels.into_iter().for_each(|c| say(c, &mut out.lasting));
}

fn of_slot(all: &mut Vec<Came>, slot: u32, token: u32) -> &mut Came {
    let i = all.iter().position(|c| c.body.slot == slot).unwrap_or_else(|| {
        all.push(Came { token, tsc: 0, body: LeftOutBody { slot, ..LeftOutBody::default() } });
        all.len() - 1
    });
    &mut all[i]
}

/// A reason of the recorder's own.
pub fn why(reason: &str, what: String, tsc: u64) -> Why {
    Why { reason: reason.into(), what, tsc }
}

#[cfg(test)]
mod tests;
