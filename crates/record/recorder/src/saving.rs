//! Files of a flight recorder: when one is due, and how it is written.
//!
//! A file is written by a thread of its own from a snapshot, which shares the packed pieces with the queue: neither the rings nor the thread that
//! gathers events wait for a disk. It has another name until it is whole. What cannot be written is told once, and the recording goes on.

use crate::control::messages::SavedSoFar;
use crate::kept::{Kept, Pack, plain};
use crate::last::{Held, Last};
use crate::look::{Left, Looked, before, look};
use crate::output::describe;
use crate::triggers::Why;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tape::file::{Clock, End, Header, Packer, Process, ProcessEnd, Saved, Unwatched, Writer, unpack};

/// What follows on a trigger is recorded for so long before memory is saved.
const AFTER: Duration = Duration::from_millis(100);
/// Triggers sooner than this after a file are counted, and save nothing.
const APART: Duration = Duration::from_secs(10);
/// A recording is its owner's alone.
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

/// All that was saved, and what was not.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Saves {
    pub files: Vec<SavedFile>,
    /// What could not be saved: how often, and why the first time.
    pub failed: u64,
    pub failure: Option<String>,
    /// Triggers soon after a file, and what came when there were as many files as may be.
    pub too_soon: u64,
    pub too_many: u64,
}

/// Hears of each file at once, and of the first that could not be written.
pub type Tell = dyn Fn(Result<&SavedFile, &str>) + Send + Sync;

/// What both the thread that goes round the rings and the one that gathers events know.
pub struct Shared {
    /// Something may be due.
    is_due: AtomicBool,
    is_saving: AtomicBool,
    state: Mutex<State>,
    last: Last,
    tell: Arc<Tell>,
}

#[derive(Default)]
struct State {
    due: Option<(Why, Instant)>,
    /// When the last file was begun.
    begun: Option<Instant>,
    begun_files: u32,
    saves: Saves,
}

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
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A trigger: memory is saved a little later, so that what follows is seen.
    pub fn happened(&self, why: Why, now: Instant) {
        let mut s = self.state();
        if s.due.is_some() {
            return;
        }
        if s.begun.is_some_and(|at| now.saturating_duration_since(at) < APART) {
            s.saves.too_soon += 1;
        } else {
            let _ = self.make_due(&mut s, why, now + AFTER);
        }
    }

    /// Somebody asks for a file: at once. False: there are as many as may be.
    pub fn asked(&self, why: Why) -> bool {
        let mut s = self.state();
        self.make_due(&mut s, why, Instant::now())
    }

    fn make_due(&self, s: &mut State, why: Why, at: Instant) -> bool {
        if s.begun_files >= self.last.most_files {
            s.saves.too_many += 1;
            return false;
        }
        s.due = Some((why, at));
        self.is_due.store(true, Ordering::Release);
        true
    }

    /// Files at most.
    pub fn most_files(&self) -> u32 {
        self.last.most_files
    }

    /// What was saved so far.
    pub fn so_far(&self) -> SavedSoFar {
        let saves = &self.state().saves;
        SavedSoFar {
            files: saves.files.len() as u64,
            latest: saves.files.last().map(|f| {
                let path = std::path::absolute(&f.path).unwrap_or_else(|_| f.path.clone());
                path.to_string_lossy().into_owned()
            }),
            failed: saves.failed,
            failure: saves.failure.clone(),
        }
    }

    /// Why memory is to be saved now. Says it once.
    pub fn due(&self, now: Instant) -> Option<Why> {
        // (Asked for each millisecond.)
        if !self.is_due.load(Ordering::Acquire) || self.is_saving.load(Ordering::Acquire) {
            return None;
        }
        let mut s = self.state();
        let (why, _) = s.due.take_if(|(_, at)| *at <= now)?;
        self.is_due.store(false, Ordering::Release);
        (s.begun, s.begun_files) = (Some(now), s.begun_files + 1);
        Some(why)
    }

    /// What is due still, at the end.
    pub fn left(&self) -> Option<Why> {
        self.is_due.store(false, Ordering::Release);
        self.state().due.take().map(|(why, _)| why)
    }
}

/// A file is to be written.
pub struct Request {
    pub why: Why,
    /// Images that go on: how they are at this moment, and what their threads hold and wait for.
    pub ends: Vec<ProcessEnd>,
    pub held: Vec<(u32, i32, Vec<u8>)>,
    /// What came until then has come of all threads; what came later may lack what others did.
    pub until: u64,
    pub clock: Option<Clock>,
    pub end: End,
}

/// All that a file needs.
pub struct Snapshot {
    pub header: Header,
    pub saved: Saved,
    pub left: Left,
    /// Where the part begins.
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
        // (One that panicked has saved nothing.)
        let _ = self.thread.take().map(JoinHandle::join);
    }

    pub fn finish(mut self) -> Saves {
        self.wait();
        self.shared.state().saves.clone()
    }
}

fn run(shared: &Shared, snapshot: &Mutex<Option<Snapshot>>) {
    let snapshot = snapshot.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(snapshot) = snapshot {
        let (why, seconds) = (snapshot.request.why.clone(), snapshot.saved.seconds);
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
    /// Writes the file, and says how long it is.
    pub fn write(mut self, file: std::fs::File, path: &Path) -> io::Result<u64> {
        let mut packer = Packer::default();
        let from = self.from;
        // What of the queue was over before the part begins: what lasts of it is kept, the rest left out.
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
