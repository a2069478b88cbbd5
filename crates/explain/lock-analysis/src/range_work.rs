//! The GPU's work in ranges of NVTX: what their threads submitted in them, and what any thread of the process submitted while they were open.
//!
//! Autograd runs the backward pass in a thread that has no range, so only the second has it. Times are compared on the recording's clock, where
//! [`At::tsc_at`] has starts and ends, as for the rows of kernels.

use decode::ranges::{Range, Style};
use decode::walk::{At, GraphKernel, Sink, walk};
use decode::{InsightError, Recording};
use pushbuf::ops::{Op, What};
use schema::operations::GpuTime;
use schema::ranges::{RangeParts, RangeWork};
use std::collections::BTreeMap;

/// Kernels and copies that are kept (beyond that, no range has figures), and how many in all are visited for ranges (beyond that, later ranges have none).
const RUNS: usize = 1 << 22;
const VISITS: usize = 1 << 26;

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Kernel,
    Copy,
    /// Either of them: it is not known when it ran, so it has its doorbell's time.
    WithoutTime,
}

/// A kernel or a copy.
#[derive(Clone, Copy)]
struct Run {
    /// When its doorbell was rung, and when it ran. In this order: an error of the clocks must not make it start before its doorbell.
    submitted: u64,
    start: u64,
    end: u64,
    /// How long it ran, by the GPU's clock.
    ns: u64,
    gpu: Option<u32>,
    tid: i32,
    kind: Kind,
}

/// A range that has ended.
#[derive(Clone, Copy)]
pub struct Span {
    pub process: u32,
    /// `None` for one of the process.
    pub tid: Option<i32>,
    pub began: u64,
    pub ended: u64,
}

impl Span {
    pub fn of(r: &Range) -> Option<Span> {
        let (ended, _) = r.ended.filter(|_| r.style != Style::Mark)?;
        let tid = (r.style == Style::Thread).then_some(r.source.tid);
        Some(Span { process: r.source.process, tid, began: r.began, ended: ended.max(r.began) })
    }
}

/// Gathers the work during a walk.
#[derive(Default)]
pub struct Works {
    /// In the order of submission after [`Works::sort`].
    of_process: BTreeMap<u32, Vec<Run>>,
    runs: usize,
    visits: usize,
}

/// The work of a range: of its own threads, and of all threads.
pub struct Work<'w> {
    span: Span,
    runs: &'w [Run],
    pub own: RangeWork,
    pub all_threads: RangeWork,
}

impl Works {
    fn ran(&mut self, at: &At<'_>, time: Option<GpuTime>, kind: Kind) {
        self.runs += 1;
        if self.runs > RUNS {
            return;
        }
        let submitted = at.submission.tsc;
        let ran = time.and_then(|time| Some((at.tsc_at(time.start_ns)?, at.tsc_at(time.end_ns)?)));
        let (start, end) = ran.unwrap_or_default();
        let start = start.max(submitted);
        self.of_process.entry(at.channel.process).or_default().push(Run {
            submitted,
            start,
            end: end.max(start),
            ns: time.map_or(0, |time| time.duration_ns()),
            gpu: at.channel.gpu,
            tid: at.submission.tid,
            kind: if ran.is_some() { kind } else { Kind::WithoutTime },
        });
    }

    /// Must be called after the walk.
    pub fn sort(&mut self) {
        self.of_process.values_mut().for_each(|runs| runs.sort_by_key(|run| run.submitted));
    }

    /// The work of a range; `None` if there was too much to keep or to visit.
    pub fn of(&mut self, r: &Recording, span: Span) -> Option<Work<'_>> {
        let all = self.of_process.get(&span.process).map_or(&[][..], Vec::as_slice);
        let first = all.partition_point(|run| run.submitted < span.began);
        let end = all.partition_point(|run| run.submitted <= span.ended);
        let runs = all.get(first..end).unwrap_or(&[]);
        self.visits = self.visits.saturating_add(runs.len());
        if self.runs > RUNS || self.visits > VISITS {
            return None;
        }
        let all_threads = work(r, span, runs.iter());
        let own = span.tid.map_or(all_threads, |tid| work(r, span, runs.iter().filter(|run| run.tid == tid)));
        Some(Work { span, runs, own, all_threads })
    }
}

impl Work<'_> {
    /// Where the range's `ns` were spent; `waits` are those for locks.
    pub fn parts(&self, r: &Recording, ns: u64, waits: impl Iterator<Item = [u64; 2]>) -> RangeParts {
        let Span { began, ended, .. } = self.span;
        let mut all = Vec::new();
        // All time so far, with these: a later part has only what no earlier one has.
        let mut till = |more: &mut dyn Iterator<Item = [u64; 2]>| {
            all.extend(more.map(|[from, to]| (None, from.clamp(began, ended), to.clamp(began, ended))));
            r.ns(covered(&mut all)).min(ns)
        };
        let gpu = till(&mut self.runs.iter().map(|run| [run.start, run.end]));
        let with_locks = till(&mut { waits });
        let with_queued = till(&mut self.runs.iter().map(|run| [run.submitted, run.start]));
        let last = self.runs.iter().map(|run| run.end).max().unwrap_or(0);
        RangeParts {
            gpu_ns: gpu,
            lock_ns: with_locks - gpu,
            queued_ns: with_queued - with_locks,
            other_ns: ns - with_queued,
            after_ns: r.ns(last.saturating_sub(ended)),
        }
    }
}

fn work<'w>(r: &Recording, span: Span, runs: impl Iterator<Item = &'w Run>) -> RangeWork {
    let mut sum = RangeWork::default();
    let (mut on_gpu, mut queued, mut end) = (Vec::new(), Vec::new(), span.ended);
    for run in runs {
        if run.kind == Kind::WithoutTime {
            sum.without_time += 1;
            continue;
        }
        sum.runs += 1;
        sum.ns = sum.ns.saturating_add(run.ns);
        if run.kind == Kind::Copy {
            sum.copies += 1;
            sum.copies_ns = sum.copies_ns.saturating_add(run.ns);
        }
        on_gpu.push((run.gpu, run.start, run.end));
        queued.push((None, run.submitted, run.start));
        end = end.max(run.end);
    }
    sum.busy_ns = r.ns(covered(&mut on_gpu));
    sum.queued_ns = r.ns(covered(&mut queued));
    on_gpu.iter_mut().for_each(|run| run.0 = None);
    sum.idle_ns = r.ns((end - span.began).saturating_sub(covered(&mut on_gpu)));
    sum
}

/// Time in at least one of the spans, on each GPU.
fn covered(spans: &mut [(Option<u32>, u64, u64)]) -> u64 {
    spans.sort_unstable();
    let (mut ticks, mut until) = (0u64, None);
    for &(gpu, from, to) in &*spans {
        // Of what others have counted already, only the rest.
        let from = match until {
            Some((last, until)) if last == gpu => from.max(until),
            _ => from,
        };
        ticks = ticks.saturating_add(to.saturating_sub(from));
        until = Some((gpu, from.max(to)));
    }
    ticks
}

/// The GPU's work of a recording, for ranges that are known later.
pub struct RangeWorks<'r> {
    recording: &'r Recording,
    works: Works,
}

impl<'r> RangeWorks<'r> {
    /// `None` if no times of the GPU or no ranges were recorded.
    ///
    /// # Errors
    /// The recording cannot be read.
    pub fn of(recording: &'r Recording) -> Result<Option<RangeWorks<'r>>, InsightError> {
        if !recording.header().gpu_times {
            return Ok(None);
        }
        let mut works = Works::default();
        let out = walk(recording, &mut works)?;
        works.sort();
        Ok(out.nvtx.map(|_| RangeWorks { recording, works }))
    }

    /// What any thread submitted in a range; `None` for marks, ranges without end, and if there was too much to keep.
    pub fn all_threads(&mut self, range: &Range) -> Option<RangeWork> {
        Some(self.works.of(self.recording, Span::of(range)?)?.all_threads)
    }
}

impl Sink for Works {
    fn graph_kernel(&mut self, at: &At<'_>, kernel: &GraphKernel) {
        self.ran(at, Some(kernel.gpu), Kind::Kernel);
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        match op.what {
            What::Launch(_) if at.started().and_then(|s| s.shape).is_some_and(|s| s.is_empty()) => {}
            // (The time of a kernel without a handle follows with those of graphs.)
            What::Launch(_) if at.submission.ring.is_none_or(|ring| ring.kernel == 0) => {}
            What::Launch(_) => self.ran(at, at.gpu_time(), Kind::Kernel),
            What::Copy(_) | What::Fill(_) => self.ran(at, at.gpu_time(), Kind::Copy),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_overlaps_counts_once_on_each_gpu() {
        let mut spans = [(Some(0), 10, 20), (Some(1), 5, 25), (Some(0), 15, 40), (Some(0), 18, 19), (Some(0), 50, 60)];
        assert_eq!(covered(&mut spans), 30 + 10 + 20);
        spans.iter_mut().for_each(|span| span.0 = None);
        assert_eq!((covered(&mut spans), covered(&mut [])), (35 + 10, 0));
    }
}
