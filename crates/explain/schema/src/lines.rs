//! One line of an export.

use crate::channel::Channel;
use crate::document::Document;
use crate::driver_calls::DriverCallRow;
use crate::happened::{OneCall, OneRange, OneSwitch};
use crate::kernel_runs::KernelRun;
use crate::lock_uses::UseRow;
use crate::operations::{CopyRow, LaunchRow};
use crate::submissions::SubmissionRow;
use crate::summary::Lost;
use crate::symbols::SymbolRow;
use serde::Serialize;
use std::borrow::Cow;

/// How far a recording can be trusted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecordingRow {
    /// Everything that this kind of recording can hold is on the tape.
    pub complete: bool,
    /// Why it is not complete, one sentence each.
    pub incomplete_because: Vec<String>,
    /// GPFIFO entries that were rung but are not on the tape. If none is missing: events of locks and calls that did
    /// not fit into the rings.
    pub lost: u64,
    pub lost_detail: Lost,
    /// Largest difference between a time here and CLOCK_MONOTONIC since the recording began; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clock_error_ns: Option<u64>,
}

/// One JSON object; `type` is its kind.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "one at a time, written at once")]
pub enum Line<'a> {
    Header(Document<'a, tape::file::Header>),
    Recording(&'a RecordingRow),
    Call(DriverCallRow<'a>),
    Submission(&'a SubmissionRow),
    Copy(&'a CopyRow),
    Launch(&'a LaunchRow),
    KernelRun(&'a KernelRun),
    Range(&'a OneRange),
    Lock(&'a UseRow),
    CudaCall(&'a OneCall),
    Switch(&'a OneSwitch),
    Note {
        text: Cow<'a, str>,
    },
    Symbol {
        place: &'a str,
        #[serde(flatten)]
        symbol: &'a SymbolRow,
    },
    Channel(&'a Channel),
    End(&'a tape::file::End),
}
