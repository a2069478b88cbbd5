//! The rows of a recording, in this order. First, by time: driver calls, submissions, copies, launches, runs of kernels, and NVTX ranges at their
//! end. Then the channels, the operations of locks, CUDA's calls and the context switches. Finally each place that has a name in the source.

use crate::about::About;
use crate::{ExportError, Writer};
use decode::ranges::{Range, Texts};
use decode::rows::{self, Collector};
use decode::walk::{At, Call, GraphKernel, Segment, Sink, walk};
use decode::{LaunchWrites, Recording, Source};
use lock_analysis::{Happened, RangeWorks};
use pushbuf::decode::Item;
use pushbuf::ops::Op;
use schema::happened::OneRange;
use schema::kernel_runs::KernelRun;
use schema::lines::Line;
use schema::operations::{CopyRow, LaunchRow};
use schema::python::FrameRow;
use schema::{Clock, Document};

/// Passes the whole recording to a writer.
pub fn each(r: &Recording, about: &About, writer: &mut dyn Writer) -> Result<(), ExportError> {
    writer.row(&Line::Header(Document::of(r.header())))?;
    writer.row(&Line::Recording(&about.row))?;
    let works = if writer.wants_range_work() { RangeWorks::of(r)? } else { None };
    let mut walked = Walked {
        recording: r,
        writer,
        clock: rows::clock(r),
        collector: Collector::default(),
        own: LaunchWrites::of(r)?,
        works,
        ops: Vec::new(),
        outcome: Ok(()),
    };
    let outcome = walk(r, &mut walked)?;
    walked.outcome?;
    for c in &outcome.channels {
        writer.row(&Line::Channel(c))?;
    }
    let mut places = lock_analysis::each_use(r, |u| writer.row(&Line::Lock(&u)))?;
    let of_calls = lock_analysis::each_call(r, |c| {
        writer.row(&match &c {
            Happened::Call(c) => Line::CudaCall(c),
            Happened::Switch(s) => Line::Switch(s),
        })
    })?;
    places.add(of_calls);
    if writer.wants_details() {
        let symbols = symbols::look_up(&places, places.by_name.keys().map(String::as_str));
        for (place, symbol) in &symbols.0 {
            writer.row(&Line::Symbol { place, symbol })?;
        }
    }
    match r.end() {
        Some(end) => writer.row(&Line::End(end)),
        None => Ok(()),
    }
}

struct Walked<'a> {
    recording: &'a Recording,
    writer: &'a mut dyn Writer,
    clock: Clock,
    collector: Collector,
    /// Inline writes that are no copies.
    own: LaunchWrites,
    /// The GPU's work, for ranges.
    works: Option<RangeWorks<'a>>,
    /// Copies, launches and runs of the submission at hand; they follow it.
    ops: Vec<OpRow>,
    outcome: Result<(), ExportError>,
}

// Only one of them at a time is in a short list.
#[allow(clippy::large_enum_variant)]
enum OpRow {
    Copy(CopyRow),
    Launch(LaunchRow),
    Run(KernelRun),
}

impl Walked<'_> {
    fn row(&mut self, row: &Line<'_>) {
        if self.outcome.is_ok() {
            self.outcome = self.writer.row(row);
        }
    }
}

impl Sink for Walked<'_> {
    fn done(&self) -> bool {
        self.outcome.is_err()
    }

    fn call(&mut self, source: Source, tsc: u64, call: &Call<'_>, branch: &rm::abi::Branch) {
        self.row(&Line::Call(decode::driver_call(self.recording, source, tsc, call, branch, &self.clock)));
    }

    fn note(&mut self, text: &[u8]) {
        self.row(&Line::Note { text: String::from_utf8_lossy(text) });
    }

    fn submission(&mut self, at: &At<'_>) {
        self.collector.begin(at, &self.clock);
    }

    fn segment(&mut self, at: &At<'_>, s: &Segment<'_>) {
        self.collector.segment(at, s);
    }

    fn item(&mut self, _: &At<'_>, item: &Item<'_>) {
        if self.writer.wants_details() {
            self.collector.item(item);
        }
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        if let Some(row) = rows::copy(at, op, &self.clock) {
            if !self.own.holds(at, op) {
                self.ops.push(OpRow::Copy(row));
            }
        } else if let Some(row) = rows::launch(at, op, &self.clock) {
            self.ops.push(OpRow::Launch(row));
            self.ops.extend(rows::kernel_run(at, op, &self.clock).map(OpRow::Run));
        }
    }

    fn graph_kernel(&mut self, at: &At<'_>, kernel: &GraphKernel) {
        self.ops.push(OpRow::Run(rows::graph_kernel_run(at, kernel, &self.clock)));
    }

    fn range(&mut self, range: &Range, texts: &Texts) {
        let all_threads = self.works.as_mut().and_then(|works| works.all_threads(range));
        let row = rows::range(self.recording, range, texts, &self.clock);
        self.row(&Line::Range(&OneRange { all_threads, ..row }));
    }

    fn submission_end(&mut self, _: &At<'_>) {
        let row = std::mem::take(&mut self.collector.row);
        self.row(&Line::Submission(&row));
        for op in std::mem::take(&mut self.ops) {
            match op {
                OpRow::Copy(row) => self.row(&Line::Copy(&row)),
                OpRow::Launch(row) => self.row(&Line::Launch(&row)),
                OpRow::Run(row) => self.row(&Line::KernelRun(&row)),
            }
        }
    }
}

/// `train.py:12 Net.forward`, a line for each frame, the innermost first.
pub fn stack(frames: &[FrameRow]) -> String {
    let line = |f: &FrameRow| format!("{} {}", f.place(), f.function);
    frames.iter().map(line).collect::<Vec<_>>().join("\n")
}
