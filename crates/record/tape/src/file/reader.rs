//! Reading a recording, of any version.

use super::chunk::{Chunk, ChunkHead, WHOLE};
use super::index::{Extent, Index};
use super::packed;
use super::{Clock, End, Header, MAGIC, Process, ProcessEnd, TapeError, Unwatched, VERSION};
use crate::live::Looks;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// One chunk as read.
#[derive(Debug)]
pub enum Item {
    /// Events of one thread, in its order.
    Events {
        /// [`Process::index`]
        process: u32,
        tid: i32,
        /// Empty with [`Reader::unread`].
        bytes: Vec<u8>,
    },
    Clock(Clock),
    Note(String),
    Process(Box<Process>),
    ProcessEnd(Box<ProcessEnd>),
    Unwatched(Box<Unwatched>),
    End(Box<End>),
    /// A summary of all that is before it, for the code that made it.
    Summary(Vec<u8>),
    /// All that is known at a place, for the code that made it ([`Reader::place`] loads it).
    Checkpoint,
    Looks(Box<Looks>),
    /// A kind that this version lacks.
    Unknown(u32),
}

thread_local! {
    /// A payload before it is unpacked. Its memory is used again.
    static PACKED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Where a payload is in the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub offset: u64,
    pub len: usize,
    /// For events: the time of the first one (ticks of the time stamp counter).
    pub tsc: u64,
    /// Bytes when it is unpacked (0: it is not packed).
    unpacked: usize,
    crc: u32,
}

const TOO_FULL: &str = "chunk has more events than a recorder packs into its size";

impl Place {
    /// Reads the payload.
    ///
    /// # Errors
    /// It cannot be read, or it is damaged.
    pub fn load(&self, file: &File, into: &mut Vec<u8>) -> io::Result<()> {
        let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
        let read = |into: &mut Vec<u8>| {
            into.resize(self.len, 0);
            file.read_exact_at(into, self.offset)?;
            if crc32fast::hash(into) == self.crc { Ok(()) } else { Err(invalid("chunk fails its checksum")) }
        };
        if self.unpacked == 0 {
            return read(into);
        }
        PACKED.with_borrow_mut(|buffer| {
            read(buffer)?;
            packed::unpack(buffer, self.unpacked, into).map_err(invalid)?;
            if packed::is_too_full(buffer.len(), into) { Err(invalid(TOO_FULL)) } else { Ok(()) }
        })
    }

    /// Whether the payload is unchanged since it was written.
    pub fn is_whole(&self, file: &File, buffer: &mut Vec<u8>) -> bool {
        buffer.resize(self.len, 0);
        file.read_exact_at(buffer, self.offset).is_ok() && crc32fast::hash(buffer) == self.crc
    }
}

/// Which chunks are wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    All,
    /// Those of one image, and those of the whole recording.
    Process(u32),
    /// All but events.
    NoEvents,
}

/// Maximum number of bytes that are read at a time.
const BUFFER: u64 = 1 << 20;
/// The same where only heads are read.
const HEADS: usize = 4096;

/// Reads a tape chunk by chunk.
pub struct Reader {
    file: BufReader<File>,
    path: PathBuf,
    version: u32,
    at: u64,
    /// Bytes of the file when last checked (`None`: not seekable).
    size: Option<u64>,
    seq: u64,
    header: Header,
    done: bool,
    /// The end was read. The chunks after it are an aid: a file without them is whole.
    ended: bool,
    wanted: Wanted,
    reads_events: bool,
    /// The runs still to be read after the current one, if the file has an index.
    extents: Option<VecDeque<Extent>>,
    /// Where the current run ends.
    until: u64,
    place: Place,
    /// Items that are synthesized for a tape of version 1.
    ahead: VecDeque<Item>,
}

impl Reader {
    pub fn open(path: &Path) -> Result<Reader, TapeError> {
        let io_err = |cause| TapeError::Io { path: path.into(), cause };
        let file = File::open(path).map_err(io_err)?;
        let size = size_of(&file);
        let mut file = BufReader::with_capacity(size.unwrap_or(BUFFER).clamp(4096, BUFFER) as usize, file);
        let mut start = [0; 16];
        let n = read_up_to(&mut file, &mut start).map_err(io_err)?;
        if n < 8 || &start[..8] != MAGIC {
            return Err(TapeError::NotATape { path: path.into() });
        }
        let found = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
        if n == 16 && ![1, 2, VERSION].contains(&found) {
            return Err(TapeError::Version { path: path.into(), found });
        }
        let mut r = Reader {
            file,
            path: path.into(),
            version: found,
            at: 16,
            size,
            seq: 0,
            header: Header::default(),
            done: false,
            ended: false,
            wanted: Wanted::All,
            reads_events: true,
            extents: None,
            until: u64::MAX,
            place: Place::default(),
            ahead: VecDeque::new(),
        };
        let damaged = |what: &str| TapeError::Damaged { path: path.into(), offset: 16, what: what.into() };
        match r.chunk()? {
            Some((head, payload)) if head.kind == Chunk::Header as u32 => {
                r.header =
                    serde_json::from_slice(&payload).map_err(|e| damaged(&format!("header unreadable ({e})")))?;
            }
            _ => return Err(damaged("no header")),
        }
        if r.version == 1 {
            let (exe, args) = (r.header.exe.clone(), r.header.args.clone());
            r.ahead.push_back(Item::Process(Box::new(Process { exe, args, ..Process::default() })));
        }
        Ok(r)
    }

    /// From here on returns only chunks of one image and of the whole recording. Those of others are not even read, if
    /// the file is seekable. Call it before the first item.
    pub fn only(mut self, process: u32) -> Reader {
        self.wanted = Wanted::Process(process);
        self.extents = self.index().map(|index| {
            let of = |p| index.of(p).unwrap_or_default();
            union(of(process).iter().chain(of(WHOLE)))
        });
        if self.extents.is_some() {
            self.until = self.at;
        }
        self
    }

    /// From here on everything but events.
    pub fn without_events(mut self) -> Reader {
        self.wanted = Wanted::NoEvents;
        self
    }

    /// From here on events come without their bytes, which are not read and not checked: [`Reader::place`] loads them.
    pub fn unread(mut self) -> Reader {
        self.reads_events = false;
        // (A small buffer: else most of what it reads would be skipped.)
        let at = self.at;
        if self.file.get_ref().metadata().is_ok_and(|m| m.is_file())
            && let Ok(file) = self.file.get_ref().try_clone()
        {
            let mut file = BufReader::with_capacity(HEADS, file);
            if file.seek(SeekFrom::Start(at)).is_ok() {
                self.file = file;
            }
        }
        self
    }

    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Layout version of the file.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Where the payload of the last item is.
    pub fn place(&self) -> Place {
        self.place
    }

    /// Bytes of the file that were read or skipped so far.
    pub fn bytes(&self) -> u64 {
        self.at
    }

    /// The next chunk; `None` at the end of the file, and after an error.
    pub fn item(&mut self) -> Result<Option<Item>, TapeError> {
        if let Some(item) = self.ahead.pop_front() {
            return Ok(Some(item));
        }
        if self.done {
            return Ok(None);
        }
        let r = self.next_item();
        self.done = !matches!(r, Ok(Some(_)));
        r
    }

    fn next_item(&mut self) -> Result<Option<Item>, TapeError> {
        loop {
            if self.at >= self.until && !self.next_extent()? {
                return Ok(None);
            }
            let at = self.at;
            let Some((head, payload)) = self.chunk()? else { return Ok(None) };
            if !self.wants(&head) {
                continue;
            }
            let damaged = |e: serde_json::Error| TapeError::Damaged {
                path: self.path.clone(),
                offset: at,
                what: format!("unreadable chunk ({e})"),
            };
            return Ok(Some(match head.kind {
                2 => Item::Events { process: head.process, tid: head.tid, bytes: payload },
                3 => Item::Clock(serde_json::from_slice(&payload).map_err(damaged)?),
                4 => Item::Note(serde_json::from_slice(&payload).map_err(damaged)?),
                5 => {
                    let mut end: Box<End> = serde_json::from_slice(&payload).map_err(damaged)?;
                    self.ended = true;
                    if self.version == 1 {
                        end.judge();
                        self.ahead.push_back(Item::End(end.clone()));
                        return Ok(Some(Item::ProcessEnd(Box::new(end.of_the_only_process()))));
                    }
                    Item::End(end)
                }
                6 => Item::Process(serde_json::from_slice(&payload).map_err(damaged)?),
                7 => Item::ProcessEnd(serde_json::from_slice(&payload).map_err(damaged)?),
                8 => Item::Unwatched(serde_json::from_slice(&payload).map_err(damaged)?),
                // The index has only places of chunks.
                9 => continue,
                10 => Item::Summary(payload),
                11 => Item::Checkpoint,
                // (A look of another version is left out, and damages nothing.)
                12 => serde_json::from_slice(&payload).map_or(Item::Unknown(12), Item::Looks),
                k => Item::Unknown(k),
            }));
        }
    }

    fn wants(&self, head: &ChunkHead) -> bool {
        match self.wanted {
            Wanted::All => true,
            Wanted::Process(p) => head.process == p || head.process == WHOLE,
            Wanted::NoEvents => head.kind != Chunk::Events as u32,
        }
    }

    /// Seeks to the begin of the next wanted run. False: there is none.
    fn next_extent(&mut self) -> Result<bool, TapeError> {
        let Some(e) = self.extents.as_mut().and_then(VecDeque::pop_front) else { return Ok(false) };
        let io_err = |cause| TapeError::Io { path: self.path.clone(), cause };
        self.file.seek(SeekFrom::Start(e.offset)).map_err(io_err)?;
        (self.at, self.seq, self.until) = (e.offset, e.seq, e.offset.saturating_add(e.bytes));
        Ok(true)
    }

    /// The next chunk, its payload empty if it is not wanted.
    fn chunk(&mut self) -> Result<Option<(ChunkHead, Vec<u8>)>, TapeError> {
        let path = self.path.clone();
        let offset = self.at;
        let io_err = |cause| TapeError::Io { path: path.clone(), cause };
        let damaged = |what: String| TapeError::Damaged { path: path.clone(), offset, what };
        let mut head = [0; ChunkHead::SIZE];
        let head = &mut head[..ChunkHead::size(self.version)];
        let n = read_up_to(&mut self.file, head).map_err(io_err)?;
        if n == 0 || n < head.len() && self.ended {
            return Ok(None);
        }
        if n < head.len() {
            return Err(damaged("the file ends in a chunk head".into()));
        }
        let size = head.len();
        let h = ChunkHead::decode(head, self.version).map_err(|e| damaged(e.into()))?;
        if h.seq != self.seq {
            return Err(damaged(format!("chunk {} where chunk {} should be", h.seq, self.seq)));
        }
        let mut payload = Vec::new();
        let is_read = h.kind != Chunk::Checkpoint as u32 && (self.reads_events || h.kind != Chunk::Events as u32);
        if self.wants(&h) && is_read {
            payload.resize(h.padded(), 0);
            let n = read_up_to(&mut self.file, &mut payload).map_err(io_err)?;
            if n < payload.len() && self.ended {
                return Ok(None);
            }
            if n < payload.len() {
                return Err(damaged("the file ends in a chunk".into()));
            }
            payload.truncate(h.len as usize);
            if crc32fast::hash(&payload) != h.crc {
                return Err(damaged("chunk fails its checksum".into()));
            }
            if h.unpacked != 0 {
                let packed = std::mem::take(&mut payload);
                packed::unpack(&packed, h.unpacked as usize, &mut payload).map_err(|e| damaged(e.into()))?;
                if h.kind == Chunk::Events as u32 && packed::is_too_full(packed.len(), &payload) {
                    return Err(damaged(TOO_FULL.into()));
                }
            }
        } else if !self.skip(offset + size as u64, h.padded() as u64).map_err(io_err)? {
            if self.ended {
                return Ok(None);
            }
            return Err(damaged("the file ends in a chunk".into()));
        }
        let (len, unpacked) = (h.len as usize, h.unpacked as usize);
        self.place = Place { offset: offset + size as u64, len, tsc: h.tsc, unpacked, crc: h.crc };
        self.at += (size + h.padded()) as u64;
        self.seq += 1;
        Ok(Some((h, payload)))
    }

    /// Skips `n` bytes from `at`, the current offset; false if the file ends before.
    fn skip(&mut self, at: u64, n: u64) -> io::Result<bool> {
        if self.size.is_some_and(|size| at.saturating_add(n) > size) {
            // (It may have grown.)
            self.size = size_of(self.file.get_ref());
        }
        if let (Some(size), Ok(by)) = (self.size, i64::try_from(n)) {
            self.file.seek_relative(by)?;
            return Ok(at.saturating_add(n) <= size);
        }
        Ok(io::copy(&mut (&mut self.file).take(n), &mut io::sink())? == n)
    }

    /// True if the file ends with an index. A recording that was cut short has none.
    pub fn has_index(&self) -> bool {
        self.index().is_some()
    }

    /// The index, if the file ends with one that fits it.
    fn index(&self) -> Option<Index> {
        self.numbered_index().map(|(index, _)| index)
    }

    /// The same with the number of its chunk.
    pub(super) fn numbered_index(&self) -> Option<(Index, u64)> {
        let file = self.file.get_ref();
        let size = file.metadata().ok().filter(|m| m.is_file())?.len();
        let mut trailer = [0; 16];
        file.read_exact_at(&mut trailer, size.checked_sub(16)?).ok()?;
        let at = u64::from_le_bytes(trailer[..8].try_into().ok()?);
        if self.version == 1 || &trailer[8..] != super::index::TRAILER {
            return None;
        }
        let mut head = [0; ChunkHead::SIZE];
        file.read_exact_at(&mut head, at).ok()?;
        let head = ChunkHead::decode(&head, self.version).ok()?;
        let fits = at.checked_add((ChunkHead::SIZE + head.padded()) as u64) == Some(size);
        if head.kind != Chunk::Index as u32 || !fits {
            return None;
        }
        let mut payload = vec![0; head.len as usize];
        file.read_exact_at(&mut payload, at + ChunkHead::SIZE as u64).ok()?;
        (crc32fast::hash(&payload) == head.crc).then(|| Some((Index::decode(&payload)?, head.seq)))?
    }
}

/// A process image of a recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Image {
    pub begin: Process,
    /// `None` if the recording ended before it, or was cut off.
    pub end: Option<ProcessEnd>,
}

impl Reader {
    /// All images of a tape, in the order in which they began, and the damage after which there may be more.
    pub fn images(path: &Path) -> Result<(Vec<Image>, Option<TapeError>), TapeError> {
        let mut r = Reader::open(path)?.without_events();
        let mut images: Vec<Image> = Vec::new();
        loop {
            match r.item() {
                Ok(Some(Item::Process(begin))) => images.push(Image { begin: *begin, end: None }),
                Ok(Some(Item::ProcessEnd(end))) => {
                    if let Some(i) = images.iter_mut().rev().find(|i| i.begin.index == end.index) {
                        if r.version == 1
                            && let Some(Item::End(whole)) = r.ahead.front()
                        {
                            i.begin.pid = whole.pid;
                        }
                        i.end = Some(*end);
                    }
                }
                Ok(Some(_)) => {}
                Ok(None) => return Ok((images, None)),
                Err(damage) => return Ok((images, Some(damage))),
            }
        }
    }
}

/// Runs in the order of the file, without overlap.
fn union<'a>(extents: impl Iterator<Item = &'a Extent>) -> VecDeque<Extent> {
    let mut all: Vec<Extent> = extents.copied().collect();
    all.sort_by_key(|e| e.offset);
    let mut out: VecDeque<Extent> = VecDeque::new();
    for e in all {
        let end = e.offset.saturating_add(e.bytes);
        match out.back_mut() {
            Some(last) if last.offset.saturating_add(last.bytes) >= e.offset => {
                last.bytes = last.bytes.max(end - last.offset);
            }
            _ => out.push_back(e),
        }
    }
    out
}

/// `None`: not seekable.
fn size_of(file: &File) -> Option<u64> {
    file.metadata().ok().filter(|m| m.is_file()).map(|m| m.len())
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
