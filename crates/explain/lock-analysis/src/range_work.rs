//! The GPU's work in ranges of NVTX: what their threads submitted in them, and what any thread of the process submitted while they were open.
//!
//! Autograd runs the backward pass in a thread that has no range, so only the second has it.

use decode::ranges::{Key, Open, Range, Style};
use decode::walk::At;
use schema::operations::GpuTime;
use schema::ranges::RangeWork;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Kernels and copies, and ranges, that are kept. (Beyond that, no range has figures.)
const RUNS: usize = 1 << 22;
const RANGES: usize = 1 << 20;

/// A kernel or a copy with a time.
#[derive(Clone, Copy)]
struct Run {
    /// When its doorbell was rung.
    submitted: u64,
    gpu: Option<u32>,
    start: u64,
    end: u64,
}

struct One {
    process: u32,
    began: u64,
    ended: u64,
}

type Row = (Style, Key);

/// Gathers the work during a walk.
#[derive(Default)]
pub struct Works {
    of_process: BTreeMap<u32, Vec<Run>>,
    own: HashMap<Row, Vec<Run>>,
    ranges: HashMap<Row, Vec<One>>,
    runs: usize,
    instances: usize,
    /// `of_process` is in the order of submission.
    sorted: bool,
}

impl Works {
    pub fn range(&mut self, r: &Range) {
        let Some((ended, _)) = r.ended.filter(|_| r.style != Style::Mark) else { return };
        self.instances += 1;
        if self.instances <= RANGES {
            let one = One { process: r.source.process, began: r.began, ended };
            self.ranges.entry((r.style, r.key)).or_default().push(one);
        }
    }

    pub fn ran(&mut self, at: &At<'_>, time: &GpuTime) {
        let open: Option<&Arc<Open>> = at.submission.ranges.as_ref();
        let keys = open.map_or(0, |open| open.of_thread.len() + open.process.len());
        self.runs += 1 + keys;
        if self.runs > RUNS {
            return;
        }
        let run = Run { submitted: at.submission.tsc, gpu: at.channel.gpu, start: time.start_ns, end: time.end_ns };
        self.of_process.entry(at.channel.process).or_default().push(run);
        let Some(open) = open else { return };
        for key in &open.of_thread {
            self.own.entry((Style::Thread, *key)).or_default().push(run);
        }
        for key in &open.process {
            self.own.entry((Style::Process, *key)).or_default().push(run);
        }
    }

    /// After the walk: the work of a row's threads, and of all threads; `None` if there was too much to keep.
    pub fn of(&mut self, row: Row) -> Option<[RangeWork; 2]> {
        if self.runs > RUNS || self.instances > RANGES {
            return None;
        }
        if !std::mem::replace(&mut self.sorted, true) {
            self.of_process.values_mut().for_each(|runs| runs.sort_by_key(|run| run.submitted));
        }
        let own = work(self.own.remove(&row).unwrap_or_default());
        let mut all = Vec::new();
        for one in self.ranges.remove(&row).unwrap_or_default() {
            let Some(runs) = self.of_process.get(&one.process) else { continue };
            let first = runs.partition_point(|run| run.submitted < one.began);
            let end = runs.partition_point(|run| run.submitted <= one.ended);
            all.extend_from_slice(runs.get(first..end).unwrap_or(&[]));
        }
        Some([own, work(all)])
    }
}

fn work(mut runs: Vec<Run>) -> RangeWork {
    runs.sort_unstable_by_key(|run| (run.gpu, run.start));
    let mut sum = RangeWork { runs: runs.len() as u64, ..RangeWork::default() };
    let mut until = None;
    for run in &runs {
        sum.ns += run.end.saturating_sub(run.start);
        // Of what others have counted already, only the rest.
        let from = match until {
            Some((gpu, until)) if gpu == run.gpu => run.start.max(until),
            _ => run.start,
        };
        sum.busy_ns += run.end.saturating_sub(from);
        until = Some((run.gpu, from.max(run.end)));
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_overlaps_is_busy_once() {
        let run = |gpu, start, end| Run { submitted: 0, gpu: Some(gpu), start, end };
        let sum = work(vec![run(0, 10, 20), run(1, 5, 25), run(0, 15, 40), run(0, 18, 19), run(0, 50, 60)]);
        assert_eq!(sum, RangeWork { runs: 5, ns: 10 + 20 + 25 + 1 + 10, busy_ns: 30 + 10 + 20 });
        assert_eq!(work(Vec::new()), RangeWork::default());
    }
}
