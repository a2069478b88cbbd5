//! Takes events out of the rings and writes them to the tape.

use crate::scrub::Scrubber;
use crate::shared::{Ring, Shared};
use std::io;
use std::sync::atomic::Ordering;
use tape::file::Writer;
use tape::ring::whole_events;

/// Bytes of one chunk at most.
const CHUNK: usize = 1 << 20;
/// Rings kept resident ahead of use.
const AHEAD: usize = 2;

pub struct Drain<'a> {
    shared: &'a Shared,
    writer: Writer,
    rings: Vec<Ring>,
    scrub: Option<Scrubber>,
    limit: Option<u64>,
    pid: i32,
    /// Why nothing more is written.
    pub stopped: Option<String>,
}

impl<'a> Drain<'a> {
    pub fn new(shared: &'a Shared, writer: Writer, no_data: bool, limit: Option<u64>) -> Drain<'a> {
        let scrub = no_data.then(Scrubber::default);
        Drain { shared, writer, rings: Vec::new(), scrub, limit, pid: 0, stopped: None }
    }

    pub fn program(&mut self, pid: i32) {
        self.pid = pid;
    }

    /// One round over all rings; says how many bytes it took.
    pub fn round(&mut self) -> usize {
        let c = self.shared.control();
        c.beat.fetch_add(1, Ordering::Relaxed);
        // ORDERING: Acquire pairs with the agent's claim: the ring head is set up before the count covers it.
        let claimed = c.rings.load(Ordering::Acquire) as usize;
        while self.rings.len() < claimed {
            match self.shared.ring(self.rings.len()) {
                Ok(r) => self.rings.push(r),
                Err(e) => {
                    self.stop(&format!("cannot map ring {}: {e}", self.rings.len()));
                    break;
                }
            }
            let ahead = self.rings.len() + AHEAD;
            if ahead > c.ready.load(Ordering::Relaxed) as usize {
                // Failure costs the program page faults, nothing else.
                let _ = self.shared.make_ring_ready(ahead - 1);
                c.ready.store(ahead as u32, Ordering::Relaxed);
            }
        }
        let mut taken = 0;
        for i in 0..self.rings.len() {
            taken += self.ring(i);
        }
        taken
    }

    fn ring(&mut self, i: usize) -> usize {
        let mut taken = 0;
        // A few chunks, then the next ring: a busy thread must not starve the others.
        for _ in 0..8 {
            let ring = &self.rings[i];
            let bytes = ring.reader.available();
            if bytes.is_empty() {
                break;
            }
            let n = whole_events(bytes, CHUNK);
            if n == 0 {
                // Not our agent's bytes: the program wrote over its ring. Skip what is there and say so.
                let lost = bytes.len();
                ring.reader.take(lost);
                let _ = self.writer.note(&format!("ring {i}: {lost} bytes are no events, skipped"));
                taken += lost;
                break;
            }
            let tid = ring.reader.shared().tid.load(Ordering::Relaxed);
            let tsc = u64::from_ne_bytes(bytes.get(8..16).and_then(|b| b.try_into().ok()).unwrap_or_default());
            let chunk = &bytes[..n];
            let written = if self.stopped.is_some() {
                Ok(())
            } else if let Some(s) = &mut self.scrub {
                let clean = s.clean(chunk);
                self.writer.events(tid, tsc, clean)
            } else {
                self.writer.events(tid, tsc, chunk)
            };
            self.rings[i].reader.take(n);
            taken += n;
            if let Err(e) = written {
                self.stop(&describe(&e));
            } else if self.limit.is_some_and(|l| self.writer.bytes() >= l) {
                self.stop("the size limit was reached");
            }
        }
        taken
    }

    /// Frees rings whose thread has died and which are empty.
    pub fn free_dead(&mut self) {
        for r in &self.rings {
            let h = r.reader.shared();
            if h.state.load(Ordering::Relaxed) != 1 || !r.reader.available().is_empty() {
                continue;
            }
            let tid = h.tid.load(Ordering::Relaxed);
            if tid > 0 && !std::path::Path::new(&format!("/proc/{}/task/{tid}", self.pid)).exists() {
                // The thread may have published between the look and its death.
                if r.reader.available().is_empty() {
                    h.tid.store(0, Ordering::Relaxed);
                    // ORDERING: Release pairs with the agent's claim.
                    h.state.store(0, Ordering::Release);
                }
            }
        }
    }

    /// Events, entries and bytes that did not fit into the rings.
    pub fn gaps(&self) -> (u64, u64, u64) {
        self.rings.iter().fold((0, 0, 0), |(a, b, c), r| {
            let h = r.reader.shared();
            (
                a + h.gap_events.load(Ordering::Relaxed),
                b + h.gap_entries.load(Ordering::Relaxed),
                c + h.gap_bytes.load(Ordering::Relaxed),
            )
        })
    }

    fn stop(&mut self, why: &str) {
        if self.stopped.is_none() {
            self.shared.control().stopped.store(1, Ordering::Release);
            self.stopped = Some(why.to_owned());
        }
    }

    pub fn clock(&mut self, c: &tape::file::Clock) {
        if self.stopped.is_none()
            && let Err(e) = self.writer.clock(c)
        {
            self.stop(&describe(&e));
        }
    }

    /// Closes the tape. On a full disk the last events make room for the end.
    pub fn end(mut self, end: &tape::file::End) -> io::Result<u64> {
        if let Err(e) = self.writer.end(end) {
            // The end is some hundred bytes and a line a channel.
            if !self.writer.give_up(64 << 10)? {
                return Err(e);
            }
            self.writer.end(end)?;
        }
        Ok(self.writer.bytes())
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
