//! The tape, and when nothing more is written to it: at its size limit, or when the disk is full.

use redact::Scrubber;
use std::io;
use tape::event::{Body, Events, entry_flags};
use tape::file::{Clock, End, Process, ProcessEnd, Unwatched, Writer};
use tape::ring::whole_events;

/// Bytes that a chunk takes in the file beside its events, at most.
const CHUNK_COST: u64 = 56;
/// Notes of damaged rings on one tape, at most.
const NOTES: u32 = 64;

/// Events that came after the recording had stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    pub events: u64,
    /// GPFIFO entries among them.
    pub entries: u64,
    pub bytes: u64,
}

pub struct Output {
    writer: Writer,
    limit: Option<u64>,
    notes: u32,
    stopped: Option<String>,
    /// Room for the chunk in hand.
    pub chunk: Vec<u8>,
}

impl Output {
    pub fn new(writer: Writer, limit: Option<u64>) -> Output {
        Output { writer, limit, notes: 0, stopped: None, chunk: Vec::new() }
    }

    /// Why nothing more is written.
    pub fn stopped(&self) -> Option<&str> {
        self.stopped.as_deref()
    }

    pub fn stop(&mut self, why: &str) {
        if self.stopped.is_none() {
            self.stopped = Some(why.to_owned());
        }
    }

    /// Writes whole events of one thread, as much of them as the limit allows; says what was not written.
    pub fn events(&mut self, process: u32, tid: i32, events: &[u8], scrub: Option<&mut Scrubber>) -> Dropped {
        let n = match (&self.stopped, self.limit) {
            (Some(_), _) => 0,
            (None, None) => events.len(),
            (None, Some(limit)) => {
                let room = limit.saturating_sub(self.writer.bytes() + CHUNK_COST);
                whole_events(events, usize::try_from(room).unwrap_or(usize::MAX))
            }
        };
        let (kept, rest) = events.split_at(n);
        let mut dropped = Dropped::default();
        if !kept.is_empty() {
            let tsc = u64::from_ne_bytes(kept.get(8..16).and_then(|b| b.try_into().ok()).unwrap_or_default());
            let clean = scrub.map_or(kept, |s| s.clean(kept));
            if let Err(e) = self.writer.events(process, tid, tsc, clean) {
                self.stop(&describe(&e));
                dropped.count(kept);
            }
        }
        if !rest.is_empty() {
            self.stop("the size limit was reached");
            dropped.count(rest);
        }
        dropped
    }

    /// Something that a reader should know; a few on each tape.
    pub fn note(&mut self, text: &str) {
        if self.notes < NOTES {
            self.notes += 1;
            self.write(|w| w.note(text));
        }
    }

    pub fn clock(&mut self, c: &Clock) {
        self.write(|w| w.clock(c));
    }

    pub fn process(&mut self, p: &Process) {
        self.write(|w| w.process(p));
    }

    /// False: it is not on the tape.
    pub fn process_end(&mut self, e: &ProcessEnd) -> bool {
        // (When nothing more is written, too: it is small, and says what is missing.)
        self.writer.process_end(e).map_err(|e| self.stop(&describe(&e))).is_ok()
    }

    pub fn unwatched(&mut self, u: &Unwatched) {
        self.write(|w| w.unwatched(u));
    }

    fn write(&mut self, f: impl FnOnce(&mut Writer) -> io::Result<()>) {
        if self.stopped.is_none()
            && let Err(e) = f(&mut self.writer)
        {
            self.stop(&describe(&e));
        }
    }

    /// Closes the tape; says how long it became. On a full disk the last chunks make room for the end, which then says so.
    pub fn end(mut self, end: &mut End) -> io::Result<u64> {
        while let Err(e) = self.writer.end(end) {
            if self.stopped.is_none() {
                end.how = format!("recording stopped early: {}", describe(&e));
                self.stopped = Some(describe(&e));
                end.complete = false;
                end.incomplete_because.insert(0, end.how.clone());
            }
            // The end is some hundred bytes and a line a channel.
            if !self.writer.give_up(64 << 10)? {
                self.writer.end(end)?;
                break;
            }
        }
        Ok(self.writer.bytes())
    }
}

impl Dropped {
    pub fn add(&mut self, more: Dropped) {
        self.events += more.events;
        self.entries += more.entries;
        self.bytes += more.bytes;
    }

    fn count(&mut self, events: &[u8]) {
        for e in Events::new(events) {
            let first = matches!(e.body, Body::Entry(..)) && e.head.flags & entry_flags::CONTINUED == 0;
            self.events += 1;
            self.entries += u64::from(first);
        }
        self.bytes += events.len() as u64;
    }
}

fn describe(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::ENOSPC) => "the disk is full".into(),
        Some(libc::EDQUOT) => "the disk quota is used up".into(),
        Some(libc::EFBIG) => "the file size limit was reached".into(),
        _ => format!("the tape could not be written: {e}"),
    }
}
