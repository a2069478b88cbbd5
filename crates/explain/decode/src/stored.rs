//! The summary that is in the file itself: made once, when the recording has ended, so that nobody has to walk over it for a glance.
//!
//! Invariant: what is read back is what a walk would find, or it is not taken: one of another layout or doorbell, of a damaged file, or where one process of
//! more is asked for.

use crate::checkpoints::{APART, Checkpoints};
use crate::recording::{InsightError, Recording};
use crate::summary::summary_until;
use schema::Summary;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::{Duration, Instant};
use tape::file::{Header, Writer};

/// Of what is stored. To be raised where a summary gets other fields, or a walk finds something else.
const LAYOUT: u32 = 2;
/// The doorbell that stored it.
const DOORBELL: &str = env!("CARGO_PKG_VERSION");

#[derive(Serialize)]
struct Written<'a> {
    layout: u32,
    doorbell: &'a str,
    chunks: usize,
    summary: &'a Summary,
}

/// What says whether the rest can be read.
#[derive(Deserialize)]
struct Head {
    layout: u32,
    doorbell: String,
    /// Chunks of events that it was made of.
    chunks: usize,
}

#[derive(Deserialize)]
struct Read {
    summary: Summary,
}

/// The summary in the file, if there is one that holds.
pub(crate) fn stored(r: &Recording) -> Option<Summary> {
    let stored = r.stored_summary().filter(|_| !r.is_selected() && r.damage().is_none())?;
    let head: Head = serde_json::from_slice(stored).ok()?;
    if head.layout != LAYOUT || head.doorbell != DOORBELL || head.chunks != r.chunks.len() || !r.events_are_whole() {
        return None;
    }
    let summary = serde_json::from_slice::<Read>(stored).ok()?.summary;
    is_of(&summary, r.header()).then_some(summary)
}

/// Whether a summary is of a recording with this header.
fn is_of(s: &Summary, h: &Header) -> bool {
    let by = &s.recorded_by;
    [&by.doorbell, &by.host, &by.kernel, &by.cpu, &s.driver, &s.gpu, &s.program.exe, &s.program.started]
        == [&h.doorbell, &h.host, &h.kernel, &h.cpu, &h.driver, &h.gpu, &h.exe, &h.started]
}

/// Bytes of a summary that is stored, at most: one that lists more is of many processes and channels, and as good as a walk.
const MOST: usize = 4 << 20;
/// Nanoseconds that a walk takes for a submission with the GPU's times, about (2.6 us were seen).
const EACH: u64 = 3_000;

/// Stores the summary of a recording that has ended. False: it is none that can have one, it has one, or making it takes longer than `within`.
///
/// # Errors
/// The file cannot be read or written; what was in it stays.
pub fn store_summary(path: &Path, within: Duration) -> Result<bool, InsightError> {
    store_summary_unless(path, within, || false)
}

/// As [`store_summary`]. It stops and stores nothing once `skip` returns true, which it calls often.
///
/// # Errors
/// The same.
pub fn store_summary_unless(path: &Path, within: Duration, skip: fn() -> bool) -> Result<bool, InsightError> {
    store(path, within, APART, skip)
}

/// As [`store_summary`], with places to begin at ([`crate::checkpoints`]) that are so many submissions apart.
#[doc(hidden)]
pub fn store_summary_and_places(path: &Path, within: Duration, apart: u64) -> Result<bool, InsightError> {
    store(path, within, apart, || false)
}

fn store(path: &Path, within: Duration, apart: u64, skip: fn() -> bool) -> Result<bool, InsightError> {
    let begin = Instant::now();
    let r = Recording::open(path)?;
    let Some(end) = r.end() else { return Ok(false) };
    let expected = Duration::from_nanos(end.trapped.saturating_add(end.tapped).saturating_mul(EACH));
    if r.damage().is_some() || r.stored_summary().is_some() || expected > within {
        return Ok(false);
    }
    let mut places = Checkpoints::of(&r, apart);
    let Some(summary) = summary_until(&r, begin.checked_add(within), skip, &mut places)? else { return Ok(false) };
    let written = Written { layout: LAYOUT, doorbell: DOORBELL, chunks: r.chunks.len(), summary: &summary };
    let Ok(bytes) = serde_json::to_vec(&written) else { return Ok(false) };
    // (A walk finds damaged events.)
    if r.damage().is_some() || bytes.len() > MOST || skip() {
        return Ok(false);
    }
    Ok(Writer::add_summary(path, &bytes, places.stored())?)
}
