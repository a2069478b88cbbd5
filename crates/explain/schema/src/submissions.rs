//! A submission with its decoded commands.

use crate::operations::InCall;
use crate::place::Place;
use serde::Serialize;

/// A submission for JSON.
#[derive(Debug, Default, Serialize)]
pub struct SubmissionRow {
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
    /// As [`crate::operations::When::ranges`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<String>,
    pub token: Option<u32>,
    pub seq: Option<u64>,
    pub put_from: Option<u32>,
    pub put_to: Option<u32>,
    pub trapped: bool,
    pub handed_over: bool,
    pub entries: Vec<EntryRow>,
}

#[derive(Debug, Default, Serialize)]
pub struct EntryRow {
    pub index: u32,
    pub seq: u64,
    #[serde(serialize_with = "crate::wide::hex")]
    pub gp: u64,
    pub va: u64,
    pub place: Place,
    /// Number of words in the entry.
    pub dwords: u32,
    /// Words on the tape.
    pub recorded: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lack: Option<&'static str>,
    /// The words were read long after the doorbell: another thread may have overwritten them.
    pub late: bool,
    /// Entries are missing before it.
    pub after_gap: bool,
    /// The upper bits of `va` were last set before entries that are missing.
    pub va_guessed: bool,
    pub commands: Vec<CommandRow>,
}

#[derive(Debug, Serialize)]
pub struct CommandRow {
    /// Index of the word in the segment.
    pub word: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<u32>,
    /// Words of a run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub words: Option<usize>,
    pub text: String,
}
