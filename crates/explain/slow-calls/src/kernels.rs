//! When kernels ran (`record --gpu-times`), and which of them a call waited for.
//!
//! A call waits for the kernels of its stream, event or device that were submitted before and ended in it. While one of them runs, the call waits for the
//! engine; while none does, and one was submitted and did not start, for the queue. Where only bounds of a kernel are known, all of them count as running, and
//! are marked. What is left is not known: times of copies are not used here.

use crate::activity::{Span, What};
use crate::names::Names;
use decode::walk::{At, GraphKernel, Sink, walk};
use decode::{InsightError, Recording};
use lock_analysis::fast_map::FastMap;
use pushbuf::ops::{Op, What as Did};
use schema::operations::{GpuTime, Start};

/// Runs that are remembered, at most (48 bytes each).
const MOST: usize = 1 << 22;
/// Runs of one call, at most.
const OF_ONE: usize = 1 << 16;
/// Seconds by which a kernel may seem to end after the call that waited for it: the clocks are read to less than a microsecond.
const SLACK: f64 = 5e-6;
/// [`Span::of`] of a time between kernels.
pub const NONE: u64 = u64::MAX - 1;

/// The stream of a kernel or of a call, as handles name it. Stream 2 is each thread's own.
pub fn stream(handle: u64, tid: i32) -> u64 {
    match handle {
        // The legacy default stream by its other name.
        1 => 0,
        2 => 2 | u64::from(tid as u32) << 32,
        handle => handle,
    }
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub process: u32,
    /// `None`: all streams.
    pub stream: Option<u64>,
    /// What was submitted until then.
    pub until: u64,
}

/// A kernel that ran, times as time stamps.
#[derive(Clone, Copy, Debug)]
struct Run {
    rung: u64,
    /// The start; of one with bounds the earliest.
    from: u64,
    to: u64,
    stream: u64,
    /// How long its stream ran no kernel before it was submitted; 0 where that is not known.
    idle: u64,
    name: u32,
    is_bounded: bool,
}

#[derive(Debug, Default)]
struct Process {
    /// In the order of their ends.
    runs: Vec<Run>,
    /// The earliest start of a run and all after it.
    earliest: Vec<u64>,
}

/// All runs.
#[derive(Debug, Default)]
pub struct Runs {
    of: FastMap<u32, Process>,
    pub names: Names,
    kept: usize,
    /// Runs that were not remembered.
    pub left_out: u64,
    slack: u64,
}

/// What is known of the kernels that a call waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    pub kernels: u64,
    /// Within the call: ticks and name of the longest.
    pub longest: u64,
    pub longest_name: u64,
    /// How long the stream of the first one ran no kernel before that was submitted.
    pub idle: u64,
    pub idle_name: u64,
    /// When the last of them ended.
    pub last: u64,
    /// There were more than are looked at.
    pub is_cut: bool,
}

impl Runs {
    /// `None` where times were not asked for.
    pub fn of(r: &Recording) -> Result<Option<Runs>, InsightError> {
        if !r.header().gpu_times {
            return Ok(None);
        }
        let mut runs = Runs { slack: (SLACK * r.hz()) as u64, ..Runs::default() };
        walk(r, &mut runs)?;
        runs.of.values_mut().for_each(Process::settle);
        Ok(Some(runs))
    }

    fn add(&mut self, at: &At<'_>, gpu: &GpuTime, name: impl FnOnce() -> String) {
        if self.kept >= MOST {
            self.left_out += 1;
            return;
        }
        let is_bounded = gpu.start == Start::Bounded;
        let from = at.tsc_at(if is_bounded { gpu.earliest_ns } else { gpu.start_ns });
        let (Some(from), Some(to)) = (from, at.tsc_at(gpu.end_ns)) else { return };
        self.kept += 1;
        let handle = at.submission.ring.map_or(0, |ring| ring.stream);
        let stream = stream(handle, at.submission.tid);
        let name = self.names.number(name()) as u32;
        let run = Run { rung: at.submission.tsc, from, to: to.max(from), stream, idle: 0, name, is_bounded };
        self.of.entry(at.channel.process).or_default().runs.push(run);
    }

    /// Appends to `spans` what the kernels did that a call waited for from `began` to `ended`.
    pub fn spans(&self, wait: &Wait, began: u64, ended: u64, spans: &mut Vec<Span>) -> Waited {
        let mut all = Waited::default();
        let Some(p) = self.of.get(&wait.process) else { return all };
        let first = p.runs.partition_point(|r| r.to <= began);
        let near = || p.runs.iter().zip(&p.earliest).skip(first).take_while(|(_, earliest)| **earliest < ended);
        let is_waited_for = |r: &Run| {
            wait.stream.is_none_or(|stream| stream == r.stream)
                && r.rung <= wait.until
                && r.to <= ended.saturating_add(self.slack)
        };
        let (mut started, mut first_rung) = (began, u64::MAX);
        for (r, _) in near().filter(|(r, _)| is_waited_for(r)) {
            if all.kernels as usize >= OF_ONE {
                all.is_cut = true;
                break;
            }
            all.kernels += 1;
            let what = if r.is_bounded { What::Bounded } else { What::Engine };
            let (from, to) = (r.from.max(began), r.to.min(ended));
            let name = u64::from(r.name);
            spans.push(Span { from, to, what, of: name });
            if to.saturating_sub(from) > all.longest {
                (all.longest, all.longest_name) = (to - from, name);
            }
            if r.rung < first_rung {
                (first_rung, all.idle, all.idle_name) = (r.rung, r.idle, name);
            }
            started = started.max(r.from.min(ended));
            all.last = all.last.max(to);
        }
        if started > began {
            spans.push(Span { from: began, to: started, what: What::Queue, of: NONE });
            let others = near().filter(|(r, _)| !is_waited_for(r) && r.from < started);
            spans.extend(others.take(OF_ONE).map(|(r, _)| Span {
                from: r.from.max(began),
                to: r.to.min(started),
                what: What::Beside,
                of: r.name.into(),
            }));
        }
        all
    }
}

impl Process {
    fn settle(&mut self) {
        self.runs.sort_by_key(|r| (r.to, r.rung));
        let mut ended: FastMap<u64, u64> = FastMap::default();
        for r in &mut self.runs {
            let before = ended.insert(r.stream, r.to).filter(|_| !r.is_bounded);
            r.idle = before.map_or(0, |before| r.rung.saturating_sub(before));
        }
        let mut least = u64::MAX;
        self.earliest = vec![0; self.runs.len()];
        for (r, earliest) in self.runs.iter().zip(&mut self.earliest).rev() {
            least = least.min(r.from);
            *earliest = least;
        }
    }
}

impl Sink for Runs {
    fn op(&mut self, at: &At<'_>, op: &Op) {
        if let Did::Launch(_) = &op.what
            && let (Some(gpu), Some(shape)) = (at.gpu_time(), at.started().and_then(|s| s.shape))
        {
            let name = || at.kernel().map_or_else(|| format!("{:#x}", shape.code()), |kernel| kernel.name.clone());
            self.add(at, &gpu, name);
        }
    }

    fn graph_kernel(&mut self, at: &At<'_>, k: &GraphKernel) {
        let name = || k.kernel.as_ref().map_or_else(|| format!("{:#x}", k.shape.code()), |kernel| kernel.name.clone());
        self.add(at, &k.gpu, name);
    }
}
