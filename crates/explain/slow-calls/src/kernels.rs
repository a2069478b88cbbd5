//! When kernels and copies ran (`record --gpu-times`), and which of them a call waited for.
//!
//! A call waits for the kernels and copies of its stream, event or device that were submitted before it and ended in it. A call that copies also waits for its
//! own copies. While one of them runs, the call waits for the engine. While none runs, and one was submitted but did not start, the call waits for the queue.
//! If only bounds of a kernel are known, all the time between them counts as running, and is marked. The cause of the remaining time is not known.

use crate::activity::{Span, What};
use crate::names::Names;
use crate::pageable::{Moved, is_pageable};
use decode::ranges::Open;
use decode::walk::{At, GraphKernel, Sink, walk};
use decode::{InsightError, Recording, Source};
use lock_analysis::fast_map::FastMap;
use pushbuf::ops::{Op, What as Did};
use schema::copy_names;
use schema::operations::{GpuTime, Mode, Start};
use tape::call::{self, CallBody};
use tape::event::{Body, Event};

/// Maximum number of remembered runs (48 bytes each).
const MOST: usize = 1 << 22;
/// Maximum number of runs of one call.
const OF_ONE: usize = 1 << 16;
/// Maximum number of copies and moves that are remembered of a thread until its call ends.
const PENDING: usize = 1 << 16;
/// Maximum number of copies' names with sizes; further sizes are left out of the names.
const SIZED: usize = 1024;
/// Seconds by which a kernel may seem to end after the call that waited for it: the clocks are read to less than a microsecond.
const SLACK: f64 = 5e-6;
/// [`Span::of`] of a time in which the GPU ran none of them.
pub const NONE: u64 = u64::MAX - 1;

/// The stream of a kernel, a copy or a call, from its handle. Stream 2 is separate for each thread.
pub fn stream(handle: u64, tid: i32) -> u64 {
    match handle {
        // The legacy default stream's other handle.
        1 => 0,
        2 => tape::call::of_thread(tid),
        handle => handle,
    }
}

/// What a call waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub process: u32,
    /// `None`: all streams.
    pub stream: Option<u64>,
    /// The call waits for submissions up to this time.
    pub until: u64,
    /// The thread whose later submissions the call waits for, too: they are the call's own.
    pub own: Option<i32>,
}

/// A run of a kernel or a copy, with times as time stamps.
#[derive(Clone, Copy, Debug)]
struct Run {
    rung: u64,
    /// The start, or the earliest possible start if only bounds are known.
    from: u64,
    to: u64,
    stream: u64,
    /// How long its stream was idle before this was submitted; 0 if that is not known.
    idle: u64,
    tid: i32,
    /// Its number among the names, of which there are fewer.
    name: u16,
    is_bounded: bool,
    is_copy: bool,
}

const _: () = assert!(size_of::<Run>() == 48);

#[derive(Debug, Default)]
struct Process {
    /// In the order of their ends.
    runs: Vec<Run>,
    /// For each run, the earliest start of it and all later ones.
    earliest: Vec<u64>,
}

/// All runs.
#[derive(Debug, Default)]
pub struct Runs {
    of: FastMap<u32, Process>,
    pub names: Names,
    sized: usize,
    kept: usize,
    /// Runs that were not remembered.
    pub left_out: u64,
    /// Copies and fills by copy engines, and those of them that have no time.
    pub copies: u64,
    pub copies_without: u64,
    slack: u64,
    pending: FastMap<Source, Pending>,
}

/// A thread since its last call.
#[derive(Debug, Default)]
struct Pending {
    moved: Vec<Moved>,
    /// Copies among the runs of its process.
    copies: Vec<usize>,
}

/// The kernels and copies that a call waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Waited {
    pub kernels: u64,
    pub copies: u64,
    /// Within the call: ticks and name of the longest.
    pub longest: u64,
    pub longest_name: u64,
    pub longest_is_copy: bool,
    pub behind: Option<Behind>,
    /// How long the stream of the first one was idle before that one was submitted.
    pub idle: u64,
    pub idle_name: u64,
    pub idle_is_copy: bool,
    /// When the last of them ended.
    pub last: u64,
    /// There were more than the limit.
    pub is_cut: bool,
}

/// The kernel of a call that waited longest for a copy before it in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    pub ticks: u64,
    pub kernel: u64,
    pub copy: u64,
}

impl Runs {
    /// `None` if times were not requested.
    pub fn of(r: &Recording) -> Result<Option<Runs>, InsightError> {
        if !r.header().gpu_times {
            return Ok(None);
        }
        let mut runs = Runs { slack: (SLACK * r.hz()) as u64, ..Runs::default() };
        walk(r, &mut runs)?;
        runs.of.values_mut().for_each(Process::settle);
        runs.pending = FastMap::default();
        Ok(Some(runs))
    }

    fn kernel(&mut self, at: &At<'_>, gpu: &GpuTime, name: impl FnOnce() -> String) {
        self.add(at, gpu, false, |runs| runs.names.number(name()));
    }

    /// A copy or a fill by a copy engine.
    fn copy(&mut self, at: &At<'_>, op: &Op) {
        let (mode, bytes, src, dst) = match &op.what {
            Did::Copy(c) => (Mode::CopyEngine, c.bytes(), Some(c.src), c.dst),
            Did::Fill(f) => (Mode::Fill, f.bytes(), None, f.dst),
            _ => return,
        };
        self.copies += 1;
        let Some(gpu) = at.gpu_time() else {
            self.copies_without += 1;
            return;
        };
        let (from, to) = (src.map(|src| at.located(src)), at.located(dst));
        let index = self.add(at, &gpu, true, |runs| runs.copy_name(mode, bytes, from, to));
        let thread = Source { process: at.channel.process, tid: at.submission.tid };
        let pending = &mut self.pending.entry(thread).or_default().copies;
        pending.extend(index.filter(|_| pending.len() < PENDING));
    }

    fn copy_name(&mut self, mode: Mode, bytes: u64, from: Option<copy_names::Side>, to: copy_names::Side) -> u64 {
        let sized = copy_names::name(mode, bytes, from, to);
        if let Some(number) = self.names.known(&sized) {
            return number;
        }
        if self.sized >= SIZED {
            return self.names.number(copy_names::name_of_many(mode, from, to));
        }
        self.sized += 1;
        self.names.number(sized)
    }

    /// Returns its index among the runs of its process.
    fn add(&mut self, at: &At<'_>, gpu: &GpuTime, is_copy: bool, name: impl FnOnce(&mut Runs) -> u64) -> Option<usize> {
        if self.kept >= MOST {
            self.left_out += 1;
            return None;
        }
        let is_bounded = gpu.start == Start::Bounded;
        let from = at.tsc_at(if is_bounded { gpu.earliest_ns } else { gpu.start_ns })?;
        let to = at.tsc_at(gpu.end_ns)?.max(from);
        self.kept += 1;
        let tid = at.submission.tid;
        let stream = stream(at.submission.ring.map_or(0, |ring| ring.stream), tid);
        let name = name(self) as u16;
        let run = Run { rung: at.submission.tsc, from, to, stream, idle: 0, tid, name, is_bounded, is_copy };
        let runs = &mut self.of.entry(at.channel.process).or_default().runs;
        runs.push(run);
        Some(runs.len() - 1)
    }

    /// A call has ended. Its copies are known now, and therefore whether the program's memory is pageable.
    fn call(&mut self, thread: Source, number: u16, c: &CallBody) {
        let Some(pending) = self.pending.get_mut(&thread) else { return };
        let (moved, copies) = (std::mem::take(&mut pending.moved), std::mem::take(&mut pending.copies));
        if copies.is_empty() || !is_pageable(call::function(number), c, &moved) {
            return;
        }
        let Some(p) = self.of.get_mut(&thread.process) else { return };
        for i in copies {
            if let Some(run) = p.runs.get_mut(i) {
                run.name = self.names.number(format!("{}, pageable", self.names.name(run.name.into()))) as u16;
            }
        }
    }

    /// Appends to `spans` the activity of the kernels and copies that a call waited for from `began` to `ended`.
    pub fn spans(&self, wait: &Wait, began: u64, ended: u64, spans: &mut Vec<Span>) -> Waited {
        let mut all = Waited::default();
        let Some(p) = self.of.get(&wait.process) else { return all };
        let first = p.runs.partition_point(|r| r.to <= began);
        let near = || p.runs.iter().zip(&p.earliest).skip(first).take_while(|(_, earliest)| **earliest < ended);
        let is_own = |r: &Run| r.rung > wait.until && wait.own == Some(r.tid);
        let is_before = |r: &Run| r.rung <= wait.until && wait.stream.is_none_or(|stream| stream == r.stream);
        let is_waited_for = |r: &Run| r.to <= ended.saturating_add(self.slack) && (is_before(r) || is_own(r));
        let mut copies: FastMap<u64, Run> = FastMap::default();
        let (mut started, mut first_rung) = (began, u64::MAX);
        for (r, _) in near().filter(|(r, _)| is_waited_for(r)) {
            if (all.kernels + all.copies) as usize >= OF_ONE {
                all.is_cut = true;
                break;
            }
            if r.is_copy {
                all.copies += 1;
                copies.insert(r.stream, *r);
            } else {
                all.kernels += 1;
                let behind = copies.remove(&r.stream).and_then(|copy| behind(&copy, r, began, ended));
                if behind.is_some_and(|b| all.behind.is_none_or(|most| b.ticks > most.ticks)) {
                    all.behind = behind;
                }
            }
            let what = if r.is_bounded { What::Bounded } else { What::Engine };
            let (from, to) = (r.from.max(began), r.to.min(ended));
            let name = u64::from(r.name);
            spans.push(Span { from, to, what, of: name });
            if to.saturating_sub(from) > all.longest {
                (all.longest, all.longest_name, all.longest_is_copy) = (to - from, name, r.is_copy);
            }
            if r.rung < first_rung {
                (first_rung, all.idle, all.idle_name, all.idle_is_copy) = (r.rung, r.idle, name, r.is_copy);
            }
            if is_own(r) {
                spans.push(Span { from: r.rung, to: r.from.min(ended), what: What::Queue, of: NONE });
            } else {
                started = started.max(r.from.min(ended));
            }
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

/// How long of a call a kernel waited for a copy, if the kernel was submitted after the copy and before the copy ended.
fn behind(copy: &Run, kernel: &Run, began: u64, ended: u64) -> Option<Behind> {
    let ticks = copy.to.min(ended).saturating_sub(copy.from.max(kernel.rung).max(began));
    let (kernel_name, copy_name) = (kernel.name.into(), copy.name.into());
    (copy.rung <= kernel.rung && ticks > 0).then_some(Behind { ticks, kernel: kernel_name, copy: copy_name })
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
    fn wants_events(&self) -> bool {
        true
    }

    fn event(&mut self, thread: Source, e: &Event<'_>, _: Option<&Open>) {
        if let Body::Call(c) = &e.body {
            self.call(thread, e.head.flags, c);
        }
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        if let Some(moved) = Moved::of(op) {
            let thread = Source { process: at.channel.process, tid: at.submission.tid };
            let pending = &mut self.pending.entry(thread).or_default().moved;
            if pending.len() < PENDING {
                pending.push(moved);
            }
        }
        self.copy(at, op);
        if let Did::Launch(_) = &op.what
            && let (Some(gpu), Some(shape)) = (at.gpu_time(), at.started().and_then(|s| s.shape))
        {
            let name = || at.kernel().map_or_else(|| format!("{:#x}", shape.code()), |kernel| kernel.name.clone());
            self.kernel(at, &gpu, name);
        }
    }

    fn graph_kernel(&mut self, at: &At<'_>, k: &GraphKernel) {
        let name = || k.kernel.as_ref().map_or_else(|| format!("{:#x}", k.shape.code()), |kernel| kernel.name.clone());
        self.kernel(at, &k.gpu, name);
    }
}
