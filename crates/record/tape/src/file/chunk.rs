//! The head of a chunk, in all versions.

use super::VERSION;

const MAGIC: u32 = u32::from_le_bytes(*b"CHNK");
/// No chunk is longer than this; a longer length in a file is corruption.
pub const MAX_CHUNK: usize = 16 << 20;
/// The process index of chunks that concern the whole recording.
pub const WHOLE: u32 = u32::MAX;

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chunk {
    Header = 1,
    /// Events of one thread.
    Events = 2,
    Clock = 3,
    Note = 4,
    End = 5,
    /// An image begins: [`super::Process`].
    Process = 6,
    /// An image has ended: [`super::ProcessEnd`].
    ProcessEnd = 7,
    /// A program that could not be recorded: [`super::Unwatched`].
    Unwatched = 8,
    /// The places of each image's chunks: [`super::index`].
    Index = 9,
    /// A summary of the recording, made after it ended: [`super::Writer::add_summary`].
    Summary = 10,
    /// A place from which the recording can be read without all that is before it. Made with the summary. The head's time is that
    /// of the newest submission before it.
    Checkpoint = 11,
    /// What the program's threads did when a flight recorder saved the file: [`crate::live::Looks`].
    Looks = 12,
}

pub struct ChunkHead {
    pub kind: u32,
    pub len: u32,
    pub crc: u32,
    pub tid: i32,
    pub seq: u64,
    pub tsc: u64,
    /// Index of the process image, or [`WHOLE`].
    pub process: u32,
    /// Bytes of the payload when it is unpacked (0: it is not packed). (Since version 4.)
    pub unpacked: u32,
}

impl ChunkHead {
    /// Bytes of a head in the version that is written, the largest of all versions.
    pub const SIZE: usize = 48;

    /// Bytes of a head in the file version `version`.
    pub fn size(version: u32) -> usize {
        if version == 1 { 40 } else { Self::SIZE }
    }

    pub fn encode(&self) -> [u8; Self::SIZE] {
        let mut b = [0; Self::SIZE];
        b[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        b[4..8].copy_from_slice(&self.kind.to_le_bytes());
        b[8..12].copy_from_slice(&self.len.to_le_bytes());
        b[12..16].copy_from_slice(&self.tid.to_le_bytes());
        b[16..24].copy_from_slice(&self.seq.to_le_bytes());
        b[24..32].copy_from_slice(&self.tsc.to_le_bytes());
        b[32..36].copy_from_slice(&self.crc.to_le_bytes());
        b[36..40].copy_from_slice(&self.process.to_le_bytes());
        b[40..44].copy_from_slice(&self.unpacked.to_le_bytes());
        // The head's own checksum: a flipped length must not send the reader astray.
        let own = crc32fast::hash(&b[..44]);
        b[44..48].copy_from_slice(&own.to_le_bytes());
        b
    }

    /// `b` is a whole head of that version.
    pub fn decode(b: &[u8], version: u32) -> Result<ChunkHead, &'static str> {
        let u32_at = |i: usize| b.get(i..i + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_le_bytes);
        let u64_at = |i: usize| u64::from(u32_at(i)) | u64::from(u32_at(i + 4)) << 32;
        let own = ChunkHead::size(version) - 4;
        if u32_at(0) != MAGIC {
            return Err("no chunk begins here");
        }
        if crc32fast::hash(b.get(..own).unwrap_or_default()) != u32_at(own) {
            return Err("chunk head fails its checksum");
        }
        let h = ChunkHead {
            kind: u32_at(4),
            len: u32_at(8),
            tid: u32_at(12) as i32,
            seq: u64_at(16),
            tsc: u64_at(24),
            crc: u32_at(32),
            process: match (version, u32_at(4)) {
                (1, 2) => 0,
                (1, _) => WHOLE,
                _ => u32_at(36),
            },
            unpacked: if version < VERSION { 0 } else { u32_at(40) },
        };
        if h.len.max(h.unpacked) as usize > MAX_CHUNK {
            return Err("chunk longer than any chunk is");
        }
        Ok(h)
    }

    /// Bytes of the payload with its padding.
    pub fn padded(&self) -> usize {
        (self.len as usize).next_multiple_of(8)
    }
}
