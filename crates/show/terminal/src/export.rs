//! A recording as JSON Lines: one object for each driver call, submission, copy and launch, and behind those for each
//! operation of a lock, then for each of CUDA's calls and each context switch, and at last for each place that has a name in the source.

use crate::{ReportError, json};
use decode::rows::{self, Collector};
use decode::walk::{At, Call, Segment, Sink, walk};
use decode::{LaunchWrites, Recording, Source};
use lock_analysis::Happened;
use pushbuf::decode::Item;
use pushbuf::ops::Op;
use schema::lines::Line;
use schema::operations::{CopyRow, LaunchRow};
use schema::{Clock, Document};
use std::io::{self, Write};

/// Writes the whole tape. What comes first in time comes first.
pub fn jsonl(r: &Recording, out: &mut dyn Write) -> Result<(), ReportError> {
    json::line(out, &Line::Header(Document::of(r.header())))?;
    let mut e = Export {
        recording: r,
        out,
        clock: rows::clock(r),
        collector: Collector::default(),
        own: LaunchWrites::of(r)?,
        ops: Vec::new(),
        error: None,
    };
    let outcome = walk(r, &mut e)?;
    if let Some(error) = e.error {
        return Err(error.into());
    }
    for c in &outcome.channels {
        json::line(out, &Line::Channel(c))?;
    }
    let mut places = lock_analysis::each_use(r, |u| Ok::<(), ReportError>(json::line(out, &Line::Lock(&u))?))?;
    let of_calls = lock_analysis::each_call(r, |c| {
        let line = match &c {
            Happened::Call(c) => Line::CudaCall(c),
            Happened::Switch(s) => Line::Switch(s),
        };
        Ok::<(), ReportError>(json::line(out, &line)?)
    })?;
    places.add(of_calls);
    let symbols = symbols::look_up(&places, places.by_name.keys().map(String::as_str));
    for (place, symbol) in &symbols.0 {
        json::line(out, &Line::Symbol { place, symbol })?;
    }
    if let Some(end) = r.end() {
        json::line(out, &Line::End(end))?;
    }
    Ok(())
}

struct Export<'a> {
    recording: &'a Recording,
    out: &'a mut dyn Write,
    clock: Clock,
    collector: Collector,
    /// Inline writes that are no copies.
    own: LaunchWrites,
    /// Copies and launches of the submission at hand; they follow it.
    ops: Vec<OpRow>,
    error: Option<io::Error>,
}

// One of them at a time waits in a short list.
#[allow(clippy::large_enum_variant)]
enum OpRow {
    Copy(CopyRow),
    Launch(LaunchRow),
}

impl Export<'_> {
    fn line(&mut self, l: &Line<'_>) {
        if self.error.is_none() {
            self.error = json::line(self.out, l).err();
        }
    }
}

impl Sink for Export<'_> {
    fn done(&self) -> bool {
        self.error.is_some()
    }

    fn call(&mut self, source: Source, tsc: u64, call: &Call<'_>, branch: &rm::abi::Branch) {
        self.line(&Line::Call(decode::driver_call(self.recording, source, tsc, call, branch, &self.clock)));
    }

    fn note(&mut self, text: &[u8]) {
        self.line(&Line::Note { text: String::from_utf8_lossy(text) });
    }

    fn submission(&mut self, at: &At<'_>) {
        self.collector.begin(at, &self.clock);
    }

    fn segment(&mut self, at: &At<'_>, s: &Segment<'_>) {
        self.collector.segment(at, s);
    }

    fn item(&mut self, _: &At<'_>, item: &Item<'_>) {
        self.collector.item(item);
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        if let Some(row) = rows::copy(at, op, &self.clock) {
            if !self.own.holds(at, op) {
                self.ops.push(OpRow::Copy(row));
            }
        } else if let Some(row) = rows::launch(at, op, &self.clock) {
            self.ops.push(OpRow::Launch(row));
        }
    }

    fn submission_end(&mut self, _: &At<'_>) {
        let row = std::mem::take(&mut self.collector.row);
        self.line(&Line::Submission(&row));
        for op in std::mem::take(&mut self.ops) {
            match op {
                OpRow::Copy(row) => self.line(&Line::Copy(&row)),
                OpRow::Launch(row) => self.line(&Line::Launch(&row)),
            }
        }
    }
}
