//! A channel of a recording.

use crate::place::Place;
use serde::{Deserialize, Serialize};

/// How a channel's ring was watched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Watch {
    /// Read directly where the program's ring is.
    Direct,
    /// Ordinary memory replaces the ring; entries are forwarded.
    Shadow,
    /// No CPU mapping: rings seen, entries not.
    Blind,
    #[default]
    Unknown,
}

/// The source of the number of entries that a channel should have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accounted {
    /// The channel was freed and its final GP_PUT read.
    Freed,
    /// It was alive at the end: read from shared memory.
    End,
    /// Neither is on the tape: the highest entry counter seen, which is a lower bound.
    #[default]
    Seen,
}

/// One channel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Channel {
    /// Number in the table of this recording.
    pub number: usize,
    /// Index of its process image, and the process.
    pub process: u32,
    pub pid: i32,
    /// Number of the channel in the recording, and which channel of this number it is, from 0.
    pub slot: u32,
    pub generation: u32,
    pub client: u32,
    pub handle: u32,
    pub class: u32,
    pub class_name: String,
    /// Its GPU: the driver's device instance.
    pub gpu: Option<u32>,
    /// `GRAPHICS`, `COPY2`, ...; empty if unknown.
    pub engine: String,
    /// From the token: GA100 and later have it in bits 22:16.
    pub runlist: Option<u32>,
    /// Channel number on its runlist.
    pub chid: Option<u32>,
    /// What its doorbell is rung with.
    pub token: Option<u32>,
    /// Entries of its ring.
    pub ring_entries: u32,
    /// GPU virtual address of the GPFIFO.
    pub gpfifo: u64,
    pub gpfifo_place: Place,
    pub userd_place: Place,
    pub pushbuffer_place: Place,
    pub watch: Watch,
    /// Doorbells rung for it.
    pub rings: u64,
    /// Doorbells with new entries.
    pub submissions: u64,
    /// Entries on the tape.
    pub entries: u64,
    /// Bytes of their segments.
    pub command_bytes: u64,
    /// Entries that its final GP_PUT accounts for.
    pub accounted: u64,
    pub accounted_by: Accounted,
    /// `accounted` minus the entries that are on the tape.
    pub lost: u64,
    /// Entries on the tape that the final GP_PUT does not account for: a fault of the recording.
    pub surplus: u64,
    /// Entries written to the ring but not rung when the program died. Not lost: the GPU never received a doorbell for
    /// them.
    pub unrung: u64,
    /// Doorbells that are not on the tape, by the ring counter.
    pub rings_missing: u64,
    /// It was freed.
    pub freed: bool,
    /// The agent reported that it follows this channel (its first event is on the tape).
    pub announced: bool,
}

impl Watch {
    pub fn name(self) -> &'static str {
        match self {
            Watch::Direct => "direct",
            Watch::Shadow => "shadow",
            Watch::Blind => "blind",
            Watch::Unknown => "unknown",
        }
    }
}

impl Channel {
    /// A short name: the number, and the generation if several channels had it.
    pub fn label(&self) -> String {
        if self.generation == 0 { self.slot.to_string() } else { format!("{}.{}", self.slot, self.generation) }
    }
}
