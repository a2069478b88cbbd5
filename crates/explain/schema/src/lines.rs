//! One line of an export.

use crate::channel::Channel;
use crate::document::Document;
use crate::driver_calls::DriverCallRow;
use crate::happened::{OneCall, OneSwitch};
use crate::lock_uses::UseRow;
use crate::operations::{CopyRow, LaunchRow};
use crate::submissions::SubmissionRow;
use crate::symbols::SymbolRow;
use serde::Serialize;
use std::borrow::Cow;

/// One JSON object; `type` says which.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "one at a time, written at once")]
pub enum Line<'a> {
    Header(Document<'a, tape::file::Header>),
    Call(DriverCallRow<'a>),
    Submission(&'a SubmissionRow),
    Copy(&'a CopyRow),
    Launch(&'a LaunchRow),
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
