//! The ends and the clocks of one process, read from the tape on demand.
//!
//! An end is on the tape some time after its kernel's doorbell. The recorder writes ends into chunks that otherwise have only readings of the GPUs' clocks,
//! so only these chunks are read. Other threads' chunks are looked through only for launches of graphs without new numbers, and for clocks where the recorder
//! reads none.
//!
//! Invariant: an answer depends only on the questions so far and on the tape, so a walk that stops early has the same times as one that does not.

use crate::recording::Recording;
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::rc::Rc;
use tape::event::{Body, Event, Head, ends, qmds};
use tape::kernel_clock::{Clock, Moment};
use tape::stamp::{self, AS_BEFORE, OWN_GPU};

/// Maximum number of remembered kernels of one process.
const MOST: usize = 1 << 26;
/// Ends on a page, and maximum number of pages of all processes together (512 MiB).
const PAGE: usize = 512;
const PAGES: usize = 1 << 17;
/// Maximum number of launches of graphs' kernels that reused the numbers of the launch before.
const MOST_AGAIN: usize = 1 << 22;

/// Pages that may still be used.
pub type Pages = Rc<Cell<usize>>;

pub fn pages() -> Pages {
    Rc::new(Cell::new(PAGES))
}

/// Chunks in the order of their time, by their index in the recording.
pub type Chunks = VecDeque<u32>;

#[derive(Debug, Default)]
pub struct OnTape {
    /// Unread chunks of the recorder's events, and of all other threads' events.
    pub of_recorder: Chunks,
    pub of_others: Chunks,
    ends: Ends,
    /// Ends below this number are not in unread chunks.
    settled: u64,
    /// The same number according to the chunk that was read last. (The ends in that chunk may be below it.)
    will_be_settled: u64,
    /// The recorder reads the clocks.
    has_recorded_clock: bool,
    /// By the GPU's instance number.
    clocks: HashMap<u32, Clock>,
    /// When kernels of graphs, by their QMDs, were launched again with their old numbers.
    as_before: HashMap<u64, Moments>,
    /// Their number; beyond [`MOST_AGAIN`] none is remembered.
    again: usize,
    /// Number of chunks of the recorder and of others that were read.
    pub read: [usize; 2],
    bytes: Vec<u8>,
}

/// Time stamps, in order once `is_sorted`.
#[derive(Debug, Default)]
struct Moments {
    all: Vec<u64>,
    is_sorted: bool,
}

impl Moments {
    fn after(&mut self, tsc: u64) -> Option<u64> {
        if !std::mem::replace(&mut self.is_sorted, true) {
            self.all.sort();
        }
        self.all.get(self.all.partition_point(|at| *at <= tsc)).copied()
    }
}

/// Nanoseconds by number; 0 if no end was read.
#[derive(Debug, Default)]
struct Ends {
    pages: Vec<Option<Box<[u64; PAGE]>>>,
    count: u64,
    left: Pages,
}

impl Ends {
    fn put(&mut self, number: u64, ns: u64) {
        let Some(i) = usize::try_from(number).ok().filter(|i| *i < MOST) else { return };
        if i / PAGE >= self.pages.len() {
            self.pages.resize(i / PAGE + 1, None);
        }
        let page = &mut self.pages[i / PAGE];
        if page.is_none() {
            let Some(left) = self.left.get().checked_sub(1) else { return };
            self.left.set(left);
        }
        let end = &mut page.get_or_insert_with(|| Box::new([0; PAGE]))[i % PAGE];
        self.count += u64::from(ns != 0 && *end == 0);
        *end = ns;
    }

    fn get(&self, number: u64) -> Option<u64> {
        let i = usize::try_from(number).ok()?;
        let page = self.pages.get(i / PAGE)?.as_ref()?;
        Some(page[i % PAGE]).filter(|ns| *ns != 0)
    }
}

#[cfg(test)]
impl OnTape {
    /// Takes clocks that were read already.
    pub fn of_clocks(clocks: HashMap<u32, Clock>) -> OnTape {
        OnTape { clocks, ..OnTape::new(&pages()) }
    }

    pub fn end(&mut self, number: u64, ns: u64) {
        self.ends.put(number, ns);
    }

    pub fn as_before(&mut self, qmd: u64, all: Vec<u64>) {
        self.as_before.insert(qmd, Moments { all, is_sorted: true });
    }
}

impl OnTape {
    pub fn new(pages: &Pages) -> OnTape {
        let ends = Ends { left: Rc::clone(pages), ..Ends::default() };
        OnTape { ends, ..OnTape::default() }
    }

    /// When a kernel ended; `None` if that is not on the tape.
    pub fn ended(&mut self, r: Option<&Recording>, number: u64) -> Option<u64> {
        loop {
            let end = self.ends.get(number);
            if end.is_some() || number < self.settled || number >= MOST as u64 || !self.read_recorders(r) {
                return end;
            }
        }
    }

    /// When a graph's kernel was launched again with its old number, after a time stamp. `is_enough`: whether later times do not matter.
    pub fn again(
        &mut self,
        r: Option<&Recording>,
        qmd: u64,
        tsc: u64,
        mut is_enough: impl FnMut(&mut OnTape, u64) -> bool,
    ) -> Again {
        loop {
            let read_until = self.read_until(r);
            let next = self.as_before.get_mut(&qmd).and_then(|times| times.after(tsc));
            match (next, read_until) {
                (Some(at), Some(until)) if at < until => return Again::At(at),
                (Some(at), None) => return Again::At(at),
                (None, None) if self.again > MOST_AGAIN => return Again::NotKnown,
                (None, None) => return Again::Never,
                (_, Some(until)) if self.again <= MOST_AGAIN && is_enough(self, until) => return Again::Never,
                _ => self.read_others(r),
            };
        }
    }

    /// Number of ends on the whole tape.
    pub fn ends(&mut self, r: Option<&Recording>) -> u64 {
        while self.read_recorders(r) {}
        self.ends.count
    }

    /// Whether any clock is on the tape.
    pub fn has_clock(&mut self, r: Option<&Recording>) -> bool {
        while self.clocks.is_empty() && (self.read_recorders(r) || self.read_others(r)) {}
        !self.clocks.is_empty()
    }

    /// A GPU's clock, read until there is a reading after the moment that is to be converted.
    pub fn clock(&mut self, r: Option<&Recording>, gpu: Option<u32>, at: Moment) -> Option<&mut Clock> {
        loop {
            if let Some(next) = self.known_clock(gpu).and_then(|clock| clock.next(at)) {
                // (Other threads' readings may be between them.)
                let is_read = |until: u64| next < until as f64;
                if self.has_recorded_clock || self.read_until(r).is_none_or(is_read) {
                    break;
                }
            }
            // If the recorder reads clocks, the next reading follows within a second.
            let second = r.map_or(0, |r| r.hz() as u64);
            let soon = |first: u64| match at {
                Moment::Tsc(tsc) => first <= tsc.saturating_add(second),
                Moment::Gpu(_) => true,
            };
            let first = self.of_recorder.front().and_then(|i| Some(r?.chunks.get(*i as usize)?.place.tsc));
            let is_recorders =
                first.is_some_and(|tsc| self.has_recorded_clock || self.of_others.is_empty() || soon(tsc));
            let more = match is_recorders {
                true => self.read_recorders(r),
                false => !self.has_recorded_clock && self.read_others(r),
            };
            if !more {
                break;
            }
        }
        self.known_clock(gpu)
    }

    fn known_clock(&mut self, gpu: Option<u32>) -> Option<&mut Clock> {
        let gpu = gpu.filter(|gpu| self.clocks.contains_key(gpu)).unwrap_or(OWN_GPU);
        self.clocks.get_mut(&gpu)
    }

    /// The time of the first unread event of the other threads; `None`: all were read.
    fn read_until(&self, r: Option<&Recording>) -> Option<u64> {
        Some(r?.chunks.get(*self.of_others.front()? as usize)?.place.tsc)
    }

    /// Reads the given numbers of chunks. `None`: there are fewer.
    pub fn read_again(&mut self, r: &Recording, [of_recorder, of_others]: [usize; 2]) -> Option<()> {
        for _ in 0..of_recorder {
            self.read_recorders(Some(r)).then_some(())?;
        }
        for _ in 0..of_others {
            self.read_others(Some(r)).then_some(())?;
        }
        Some(())
    }

    /// Reads the recorder's next chunk. False if there is none.
    fn read_recorders(&mut self, r: Option<&Recording>) -> bool {
        let Some(next) = self.of_recorder.pop_front() else { return false };
        self.settled = self.will_be_settled;
        self.read[0] += 1;
        self.read(r, next, true);
        true
    }

    /// Reads another thread's next chunk. False if there is none.
    fn read_others(&mut self, r: Option<&Recording>) -> bool {
        let Some(next) = self.of_others.pop_front() else { return false };
        self.read[1] += 1;
        self.read(r, next, false);
        true
    }

    /// The walk reads the chunk, too, and reports any damage in it.
    fn read(&mut self, r: Option<&Recording>, chunk: u32, is_recorders: bool) {
        let Some((r, chunk)) = r.and_then(|r| Some((r, r.chunks.get(chunk as usize)?))) else { return };
        let mut bytes = std::mem::take(&mut self.bytes);
        if r.load(chunk, &mut bytes).is_ok() {
            let mut rest = &bytes[..];
            while let Some(Head { kind, len, .. }) = Head::parse(rest) {
                if matches!(kind, stamp::kind::CLOCK | stamp::kind::ENDS | stamp::kind::LAUNCHED) {
                    let Some((e, _)) = Event::parse(rest) else { break };
                    self.event(&e, r.hz(), is_recorders);
                }
                rest = rest.get(len as usize..).unwrap_or(&[]);
            }
        }
        self.bytes = bytes;
    }

    fn event(&mut self, e: &Event<'_>, hz: f64, is_recorders: bool) {
        match &e.body {
            Body::GpuClock(c) => {
                self.has_recorded_clock |= is_recorders;
                let clock = self.clocks.entry(c.gpu).or_insert_with(|| Clock::new(hz, c.gpu_ns));
                clock.add(e.head.tsc, c.after, c.gpu_ns);
            }
            Body::Launched(l, bytes) if l.number == AS_BEFORE => {
                for qmd in qmds(bytes) {
                    if self.again < MOST_AGAIN {
                        let times = self.as_before.entry(qmd).or_default();
                        times.is_sorted &= times.all.last().is_some_and(|last| *last <= e.head.tsc);
                        times.all.push(e.head.tsc);
                    }
                    self.again += 1;
                }
            }
            Body::Ends(body, bytes) => {
                self.will_be_settled = self.will_be_settled.max(body.settled);
                ends(bytes).for_each(|end| self.ends.put(end.number, end.ns));
            }
            _ => {}
        }
    }
}

/// When a graph's kernel was launched again with its old number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    At(u64),
    Never,
    NotKnown,
}
