//! Takes events out of the rings and writes them to the tape.
//!
//! What the program shares with us it may also overwrite, by a stray pointer, at any moment: events are copied out before
//! they are looked at, and no number in the shared memory is trusted further than its own ring. A ring that holds no
//! events costs what it held and a note, never the recording.

use crate::scrub::Scrubber;
use crate::shared::{Ring, Shared};
use crate::switches::Switches;
use std::collections::HashSet;
use std::io;
use std::sync::atomic::Ordering;
use tape::call::{self, CallBody};
use tape::event::{Body, Events, Head, bytes_of, entry_flags};
use tape::file::Writer;
use tape::lock::{self, HeldBody};
use tape::region::{CallRow, HeldLock, RINGS};
use tape::ring::{MAX_EVENT, whole_events};
use tape::switch::WRITER;

/// Bytes of one chunk at most.
const CHUNK: usize = 1 << 20;
/// Bytes that a chunk takes in the file beside its events, at most.
const CHUNK_COST: u64 = 48;
/// Rings kept resident ahead of use.
const AHEAD: usize = 2;
/// Notes of damaged rings on one tape, at most.
const NOTES: u32 = 64;

pub struct Drain<'a> {
    shared: &'a Shared,
    writer: Writer,
    rings: Vec<Ring>,
    scrub: Option<Scrubber>,
    limit: Option<u64>,
    pid: i32,
    /// The chunk in hand, out of the program's reach.
    chunk: Vec<u8>,
    notes: u32,
    /// Rings made resident.
    ready: usize,
    /// Events, entries and bytes that came after the recording had stopped.
    dropped: (u64, u64, u64),
    switches: Option<Switches>,
    /// Why nothing more is written.
    pub stopped: Option<String>,
}

impl<'a> Drain<'a> {
    pub fn new(shared: &'a Shared, writer: Writer, no_data: bool, limit: Option<u64>) -> Drain<'a> {
        Drain {
            shared,
            writer,
            rings: Vec::new(),
            scrub: no_data.then(Scrubber::default),
            limit,
            pid: 0,
            chunk: Vec::with_capacity(CHUNK + MAX_EVENT),
            notes: 0,
            ready: 0,
            dropped: (0, 0, 0),
            switches: None,
            stopped: None,
        }
    }

    pub fn program(&mut self, pid: i32) {
        self.pid = pid;
        if let Some(s) = &mut self.switches {
            s.program(pid);
        }
    }

    /// Context switches are to be on the tape, or why they are not (`first`).
    pub fn add_switches(&mut self, switches: Switches, first: Vec<u8>) {
        self.switches = Some(switches);
        self.tell(WRITER, first);
    }

    /// Takes what the kernel says of the program's threads. `end`: all there is.
    pub fn switches(&mut self, end: bool) {
        if self.stopped.is_some() {
            return;
        }
        let Some(mut s) = self.switches.take() else { return };
        let events = s.events(end);
        self.tell(WRITER, events);
        // In a pid namespace of its own the program's numbers name other threads here.
        if self.shared.control().pid.load(Ordering::Relaxed) == self.pid {
            let tid = |r: &Ring| {
                let h = r.reader.shared();
                (h.state.load(Ordering::Relaxed) == 1).then(|| h.tid.load(Ordering::Relaxed))
            };
            let events = s.policies(|| self.rings.iter().filter_map(tid).filter(|t| *t > 0).collect());
            self.tell(WRITER, events);
        }
        self.switches = Some(s);
    }

    /// One round over all rings; says how many bytes it took.
    pub fn round(&mut self) -> usize {
        let c = self.shared.control();
        c.beat.fetch_add(1, Ordering::Relaxed);
        // ORDERING: Acquire pairs with the agent's claim: the ring head is set up before the count covers it.
        let claimed = (c.rings.load(Ordering::Acquire) as usize).min(RINGS);
        while self.rings.len() < claimed {
            match self.shared.ring(self.rings.len()) {
                Ok(r) => self.rings.push(r),
                Err(e) => {
                    self.stop(&format!("ring {} could not be mapped: {e}", self.rings.len()));
                    break;
                }
            }
        }
        // (By the rings that are in use, not by what the program says of their number: they are memory.)
        let in_use = self.rings.iter().rposition(|r| r.reader.shared().state.load(Ordering::Relaxed) == 1);
        let ahead = (in_use.map_or(0, |i| i + 1) + AHEAD).min(RINGS);
        while self.ready < ahead {
            // Failure costs the program page faults, nothing else.
            let _ = self.shared.make_ring_ready(self.ready);
            self.ready += 1;
            c.ready.store(self.ready as u32, Ordering::Relaxed);
        }
        (0..self.rings.len()).map(|i| self.ring(i)).sum()
    }

    /// Takes a few chunks, so that a busy thread does not starve the others.
    fn ring(&mut self, i: usize) -> usize {
        let mut taken = 0;
        for _ in 0..8 {
            let Some(ring) = self.rings.get_mut(i) else { break };
            let bytes = ring.reader.available();
            if bytes.is_empty() {
                let damaged = ring.reader.is_damaged();
                if damaged && !ring.head_noted {
                    self.note(&format!("ring {i}: its head was overwritten; events may be missing"));
                }
                if let Some(ring) = self.rings.get_mut(i) {
                    ring.head_noted = damaged;
                }
                break;
            }
            self.chunk.clear();
            self.chunk.extend_from_slice(bytes.get(..CHUNK + MAX_EVENT).unwrap_or(bytes));
            let n = whole_events(&self.chunk, CHUNK);
            if n == 0 {
                // Not our agent's bytes: the program wrote over its ring. Go on where the next event will be.
                let lost = bytes.len();
                ring.reader.take(lost);
                self.note(&format!("ring {i}: {lost} bytes are no events, skipped"));
                taken += lost;
                break;
            }
            let tid = ring.reader.shared().tid.load(Ordering::Relaxed);
            // Before it is written: a slow disk must not keep the ring full.
            ring.reader.take(n);
            self.chunk.truncate(n);
            taken += n;
            self.write(tid);
        }
        taken
    }

    /// Writes the chunk in hand, as much of it as the limit allows.
    fn write(&mut self, tid: i32) {
        let chunk = std::mem::take(&mut self.chunk);
        let n = match (&self.stopped, self.limit) {
            (Some(_), _) => 0,
            (None, None) => chunk.len(),
            (None, Some(limit)) => {
                let room = limit.saturating_sub(self.writer.bytes() + CHUNK_COST);
                whole_events(&chunk, usize::try_from(room).unwrap_or(usize::MAX))
            }
        };
        let (kept, rest) = chunk.split_at(n);
        if !kept.is_empty() {
            let tsc = u64::from_ne_bytes(kept.get(8..16).and_then(|b| b.try_into().ok()).unwrap_or_default());
            let clean = self.scrub.as_mut().map_or(kept, |s| s.clean(kept));
            if let Err(e) = self.writer.events(0, tid, tsc, clean) {
                self.stop(&describe(&e));
                self.drop(kept);
            }
        }
        if !rest.is_empty() {
            self.stop("the size limit was reached");
            self.drop(rest);
        }
        self.chunk = chunk;
    }

    /// Counts events that are not written.
    fn drop(&mut self, events: &[u8]) {
        for e in Events::new(events) {
            let first = matches!(e.body, Body::Entry(..)) && e.head.flags & entry_flags::CONTINUED == 0;
            self.dropped.0 += 1;
            self.dropped.1 += u64::from(first);
        }
        self.dropped.2 += events.len() as u64;
    }

    /// Many rings are in use, or were.
    pub fn is_short_of_rings(&self) -> bool {
        self.rings.len() > RINGS / 4
    }

    /// Frees rings whose thread has died and which are empty; says how many.
    pub fn free_dead(&mut self) -> usize {
        // In a pid namespace of its own the program has other thread ids than we see.
        if self.shared.control().pid.load(Ordering::Relaxed) != self.pid {
            return 0;
        }
        let idle = |r: &Ring| {
            let h = r.reader.shared();
            let tid = h.tid.load(Ordering::Relaxed);
            (h.state.load(Ordering::Relaxed) == 1 && tid > 0 && r.reader.available().is_empty()).then_some(tid)
        };
        let candidates: Vec<(usize, i32)> =
            self.rings.iter().enumerate().filter_map(|(i, r)| Some((i, idle(r)?))).collect();
        if candidates.is_empty() {
            return 0;
        }
        // After the rings: a thread that claims one now is not taken for a dead one.
        let Some(alive) = threads(self.pid) else { return 0 };
        let mut freed = 0;
        for (i, tid) in candidates {
            let Some(r) = self.rings.get(i).filter(|_| !alive.contains(&tid)) else { continue };
            // The thread may have published between the look and its death.
            if idle(r) == Some(tid) {
                if r.reader.is_damaged() {
                    r.reader.skip_to_head();
                }
                let h = r.reader.shared();
                let held = held(self.shared, i);
                h.tid.store(0, Ordering::Relaxed);
                // ORDERING: Release pairs with the agent's claim.
                h.state.store(0, Ordering::Release);
                freed += 1;
                self.tell(tid, held);
            }
        }
        freed
    }

    /// Puts on the tape what the threads held and waited for when the program ended.
    pub fn held_at_the_end(&mut self) {
        for i in 0..self.rings.len() {
            let h = self.rings[i].reader.shared();
            if h.state.load(Ordering::Relaxed) == 1 {
                let (tid, held) = (h.tid.load(Ordering::Relaxed), held(self.shared, i));
                self.tell(tid, held);
            }
        }
    }

    /// Writes events of our own making.
    fn tell(&mut self, tid: i32, events: Vec<u8>) {
        let mut rest = &events[..];
        while !rest.is_empty() {
            let n = whole_events(rest, CHUNK);
            let (part, later) = rest.split_at(if n == 0 { rest.len() } else { n });
            self.chunk.clear();
            self.chunk.extend_from_slice(part);
            self.write(tid);
            rest = later;
        }
    }

    /// Events, entries and bytes that did not fit into the rings or came after the recording had stopped.
    pub fn gaps(&self) -> (u64, u64, u64) {
        self.rings.iter().fold(self.dropped, |(a, b, c), r| {
            let h = r.reader.shared();
            (
                a.saturating_add(h.gap_events.load(Ordering::Relaxed)),
                b.saturating_add(h.gap_entries.load(Ordering::Relaxed)),
                c.saturating_add(h.gap_bytes.load(Ordering::Relaxed)),
            )
        })
    }

    fn stop(&mut self, why: &str) {
        if self.stopped.is_none() {
            self.shared.control().stopped.store(1, Ordering::Release);
            self.stopped = Some(why.to_owned());
        }
    }

    fn note(&mut self, text: &str) {
        if self.notes < NOTES && self.stopped.is_none() {
            self.notes += 1;
            if let Err(e) = self.writer.note(text) {
                self.stop(&describe(&e));
            }
        }
    }

    pub fn clock(&mut self, c: &tape::file::Clock) {
        if self.stopped.is_none()
            && let Err(e) = self.writer.clock(c)
        {
            self.stop(&describe(&e));
        }
    }

    /// Closes the tape. On a full disk the last chunks make room for the end, which then says so.
    pub fn end(mut self, end: &mut tape::file::End) -> io::Result<u64> {
        while let Err(e) = self.writer.end(end) {
            if self.stopped.is_none() {
                self.stopped = Some(describe(&e));
                end.how = format!("recording stopped early: {}", describe(&e));
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

/// What the thread of ring `i` holds, waits for and is in, as events.
fn held(shared: &Shared, i: usize) -> Vec<u8> {
    let mut out = Vec::new();
    let Some(t) = shared.locks(i) else { return out };
    let tsc = crate::clock::tsc();
    let mut add = |h: &HeldLock, waiting: u32| {
        let flags = h.flags.load(Ordering::Relaxed);
        let long = flags & HeldLock::LONG != 0;
        let flags = flags as u16;
        let body = HeldBody {
            addr: h.addr.load(Ordering::Relaxed),
            site: h.site.load(Ordering::Relaxed),
            since: h.since.load(Ordering::Relaxed),
            wait: if long { h.wait.load(Ordering::Relaxed) } else { 0 },
            result: if long { h.result.load(Ordering::Relaxed) } else { 0 },
            waiting,
        };
        let head = Head { kind: lock::kind::HELD, flags, len: 16 + size_of::<HeldBody>() as u32, tsc };
        out.extend_from_slice(bytes_of(&head));
        out.extend_from_slice(bytes_of(&body));
    };
    let n = t.n.load(Ordering::Relaxed) as usize;
    t.held.iter().take(n).for_each(|h| add(h, 0));
    // ORDERING: Acquire pairs with the agent's Release: the row is there when the word says so.
    if t.waits.load(Ordering::Acquire) == 1 {
        add(&t.waiting, 1);
    }
    if let Some(event) = shared.call(i).and_then(|row| in_call(row, tsc)) {
        out.extend_from_slice(&event);
    }
    out
}

/// The call that a thread is in, as an event; `None` if it is in none.
fn in_call(row: &CallRow, tsc: u64) -> Option<Vec<u8>> {
    let flags = u16::try_from(row.function.load(Ordering::Relaxed)).ok().filter(|f| *f != 0)?;
    let body = CallBody {
        began: row.began.load(Ordering::Relaxed),
        site: row.site.load(Ordering::Relaxed),
        stream: row.stream.load(Ordering::Relaxed),
        object: row.object.load(Ordering::Relaxed),
        size: row.size.load(Ordering::Relaxed),
        result: 0,
        flags: row.flags.load(Ordering::Relaxed) as u16,
        inner: 0,
        seq: row.seq.load(Ordering::Relaxed),
        pad: 0,
    };
    let head = Head { kind: call::kind::IN_CALL, flags, len: 16 + size_of::<CallBody>() as u32, tsc };
    Some([bytes_of(&head), bytes_of(&body)].concat())
}

/// Ids of a process's threads; `None` if they cannot be read.
fn threads(pid: i32) -> Option<HashSet<i32>> {
    let dir = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut out = HashSet::new();
    for entry in dir {
        out.insert(entry.ok()?.file_name().to_str()?.parse().ok()?);
    }
    Some(out)
}

fn describe(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::ENOSPC) => "the disk is full".into(),
        Some(libc::EDQUOT) => "the disk quota is used up".into(),
        Some(libc::EFBIG) => "the file size limit was reached".into(),
        _ => format!("the tape could not be written: {e}"),
    }
}
