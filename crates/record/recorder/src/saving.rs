//! Files of a flight recorder: when one is due, and how it is written.
//!
//! A separate thread writes each file from a snapshot, which shares the packed pieces with the queue. So neither the rings nor the thread that gathers
//! events wait for a disk. A file has another name until it is complete. The first failure to write is reported, and the recording continues.

use crate::control::messages::{SaveResult, SavedSoFar};
use crate::kept::{Kept, Pack, plain};
use crate::last::{Held, Last};
use crate::look::{Left, Looked, before, look};
use crate::output::describe;
use crate::triggers::{KernelCounts, Why};
use std::collections::VecDeque;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tape::file::{Clock, End, Header, Packer, Process, ProcessEnd, Saved, Unwatched, Writer, unpack};

/// Time from a trigger to its file, so that the file has the following events.
const AFTER: Duration = Duration::from_millis(100);
/// A trigger within this time after a file saves nothing and is counted.
const APART: Duration = Duration::from_secs(10);
/// Only its owner can read a recording.
const MODE: u32 = 0o600;

/// A file that was saved.
#[derive(Clone, Debug, PartialEq)]
pub struct SavedFile {
    pub path: PathBuf,
    pub bytes: u64,
    pub why: Why,
    /// Time that it covers.
    pub seconds: f64,
}

/// All files of a recording, and counts of those that were not saved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saves {
    pub files: Vec<SavedFile>,
    /// Files that could not be written, and why the first one could not.
    pub failed: u64,
    pub failure: Option<String>,
    /// Triggers soon after a file, and triggers and requests after the last allowed file.
    pub too_soon: u64,
    pub too_many: u64,
    /// With a trigger for kernels.
    pub kernels: Option<KernelCounts>,
}

/// Called with each file once it is written, and with the first failure.
pub type Tell = dyn Fn(Result<&SavedFile, &str>) + Send + Sync;

/// Shared by the thread that drains the rings and the thread that gathers events.
pub struct Shared {
    /// A file may be due.
    is_due: AtomicBool,
    is_saving: AtomicBool,
    state: Mutex<State>,
    last: Last,
    tell: Arc<Tell>,
}

#[derive(Default)]
struct State {
    /// At most one trigger, and requests.
    due: VecDeque<Due>,
    /// When the last file was begun.
    begun: Option<Instant>,
    begun_files: u32,
    /// The number of requests so far, and the latest results.
    requests: u64,
    results: VecDeque<SaveResult>,
    saves: Saves,
}

/// A file that is to be begun at a time.
#[derive(Clone, Debug)]
pub struct Due {
    pub why: Why,
    at: Instant,
    /// The number of the request; `None`: a trigger.
    pub request: Option<u64>,
}

/// Maximum number of remembered results. Each peer has one request at a time.
const RESULTS: usize = 32;

impl Shared {
    pub fn new(last: Last, tell: Arc<Tell>) -> Arc<Shared> {
        Arc::new(Shared {
            is_due: AtomicBool::new(false),
            is_saving: AtomicBool::new(false),
            state: Mutex::default(),
            last,
            tell,
        })
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        poison::ignore(self.state.lock())
    }

    /// A trigger: a file is saved 100 ms later, with the events after it.
    pub fn happened(&self, why: Why, now: Instant) {
        let mut s = self.state();
        if s.due.iter().any(|d| d.request.is_none()) {
            return;
        }
        if s.begun.is_some_and(|at| now.saturating_duration_since(at) < APART) {
            s.saves.too_soon += 1;
        } else {
            let _ = self.make_due(&mut s, Due { why, at: now + AFTER, request: None });
        }
    }

    /// Requests a file now. Returns the number of the request. `None`: the maximum number of files is reached.
    pub fn asked(&self, why: Why) -> Option<u64> {
        let mut s = self.state();
        // An earlier request with the same text whose file is not yet begun will have all these events, too.
        let same = |d: &&Due| (&d.why.reason, &d.why.what) == (&why.reason, &why.what);
        if let Some(number) = s.due.iter().find(same).and_then(|d| d.request) {
            return Some(number);
        }
        let number = s.requests + 1;
        self.make_due(&mut s, Due { why, at: Instant::now(), request: Some(number) }).then(|| {
            s.requests = number;
            number
        })
    }

    fn make_due(&self, s: &mut State, due: Due) -> bool {
        if s.begun_files as usize + s.due.len() >= self.last.most_files as usize {
            s.saves.too_many += 1;
            return false;
        }
        s.due.push_back(due);
        self.is_due.store(true, Ordering::Release);
        true
    }

    /// Maximum number of files.
    pub fn most_files(&self) -> u32 {
        self.last.most_files
    }

    /// The files that were saved so far.
    pub fn so_far(&self) -> SavedSoFar {
        let s = self.state();
        let saves = &s.saves;
        SavedSoFar {
            files: saves.files.len() as u64,
            latest: saves.files.last().map(|f| absolute(&f.path)),
            failed: saves.failed,
            failure: saves.failure.clone(),
            requests: s.results.iter().cloned().collect(),
        }
    }

    /// A file that is to be begun now, once.
    pub fn due(&self, now: Instant) -> Option<Due> {
        // (This is called every millisecond.)
        if !self.is_due.load(Ordering::Acquire) || self.is_saving.load(Ordering::Acquire) {
            return None;
        }
        let mut s = self.state();
        let i = s.due.iter().position(|d| d.at <= now)?;
        let due = s.due.remove(i)?;
        self.is_due.store(!s.due.is_empty(), Ordering::Release);
        (s.begun, s.begun_files) = (Some(now), s.begun_files + 1);
        Some(due)
    }

    /// A file that is due at the end.
    pub fn left(&self) -> Option<Why> {
        self.is_due.store(false, Ordering::Release);
        self.state().due.pop_front().map(|due| due.why)
    }
}

fn absolute(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    path.to_string_lossy().into_owned()
}

/// A request for a file.
pub struct Request {
    pub why: Why,
    /// The number under which a peer waits for it.
    pub number: Option<u64>,
    /// Images that still run: their state now, and the locks that their threads hold and wait for.
    pub ends: Vec<ProcessEnd>,
    pub held: Vec<(u32, i32, Vec<u8>)>,
    /// All events before this time have arrived, of all threads. Later ones may be missing.
    pub until: u64,
    pub clock: Option<Clock>,
    pub end: End,
}

/// The contents of a file.
pub struct Snapshot {
    pub header: Header,
    pub saved: Saved,
    pub left: Left,
    /// The time at which the part begins.
    pub from: u64,
    pub kept: Kept,
    pub queue: Vec<Arc<Held>>,
    pub processes: Vec<Process>,
    pub ended: Vec<(u64, ProcessEnd)>,
    pub notes: Vec<String>,
    pub unwatched: Vec<Unwatched>,
    pub clocks: Vec<Clock>,
    pub request: Request,
}

/// Writes files, one at a time.
pub struct Saver {
    shared: Arc<Shared>,
    number: u32,
    thread: Option<JoinHandle<()>>,
}

impl Saver {
    pub fn new(shared: Arc<Shared>) -> Saver {
        Saver { shared, number: 0, thread: None }
    }

    pub fn happened(&self, why: Why) {
        self.shared.happened(why, Instant::now());
    }

    pub fn next_number(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    pub fn start(&mut self, snapshot: Snapshot) {
        self.wait();
        self.shared.is_saving.store(true, Ordering::Release);
        let shared = self.shared.clone();
        let snapshot = Arc::new(Mutex::new(Some(snapshot)));
        let work = {
            let snapshot = snapshot.clone();
            move || run(&shared, &snapshot)
        };
        match std::thread::Builder::new().name("save".into()).spawn(work) {
            Ok(thread) => self.thread = Some(thread),
            Err(_) => run(&self.shared, &snapshot),
        }
    }

    pub fn finish_with(&mut self, snapshot: Snapshot) {
        self.wait();
        run(&self.shared, &Mutex::new(Some(snapshot)));
    }

    fn wait(&mut self) {
        // (A thread that panicked has saved no file.)
        let _ = self.thread.take().map(JoinHandle::join);
    }

    pub fn finish(mut self) -> Saves {
        self.wait();
        self.shared.state().saves.clone()
    }
}

fn run(shared: &Shared, snapshot: &Mutex<Option<Snapshot>>) {
    let snapshot = poison::ignore(snapshot.lock()).take();
    if let Some(snapshot) = snapshot {
        let (why, seconds) = (snapshot.request.why.clone(), snapshot.saved.seconds);
        let request = snapshot.request.number;
        let done = save(&shared.last, snapshot).map(|(path, bytes)| SavedFile { path, bytes, why, seconds });
        let is_first = {
            let mut s = shared.state();
            match &done {
                Ok(file) => s.saves.files.push(file.clone()),
                Err(e) => {
                    s.saves.failed += 1;
                    s.saves.failure.get_or_insert_with(|| e.clone());
                }
            }
            if let Some(number) = request {
                if s.results.len() >= RESULTS {
                    s.results.pop_front();
                }
                let file = done.as_ref().ok().map(|file| absolute(&file.path));
                s.results.push_back(SaveResult { number, file, failure: done.as_ref().err().cloned() });
            }
            s.saves.failed <= 1
        };
        if done.is_ok() || is_first {
            (shared.tell)(done.as_ref().map_err(String::as_str));
        }
    }
    shared.is_saving.store(false, Ordering::Release);
}

fn save(last: &Last, snapshot: Snapshot) -> Result<(PathBuf, u64), String> {
    // Only the first file of a recording may replace another.
    let is_other = last.name.symlink_metadata().is_ok_and(|m| !m.is_file());
    let claim = if last.force && snapshot.saved.number == 1 && !is_other {
        output::claim(&last.name, MODE, true)
    } else {
        output::claim_next(&last.name, MODE)
    };
    let claim = claim.map_err(|e| e.to_string())?;
    let path = claim.path().to_owned();
    let written = output::replace(&path, |file| {
        file.set_permissions(Permissions::from_mode(MODE))?;
        snapshot.write(file.try_clone()?, &path)
    });
    match written {
        Ok(bytes) => Ok((path, bytes)),
        Err(e) => {
            claim.give_up();
            Err(format!("{}: {}", path.display(), describe(&e)))
        }
    }
}

impl Snapshot {
    /// Writes the file. Returns its size.
    pub fn write(mut self, file: std::fs::File, path: &Path) -> io::Result<u64> {
        let mut packer = Packer::default();
        let from = self.from;
        // Pieces from before the begin: keep the events that later ones depend on, drop the others.
        let mut queue: Vec<(Pack, bool)> = Vec::with_capacity(self.queue.len());
        let until = self.request.until;
        for held in std::mem::take(&mut self.queue) {
            let pack = &held.pack;
            if held.first >= from && held.last < until {
                queue.push((pack.clone(), false));
                continue;
            }
            let mut unpacked = Vec::new();
            let events: &[u8] = match pack.unpacked {
                0 => &pack.payload,
                n => {
                    unpack(&pack.payload, n as usize, &mut unpacked).map_err(io::Error::other)?;
                    &unpacked
                }
            };
            let mut looked = Looked::default();
            look(&self.kept, pack.tid, events, from, &mut looked, |_| ());
            self.left.add(looked.left);
            self.kept.absorb(pack.process, pack.tid, &looked.lasting, &mut packer);
            let rest = before(&self.kept, pack.tid, &looked.rest, until);
            if !rest.is_empty() {
                plain(pack.process, pack.tid, &rest, &mut |p| {
                    queue.push((p.clone(), true));
                    Ok(())
                })?;
            }
        }
        for (_, end) in self.ended.extract_if(.., |(at, _)| *at < from) {
            self.kept.forget(end.index);
            self.processes.retain(|p| p.index != end.index);
            self.left.processes += 1;
        }
        let Left { events, bytes, doorbells, processes } = self.left;
        self.saved = Saved { events, bytes, doorbells, processes, forgotten: self.kept.forgotten, ..self.saved };
        self.header.saved = Some(self.saved);
        let mut w = Writer::begin(file, path, &self.header).map_err(|e| match e {
            tape::file::TapeError::Io { cause, .. } => cause,
            other => io::Error::other(other),
        })?;
        self.clocks.iter().try_for_each(|c| w.clock(c))?;
        self.notes.iter().try_for_each(|n| w.note(n))?;
        self.unwatched.iter().try_for_each(|u| w.unwatched(u))?;
        self.processes.iter().try_for_each(|p| w.process(p))?;
        let mut put = |p: &Pack, pack: bool| {
            let packed = (pack && p.unpacked == 0).then(|| packer.pack(&p.payload)).flatten();
            match packed {
                Some(packed) => w.made_events(p.process, p.tid, p.tsc, packed, p.payload.len() as u32),
                None => w.made_events(p.process, p.tid, p.tsc, &p.payload, p.unpacked),
            }
        };
        self.kept.write(from, &mut |p| put(p, true))?;
        queue.iter().try_for_each(|(p, pack)| put(p, *pack))?;
        for (process, tid, events) in &self.request.held {
            plain(*process, *tid, events, &mut |p| put(p, true))?;
        }
        self.ended.iter().try_for_each(|(_, e)| w.process_end(e))?;
        self.request.ends.iter().try_for_each(|e| w.process_end(e))?;
        self.request.clock.iter().try_for_each(|c| w.clock(c))?;
        let mut end = self.request.end;
        end.seconds = self.header.saved.as_ref().map_or(end.seconds, |s| s.seconds);
        w.end(&end)?;
        Ok(w.bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::last::{Span, why};

    fn shared(most_files: u32) -> Arc<Shared> {
        let last = Last {
            span: Span::Bytes(1 << 20),
            when: Vec::new(),
            name: "a".into(),
            force: false,
            signal: None,
            most_files,
        };
        Shared::new(last, Arc::new(|_| ()))
    }

    #[test]
    fn a_request_and_a_trigger_of_the_same_moment_are_two_files() {
        let s = shared(10);
        let begun = Instant::now();
        s.happened(why("call > 5ms", "cuMemAlloc took 7 ms".into(), 1), begun);
        s.happened(why("call > 5ms", "cuMemFree took 7 ms".into(), 2), begun);
        let first = s.asked(why("doorbell save", "slow".into(), 3)).unwrap();
        let same = s.asked(why("doorbell save", "slow".into(), 4)).unwrap();
        let other = s.asked(why("doorbell save", String::new(), 5)).unwrap();
        assert!(first == same && first != other);
        let due: Vec<_> = std::iter::from_fn(|| s.due(begun + 2 * AFTER)).collect();
        let due: Vec<_> = due.iter().map(|d| (d.why.reason.as_str(), d.request)).collect();
        assert_eq!(due, [("call > 5ms", None), ("doorbell save", Some(first)), ("doorbell save", Some(other))]);
        // A trigger waits, a request does not. A request whose file was begun is not joined.
        assert!(s.due(begun + 2 * AFTER).is_none());
        assert!(s.asked(why("doorbell save", "slow".into(), 6)).unwrap() > other);
        s.happened(why("call > 5ms", String::new(), 7), begun);
        assert_eq!(s.state().saves.too_soon, 1);
    }

    #[test]
    fn files_that_are_due_count_among_those_that_may_be() {
        let s = shared(1);
        s.happened(why("call > 5ms", String::new(), 1), Instant::now());
        assert_eq!((s.asked(why("doorbell save", String::new(), 2)), s.state().saves.too_many), (None, 1));
        assert!(s.due(Instant::now()).is_none() && s.due(Instant::now() + AFTER).is_some());
        assert_eq!(s.asked(why("doorbell save", String::new(), 3)), None);
    }
}
