//! A tape on disk: what its header and last chunk say, and where its chunks of events lie.
//!
//! [`Recording::open`] reads the whole file once, checks every chunk and keeps an index of a few words a chunk, so that
//! [`crate::merge`] can afterwards read all threads side by side with one chunk of each in memory. Damage is no error
//! here: everything before it is served, and [`Recording::damage`] says where it begins.

use crate::event_time::order_key;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tape::event::Event;
use tape::file::{Clock, End, Header, Item, Place, Reader, TapeError};

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
}

/// Where the events of one chunk lie.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkAt {
    pub tid: i32,
    pub offset: u64,
    pub len: usize,
    /// [`order_key`] of the first event.
    pub first: u64,
}

/// An opened tape.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    file: File,
    header: Header,
    clocks: Vec<Clock>,
    notes: Vec<String>,
    end: Option<End>,
    pub(crate) chunks: Vec<ChunkAt>,
    damage: Option<TapeError>,
    bytes: u64,
}

impl Recording {
    /// Reads and checks the file. An error only if not even the header can be read; later damage is kept in
    /// [`Recording::damage`].
    pub fn open(path: &Path) -> Result<Recording, InsightError> {
        let mut reader = Reader::open(path)?;
        let io_err = |cause| TapeError::Io { path: path.into(), cause };
        let file = File::open(path).map_err(io_err)?;
        let mut r = Recording {
            path: path.into(),
            header: reader.header().clone(),
            clocks: Vec::new(),
            notes: Vec::new(),
            end: None,
            chunks: Vec::new(),
            damage: None,
            bytes: 0,
            file,
        };
        loop {
            let item = match reader.item() {
                Ok(Some(item)) => item,
                Ok(None) => break,
                Err(e) => {
                    r.damage = Some(e);
                    break;
                }
            };
            match item {
                Item::Events { tid, bytes, .. } => {
                    if let Some((first, _)) = Event::parse(&bytes) {
                        let Place { offset, len } = reader.place();
                        r.chunks.push(ChunkAt { tid, offset, len, first: order_key(&first) });
                    }
                }
                Item::Clock(c) => r.clocks.push(c),
                Item::Note(n) => r.notes.push(n),
                Item::End(e) => r.end = Some(*e),
                Item::Unknown(kind) => r.notes.push(format!("a chunk of unknown kind {kind} was left out")),
                Item::Process(_) | Item::ProcessEnd(_) | Item::Unwatched(_) => {}
            }
        }
        r.bytes = reader.bytes();
        Ok(r)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    pub fn clocks(&self) -> &[Clock] {
        &self.clocks
    }

    /// Notes that the recorder wrote beside the events.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Absent if the recording did not end as it should.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// Why reading stopped before the end of the file.
    pub fn damage(&self) -> Option<&TapeError> {
        self.damage.as_ref()
    }

    /// True if everything that the program left in its rings is on the tape.
    pub fn is_whole(&self) -> bool {
        // (So the recorder begins what it says of a full disk or a limit.)
        let stopped = |e: &End| e.how.starts_with("recording stopped");
        self.damage.is_none() && self.end.as_ref().is_some_and(|e| !stopped(e))
    }

    /// Bytes of the file that were read and checked.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Time of the earliest event.
    pub fn first_tsc(&self) -> Option<u64> {
        self.chunks.iter().map(|c| c.first).min()
    }

    pub(crate) fn load(&self, chunk: &ChunkAt, into: &mut Vec<u8>) -> Result<(), InsightError> {
        into.resize(chunk.len, 0);
        self.file.read_exact_at(into, chunk.offset).map_err(|cause| InsightError::Reread {
            path: self.path.clone(),
            offset: chunk.offset,
            len: chunk.len,
            cause,
        })
    }
}
