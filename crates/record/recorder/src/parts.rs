//! A recording in parts. Each is a file of a bounded size. When the maximum number is reached, the oldest is removed.
//!
//! Each part can be read alone: like a file of a flight recorder, it begins with the lasting events from before it ([`Kept`]). Between two parts there
//! is a cut in time. When a part is nearly full, new events are held back until every thread's events from before the cut have arrived. Older events
//! are then written to the old part, all others to the new one.
//!
//! Invariant: each event is in exactly one part, except lasting events, which are also in each later part. Memory is bounded.

use crate::beside::Beside;
use crate::divided::{Divided, Left, divide};
use crate::kept::{Kept, Pack, plain, time_of};
use crate::packing::Packed;
use crate::saving::Request;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tape::event::Events;
use tape::file::{Clock, End, Header, Packer, Process, Saved, Unwatched, Writer};

/// Set by the thread that writes when a part is to end, and taken by the thread that drains.
pub type Cut = Arc<AtomicBool>;

/// How a recording is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    /// Bytes of a part.
    pub size: u64,
    /// Parts that stay.
    pub keep: u32,
}

/// For lasting events, and at most half of a part, because each part begins with them.
const MEMORY: usize = 128 << 20;
/// Maximum bytes that are held back at a cut. (When there are more, the oldest are written to the old part.)
const HELD: usize = 64 << 20;
/// A part is nearly full when it has at most a sixteenth of room, within these bounds and never more than a quarter: its end and the
/// events up to the cut have to fit. (Of a part of 1 MiB a sixteenth was not enough on a busy machine.)
const ROOM: std::ops::RangeInclusive<u64> = 256 << 10..=64 << 20;
/// Only its owner may read a recording.
const MODE: u32 = 0o600;
/// Why a part was begun ([`Saved::reason`]).
const REASON: &str = "part";

/// An item that arrived since a part is nearly full.
#[allow(clippy::large_enum_variant, reason = "few of the large ones")]
enum Held {
    Events(Packed),
    Beside(Beside),
}

pub struct Parts {
    header: Header,
    rotation: Rotation,
    writer: Writer,
    /// The first file. The others' names are derived from it.
    first: PathBuf,
    number: u32,
    /// The existing files, the newest last.
    files: VecDeque<PathBuf>,
    due: Cut,
    /// Since a cut was requested: the items that arrived, and their bytes.
    held: Option<VecDeque<Held>>,
    bytes: usize,
    /// A cut is requested at this size of the part.
    full_at: u64,
    /// The time at which the part begins.
    from: u64,
    kept: Kept,
    left: Left,
    /// Pieces that have arrived, and those that had arrived when the part began.
    came: u64,
    came_before: u64,
    processes: BTreeMap<u32, Process>,
    /// The processes that have ended.
    ended: BTreeSet<u32>,
    unwatched: Vec<Unwatched>,
    /// The first and the latest reading.
    clocks: Vec<Clock>,
    packer: Packer,
    /// Why there is no later part.
    pub failure: Option<String>,
}

impl Parts {
    /// The first part is this writer's file, which has the header from [`Parts::header`].
    pub fn new(header: Header, rotation: Rotation, writer: Writer, due: Cut) -> Parts {
        let first = writer.path().to_owned();
        Parts {
            rotation,
            full_at: full_at(rotation.size),
            files: [first.clone()].into(),
            first,
            writer,
            number: 1,
            due,
            held: None,
            bytes: 0,
            from: 0,
            kept: Kept::new(&header.driver, MEMORY.min(rotation.size as usize / 2)),
            header,
            left: Left::default(),
            came: 0,
            came_before: 0,
            processes: BTreeMap::new(),
            ended: BTreeSet::new(),
            unwatched: Vec::new(),
            clocks: Vec::new(),
            packer: Packer::default(),
            failure: None,
        }
    }

    /// The header of the first part.
    pub fn header(header: &Header) -> Header {
        Header { saved: Some(Saved { reason: REASON.into(), number: 1, ..Saved::default() }), ..header.clone() }
    }

    /// The existing files, the newest last, and the number of parts so far.
    pub fn files(&self) -> (Vec<PathBuf>, u32) {
        (self.files.iter().cloned().collect(), self.number)
    }

    pub fn writer(&mut self) -> &mut Writer {
        &mut self.writer
    }

    /// Bytes of the newest part.
    pub fn len(&self) -> u64 {
        self.writer.bytes()
    }

    #[cfg(test)]
    pub fn memory(&self) -> usize {
        self.bytes + self.kept.bytes()
    }

    pub fn events(&mut self, process: u32, tid: i32, events: &[u8], packed: Option<&[u8]>) -> io::Result<()> {
        if let Some(held) = &mut self.held {
            let (events, packed) = (events.to_vec(), packed.map(<[u8]>::to_vec));
            self.bytes += events.len();
            held.push_back(Held::Events(Packed { process, tid, events, packed }));
            while self.bytes > HELD {
                let Some(oldest) = self.held.as_mut().and_then(VecDeque::pop_front) else { break };
                self.let_go(oldest)?;
            }
            return Ok(());
        }
        self.put(process, tid, events, packed)?;
        self.look_at_size();
        Ok(())
    }

    pub fn beside(&mut self, what: Beside) -> io::Result<()> {
        match &mut self.held {
            Some(held) => {
                held.push_back(Held::Beside(what));
                Ok(())
            }
            None => self.put_beside(&what),
        }
    }

    fn look_at_size(&mut self) {
        if self.writer.bytes() >= self.full_at && self.held.is_none() {
            self.held = Some(VecDeque::new());
            // ORDERING: events handed over before this store are in the old part. A thread that sees it reads the cut's time
            // afterwards.
            self.due.store(true, Ordering::Release);
        }
    }

    fn let_go(&mut self, held: Held) -> io::Result<()> {
        match held {
            Held::Events(p) => {
                self.bytes -= p.events.len();
                self.put(p.process, p.tid, &p.events, p.packed.as_deref())
            }
            Held::Beside(what) => self.put_beside(&what),
        }
    }

    /// Writes to the present part, and adds the lasting events to `kept`.
    fn put(&mut self, process: u32, tid: i32, events: &[u8], packed: Option<&[u8]>) -> io::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        self.writer.packed_events(process, tid, events, packed)?;
        let mut divided = Divided::default();
        divide(&self.kept, tid, events, u64::MAX, &mut divided, |_| ());
        self.left.add(divided.left);
        self.came += 1;
        self.kept.heard(process, tid, self.came, self.came_before);
        self.kept.absorb(process, tid, &divided.lasting, &mut self.packer);
        Ok(())
    }

    fn put_beside(&mut self, what: &Beside) -> io::Result<()> {
        match what {
            Beside::Clock(c) => {
                self.clocks.truncate(1);
                self.clocks.push(*c);
            }
            Beside::Process(p) => drop(self.processes.insert(p.index, p.clone())),
            Beside::ProcessEnd(e) => _ = self.ended.insert(e.index),
            Beside::Unwatched(u) => self.unwatched.push(u.clone()),
            Beside::Note(_) => {}
        }
        what.write(&mut self.writer)
    }

    /// Ends the present part at [`Request::until`], and begins the next one there.
    ///
    /// # Errors
    /// Neither part can be written.
    pub fn cut(&mut self, request: Request) -> io::Result<()> {
        let Some(held) = self.held.take() else { return Ok(()) };
        self.bytes = 0;
        let until = request.until;
        let mut later = Vec::new();
        for held in held {
            match held {
                Held::Events(p) => {
                    let (before, after) = split(&p.events, until);
                    if after.is_empty() {
                        self.put(p.process, p.tid, &p.events, p.packed.as_deref())?;
                    } else {
                        self.put_plain(p.process, p.tid, &before)?;
                        later.push((p.process, p.tid, after));
                    }
                }
                Held::Beside(what) => self.put_beside(&what)?,
            }
        }
        if let Err(why) = self.next(&request) {
            // The part continues, and the next one is tried again.
            self.failure.get_or_insert(why);
            self.full_at = self.writer.bytes().saturating_add(full_at(self.rotation.size));
        }
        for (process, tid, events) in later {
            self.put_plain(process, tid, &events)?;
        }
        Ok(())
    }

    fn put_plain(&mut self, process: u32, tid: i32, events: &[u8]) -> io::Result<()> {
        let mut packer = std::mem::take(&mut self.packer);
        let put = plain(process, tid, events, &mut |p| self.put(p.process, p.tid, &p.payload, packer.pack(&p.payload)));
        self.packer = packer;
        put
    }

    fn next(&mut self, request: &Request) -> Result<(), String> {
        if self.files.len() >= self.rotation.keep.max(1) as usize
            && let Some(oldest) = self.files.pop_front()
        {
            match std::fs::remove_file(&oldest) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    let why = format!("{}: {e}", oldest.display());
                    self.files.push_front(oldest);
                    return Err(why);
                }
                _ => {}
            }
        }
        let number = self.number + 1;
        let path = output::claim_part(&self.first, number, MODE).map_err(|e| e.to_string())?.path().to_owned();
        let Left { events, bytes, doorbells, processes } = self.left;
        let gone = self.ended.len() as u64;
        let saved = Saved {
            reason: REASON.into(),
            number,
            from_tsc: request.until,
            tsc: request.until,
            events,
            bytes,
            doorbells,
            processes: processes + gone,
            forgotten: self.kept.forgotten,
            ..Saved::default()
        };
        let header = Header { saved: Some(saved), ..self.header.clone() };
        let mut writer = Writer::replace(&path, &header).map_err(|e| e.to_string())?;
        let said = |e: io::Error| format!("{}: {}", path.display(), crate::output::describe(&e));
        if let Err(e) = self.begin(&mut writer, request.until) {
            let _ = std::fs::remove_file(&path);
            return Err(said(e));
        }
        // (From here on the old part is not written again.)
        let ended = self.end(request).map_err(said);
        self.writer = writer;
        for index in std::mem::take(&mut self.ended) {
            self.kept.forget(index);
            self.processes.remove(&index);
        }
        self.left.processes += gone;
        self.files.push_back(path);
        (self.number, self.from, self.came_before) = (number, request.until, self.came);
        // (Each part has at least an eighth of its size for its own events.)
        self.full_at = full_at(self.rotation.size).max(self.writer.bytes().saturating_add(self.rotation.size / 8));
        ended
    }

    /// Writes the beginning of a part.
    fn begin(&mut self, w: &mut Writer, from: u64) -> io::Result<()> {
        self.clocks.iter().try_for_each(|c| w.clock(c))?;
        self.unwatched.iter().try_for_each(|u| w.unwatched(u))?;
        let going_on = self.processes.values().filter(|p| !self.ended.contains(&p.index));
        going_on.clone().try_for_each(|p| w.process(p))?;
        let (ended, packer) = (&self.ended, &mut self.packer);
        self.kept.write(from, &mut |p: &Pack| {
            if ended.contains(&p.process) {
                return Ok(());
            }
            match (p.unpacked == 0).then(|| packer.pack(&p.payload)).flatten() {
                Some(packed) => w.made_events(p.process, p.tid, p.tsc, packed, p.payload.len() as u32),
                None => w.made_events(p.process, p.tid, p.tsc, &p.payload, p.unpacked),
            }
        })
    }

    /// Writes the end of the present part, which others follow.
    fn end(&mut self, request: &Request) -> io::Result<()> {
        let w = &mut self.writer;
        for (process, tid, events) in &request.held {
            w.events(*process, *tid, events)?;
        }
        let is_open = |e: &&tape::file::ProcessEnd| !self.ended.contains(&e.index);
        request.ends.iter().filter(is_open).try_for_each(|e| w.process_end(e))?;
        request.clock.iter().try_for_each(|c| w.clock(c))?;
        let seconds = self.seconds(request.until);
        self.writer.end(&End { seconds, ..request.end.clone() })
    }

    /// Seconds from the beginning of the part.
    pub fn seconds(&self, until: u64) -> f64 {
        let from = if self.from > 0 { self.from } else { self.clocks.first().map_or(until, |c| c.tsc) };
        until.saturating_sub(from) as f64 / if self.header.tsc_hz > 1.0 { self.header.tsc_hz } else { 1e9 }
    }

    /// The recording ends: no more events are held back.
    pub fn finish(&mut self) -> io::Result<()> {
        let held = self.held.take().unwrap_or_default();
        held.into_iter().try_for_each(|held| self.let_go(held))
    }
}

fn full_at(size: u64) -> u64 {
    size - (size / 16).clamp(*ROOM.start(), *ROOM.end()).min(size / 4)
}

/// Whole events that ended before `until`, and the others.
fn split(events: &[u8], until: u64) -> (Vec<u8>, Vec<u8>) {
    let (mut before, mut after, mut rest) = (Vec::new(), Vec::new(), events);
    for e in Events::new(events) {
        let (bytes, later) = rest.split_at((e.head.len as usize).min(rest.len()));
        rest = later;
        if time_of(&e) < until && after.is_empty() { &mut before } else { &mut after }.extend_from_slice(bytes);
    }
    (before, after)
}
