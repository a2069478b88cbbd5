//! A flight recorder's memory: the newest events. ([`crate::flight`]: when they are saved, and how.)
//!
//! Packed pieces are put into a queue instead of a file. A full queue drops its oldest piece, and the events that later ones depend on move to
//! [`Kept`]. A saved file has all events from one time on, and only kept events from before.
//!
//! Invariant: the queue and [`Kept`] together take no more memory than was requested. Events that are left out are
//! counted.

use crate::beside::Beside;
use crate::divided::{Divided, Left, divide};
use crate::kept::{Kept, Pack};
use crate::limits;
use crate::saving::{Request, Saver, Saves, Snapshot};
use crate::triggers::{KernelTriggers, When, Why};
use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tape::event::{Body, Event};
use tape::file::{Clock, Header, Packer, Process, ProcessEnd, Saved, Unwatched};

/// How much is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// As much as this memory holds.
    Bytes(u64),
    /// The events of this time, as far as [`MOST`] bytes hold them, or one in eight of the control group's memory.
    Time(Duration),
}

/// Maximum bytes for a span of time.
pub const MOST: u64 = 1 << 30;

/// The options of a flight recorder.
#[derive(Clone, Debug)]
pub struct Last {
    pub span: Span,
    pub when: Vec<When>,
    /// The file's name ([`output::Pattern`]); the first free one is used.
    pub name: PathBuf,
    /// The first file replaces an existing one.
    pub force: bool,
    /// The signal that saves a file, and its name; it stays the program's if that handles it.
    pub signal: Option<(i32, &'static str)>,
    /// Maximum number of files, without the one at the program's end.
    pub most_files: u32,
}

/// Memory of a piece in the queue in addition to its bytes, estimated.
const COST: usize = 192;
/// Maximum number of clock readings; there is one a minute.
const CLOCKS: usize = 64;

/// A piece in the queue.
pub struct Held {
    pub pack: Pack,
    /// When its first event ended, and its last.
    pub first: u64,
    pub last: u64,
    /// Its events that later ones depend on, and the counters of channels at its end.
    lasting: Vec<u8>,
    /// The other events.
    left: Left,
}

/// The events in memory.
pub struct Newest {
    header: Header,
    span: Span,
    bound: usize,
    /// Ticks per second, and a function that reads the time.
    hz: f64,
    now: fn() -> u64,
    kept: Kept,
    queue: VecDeque<Arc<Held>>,
    bytes: usize,
    /// Number of pieces so far.
    came: u64,
    /// Events that ended before this time are dropped or in `kept`.
    cut: u64,
    /// Time of the newest event. (Events arrive some milliseconds late.)
    newest: u64,
    left: Left,
    pub processes: BTreeMap<u32, Process>,
    /// Processes that have ended, in the order of their ends, and when.
    ended: VecDeque<(u64, ProcessEnd)>,
    notes: Vec<String>,
    unwatched: Vec<Unwatched>,
    clocks: Vec<Clock>,
    kernels: Option<KernelTriggers>,
    saver: Saver,
    packer: Packer,
}

impl Newest {
    /// `now` reads the time stamp counter.
    pub fn new(header: Header, saver: Saver, now: fn() -> u64) -> Newest {
        let span = saver.schedule.last.span;
        let bound = match span {
            Span::Bytes(n) => n,
            Span::Time(_) => limits::at_most(MOST as usize, 8) as u64,
        } as usize;
        let hz = if header.tsc_hz.is_finite() && header.tsc_hz > 1.0 { header.tsc_hz } else { 1e9 };
        Newest {
            kept: Kept::new(&header.driver, bound / 2),
            kernels: KernelTriggers::of(&saver.schedule.triggers),
            header,
            span,
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

    /// Maximum bytes.
    pub fn bound(&self) -> usize {
        self.bound
    }

    /// Bytes in memory, estimated.
    pub fn bytes(&self) -> usize {
        self.bytes + self.kept.bytes()
    }

    /// Adds whole events of one thread. `packed`: the same, packed.
    pub fn events(&mut self, process: u32, tid: i32, events: &[u8], packed: Option<&[u8]>) {
        let now = (self.now)();
        let mut divided = Divided::default();
        let schedule = &self.saver.schedule;
        let happened = |why| schedule.happened(why, Instant::now());
        divide(&self.kept, tid, events, u64::MAX, &mut divided, |e| {
            schedule.triggers.look(tid, e).into_iter().for_each(happened);
            if let Some(kernels) = &mut self.kernels {
                kernels.event(&schedule.triggers, (process, tid), e, happened);
            }
        });
        let tsc = events.get(8..16).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        let (payload, unpacked) = match packed {
            Some(packed) => (packed.into(), events.len() as u32),
            None => (events.into(), 0),
        };
        let held = Held::new(Pack { process, tid, tsc, unpacked, payload }, divided, now);
        let is_new = matches!(Event::parse(events), Some((Event { body: Body::Thread(_), .. }, _)));
        if tid > 0 && !is_new && !self.kept.knows(process, tid) {
            // Its name was dropped because the thread was silent for long, or never fit into the ring.
            self.kept.forgotten += 1;
        }
        self.newest = self.newest.max(held.last);
        self.came += 1;
        let oldest = self.came - self.queue.len() as u64;
        self.kept.heard(process, tid, self.came, oldest);
        self.bytes += held.cost();
        self.queue.push_back(Arc::new(held));
        self.make_room(now);
    }

    /// Drops the oldest pieces.
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
            self.kernels.iter_mut().for_each(|kernels| kernels.forget(end.index));
            self.processes.remove(&end.index);
            self.left.processes += 1;
        }
    }

    /// Events that ended before this time are not kept.
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
                    // The first one stays: all times count from it.
                    self.clocks.remove(1);
                }
                self.clocks.push(c);
            }
            Beside::Process(p) => drop(self.processes.insert(p.index, p)),
            Beside::ProcessEnd(e) => self.ended.push_back((self.newest, e)),
            Beside::Unwatched(u) => self.unwatched.push(u),
        }
    }

    /// Saves all events in memory.
    pub fn save(&mut self, request: Request) {
        let snapshot = self.snapshot(request);
        self.saver.start(snapshot);
    }

    /// Ends the recording: saves if there is a `request`, and waits until all files are written.
    pub fn finish(mut self, request: Option<Request>) -> Saves {
        let last = request.map(|request| self.snapshot(request));
        Saves { kernels: self.kernels.map(|kernels| kernels.counts()), ..self.saver.finish(last) }
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
    /// A time after `now` is wrong: the program wrote over its ring.
    pub fn new(pack: Pack, divided: Divided, now: u64) -> Held {
        let (first, last) = (divided.first.min(now), divided.last.min(now));
        Held { pack, first, last, lasting: divided.lasting, left: divided.left }
    }

    fn cost(&self) -> usize {
        self.pack.payload.len() + self.lasting.capacity() + COST
    }
}

/// A reason that is no trigger.
pub fn why(reason: &str, what: String, tsc: u64) -> Why {
    Why { reason: reason.into(), what, tsc }
}

#[cfg(test)]
mod tests;
