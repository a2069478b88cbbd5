//! The file: a header and chunks, each with its length and checksum.
//!
//! | bytes | what |
//! |---|---|
//! | 16 | magic `DOORBELL`, version u32, 0 u32 |
//! | ... | chunks: a head (48 bytes; 40 in version 1), payload, padding to 8 |
//!
//! The first chunk is the [`Header`] (JSON), so that a newer writer can add fields and an older reader still opens it. One file holds all processes
//! of a recording: each chunk head carries the index of its process image, or [`WHOLE`] for chunks that concern the whole recording. A [`Process`]
//! chunk begins an image, its events follow as they were in the rings, and a [`ProcessEnd`] ends it. [`End`] closes a recording that ended as it
//! should. After it, an index has the places of each image's chunks. A summary, places to begin at and another index may follow; the summary was
//! made of the ended recording. A reader returns every chunk before a truncation or a flipped bit, then an error with the offset. All after the end
//! is an aid: a file without it lacks no events. Without an index the reader follows the heads one by one.
//!
//! Events are packed by zstd where that makes them smaller (`packed.rs`); each chunk is a separate frame.
//!
//! Version 1 had no processes: its chunks read as those of image 0. Version 2 did not pack.

mod chunk;
mod index;
mod packed;
mod reader;
mod records;
mod writer;

pub use chunk::{Chunk, MAX_CHUNK, WHOLE};
pub use index::Extent;
pub use packed::{Packer, unpack};
pub use reader::{Image, Item, Place, Reader};
pub use records::{
    Ancestor, Clock, End, EndChannel, Header, KernelEnds, Process, ProcessEnd, Rank, RecorderUse, Saved, Unwatched,
};
pub use writer::Writer;

use std::io;
use std::path::PathBuf;

const MAGIC: &[u8; 8] = b"DOORBELL";
/// Layout version of the file that [`Writer`] writes. (There is no 3, which is one flipped bit from 2.)
pub const VERSION: u32 = 4;

/// Why a tape cannot be written or read. Each text is complete: it contains the cause, which is therefore not a `source`; else it would be printed
/// twice.
#[derive(Debug, thiserror::Error)]
pub enum TapeError {
    #[error("{path}: {cause}")]
    Io { path: PathBuf, cause: io::Error },
    #[error("{0}: exists already")]
    Exists(PathBuf),
    #[error("{0}: a symbolic link to a file; recordings do not follow links")]
    Link(PathBuf),
    #[error("{path}: not a doorbell recording (it does not begin with DOORBELL)")]
    NotATape { path: PathBuf },
    #[error("{path}: recorded with layout version {found}, this doorbell reads versions 1, 2 and {VERSION}")]
    Version { path: PathBuf, found: u32 },
    #[error("{path}: {what} at offset {offset}; everything before it was read")]
    Damaged { path: PathBuf, offset: u64, what: String },
    #[error("{path}: {what} at offset {offset}; what it held is missing, the rest was read")]
    Events { path: PathBuf, offset: u64, what: String },
}
