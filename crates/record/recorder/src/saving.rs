//! Files of a flight recorder, as [`crate::flight`] requests them: the snapshot of the memory, and the thread that writes it. A file
//! has another name until it is complete.

use crate::divided::{Divided, Left, before, divide};
use crate::flight::Schedule;
use crate::kept::{Kept, Pack, plain};
use crate::last::{Held, Last};
use crate::looks::WITHIN;
use crate::output::describe;
use crate::triggers::{KernelCounts, Why};
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use tape::file::{Clock, End, Header, Packer, Process, ProcessEnd, Saved, Unwatched, Writer, unpack};
use tape::live::Looks;

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

/// A request for a file.
#[derive(Default)]
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
    /// Looks at the program, which are still being made.
    pub looks: Option<Receiver<Looks>>,
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
    pub schedule: Arc<Schedule>,
    number: u32,
    thread: Option<JoinHandle<()>>,
}

impl Saver {
    pub fn new(schedule: Arc<Schedule>) -> Saver {
        Saver { schedule, number: 0, thread: None }
    }

    pub fn next_number(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    pub fn start(&mut self, snapshot: Snapshot) {
        self.wait();
        self.schedule.is_saving.store(true, Ordering::Release);
        let schedule = self.schedule.clone();
        let snapshot = Arc::new(Mutex::new(Some(snapshot)));
        let work = {
            let snapshot = snapshot.clone();
            move || run(&schedule, &snapshot)
        };
        match std::thread::Builder::new().name("save".into()).spawn(work) {
            Ok(thread) => self.thread = Some(thread),
            Err(_) => run(&self.schedule, &snapshot),
        }
    }

    fn wait(&mut self) {
        // (A thread that panicked has saved no file.)
        let _ = self.thread.take().map(JoinHandle::join);
    }

    /// Writes the last file, if there is one, and waits for the others.
    pub fn finish(mut self, last: Option<Snapshot>) -> Saves {
        self.wait();
        run(&self.schedule, &Mutex::new(last));
        self.schedule.saves()
    }
}

fn run(schedule: &Schedule, snapshot: &Mutex<Option<Snapshot>>) {
    let snapshot = poison::ignore(snapshot.lock()).take();
    if let Some(snapshot) = snapshot {
        let (why, seconds) = (snapshot.request.why.clone(), snapshot.saved.seconds);
        let request = snapshot.request.number;
        let done = save(&schedule.last, snapshot).map(|(path, bytes)| SavedFile { path, bytes, why, seconds });
        schedule.has_saved(request, done);
    }
    schedule.is_saving.store(false, Ordering::Release);
}

fn save(last: &Last, mut snapshot: Snapshot) -> Result<(PathBuf, u64), String> {
    // (Before its name is taken, by an empty file.)
    let looks = snapshot.request.looks.take().and_then(|looks| looks.recv_timeout(WITHIN).ok());
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
        snapshot.write(file.try_clone()?, &path, looks.as_ref())
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
    pub fn write(mut self, file: std::fs::File, path: &Path, looks: Option<&Looks>) -> io::Result<u64> {
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
            let mut divided = Divided::default();
            divide(&self.kept, pack.tid, events, from, &mut divided, |_| ());
            self.left.add(divided.left);
            self.kept.absorb(pack.process, pack.tid, &divided.lasting, &mut packer);
            let rest = before(&self.kept, pack.tid, &divided.rest, until);
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
        looks.map_or(Ok(()), |looks| w.looks(looks))?;
        let mut end = self.request.end;
        end.seconds = self.header.saved.as_ref().map_or(end.seconds, |s| s.seconds);
        w.end(&end)?;
        Ok(w.bytes())
    }
}
