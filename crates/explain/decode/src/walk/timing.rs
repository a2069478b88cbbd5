//! What a launch or a transfer started, and when it ran, before a sink is given it.
//!
//! Order: a submission's [`Timing`] gives an [`InSegment`] for each segment, which gives all operations of the segment to the sink, and is ended then. What
//! kernels and copies do to later ones is noted in the same order in [`Running`]; `tape::kernel_clock` computes their times.

use super::sink::OfOp;
use super::{At, GraphKernel, Sink};
use crate::gpu_times::{Ran, Running, gpu_time};
use crate::kernel::{Codes, Kernel};
use crate::merge::Submission;
use crate::qmds::Qmds;
use pushbuf::ops::{Launch, Op, Purpose, What};
use pushbuf::qmd::Qmd;
use pushbuf::qmd::end_time::{self, Found};
use schema::operations::GpuTime;
use std::ops::Range;
use std::rc::Rc;
use tape::kernel_clock::{Node, Stream};

/// No QMD has fewer words.
const QMD_WORDS: usize = 64;

/// What is known of an image's launches, for one submission.
pub struct Timing<'a> {
    pub qmds: &'a mut Qmds,
    pub codes: &'a mut Codes,
    pub running: &'a mut Running,
    /// Whether a kernel's handle was being launched, and the kernel if it has a name.
    pub handle: Option<Option<&'a Rc<Kernel>>>,
    /// So many kernels before it are CUDA's own: they prepare its launch.
    pub prepares: usize,
    /// Numbers of the kernels of the segments so far, by the addresses of their QMDs.
    pub stamps: Vec<(u64, u64)>,
    /// Launches given so far.
    pub launches: u32,
}

/// A segment whose operations are given to a sink.
pub struct InSegment<'t, 'a> {
    of: &'t mut Timing<'a>,
    /// Its GPFIFO entry; `None`: between two segments.
    entry: Option<u64>,
    /// Numbers of the times of its transfers that follow.
    copied: Range<u64>,
    /// Kernels of graphs that it uploads.
    uploaded: Vec<Ran>,
    /// It writes inline data of the program's.
    writes: bool,
    launches: bool,
}

/// The stream that was passed to the call; 0 outside of one.
fn stream(at: &At<'_>) -> Stream {
    (at.channel.number, at.submission.ring.map_or(0, |ring| ring.stream))
}

impl<'a> Timing<'a> {
    /// Takes the stamps out of a segment's words, which then are the program's own.
    pub fn take_stamps(&mut self, at: &At<'_>, words: &mut [u32]) {
        if let Some(times) = at.times {
            times.take_stamps(words, |qmd, number| self.stamps.push((qmd, number)));
        }
    }

    /// The number of kernels that a submission of one kernel's launch runs before it.
    pub fn prepares(s: &Submission) -> usize {
        if s.word_count() < 2 * QMD_WORDS {
            return 0;
        }
        let mut kernels = 0usize;
        for words in s.entries.iter().map(|e| s.words(e)) {
            let word = |i: usize| words.get(i).copied().unwrap_or(0);
            end_time::find(words.len(), word, |found| kernels += usize::from(!matches!(found, Found::Order(_))));
        }
        kernels.saturating_sub(1)
    }

    /// Begins the segment of a GPFIFO entry; `None`: there are operations between two segments.
    pub fn segment(&mut self, at: &At<'_>, entry: Option<u64>) -> InSegment<'_, 'a> {
        let copied = entry.filter(|_| at.times.is_some()).map(|e| self.running.take_copied(at.channel.slot, e));
        let copied = copied.unwrap_or_default();
        InSegment { of: self, entry, copied, uploaded: Vec::new(), writes: false, launches: false }
    }
}

impl InSegment<'_, '_> {
    /// Gives an operation to a sink, with what is known of it.
    pub fn give(&mut self, at: &At<'_>, op: &Op, sink: &mut dyn Sink) {
        let kernels = &mut self.of.running.kernels;
        let of_op = match &op.what {
            What::Launch(l) => self.launch(at, l),
            What::Copy(_) | What::Fill(_) => OfOp { gpu_time: self.transfer(at), ..OfOp::default() },
            What::Semaphore(s) => {
                if at.times.is_some() && s.operation.is_acquire() {
                    kernels.waits_for(stream(at), s.address);
                } else if at.times.is_some() {
                    kernels.releases_by_command(at.channel.number, s.address);
                }
                OfOp::default()
            }
            What::Inline(i) => {
                self.writes |= i.purpose == Purpose::Data;
                OfOp::default()
            }
        };
        let at = At { of_op, ..*at };
        sink.op(&at, op);
        if let Some(shape) = at.started().and_then(|started| started.shape).filter(|_| of_op.is_awaited) {
            sink.awaited(&at, shape.code(), of_op.kernel);
        }
    }

    fn launch(&mut self, at: &At<'_>, l: &Launch) -> OfOp<'_> {
        self.launches = true;
        let launch = self.of.launches;
        self.of.launches = launch.saturating_add(1);
        let mut started = self.of.qmds.start(at.channel.number, l);
        let Some(shape) = started.shape.as_mut().filter(|shape| !shape.is_empty()) else {
            return OfOp { started: Some(started), launch, ..OfOp::default() };
        };
        let (gpu_time, is_awaited) = self.time(at, l);
        let Timing { codes, handle, prepares, .. } = &mut *self.of;
        let is_own = *prepares == 0;
        *prepares = prepares.saturating_sub(1);
        if !is_own {
            // (What prepares a launch has the kernel's own address among its constants.)
            shape.kernel = None;
        }
        // The code's name is for launches without a handle (a graph's). (What was there before is not there any more.)
        let handle = handle.map(|kernel| kernel.filter(|_| is_own));
        if let Some(kernel) = handle {
            let call = at.submission.ring.map(|ring| (at.submission.tid, ring.call));
            codes.name(shape.code(), at.number, call, kernel);
        }
        let kernel = handle.unwrap_or_else(|| codes.latest(shape.code()));
        OfOp { started: Some(started), launch, kernel, gpu_time, is_awaited }
    }

    /// When a kernel ran that was launched by its handle, and whether it is awaited. One that was not is a graph's, or CUDA's own, and follows at the segment's end.
    fn time(&mut self, at: &At<'_>, l: &Launch) -> (Option<GpuTime>, bool) {
        let Some(times) = at.times else { return (None, false) };
        let of = &mut *self.of;
        let number = of.stamps.iter().rev().find(|(qmd, _)| *qmd == l.qmd_address).map(|(_, number)| *number);
        if of.handle.is_none() {
            self.uploaded.extend(number.map(|number| Ran { qmd: l.qmd_address, number }));
            return (None, false);
        }
        let (stream, kernels) = (stream(at), &mut of.running.kernels);
        for (_, release) in l.qmd.iter().flat_map(|qmd| qmd.releases()) {
            kernels.releases(stream, release.address);
        }
        let end = number.and_then(|number| times.ended(number));
        let rung = end.and_then(|_| times.gpu_ns(at.channel.gpu, at.submission.tsc));
        let is_early = l.qmd.as_ref().is_some_and(Qmd::waits_on_latch);
        let launch = kernels.launch(stream, at.channel.gpu, rung, is_early);
        (kernels.kernel(&launch, end).map(gpu_time), number.is_some() && end.is_none())
    }

    fn transfer(&mut self, at: &At<'_>) -> Option<GpuTime> {
        let numbers = [self.copied.next()?, self.copied.next()?];
        let time = at.times?.transfer(at.channel.gpu, at.submission.tsc, numbers)?;
        self.of.running.kernels.moved(at.channel.number, time.end_ns);
        Some(time)
    }

    /// Gives the kernels of graphs that the entry has launched, in the order of their ends: those of graphs that were uploaded before, and those that it
    /// uploads itself.
    pub fn end(self, at: &At<'_>, sink: &mut dyn Sink) {
        let (Some(times), Some(entry)) = (at.times, self.entry) else { return };
        let (Timing { qmds, codes, running, .. }, channel) = (self.of, at.channel);
        // (What a launch writes is its own.)
        if self.writes && !self.launches {
            running.kernels.writes(channel.number);
        }
        let mut all = running.take_launched(channel.slot, entry);
        let is_again = self.uploaded.is_empty();
        if !is_again {
            // How long the upload took is not known.
            running.kernels.waits(channel.number);
            all.extend(self.uploaded);
        }
        if all.is_empty() {
            return;
        }
        let tsc = at.submission.tsc;
        let node = |k: &Ran| Node { qmd: k.qmd, order: qmds.order(k.qmd), end: times.ended_of(channel.gpu, tsc, k) };
        let nodes: Vec<Node> = all.iter().map(node).collect();
        let launch = running.kernels.launch(stream(at), channel.gpu, times.gpu_ns(channel.gpu, tsc), false);
        let launch = if is_again { launch.waits_for_itself() } else { launch };
        for (i, run) in running.kernels.graph(&launch, &nodes) {
            let Some((qmd, shape)) = nodes.get(i).and_then(|node| Some((node.qmd, qmds.shape(node.qmd)?))) else {
                continue;
            };
            let kernel = codes.latest(shape.code()).cloned();
            sink.graph_kernel(at, &GraphKernel { qmd, shape, kernel, gpu: gpu_time(run) });
        }
        for ran in all.iter().filter(|ran| times.ended(ran.number).is_none()) {
            if let Some(shape) = qmds.shape(ran.qmd) {
                sink.awaited(at, shape.code(), codes.latest(shape.code()));
            }
        }
    }
}
