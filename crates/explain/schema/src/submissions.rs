//! A submission with its decoded commands.

use crate::operations::InCall;
use crate::place::Place;
use serde::Serialize;

/// [`EntryRow::lack`] of an entry whose number of words is not known either.
pub const NEVER_COPIED: &str = "the program died before they were copied";

/// A submission.
#[derive(Debug, Default, Serialize)]
pub struct SubmissionRow {
    /// Its number in this recording, `#108` in text.
    pub number: u64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    pub seconds: Option<f64>,
    /// Index of the process image, and the process.
    pub process: u32,
    pub pid: i32,
    pub tid: i32,
    pub slot: u32,
    pub generation: u32,
    pub engine: String,
    pub call: Option<InCall>,
    /// NVTX ranges around it, as `text` or `domain:text`: those of the thread, the outermost first, then those of the
    /// process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<String>,
    /// What its doorbell is rung with.
    pub token: Option<u32>,
    /// The submission's number on its channel, from 0.
    pub seq: Option<u64>,
    /// GP_PUT before.
    pub put_from: Option<u32>,
    /// GP_PUT after.
    pub put_to: Option<u32>,
    /// A trap saw the doorbell; else a rewritten site.
    pub trapped: bool,
    /// Rung by a thread that found the channel busy.
    pub handed_over: bool,
    pub entries: Vec<EntryRow>,
    /// Operations that end before the first entry. (Not written.)
    #[serde(skip)]
    pub means: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
pub struct EntryRow {
    /// Index in the GPFIFO.
    pub index: u32,
    /// The entry's number on its channel, from 0.
    pub seq: u64,
    /// The entry itself.
    #[serde(serialize_with = "crate::wide::hex")]
    pub gp: u64,
    /// The entry in words. (Not written.)
    #[serde(skip)]
    pub gp_text: String,
    /// GPU virtual address of the words.
    pub va: u64,
    pub place: Place,
    /// Number of words in the entry.
    pub dwords: u32,
    /// Words on the tape.
    pub recorded: usize,
    /// Why words are missing; absent if none is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lack: Option<&'static str>,
    /// The words were read long after the doorbell: another thread may have overwritten them.
    pub late: bool,
    /// Entries are missing before it.
    pub after_gap: bool,
    /// The upper bits of `va` were last set before entries that are missing.
    pub va_guessed: bool,
    pub commands: Vec<CommandRow>,
    /// Operations that end here before a command. (Not written.)
    #[serde(skip)]
    pub means: Vec<String>,
}

#[derive(Debug, Serialize)]
pub struct CommandRow {
    /// Index of the word in the segment.
    pub word: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u16>,
    /// Name of the method; absent likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// What is written to it; absent for runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<u32>,
    /// Words of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<usize>,
    /// The method in words.
    pub text: String,
    /// The subchannel's class, if the submission's commands before this one had another. (Not written.)
    #[serde(skip)]
    pub target: Option<String>,
    /// What operations the commands up to this one add up to. (Not written: `--copies` and `--launches` have rows of them.)
    #[serde(skip)]
    pub means: Vec<String>,
}
