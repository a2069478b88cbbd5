//! Writing a recording.

use super::chunk::{Chunk, ChunkHead, MAX_CHUNK, WHOLE};
use super::index::Index;
use super::packed::Packer;
use super::reader::Reader;
use super::{Clock, End, Header, MAGIC, Process, ProcessEnd, TapeError, Unwatched, VERSION};
use crate::live::Looks;
use serde::Serialize;
use std::fs::{File, Permissions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Writes chunks. Mode 0600.
pub struct Writer {
    file: File,
    path: PathBuf,
    seq: u64,
    bytes: u64,
    /// None where another writer wrote earlier chunks.
    index: Option<Index>,
    /// Offsets and numbers of the last chunks (never the header), which can be given up to make room for the end.
    recent: std::collections::VecDeque<(u64, u64)>,
    /// Buffer for a small chunk.
    small: Vec<u8>,
    /// None while it packs, and before its first use.
    packer: Option<Packer>,
}

/// Payloads up to this are copied, to be written together with their heads.
const SMALL: usize = 16 << 10;

/// Chunks that [`Writer::give_up`] can take back.
const RECENT: usize = 64;

impl Writer {
    /// Creates the file and writes its header. A file that exists stays as it is, whatever link leads to it, and is an
    /// error ([`TapeError::Exists`], [`TapeError::Link`]); a pipe, a socket or a device is written to.
    pub fn create(path: &Path, header: &Header) -> Result<Writer, TapeError> {
        let err = |cause| TapeError::Io { path: path.into(), cause };
        let file = match open_new(path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => match open_special(path).map_err(err)? {
                Some(file) => file,
                None if path.symlink_metadata().is_ok_and(|m| m.is_symlink()) => {
                    return Err(TapeError::Link(path.into()));
                }
                None => return Err(TapeError::Exists(path.into())),
            },
            other => other.map_err(err)?,
        };
        Writer::begin(file, path, header)
    }

    /// As [`Writer::create`], but replaces a file or a link that has the name already. Processes that have the old file open keep it, and a link's target
    /// stays as it is. An empty file is written to: it may reserve the name.
    pub fn replace(path: &Path, header: &Header) -> Result<Writer, TapeError> {
        let err = |cause| TapeError::Io { path: path.into(), cause };
        // A pipe is opened once: at its first close the reader would see its end, and leave.
        if let Some(file) = open_special(path).map_err(err)?.or_else(|| open_empty(path)) {
            return Writer::begin(file, path, header);
        }
        if path.symlink_metadata().is_ok_and(|m| m.is_file() || m.is_symlink()) {
            std::fs::remove_file(path).map_err(err)?;
        }
        Writer::create(path, header)
    }

    /// Writes to a file that is open and empty. Its name does not matter; `path` is for errors.
    pub fn begin(file: File, path: &Path, header: &Header) -> Result<Writer, TapeError> {
        let err = |cause| TapeError::Io { path: path.into(), cause };
        let (index, recent) = (Some(Index::default()), Default::default());
        let mut w =
            Writer { file, path: path.into(), seq: 0, bytes: 0, index, recent, small: Vec::new(), packer: None };
        let mut start = [0; 16];
        start[..8].copy_from_slice(MAGIC);
        start[8..12].copy_from_slice(&VERSION.to_le_bytes());
        w.file.write_all(&start).map_err(err)?;
        w.bytes = 16;
        w.json(Chunk::Header, WHOLE, header).map_err(err)?;
        Ok(w)
    }

    /// Continues in a copy of a recording that is still being written. It keeps the first `bytes` bytes of `file`, which are `chunks` whole chunks
    /// ([`Writer::bytes`], [`Writer::chunks`] of the other writer). The recording gets no index here.
    pub fn go_on(mut file: File, path: &Path, bytes: u64, chunks: u64) -> io::Result<Writer> {
        file.set_len(bytes)?;
        file.seek(io::SeekFrom::Start(bytes))?;
        let (recent, small) = Default::default();
        Ok(Writer { file, path: path.into(), seq: chunks, bytes, index: None, recent, small, packer: None })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written so far.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Chunks written so far.
    pub fn chunks(&self) -> u64 {
        self.seq
    }

    /// Appends a chunk of whole events of thread `tid` of the image `process`. On an error (a full disk) the file is cut
    /// back to the last whole chunk.
    pub fn events(&mut self, process: u32, tid: i32, events: &[u8]) -> io::Result<()> {
        let mut packer = self.packer.take().unwrap_or_default();
        let written = self.packed_events(process, tid, events, packer.pack(events));
        self.packer = Some(packer);
        written
    }

    /// The same with a [`Packer`]'s result (`None`: they are not packed).
    pub fn packed_events(&mut self, process: u32, tid: i32, events: &[u8], packed: Option<&[u8]>) -> io::Result<()> {
        match packed {
            Some(packed) => self.chunk_of(process, tid, events, packed, events.len() as u32),
            None => self.chunk_of(process, tid, events, events, 0),
        }
    }

    /// Appends a chunk of events that was made before. It is packed and has `unpacked` bytes without packing, or is not packed where that is 0. `tsc`:
    /// the first event's.
    pub fn made_events(&mut self, process: u32, tid: i32, tsc: u64, payload: &[u8], unpacked: u32) -> io::Result<()> {
        self.chunk(Chunk::Events, process, tid, tsc, payload, unpacked)
    }

    fn chunk_of(&mut self, process: u32, tid: i32, events: &[u8], payload: &[u8], unpacked: u32) -> io::Result<()> {
        if events.len() > MAX_CHUNK {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "chunk too long"));
        }
        // (The first one's.)
        let tsc = events.get(8..16).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
        self.chunk(Chunk::Events, process, tid, tsc, payload, unpacked)
    }

    /// On a full disk: cuts off the last chunks until `bytes` are free for those that must still be written. False if not enough chunks were left; they
    /// are cut off all the same.
    pub fn give_up(&mut self, bytes: u64) -> io::Result<bool> {
        let full = self.bytes;
        while let Some((at, seq)) = self.recent.pop_back() {
            self.file.set_len(at)?;
            self.file.seek(io::SeekFrom::Start(at))?;
            self.index.iter_mut().for_each(|index| index.cut(at));
            (self.bytes, self.seq) = (at, seq);
            if full - at >= bytes {
                return Ok(true);
            }
        }
        Ok(false)
    }

    pub fn process(&mut self, p: &Process) -> io::Result<()> {
        self.json(Chunk::Process, p.index, p)
    }

    pub fn process_end(&mut self, e: &ProcessEnd) -> io::Result<()> {
        self.json(Chunk::ProcessEnd, e.index, e)
    }

    pub fn unwatched(&mut self, u: &Unwatched) -> io::Result<()> {
        self.json(Chunk::Unwatched, WHOLE, u)
    }

    pub fn clock(&mut self, c: &Clock) -> io::Result<()> {
        self.json(Chunk::Clock, WHOLE, c)
    }

    pub fn looks(&mut self, looks: &Looks) -> io::Result<()> {
        self.json(Chunk::Looks, WHOLE, looks)
    }

    pub fn note(&mut self, text: &str) -> io::Result<()> {
        self.json(Chunk::Note, WHOLE, &text)
    }

    /// Closes the recording. The index after the end is left out if there is no room for it.
    pub fn end(&mut self, e: &End) -> io::Result<()> {
        self.json(Chunk::End, WHOLE, e)?;
        if let Some(index) = self.index.as_ref().and_then(|index| index.encode(self.bytes)) {
            let _ = self.chunk(Chunk::Index, WHOLE, 0, 0, &index, 0);
        }
        Ok(())
    }

    /// Adds a summary to a recording that has ended, and an index after it. False: the file does not end with an index, has no room for another, or has
    /// another version. The recording stays as it is, also where writing fails or stops half-way. Then the file is cut back, or a reader stops after the
    /// end of the recording.
    ///
    /// `checkpoints`: the places to begin at, each with the time for its head.
    pub fn add_summary(
        path: &Path,
        summary: &[u8],
        checkpoints: impl Iterator<Item = (u64, Vec<u8>)>,
    ) -> Result<bool, TapeError> {
        let err = |cause| TapeError::Io { path: path.into(), cause };
        let reader = Reader::open(path)?;
        let Some((index, seq)) = reader.numbered_index().filter(|_| reader.version() == VERSION) else {
            return Ok(false);
        };
        let file = File::options().write(true).custom_flags(libc::O_NOFOLLOW).open(path).map_err(err)?;
        let bytes = file.metadata().map_err(err)?.len();
        let (recent, small) = Default::default();
        let mut w =
            Writer { file, path: path.into(), seq: seq + 1, bytes, index: Some(index), recent, small, packer: None };
        w.file.seek(io::SeekFrom::End(0)).map_err(err)?;
        let mut packer = Packer::default();
        let mut add = |w: &mut Writer, kind, tsc, bytes: &[u8]| match packer.pack(bytes) {
            Some(packed) => w.chunk(kind, WHOLE, 0, tsc, packed, bytes.len() as u32),
            None => w.chunk(kind, WHOLE, 0, tsc, bytes, 0),
        };
        add(&mut w, Chunk::Summary, 0, summary).map_err(err)?;
        let added = checkpoints.map(|(tsc, bytes)| add(&mut w, Chunk::Checkpoint, tsc, &bytes));
        if let Err(e) = added.collect::<io::Result<()>>() {
            w.file.set_len(bytes).map_err(err)?;
            return Err(err(e));
        }
        let index = w.index.as_ref().and_then(|index| index.encode(w.bytes)).ok_or(io::ErrorKind::FileTooLarge.into());
        let indexed = index.and_then(|index| w.chunk(Chunk::Index, WHOLE, 0, 0, &index, 0));
        if indexed.is_err() {
            w.file.set_len(bytes).map_err(err)?;
        }
        Ok(indexed.is_ok())
    }

    fn json<T: Serialize>(&mut self, kind: Chunk, process: u32, v: &T) -> io::Result<()> {
        let b = serde_json::to_vec(v)?;
        self.chunk(kind, process, 0, 0, &b, 0)
    }

    /// `unpacked`: as in [`ChunkHead`].
    fn chunk(
        &mut self,
        kind: Chunk,
        process: u32,
        tid: i32,
        tsc: u64,
        payload: &[u8],
        unpacked: u32,
    ) -> io::Result<()> {
        if payload.len() > MAX_CHUNK {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "chunk too long"));
        }
        let (len, crc) = (payload.len() as u32, crc32fast::hash(payload));
        let head = ChunkHead { kind: kind as u32, len, crc, tid, seq: self.seq, tsc, process, unpacked };
        let pad = [0u8; 8];
        let pad = &pad[..head.padded() - payload.len()];
        let written = (|| {
            if payload.len() > SMALL {
                self.file.write_all(&head.encode())?;
                self.file.write_all(payload)?;
                return self.file.write_all(pad);
            }
            // Short threads make short chunks: one system call each.
            self.small.clear();
            [&head.encode()[..], payload, pad].iter().for_each(|b| self.small.extend_from_slice(b));
            self.file.write_all(&self.small)
        })();
        if let Err(e) = written {
            // Leave whole chunks only. If even this fails the reader still stops at the damage.
            let _ = self.file.set_len(self.bytes);
            let _ = self.file.seek(io::SeekFrom::Start(self.bytes));
            return Err(e);
        }
        let whole = (ChunkHead::SIZE + head.padded()) as u64;
        if kind != Chunk::Header {
            if self.recent.len() == RECENT {
                self.recent.pop_front();
            }
            self.recent.push_back((self.bytes, self.seq));
            if let Some(index) = &mut self.index {
                index.add(process, self.bytes, whole, self.seq);
            }
        }
        self.seq += 1;
        self.bytes += whole;
        Ok(())
    }
}

/// A file that did not exist. Links are not followed: O_EXCL refuses them, wherever they lead.
fn open_new(path: &Path) -> io::Result<File> {
    let file = File::options().write(true).create_new(true).mode(0o600).open(path)?;
    // (The mode above is subject to the umask and to default ACLs.)
    file.set_permissions(Permissions::from_mode(0o600))?;
    Ok(file)
}

/// An empty file of this user, without another name.
fn open_empty(path: &Path) -> Option<File> {
    let file = File::options().write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(path).ok()?;
    let m = file.metadata().ok()?;
    // SAFETY: no arguments.
    let ours = m.uid() == unsafe { libc::geteuid() };
    let empty = m.is_file() && m.len() == 0 && m.nlink() == 1;
    (empty && ours && file.set_permissions(Permissions::from_mode(0o600)).is_ok()).then_some(file)
}

/// Opens the pipe, socket or device that `path` leads to: writing there destroys no file. `None`: it is none of these.
fn open_special(path: &Path) -> io::Result<Option<File>> {
    let special = |m: &std::fs::Metadata| {
        let t = m.file_type();
        t.is_fifo() || t.is_char_device() || t.is_socket() || t.is_block_device()
    };
    match path.metadata() {
        Ok(m) if special(&m) => {}
        // (A directory: `open` has the best error for it.)
        Ok(m) if m.is_dir() => {}
        Ok(_) => return Ok(None),
        // A link without a target.
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(e),
    }
    let file = File::options().write(true).open(path)?;
    // Checked again on the open file, because the name may lead elsewhere by now. It was not truncated.
    Ok(special(&file.metadata()?).then_some(file))
}
