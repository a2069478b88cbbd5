//! The file: a header and chunks, each with its length and checksum.
//!
//! | bytes | what |
//! |---|---|
//! | 16 | magic `DOORBELL`, version u32, 0 u32 |
//! | ... | chunks: [`ChunkHead`] (40 bytes), payload, padding to 8 |
//!
//! The first chunk is the [`Header`] (JSON), so that a newer writer may say more and an older reader still opens it;
//! events follow as they lay in the rings; [`End`] closes a recording that ended as it should. A reader gives every chunk
//! before a truncation or a flipped bit, then an error with the offset.

use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const MAGIC: &[u8; 8] = b"DOORBELL";
/// Layout version of the file and of the events in it.
pub const VERSION: u32 = 1;
const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"CHNK");
/// No chunk is longer than this; a longer length in a file is corruption.
pub const MAX_CHUNK: usize = 16 << 20;

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    Header = 1,
    /// Events of one thread.
    Events = 2,
    Clock = 3,
    Note = 4,
    End = 5,
}

/// Everything about the program and the machine that the events do not say.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Header {
    /// doorbell's version.
    pub doorbell: String,
    /// Absent with `--no-args`.
    pub args: Option<Vec<String>>,
    pub exe: String,
    /// RFC 3339, UTC.
    pub started: String,
    /// NVIDIA driver, or `soft` for the software GPU.
    pub driver: String,
    pub gpu: String,
    pub cuda: Option<String>,
    pub kernel: String,
    pub cpu: String,
    /// Time stamp counter ticks a second.
    pub tsc_hz: f64,
    /// `auto`, `trap` or `patch`, as asked for.
    pub tap: String,
    /// Payloads were dropped (`--no-data`).
    pub no_data: bool,
    /// Locks were recorded (`--locks`).
    pub locks: bool,
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// Clocks read together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Clock {
    pub tsc: u64,
    /// CLOCK_MONOTONIC, ns.
    pub monotonic_ns: u64,
    /// CLOCK_REALTIME, ns.
    pub realtime_ns: u64,
    /// Largest error of the pair, ns: half the time between the two readings of the tsc around it.
    pub error_ns: u64,
}

/// The last chunk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct End {
    /// `exited 0`, `killed by SIGKILL`, `stopped: No space left on device` ...
    pub how: String,
    pub pid: i32,
    pub exit_code: Option<i32>,
    pub signal: Option<i32>,
    pub seconds: f64,
    /// Doorbells seen by traps and by rewritten sites.
    pub trapped: u64,
    pub tapped: u64,
    /// Doorbells with a token of no known channel.
    pub strangers: u64,
    pub sites_patched: u32,
    /// Counted gaps: events and GPFIFO entries that did not fit into a ring, or came after the recording stopped.
    pub gap_events: u64,
    pub gap_entries: u64,
    pub gap_bytes: u64,
    /// What the agent had trouble with, in words.
    pub trouble: Vec<String>,
    /// Channels as they stood at the end, in particular those that the program did not free.
    pub channels: Vec<EndChannel>,
    /// True if an agent ever reported in.
    pub agent: bool,
}

/// A channel's last state, read from shared memory after the program ended (also after `kill -9`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndChannel {
    pub slot: u32,
    pub generation: u32,
    pub handle: u32,
    pub client: u32,
    pub token: u32,
    /// GP_PUT as last seen by the tap.
    pub put: u32,
    /// Entries it accounts for since the channel began, wraps counted.
    pub entries: u64,
    pub rings: u64,
    pub lost: u64,
    /// GP_PUT in the shadow USERD at the end, if there is one: differs from `put` if the program died between writing it and ringing.
    pub final_put: Option<u32>,
}

/// Why a tape cannot be written or read. Each text says all: a cause in it is not a `source` too, or it would be said twice.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    #[error("{path}: {cause}")]
    Io { path: PathBuf, cause: io::Error },
    #[error("{path}: not a doorbell recording (it does not begin with DOORBELL)")]
    NotATape { path: PathBuf },
    #[error("{path}: recorded with layout version {found}, this doorbell reads version {VERSION}")]
    Version { path: PathBuf, found: u32 },
    #[error("{path}: {what} at offset {offset}; everything before it was read")]
    Damaged { path: PathBuf, offset: u64, what: String },
}

struct ChunkHead {
    kind: u32,
    len: u32,
    crc: u32,
    tid: i32,
    seq: u64,
    tsc: u64,
}

impl ChunkHead {
    const SIZE: usize = 40;

    fn encode(&self) -> [u8; Self::SIZE] {
        let mut b = [0; Self::SIZE];
        b[0..4].copy_from_slice(&CHUNK_MAGIC.to_le_bytes());
        b[4..8].copy_from_slice(&self.kind.to_le_bytes());
        b[8..12].copy_from_slice(&self.len.to_le_bytes());
        b[12..16].copy_from_slice(&self.tid.to_le_bytes());
        b[16..24].copy_from_slice(&self.seq.to_le_bytes());
        b[24..32].copy_from_slice(&self.tsc.to_le_bytes());
        b[32..36].copy_from_slice(&self.crc.to_le_bytes());
        // The head's own checksum: a flipped length must not send the reader astray.
        let own = crc32fast::hash(&b[..36]);
        b[36..40].copy_from_slice(&own.to_le_bytes());
        b
    }

    fn decode(b: &[u8; Self::SIZE]) -> Result<ChunkHead, &'static str> {
        let u32_at = |i: usize| u32::from_le_bytes([b[i], b[i + 1], b[i + 2], b[i + 3]]);
        let u64_at = |i: usize| u32_at(i) as u64 | (u32_at(i + 4) as u64) << 32;
        if u32_at(0) != CHUNK_MAGIC {
            return Err("no chunk begins here");
        }
        if crc32fast::hash(&b[..36]) != u32_at(36) {
            return Err("chunk head fails its checksum");
        }
        let h = ChunkHead {
            kind: u32_at(4),
            len: u32_at(8),
            tid: u32_at(12) as i32,
            seq: u64_at(16),
            tsc: u64_at(24),
            crc: u32_at(32),
        };
        if h.len as usize > MAX_CHUNK {
            return Err("chunk longer than any chunk is");
        }
        Ok(h)
    }
}

/// Writes chunks. Mode 0600.
pub struct Writer {
    file: File,
    path: PathBuf,
    seq: u64,
    bytes: u64,
    /// Where the last chunks began, with their numbers (never the header): what can be given up to make room for the end.
    recent: std::collections::VecDeque<(u64, u64)>,
}

/// Chunks that [`Writer::give_up`] can take back.
const RECENT: usize = 64;

impl Writer {
    /// Creates the file (an existing one is replaced) and writes its header.
    pub fn create(path: &Path, header: &Header) -> Result<Writer, TapeError> {
        let err = |cause| TapeError::Io { path: path.into(), cause };
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .custom_flags(0)
            .open(path)
            .map_err(err)?;
        // An existing file keeps its mode on open; a recording is the user's alone.
        use std::os::unix::fs::PermissionsExt;
        if file.metadata().map_err(err)?.is_file() {
            file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(err)?;
        }
        let mut w = Writer { file, path: path.into(), seq: 0, bytes: 0, recent: Default::default() };
        let mut start = [0; 16];
        start[..8].copy_from_slice(MAGIC);
        start[8..12].copy_from_slice(&VERSION.to_le_bytes());
        w.file.write_all(&start).map_err(err)?;
        w.bytes = 16;
        w.json(Chunk::Header, header).map_err(err)?;
        Ok(w)
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Appends a chunk of whole events of thread `tid`. On an error (a full disk) the file is cut back to the last whole chunk.
    pub fn events(&mut self, tid: i32, tsc: u64, events: &[u8]) -> io::Result<()> {
        self.chunk(Chunk::Events, tid, tsc, events)
    }

    /// On a full disk: cuts off the last chunks until `bytes` are free for what must still be written. False if there were
    /// not enough of them; then as many as there were are cut off.
    pub fn give_up(&mut self, bytes: u64) -> io::Result<bool> {
        use std::io::Seek;
        let full = self.bytes;
        while let Some((at, seq)) = self.recent.pop_back() {
            self.file.set_len(at)?;
            self.file.seek(io::SeekFrom::Start(at))?;
            (self.bytes, self.seq) = (at, seq);
            if full - at >= bytes {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub fn clock(&mut self, c: &Clock) -> io::Result<()> {
        self.json(Chunk::Clock, c)
    }

    pub fn note(&mut self, text: &str) -> io::Result<()> {
        self.json(Chunk::Note, &text)
    }

    pub fn end(&mut self, e: &End) -> io::Result<()> {
        self.json(Chunk::End, e)
    }

    fn json<T: Serialize>(&mut self, kind: Chunk, v: &T) -> io::Result<()> {
        let b = serde_json::to_vec(v)?;
        self.chunk(kind, 0, 0, &b)
    }

    fn chunk(&mut self, kind: Chunk, tid: i32, tsc: u64, payload: &[u8]) -> io::Result<()> {
        if payload.len() > MAX_CHUNK {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "chunk too long"));
        }
        let head = ChunkHead {
            kind: kind as u32,
            len: payload.len() as u32,
            crc: crc32fast::hash(payload),
            tid,
            seq: self.seq,
            tsc,
        };
        let pad = [0u8; 8];
        let pad = &pad[..payload.len().next_multiple_of(8) - payload.len()];
        let written = (|| {
            self.file.write_all(&head.encode())?;
            self.file.write_all(payload)?;
            self.file.write_all(pad)
        })();
        if let Err(e) = written {
            // Leave whole chunks only. If even this fails the reader still stops at the damage.
            use std::io::Seek;
            let _ = self.file.set_len(self.bytes);
            let _ = self.file.seek(io::SeekFrom::Start(self.bytes));
            return Err(e);
        }
        if !matches!(kind, Chunk::Header) {
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back((self.bytes, self.seq));
        }
        self.seq += 1;
        self.bytes += (ChunkHead::SIZE + payload.len() + pad.len()) as u64;
        Ok(())
    }
}

/// One chunk as read.
#[derive(Debug)]
pub enum Item {
    /// Events of one thread, in its order.
    Events {
        tid: i32,
        bytes: Vec<u8>,
    },
    Clock(Clock),
    Note(String),
    End(Box<End>),
    /// A kind that this version does not know.
    Unknown(u32),
}

/// Reads a tape chunk by chunk.
pub struct Reader {
    file: io::BufReader<File>,
    path: PathBuf,
    at: u64,
    seq: u64,
    header: Header,
    done: bool,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Reader, TapeError> {
        let io_err = |cause| TapeError::Io { path: path.into(), cause };
        let file = File::open(path).map_err(io_err)?;
        let mut file = io::BufReader::with_capacity(1 << 20, file);
        let mut start = [0; 16];
        let n = read_up_to(&mut file, &mut start).map_err(io_err)?;
        if n < 8 || &start[..8] != MAGIC {
            return Err(TapeError::NotATape { path: path.into() });
        }
        let found = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
        if n == 16 && found != VERSION {
            return Err(TapeError::Version { path: path.into(), found });
        }
        let mut r = Reader { file, path: path.into(), at: 16, seq: 0, header: Header::default(), done: false };
        let damaged = |what: &str| TapeError::Damaged { path: path.into(), offset: 16, what: what.into() };
        match r.chunk()? {
            Some((kind, _, payload)) if kind == Chunk::Header as u32 => {
                r.header =
                    serde_json::from_slice(&payload).map_err(|e| damaged(&format!("header unreadable ({e})")))?;
                Ok(r)
            }
            _ => Err(damaged("no header")),
        }
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The next chunk; `None` at the end of the file. After an error nothing more comes.
    pub fn item(&mut self) -> Result<Option<Item>, TapeError> {
        if self.done {
            return Ok(None);
        }
        let at = self.at;
        let r = self.chunk();
        self.done = !matches!(r, Ok(Some(_)));
        let Some((kind, tid, payload)) = r? else { return Ok(None) };
        let damaged = |e: serde_json::Error| TapeError::Damaged {
            path: self.path.clone(),
            offset: at,
            what: format!("unreadable chunk ({e})"),
        };
        Ok(Some(match kind {
            2 => Item::Events { tid, bytes: payload },
            3 => Item::Clock(serde_json::from_slice(&payload).map_err(damaged)?),
            4 => Item::Note(serde_json::from_slice(&payload).map_err(damaged)?),
            5 => Item::End(Box::new(serde_json::from_slice(&payload).map_err(damaged)?)),
            k => Item::Unknown(k),
        }))
    }

    fn chunk(&mut self) -> Result<Option<(u32, i32, Vec<u8>)>, TapeError> {
        let path = self.path.clone();
        let offset = self.at;
        let io_err = |cause| TapeError::Io { path: path.clone(), cause };
        let damaged = |what: String| TapeError::Damaged { path: path.clone(), offset, what };
        let mut head = [0; ChunkHead::SIZE];
        let n = read_up_to(&mut self.file, &mut head).map_err(io_err)?;
        if n == 0 {
            return Ok(None);
        }
        if n < head.len() {
            return Err(damaged("the file ends in a chunk head".into()));
        }
        let h = ChunkHead::decode(&head).map_err(|e| damaged(e.into()))?;
        if h.seq != self.seq {
            return Err(damaged(format!("chunk {} where chunk {} should be", h.seq, self.seq)));
        }
        let len = h.len as usize;
        let mut payload = vec![0; len.next_multiple_of(8)];
        let n = read_up_to(&mut self.file, &mut payload).map_err(io_err)?;
        if n < payload.len() {
            return Err(damaged("the file ends in a chunk".into()));
        }
        payload.truncate(len);
        if crc32fast::hash(&payload) != h.crc {
            return Err(damaged("chunk fails its checksum".into()));
        }
        self.at += (ChunkHead::SIZE + len.next_multiple_of(8)) as u64;
        self.seq += 1;
        Ok(Some((h.kind, h.tid, payload)))
    }
}

fn read_up_to(f: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut n = 0;
    while n < buf.len() {
        match f.read(&mut buf[n..]) {
            Ok(0) => break,
            Ok(k) => n += k,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(n)
}
