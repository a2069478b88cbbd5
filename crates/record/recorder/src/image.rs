//! One recorded process image: takes the events out of its rings and hands them on, until it has ended.
//!
//! A stray pointer in the program may overwrite the shared memory at any moment. So events are copied before they are
//! looked at, and a number in the shared memory is trusted only within its own ring. A ring whose bytes are no events
//! costs its contents and a note, never the recording.

use crate::counters::Counters;
use crate::ends::Ends;
use crate::output::{Dropped, Output};
use crate::processes::{self, Handle, Stat};
use crate::region::{Region, Ring};
use crate::signalled::Signalled;
use crate::stream_work::StreamWork;
use crate::{lock_word, sched};
use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tape::call;
use tape::event::{Body, Event, Head, NO_RING, PauseBody, Plain, ThreadBody, bytes_of, kind};
use tape::file::Rank;
use tape::lock::{self, HeldBody, left};
use tape::region::{CallRow, HeldLock, RingHead, contents};
use tape::ring::{MAX_EVENT, event_len, events_of_one_thread, gap_left, whole_events};
use tape::rings::RINGS;
use tape::session::Session;
use tape::stamp;
use tape::switch::WRITER;

/// Maximum bytes of one chunk.
const CHUNK: usize = 1 << 20;
/// Small rings kept in memory ahead of use.
const AHEAD: usize = 2;
/// `Control::state` once the agent has written its last event.
const ENDED: u32 = 2;
/// How many times a round visits the rings while some of them wait for others.
const PASSES: u32 = 64;
/// The maximum duration of the last rounds.
const LAST: Duration = Duration::from_secs(1);

pub struct Image {
    /// Number of the image on the tape.
    pub index: u32,
    /// Entry of the session's table.
    pub entry: usize,
    /// The recorder's number of the process; negative if the process is in another pid namespace and was not found.
    pub pid: i32,
    pub handle: Handle,
    /// Its parent; 0 if unknown.
    pub parent: i32,
    /// When it was started, in ticks; 0 if unknown.
    pub start_tsc: u64,
    /// Its part in a job.
    pub rank: Option<Rank>,
    /// One more than the number of its children that were looked at; 0 if it was not looked at.
    pub started: u64,
    pub region: Region,
    pub begun: Instant,
    /// When its kernels ended.
    pub ends: Ends,
    /// Known when the image has ended.
    pub dropped: Dropped,
    /// Why a ring could not be mapped.
    pub unmapped: Option<String>,
    /// The region is not written any more: the recording has stopped, or ends.
    pub stopped: bool,
    /// Page faults of the children that the process has waited for, as far as is known.
    pub child_faults: u64,
    /// The process became another program, and its agent did not see how.
    pub is_another_program: bool,
    /// When the recorder last ended a pause; 0 before that.
    resumed: u64,
    /// The process's name, as last seen.
    name: Vec<u8>,
    looked: Instant,
    pub work: StreamWork,
    pub signalled: Signalled,
}

impl Image {
    pub fn new(index: u32, entry: usize, pid: i32, handle: Handle, region: Region) -> Image {
        Image {
            index,
            entry,
            pid,
            handle,
            parent: 0,
            start_tsc: 0,
            rank: None,
            started: 0,
            region,
            begun: Instant::now(),
            ends: Ends::default(),
            dropped: Dropped::default(),
            unmapped: None,
            stopped: false,
            child_faults: 0,
            is_another_program: false,
            resumed: 0,
            name: Vec::new(),
            looked: Instant::now(),
            work: StreamWork::default(),
            signalled: Signalled::default(),
        }
    }

    /// Looks at the process from time to time, while it runs.
    pub fn look_at_process(&mut self) {
        const EVERY: Duration = Duration::from_secs(1);
        if self.looked.elapsed() >= EVERY && self.pid > 0 {
            self.looked = Instant::now();
            processes::stat(self.pid).into_iter().for_each(|s| self.look(&s));
        }
    }

    /// Learns from the process's state in /proc, while it runs or before its parent waits for it.
    pub fn look(&mut self, s: &Stat) {
        self.child_faults = self.child_faults.max(s.child_faults);
        let c = self.region.control();
        let bytes = c.name.iter().map(|b| b.load(Ordering::Relaxed)).take_while(|b| *b != 0);
        // (The agent clears the name when the program names itself.)
        let began_as: Vec<u8> = bytes.collect();
        if self.name.is_empty() || began_as.is_empty() {
            self.name.clone_from(&began_as);
        }
        let is_other = match (c.start_stack.load(Ordering::Relaxed), s.start_stack) {
            // Without a stack there is only the name, which a thread may have changed. A program that a signal ended says nothing more.
            (0, _) | (_, 0) => {
                let by_itself = s.zombie && s.status & 0x7f == 0;
                let others_name = !self.name.is_empty() && self.name != s.name;
                by_itself && others_name && c.state.load(Ordering::Acquire) != ENDED
            }
            (began, now) => began != now,
        };
        if is_other && c.in_exec.load(Ordering::Acquire) == 0 {
            self.is_another_program = true;
        } else if !s.zombie && !began_as.is_empty() {
            self.name.clone_from(&s.name);
        }
    }

    /// The process's name, as last seen.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Its process has ended. If the process was not found, only its agent can report the end.
    pub fn has_ended(&self) -> bool {
        self.handle.has_ended() || (self.pid < 0 && self.region.control().state.load(Ordering::Acquire) == ENDED)
    }

    /// Makes its agent stop recording.
    pub fn stop(&mut self) {
        if !self.stopped {
            self.stopped = true;
            self.region.control().stopped.store(1, Ordering::Release);
        }
    }

    /// True while only driver calls are recorded.
    pub fn is_paused(&self) -> bool {
        self.region.control().pauses.load(Ordering::Relaxed) & 1 != 0
    }

    /// Begins or ends a pause, unless that is already the state. `by`: one of [`tape::event::pause_by`].
    pub fn pause(&mut self, pause: bool, by: u32, out: &mut Output) {
        let tsc = crate::clock::tsc();
        if !self.region.control().pause(pause, tsc) {
            return;
        }
        if !pause {
            self.resumed = tsc;
        }
        let body = PauseBody { paused: pause.into(), by };
        self.tell(WRITER, &event(kind::PAUSE, 0, tsc, &body), out);
    }

    /// One round over all rings. Returns the bytes that it took.
    ///
    /// If a thread moved from one ring to another, its events in the old ring are taken first. Its new ring waits, and is
    /// visited again after the others.
    pub fn round(&mut self, session: &Session, out: &mut Output, counters: &mut Counters) -> usize {
        let mut taken = 0;
        self.map_new_rings();
        // (A short child has ended before it is found, and takes no further ring.)
        if self.handle.was_there() {
            self.region.keep_ahead(session, AHEAD);
        }
        for _ in 0..PASSES {
            let (mut more, mut waiting) = (0, Vec::new());
            self.region.make_ready();
            for i in self.region.mapped() {
                let (n, waits) = self.ring(i, out, counters);
                more += n;
                waiting.extend(waits.then_some(i));
            }
            taken += more;
            if waiting.is_empty() {
                break;
            }
            // A ring that they wait for may be newer than the last look.
            if !self.map_new_rings() && more == 0 {
                // They wait for one another. No agent writes that, so the program overwrote them.
                for i in waiting {
                    if let Some(ring) = self.region.ring_mut(i) {
                        ring.settled = Some(ring.reader.taken());
                    }
                }
            }
        }
        taken + self.take_ends(out)
    }

    /// After the rings, so that a kernel's launch is on the tape before its end.
    fn take_ends(&mut self, out: &mut Output) -> usize {
        let region = &self.region;
        let ends = self.ends.take(region.control(), || region.stamps());
        self.tell(stamp::WRITER, &ends, out);
        ends.len()
    }

    /// True if there were new rings.
    fn map_new_rings(&mut self) -> bool {
        let before = self.region.mapped().count();
        if let Err(e) = self.region.map_new_rings()
            && self.unmapped.is_none()
        {
            self.unmapped = Some(e.to_string());
        }
        self.region.mapped().count() > before
    }

    /// Takes the events in ring `i`, up to a few chunks, so that a busy thread does not starve the others. Returns the
    /// number of bytes, and whether the next events must wait for another ring.
    fn ring(&mut self, i: usize, out: &mut Output, counters: &mut Counters) -> (usize, bool) {
        let mut taken = 0;
        while taken < 8 * CHUNK
            && let Some(ring) = self.region.ring_mut(i)
        {
            let bytes = ring.reader.available();
            if bytes.is_empty() {
                let damaged = ring.reader.is_damaged();
                let new = damaged && !std::mem::replace(&mut ring.head_noted, damaged);
                ring.head_noted = damaged;
                if new {
                    out.note(&format!("{}ring {i}: its head was overwritten; events may be missing", self.who()));
                }
                break;
            }
            let lost = bytes.len();
            // A copy, which the program cannot change.
            let mut chunk = out.room();
            chunk.extend_from_slice(bytes.get(..CHUNK + MAX_EVENT).unwrap_or(bytes));
            let (threads, waits) = self.take(i, &chunk, counters);
            let n = threads.iter().map(|(_, n)| n).sum();
            taken += n;
            if n > 0 {
                chunk.truncate(n);
                out.events(self.index, threads, chunk);
            } else {
                out.keep(chunk);
            }
            if waits {
                return (taken, true);
            }
            if n == 0 {
                // These bytes are not the agent's: the program overwrote its ring. Continue where the next event will
                // be.
                let Some(ring) = self.region.ring_mut(i) else { break };
                ring.reader.take(lost);
                ring.strange += lost as u64;
                taken += lost;
                out.note(&format!("{}ring {i}: {lost} bytes are no events, skipped", self.who()));
                break;
            }
        }
        (taken, false)
    }

    /// Takes the whole events at the start of `chunk` from ring `i`. Returns the bytes of each thread, in order, and whether the next thread's events
    /// must wait for another ring. (Short threads leave hundreds of such runs in a ring.)
    fn take(&mut self, i: usize, chunk: &[u8], counters: &mut Counters) -> (Vec<(i32, usize)>, bool) {
        let (mut threads, mut at) = (Vec::new(), 0);
        while let Some(rest) = chunk.get(at..) {
            let n = events_of_one_thread(rest, CHUNK - at);
            let first = Event::parse(rest).map(|(event, _)| event.body);
            if n == 0 {
                break;
            }
            if let Some(Body::Thread(t)) = &first
                && self.comes_later(i, t)
            {
                return (threads, true);
            }
            let Some(ring) = self.region.ring_mut(i) else { break };
            if let Some(Body::Thread(t)) = first {
                ring.tid = t.tid;
            }
            // If no event names the thread, the ring's head does.
            let tid = if ring.tid != 0 { ring.tid } else { ring.head().tid.load(Ordering::Relaxed) };
            // Before the chunk is written: a slow disk must not keep the ring full.
            ring.reader.take(n);
            counters.pass(self.pid, tid, &rest[..n]);
            if self.region.control().contents & contents::CALLS != 0 {
                self.work.pass(tid, &rest[..n]);
            }
            if self.region.control().contents & contents::LOCKS != 0 {
                self.signalled.pass(tid, &rest[..n]);
            }
            threads.push((tid, n));
            at += n;
        }
        (threads, false)
    }

    /// True if the thread moved to ring `i` from a ring that still holds its events.
    fn comes_later(&self, i: usize, t: &ThreadBody) -> bool {
        let settled = self.region.ring(i).is_some_and(|r| r.settled == Some(r.reader.taken()));
        if t.from_ring == NO_RING || t.from_ring as usize == i || settled {
            return false;
        }
        let Some(from) = self.region.ring(t.from_ring as usize) else {
            // Not mapped yet, if there is such a ring.
            return (t.from_ring as usize) < RINGS;
        };
        // (Wrapping: both are counts. A difference above half the range means that the head is before the taken
        // events.)
        let left = t.from_head.wrapping_sub(from.reader.taken());
        left != 0 && left < 1 << 63 && !from.reader.available().is_empty()
    }

    /// For notes, if there is more than one process.
    fn who(&self) -> String {
        if self.index == 0 { String::new() } else { format!("process {}: ", self.pid) }
    }

    /// The numbers of its threads that own rings. Empty if the process is in its own pid namespace, where it sees other
    /// numbers.
    pub fn threads(&self) -> Vec<i32> {
        if self.region.control().pid.load(Ordering::Relaxed) != self.pid {
            return Vec::new();
        }
        let t = self.region.table();
        self.region.mapped().filter_map(|i| Some(t.owner(i)?.tid())).filter(|t| *t > 0).collect()
    }

    /// Frees rings whose threads died without giving them back. Returns their number.
    pub fn free_dead(&mut self, out: &mut Output, counters: &mut Counters) -> usize {
        if self.region.control().pid.load(Ordering::Relaxed) != self.pid {
            return 0;
        }
        let owned = |i: usize| Some((i, self.region.table().owner(i)?));
        let mut dead: Vec<_> = self.region.mapped().filter_map(owned).collect();
        if dead.is_empty() {
            return 0;
        }
        // A listing omits threads while others are created and end. It finds the living quickly, and the rest is checked
        // one by one. It is read after the rings, so a thread that claims a ring now is not taken for dead.
        let Some(alive) = threads(self.pid) else { return 0 };
        dead.retain(|(_, owner)| !alive.contains(&owner.tid()) && !processes::has_thread(self.pid, owner.tid()));
        let mut freed = 0;
        for (i, owner) in dead {
            // The thread may have published between the look and its death.
            while matches!(self.ring(i, out, counters), (1.., _)) {}
            let Some(ring) = self.region.ring(i) else { continue };
            if ring.reader.is_damaged() {
                ring.reader.skip_to_head();
            }
            let held = held(ring);
            if self.region.table().free(i, owner) {
                freed += 1;
                self.tell(owner.tid(), &held, out);
            }
        }
        freed
    }

    /// The locks that its threads hold and wait for, and the calls that they are in, as events of each thread.
    pub fn held(&self) -> Vec<(i32, Vec<u8>)> {
        let of = |i: usize| {
            let (owner, ring) = (self.region.table().owner(i)?, self.region.ring(i)?);
            Some((owner.tid(), held(ring))).filter(|(_, events)| !events.is_empty())
        };
        self.region.mapped().filter_map(of).collect()
    }

    /// A part of the recording has ended: for each thread that waits for a lock, the lock, the thread that it names as its
    /// holder, and the call in which it waits. All have one time stamp: the holder is of that moment of the wait.
    pub fn tell_waits(&mut self, out: &mut Output) {
        let (mut told, tsc) = (Vec::new(), crate::clock::tsc());
        for i in self.region.mapped() {
            let (Some(owner), Some(ring)) = (self.region.table().owner(i), self.region.ring(i)) else { continue };
            let Some(lock) = waits_for(ring) else { continue };
            let mut events = in_lock(lock, left::WAITING, tsc);
            events.extend(in_call(ring.call(), tsc).unwrap_or_default());
            told.push((owner.tid(), events));
            told.extend(self.holder(lock, tsc));
        }
        for (tid, events) in told {
            self.tell(tid, &events, out);
        }
    }

    /// The thread that a lock names as its holder, as an event of that thread. If it took the lock in the part of the
    /// recording that has just ended, the event has when and where.
    fn holder(&self, lock: &HeldLock, tsc: u64) -> Option<(i32, Vec<u8>)> {
        let (flags, waited) = lock.event(left::WAITING);
        let tid = lock_word::holder(self.pid, waited.addr, (flags >> 8) as u8)?;
        let mut events = Vec::new();
        // (In a process of another pid namespace, threads have other numbers in /proc.)
        if self.region.control().pid.load(Ordering::Relaxed) == self.pid {
            if !processes::has_thread(self.pid, tid) {
                return None;
            }
            let names = self.region.control().contents & contents::NO_NAMES == 0;
            if let Some(body) = sched::body(self.pid, tid, names) {
                events.extend_from_slice(&event(lock::kind::SCHED, 0, tsc, &body));
            }
        }
        let is_owners = |i: &usize| self.region.table().owner(*i).is_some_and(|owner| owner.tid() == tid);
        let ring = self.region.mapped().find(is_owners).and_then(|i| self.region.ring(i));
        let taken = ring
            .into_iter()
            .flat_map(held_rows)
            .map(|row| row.event(left::HELD).1)
            .find(|row| row.addr == waited.addr && row.waiting == left::HELD && row.since >= self.resumed);
        let (site, since) = taken.map_or((0, 0), |row| (row.site, row.since));
        let body = HeldBody { addr: waited.addr, site, since, wait: 0, result: 0, waiting: left::NAMED };
        events.extend_from_slice(&event(lock::kind::HELD, flags, tsc, &body));
        Some((tid, events))
    }

    /// The calls that its threads are in: thread, function and when the call began.
    pub fn calls(&self) -> Vec<(i32, u16, u64)> {
        let of = |i: usize| {
            let (owner, ring) = (self.region.table().owner(i)?, self.region.ring(i)?);
            let (function, body) = ring.call().event()?;
            Some((owner.tid(), function, body.began))
        };
        self.region.mapped().filter_map(of).collect()
    }

    /// Takes all remaining events, and writes to the tape what the threads held and waited for when the program ended.
    pub fn finish(&mut self, session: &Session, out: &mut Output, counters: &mut Counters) {
        // (A process that still runs may keep writing to its rings.)
        let begun = Instant::now();
        while self.round(session, out, counters) > 0 && begun.elapsed() < LAST {}
        for i in self.region.mapped() {
            let Some(owner) = self.region.table().owner(i) else { continue };
            let held = self.region.ring(i).map(held).unwrap_or_default();
            self.tell(owner.tid(), &held, out);
        }
    }

    /// Writes events that the recorder makes.
    pub fn tell(&mut self, tid: i32, events: &[u8], out: &mut Output) {
        let mut rest = events;
        while !rest.is_empty() {
            let n = whole_events(rest, CHUNK);
            let (part, later) = rest.split_at(if n == 0 { rest.len() } else { n });
            out.events(self.index, vec![(tid, part.len())], part.to_vec());
            rest = later;
        }
    }

    /// Events, entries and bytes that did not fit into the rings or occurred after the recording had stopped.
    pub fn gaps(&self) -> Dropped {
        self.region.mapped().filter_map(|i| self.region.ring(i)).fold(self.dropped, |d, r| {
            let h = r.head();
            Dropped {
                events: d.events.saturating_add(counter(&h.gap_events).unwrap_or(0)),
                entries: d.entries.saturating_add(counter(&h.gap_entries).unwrap_or(0)),
                bytes: d.bytes.saturating_add(counter(&h.gap_bytes).unwrap_or(0)),
            }
        })
    }

    /// Calls that its threads made and did not write.
    pub fn short_calls(&self) -> u64 {
        let rings = self.region.mapped().filter_map(|i| self.region.ring(i));
        rings.map(|r| counter(&r.head().short_calls).unwrap_or(0)).fold(0, u64::saturating_add)
    }

    /// True if counters of losses have values that no program reaches.
    pub fn has_wild_counters(&self) -> bool {
        let of_ring = |h: &RingHead| [&h.gap_events, &h.gap_entries, &h.gap_bytes].iter().any(|n| counter(n).is_none());
        let c = self.region.control();
        [&c.ringless, &c.strangers, &c.trapped, &c.tapped, &c.paused_rings].iter().any(|n| counter(n).is_none())
            || self.region.mapped().filter_map(|i| self.region.ring(i)).any(|r| of_ring(r.head()))
    }

    /// Bytes in its rings that were no events.
    pub fn strange(&self) -> u64 {
        self.region.mapped().filter_map(|i| self.region.ring(i)).map(|r| r.strange).sum()
    }

    pub fn took(&self) -> Duration {
        self.begun.elapsed()
    }
}

/// A counter in the shared memory; `None` if the program has overwritten it: at a million a second it takes nine years to get there.
pub fn counter(n: &AtomicU64) -> Option<u64> {
    Some(n.load(Ordering::Relaxed)).filter(|n| *n < 1 << 48)
}

/// The unreported losses of a ring's thread, the locks that it holds and waits for, and the call that it is in, as
/// events.
fn held(ring: &Ring) -> Vec<u8> {
    let mut out = Vec::new();
    let tsc = crate::clock::tsc();
    if let Some(gap) = gap_left(ring.head()).filter(|_| counter(&ring.head().gap_events).is_some()) {
        out.extend_from_slice(&event(kind::GAP, 0, tsc, &gap));
    }
    held_rows(ring).for_each(|h| out.extend_from_slice(&in_lock(h, left::HELD, tsc)));
    waits_for(ring).into_iter().for_each(|h| out.extend_from_slice(&in_lock(h, left::WAITING, tsc)));
    out.extend(in_call(ring.call(), tsc).unwrap_or_default());
    out
}

/// The locks that a ring's thread holds.
fn held_rows(ring: &Ring) -> impl Iterator<Item = &HeldLock> {
    let table = ring.locks();
    table.held.iter().take(table.n.load(Ordering::Relaxed) as usize)
}

/// The lock that a ring's thread waits for.
fn waits_for(ring: &Ring) -> Option<&HeldLock> {
    let table = ring.locks();
    // ORDERING: Acquire pairs with the agent's Release: if the word is 1, the row is complete.
    (table.waits.load(Ordering::Acquire) == 1).then_some(&table.waiting)
}

/// A lock that a thread holds or waits for, as an event.
fn in_lock(lock: &HeldLock, left: u32, tsc: u64) -> Vec<u8> {
    let (flags, body) = lock.event(left);
    event(lock::kind::HELD, flags, tsc, &body)
}

/// The call that a thread is in, as an event; `None` if it is in none.
fn in_call(row: &CallRow, tsc: u64) -> Option<Vec<u8>> {
    let (flags, body) = row.event()?;
    Some(event(call::kind::IN_CALL, flags, tsc, &body))
}

fn event<B: Plain>(kind: u16, flags: u16, tsc: u64, body: &B) -> Vec<u8> {
    let head = Head { kind, flags, len: event_len(size_of::<B>(), 0) as u32, tsc };
    [bytes_of(&head), bytes_of(body)].concat()
}

/// Ids of a process's threads, or most of them; `None` if they cannot be read.
fn threads(pid: i32) -> Option<HashSet<i32>> {
    let dir = std::fs::read_dir(format!("/proc/{pid}/task")).ok()?;
    let mut out = HashSet::new();
    for entry in dir {
        out.insert(entry.ok()?.file_name().to_str()?.parse().ok()?);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    /// A listing of a process's threads omits some that are alive while others are created and end. No ring may be freed
    /// on its evidence alone.
    #[test]
    fn a_thread_that_a_listing_left_out_is_found_alive() {
        let (pid, over) = (std::process::id() as i32, AtomicBool::new(false));
        let missed = std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        std::thread::scope(|s| (0..8).for_each(|_| drop(s.spawn(std::thread::yield_now))));
                    }
                });
            }
            let mut missed = 0;
            // (A listing ends if the thread that it has reached dies: the threads after it are left out.)
            for _ in 0..2000 {
                let (tell, tid) = std::sync::mpsc::channel();
                let (done, wait) = std::sync::mpsc::channel::<()>();
                s.spawn(move || {
                    // SAFETY: no arguments.
                    tell.send(unsafe { libc::syscall(libc::SYS_gettid) as i32 }).unwrap();
                    let _ = wait.recv();
                });
                let tid = tid.recv().unwrap();
                missed += u32::from(threads(pid).is_some_and(|t| !t.contains(&tid)));
                assert!(processes::has_thread(pid, tid));
                drop(done);
            }
            over.store(true, Ordering::Relaxed);
            missed
        });
        println!("{missed} of 2000 listings left out a thread that was alive");
        assert!(!processes::has_thread(pid, i32::MAX));
    }
}
