//! A tape on disk: the contents of its chunks that are not events, and where its chunks of events are.
//!
//! [`Recording::open`] reads chunk after chunk, all but the events, and keeps a few words of each chunk. [`crate::merge`] can then read all threads
//! in parallel with one chunk of each in memory. Other events are never read. Damage is no error here. Everything before a damaged chunk head is
//! readable, except for chunks whose events are damaged. [`Recording::damage`] reports the damage.

use crate::event_time::order_key;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use tape::event::Event;
use tape::file::{Clock, End, Header, Item, Place, Process, ProcessEnd, Reader, TapeError, Unwatched};
use tape::live::Looks;

#[derive(Debug, thiserror::Error)]
pub enum InsightError {
    #[error(transparent)]
    Tape(#[from] TapeError),
    #[error(
        "{path}: its {what} were recorded with layout {found}, this doorbell reads layout {known}; the doorbell that \
         recorded it can show them"
    )]
    Layout { path: PathBuf, what: &'static str, found: u32, known: u32 },
    #[error("{path}: reading {len} bytes at offset {offset} again: {cause}")]
    Reread { path: PathBuf, offset: u64, len: usize, cause: std::io::Error },
    #[error("{path}: has no process {pid}; it has {known}")]
    NoProcess { path: PathBuf, pid: i32, known: String },
    #[error("{path}: {what} were not recorded")]
    NotRecorded { path: PathBuf, what: &'static str },
    /// What is asked for needs all operations of locks.
    #[error(
        "{path}: {what} needs every operation of locks, and this recording has waits only (`record --locks=waits`)"
    )]
    WaitsOnly { path: PathBuf, what: &'static str },
}

/// Where the events of one chunk are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkAt {
    pub source: Source,
    pub place: Place,
}

/// The process image and the thread of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Source {
    /// Index of the process image in the recording.
    pub process: u32,
    pub tid: i32,
}

pushbuf::snapshot!(Source { process, tid });

/// A process image: its begin and its end, as far as they are known.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pub process: Process,
    /// Absent if the recording was cut before.
    pub end: Option<ProcessEnd>,
}

/// An opened tape.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    file: File,
    version: u32,
    header: Header,
    clocks: Vec<Clock>,
    notes: Vec<String>,
    /// The selected images, by index.
    images: Vec<Image>,
    unwatched: Vec<Unwatched>,
    end: Option<End>,
    /// What the threads did when a flight recorder saved the file.
    looks: Option<Box<Looks>>,
    summary: Option<Vec<u8>>,
    /// Where walks can begin.
    checkpoints: Vec<Place>,
    /// One process was selected.
    selected: bool,
    pub(crate) chunks: Vec<ChunkAt>,
    /// The first damage found. (Damage of events is found when they are read.)
    damage: OnceLock<TapeError>,
    bytes: u64,
}

impl Recording {
    /// Reads all but events. An error only if not even the header can be read; later damage is kept in [`Recording::damage`].
    pub fn open(path: &Path) -> Result<Recording, InsightError> {
        Recording::open_watched(path, &mut |_, _| ())
    }

    /// As [`Recording::open`]; calls `progress` with the bytes read and the total.
    pub fn open_watched(path: &Path, progress: &mut dyn FnMut(u64, u64)) -> Result<Recording, InsightError> {
        let reader = Reader::open(path)?.unread();
        let mut r = Recording::empty(path, &reader)?;
        r.read(reader, progress);
        r.imply();
        Ok(r)
    }

    /// Opens one process's part, with all its images. The other processes' events are not read if the file has an index.
    pub fn open_process(path: &Path, pid: i32, progress: &mut dyn FnMut(u64, u64)) -> Result<Recording, InsightError> {
        let reader = Reader::open(path)?.without_events();
        let mut r = Recording::empty(path, &reader)?;
        r.read(reader, &mut |_, _| ());
        r.imply();
        let wanted: Vec<u32> = r.images.iter().filter(|i| i.process.pid == pid).map(|i| i.process.index).collect();
        if wanted.is_empty() {
            let mut known: Vec<String> = r.images.iter().take(20).map(|i| i.process.pid.to_string()).collect();
            known.dedup();
            return Err(InsightError::NoProcess { path: path.into(), pid, known: known.join(", ") });
        }
        let all = std::mem::take(&mut r.images);
        r.images = all.into_iter().filter(|i| wanted.contains(&i.process.index)).collect();
        r.selected = true;
        for index in wanted {
            let mut only = Recording::empty(path, &Reader::open(path)?)?;
            only.read(Reader::open(path)?.unread().only(index), progress);
            r.chunks.extend(only.chunks.into_iter().filter(|c| c.source.process == index));
            only.damage.into_inner().into_iter().for_each(|damage| r.damaged(damage));
        }
        Ok(r)
    }

    /// An error if it does not have what is asked for.
    pub fn must_have(&self, has: bool, what: &'static str) -> Result<(), InsightError> {
        let missing = || InsightError::NotRecorded { path: self.path().into(), what };
        has.then_some(()).ok_or_else(missing)
    }

    fn empty(path: &Path, reader: &Reader) -> Result<Recording, InsightError> {
        let file = File::open(path).map_err(|cause| TapeError::Io { path: path.into(), cause })?;
        Ok(Recording {
            path: path.into(),
            version: reader.version(),
            header: reader.header().clone(),
            clocks: Vec::new(),
            notes: Vec::new(),
            images: Vec::new(),
            unwatched: Vec::new(),
            end: None,
            looks: None,
            summary: None,
            checkpoints: Vec::new(),
            selected: false,
            chunks: Vec::new(),
            damage: OnceLock::new(),
            bytes: 0,
            file,
        })
    }

    fn read(&mut self, mut reader: Reader, progress: &mut dyn FnMut(u64, u64)) {
        let size = self.file.metadata().map_or(0, |m| m.len());
        let mut images = BTreeMap::new();
        loop {
            let item = match reader.item() {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(e) => {
                    self.damaged(e);
                    break;
                }
            };
            progress(reader.bytes(), size);
            match item {
                Item::Events { process, tid, .. } => {
                    self.chunks.push(ChunkAt { source: Source { process, tid }, place: reader.place() });
                }
                Item::Clock(c) => self.clocks.push(c),
                Item::Note(n) => self.notes.push(n),
                Item::Process(p) => {
                    let index = p.index;
                    image(&mut images, index).process = *p;
                }
                Item::ProcessEnd(e) => {
                    let index = e.index;
                    image(&mut images, index).end = Some(*e);
                }
                Item::Unwatched(u) => self.unwatched.push(*u),
                Item::End(e) => self.end = Some(*e),
                Item::Looks(looks) => self.looks = Some(looks),
                Item::Summary(s) => self.summary = Some(s),
                Item::Checkpoint => self.checkpoints.push(reader.place()),
                Item::Unknown(kind) => self.notes.push(format!("a chunk of unknown kind {kind} was left out")),
            }
        }
        self.bytes = reader.bytes();
        // Images of which only events are on the tape.
        for c in &self.chunks {
            image(&mut images, c.source.process);
        }
        self.images = images.into_values().collect();
    }

    /// Fills in a recording's only image from the end of the recording.
    fn imply(&mut self) {
        if let ([image], Some(end)) = (&mut self.images[..], &self.end)
            && image.process.pid == 0
        {
            image.process.pid = end.pid;
        }
        if let [image] = &mut self.images[..]
            && image.process.exe.is_empty()
        {
            (image.process.exe, image.process.args) = (self.header.exe.clone(), self.header.args.clone());
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Layout version of the file: version 1 has only the first process.
    pub fn version(&self) -> u32 {
        self.version
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Rate of the time stamps. If the tape does not have it, one tick is taken as a nanosecond.
    pub fn hz(&self) -> f64 {
        let hz = self.header.tsc_hz;
        if hz.is_finite() && hz > 0.0 { hz } else { 1e9 }
    }

    /// Ticks of the time stamp counter as nanoseconds.
    pub fn ns(&self, ticks: u64) -> u64 {
        (ticks as f64 / self.hz() * 1e9).round() as u64
    }

    pub fn clocks(&self) -> &[Clock] {
        &self.clocks
    }

    /// Notes that the recorder wrote, which are not events.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The process images in the order of their indices; only those of one process if one was selected.
    pub fn images(&self) -> &[Image] {
        &self.images
    }

    pub fn image_of(&self, index: u32) -> Option<&Image> {
        let at = self.images.partition_point(|i| i.process.index < index);
        self.images.get(at).filter(|i| i.process.index == index)
    }

    /// The process of an image.
    pub fn pid(&self, index: u32) -> i32 {
        self.image_of(index).map_or(0, |i| i.process.pid)
    }

    /// True if this is one process of several.
    pub fn is_selected(&self) -> bool {
        self.selected
    }

    /// Programs that were started and could not be recorded.
    pub fn unwatched(&self) -> &[Unwatched] {
        &self.unwatched
    }

    /// Absent if the recording did not end as it should.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Two looks at the program, made when a flight recorder saved this recording.
    pub fn looks(&self) -> Option<&Looks> {
        self.looks.as_deref()
    }

    /// The summary stored in the file, in its stored form.
    pub(crate) fn stored_summary(&self) -> Option<&[u8]> {
        self.summary.as_deref()
    }

    /// For each place where a walk can begin, the latest time stamp of a submission before it.
    pub(crate) fn checkpoints(&self) -> impl Iterator<Item = u64> {
        self.checkpoints.iter().map(|place| place.tsc)
    }

    /// The stored state of a checkpoint; `None` if it is damaged.
    pub(crate) fn load_checkpoint(&self, number: usize, into: &mut Vec<u8>) -> Option<()> {
        self.checkpoints.get(number)?.load(&self.file, into).ok()
    }

    /// Whether the first chunks of each thread, as many as `first` gives, are intact.
    pub(crate) fn are_whole(&self, first: &HashMap<Source, usize>) -> bool {
        let (mut buffer, mut left) = (Vec::new(), first.clone());
        self.chunks.iter().all(|c| match left.get_mut(&c.source) {
            Some(n) if *n > 0 => {
                *n -= 1;
                c.place.is_whole(&self.file, &mut buffer)
            }
            _ => true,
        })
    }

    /// Whether all chunks of events are intact. Reads them for that, but does not unpack them.
    pub(crate) fn events_are_whole(&self) -> bool {
        let mut buffer = Vec::new();
        self.chunks.iter().all(|c| c.place.is_whole(&self.file, &mut buffer))
    }

    /// How the images ended, as far as the tape has it.
    pub fn ends(&self) -> impl Iterator<Item = &ProcessEnd> {
        self.images.iter().filter_map(|i| i.end.as_ref())
    }

    /// A total over the selected images: from the recording's end, or from the images' own ends if one process was selected.
    pub fn total(&self, of_all: fn(&End) -> u64, of_one: fn(&ProcessEnd) -> u64) -> u64 {
        match (&self.end, self.selected) {
            (Some(e), false) => of_all(e),
            _ => self.ends().map(of_one).fold(0, u64::saturating_add),
        }
    }

    /// Why not all of the file could be read, as far as is known by now.
    pub fn damage(&self) -> Option<&TapeError> {
        self.damage.get()
    }

    fn damaged(&self, e: TapeError) {
        // The first damage is kept.
        let _ = self.damage.set(e);
    }

    /// True if everything that the program left in its rings is on the tape.
    pub fn is_whole(&self) -> bool {
        // The recorder's text for a full disk or a limit begins like this.
        let stopped = |e: &End| e.how.starts_with("recording stopped");
        self.damage().is_none() && self.end.as_ref().is_some_and(|e| !stopped(e))
    }

    /// Number of readable bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Time of the earliest event.
    pub fn first_tsc(&self) -> Option<u64> {
        let (mut earliest, mut bytes) = (None::<u64>, Vec::new());
        let mut chunks: Vec<&ChunkAt> = self.chunks.iter().collect();
        chunks.sort_by_key(|c| c.place.tsc);
        for c in chunks {
            if earliest.is_some_and(|earliest| c.place.tsc >= earliest) {
                break;
            }
            self.load(c, &mut bytes).ok()?;
            let first = Event::parse(&bytes).map(|(e, _)| order_key(&e));
            earliest = first.into_iter().chain(earliest).min();
        }
        earliest
    }

    /// Reads a chunk's events. If they are damaged, `into` is empty afterwards, and [`Recording::damage`] reports it.
    pub(crate) fn load(&self, chunk: &ChunkAt, into: &mut Vec<u8>) -> Result<(), InsightError> {
        let Place { offset, len, .. } = chunk.place;
        let path = || self.path.clone();
        match chunk.place.load(&self.file, into) {
            Err(e) if e.kind() == std::io::ErrorKind::InvalidData => {
                self.damaged(TapeError::Events { path: path(), offset, what: e.to_string() });
                into.clear();
                Ok(())
            }
            read => read.map_err(|cause| InsightError::Reread { path: path(), offset, len, cause }),
        }
    }
}

/// The image with that index; made if it does not exist yet.
fn image(images: &mut BTreeMap<u32, Image>, index: u32) -> &mut Image {
    let process = || Process { index, ..Process::default() };
    images.entry(index).or_insert_with(|| Image { process: process(), end: None })
}
