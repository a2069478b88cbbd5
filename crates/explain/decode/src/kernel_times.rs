//! How many kernels of each process have a time, and why the others have none.
//!
//! The runs are counted on the tape. The agent and the recorder counted why a kernel got no stamp, or why its end did not come. Kernels that
//! no count explains are reported as not known: the reasons always add up to the number of kernels without a time.

use crate::gpu_times::Times;
use crate::graphs::{self, Finder, Graph};
use crate::recording::{InsightError, Recording};
use crate::stored::stored;
use crate::walk::{At, GraphKernel, Outcome, Segment, Sink, walk};
use pushbuf::decode::Item;
use pushbuf::ops::{Op, What};
use schema::kernel_times::{KernelTimes, LackingRow, Reason, State};
use std::collections::{BTreeMap, BTreeSet};
use tape::file::KernelEnds;
use tape::stamp::state;

/// Taken from the stored summary, or found by a walk. `None` if times were not requested.
///
/// # Errors
/// The recording cannot be read.
pub fn kernel_times(r: &Recording) -> Result<Option<Vec<KernelTimes>>, InsightError> {
    if let Some(summary) = stored(r) {
        return Ok(summary.kernel_times);
    }
    let Some(mut counter) = Counter::of(r) else { return Ok(None) };
    let out = walk(r, &mut counter)?;
    Ok(Some(counter.close(r, &out)))
}

/// Counts runs during a walk.
pub(crate) struct Counter {
    /// Present if the graphs are not known yet.
    finder: Option<Finder>,
    graphs: Vec<Graph>,
    /// Submissions that upload understood graphs.
    uploads: BTreeSet<u64>,
    of: BTreeMap<u32, Counted>,
    /// The launches of the current submission.
    now: Launched,
    /// Submissions that may turn out to upload a graph: the kernels that these write do not run then.
    undecided: BTreeMap<u64, Launched>,
    /// Number of undecided submissions at which the finder is asked which of them may still be uploads.
    look_at: usize,
}

/// Launches of one submission.
#[derive(Debug, Clone, Copy, Default)]
struct Launched {
    process: u32,
    gpu: Option<u32>,
    own: u32,
    own_timed: u32,
    not_understood: u32,
}

impl Launched {
    fn is_empty(&self) -> bool {
        self.own == 0 && self.not_understood == 0
    }
}

/// Number of undecided submissions before they are checked.
const UNDECIDED: usize = 1 << 16;

#[derive(Debug, Default)]
struct Counted {
    /// Launches of single kernels, by GPU.
    own: BTreeMap<Option<u32>, u64>,
    own_timed: u64,
    /// Those without a time before the first with a time, by GPU.
    early: BTreeMap<Option<u32>, u64>,
    in_graphs: u64,
    /// Of launches past CUDA.
    past_cuda: u64,
    graph_timed: u64,
    /// GPUs whose kernels have times.
    gpus: BTreeSet<Option<u32>>,
    not_understood: u64,
}

impl Counted {
    fn add(&mut self, launched: &Launched) {
        let Launched { gpu, own, own_timed, not_understood, .. } = *launched;
        self.not_understood += u64::from(not_understood);
        if own > 0 {
            *self.own.entry(gpu).or_default() += u64::from(own);
        }
        if own > own_timed && !self.gpus.contains(&gpu) {
            *self.early.entry(gpu).or_default() += u64::from(own - own_timed);
        }
        if own_timed > 0 {
            self.own_timed += u64::from(own_timed);
            self.gpus.insert(gpu);
        }
    }
}

impl Counter {
    /// Finds the graphs itself, so it must be given all callbacks of the walk. `None` if times were not requested.
    pub fn of(r: &Recording) -> Option<Counter> {
        r.header().gpu_times.then(|| Counter { finder: Some(Finder::new(r)), ..Counter::with(Vec::new()) })
    }

    pub fn with(graphs: Vec<Graph>) -> Counter {
        let mut counter = Counter {
            finder: None,
            graphs: Vec::new(),
            uploads: BTreeSet::new(),
            of: BTreeMap::new(),
            now: Launched::default(),
            undecided: BTreeMap::new(),
            look_at: UNDECIDED,
        };
        counter.found(graphs);
        counter
    }

    fn found(&mut self, graphs: Vec<Graph>) {
        self.uploads = graphs::uploads(&graphs);
        self.graphs = graphs;
    }

    /// Counts the submissions that cannot upload a graph.
    fn decide(&mut self, may_upload: impl Fn(u64) -> bool) {
        let of = &mut self.of;
        self.undecided.retain(|number, launched| {
            let is_undecided = may_upload(*number);
            if !is_undecided {
                of.entry(launched.process).or_default().add(launched);
            }
            is_undecided
        });
        self.look_at = UNDECIDED.max(2 * self.undecided.len());
    }

    /// The rows of all processes. `out`: the outcome of the walk.
    pub fn close(mut self, r: &Recording, out: &Outcome) -> Vec<KernelTimes> {
        if let Some(finder) = self.finder.take() {
            // The names of their kernels are not used here.
            self.found(finder.finish(BTreeMap::new()));
            let uploads = std::mem::take(&mut self.uploads);
            self.decide(|number| uploads.contains(&number));
        }
        for g in &self.graphs {
            let c = self.of.entry(g.process).or_default();
            match g.kernels() {
                None if g.recipe.is_err() => c.not_understood = c.not_understood.saturating_add(g.launches),
                None => {}
                Some(kernels) => {
                    let runs = kernels.filter(|ran| ran.always).count() as u64;
                    c.in_graphs = c.in_graphs.saturating_add(g.launches.saturating_mul(runs));
                    c.past_cuda = c.past_cuda.saturating_add(g.past_cuda.saturating_mul(runs));
                }
            }
        }
        let is_part = r.header().saved.as_ref().is_some_and(|saved| saved.events > 0);
        let images = r.images().iter().map(|image| {
            let index = image.process.index;
            let ends = image.end.as_ref().and_then(|end| end.kernel_ends);
            let counted = self.of.remove(&index).unwrap_or_default();
            row((index, r.pid(index)), is_part, &counted, ends, out.times.of(r, index))
        });
        images.flatten().collect()
    }
}

impl Sink for Counter {
    fn submission(&mut self, at: &At<'_>) {
        self.now = Launched { process: at.channel.process, gpu: at.channel.gpu, ..Launched::default() };
        self.finder.iter_mut().for_each(|finder| finder.submission(at));
    }

    fn segment(&mut self, at: &At<'_>, segment: &Segment<'_>) {
        self.finder.iter_mut().for_each(|finder| finder.segment(at, segment));
    }

    fn item(&mut self, at: &At<'_>, item: &Item<'_>) {
        self.finder.iter_mut().for_each(|finder| finder.item(at, item));
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        self.finder.iter_mut().for_each(|finder| finder.op(at, op));
        let What::Launch(_) = &op.what else { return };
        let Some(started) = at.started() else { return };
        match started.shape {
            None => self.now.not_understood += 1,
            Some(shape) if !shape.is_empty() && !started.again => {
                self.now.own += 1;
                self.now.own_timed += u32::from(at.gpu_time().is_some());
            }
            Some(_) => {}
        }
    }

    fn graph_kernel(&mut self, at: &At<'_>, _: &GraphKernel) {
        let gpu = at.channel.gpu;
        let c = self.of.entry(at.channel.process).or_default();
        c.graph_timed += 1;
        c.gpus.insert(gpu);
    }

    fn submission_end(&mut self, at: &At<'_>) {
        self.finder.iter_mut().for_each(|finder| finder.submission_end(at));
        let by_handle = at.submission.ring.is_some_and(|ring| ring.kernel != 0);
        match &self.finder {
            _ if self.now.is_empty() => {}
            Some(finder) if !by_handle => {
                self.undecided.insert(at.number, self.now);
                if self.undecided.len() >= self.look_at {
                    let candidates = finder.candidates();
                    self.decide(|number| candidates.contains(&number));
                }
            }
            None if !by_handle && self.uploads.contains(&at.number) => {}
            _ => self.of.entry(self.now.process).or_default().add(&self.now),
        }
    }
}

/// `None` for a process that has no kernels. `is_part`: the recording lacks the beginning.
fn row(
    (process, pid): (u32, i32),
    is_part: bool,
    c: &Counted,
    ends: Option<KernelEnds>,
    image: Option<Times<'_>>,
) -> Option<KernelTimes> {
    let on_tape = image.map_or(0, |image| image.ends());
    let (state, result) =
        image.and_then(|image| image.state()).map_or((State::NotBegun, None), |(of, result)| match of {
            state::REFUSED => (State::Refused, Some(result)),
            state::NO_FUNCTION => (State::NoFunction, None),
            state::CONTEXT_GONE => (State::ContextGone, None),
            state::CUPTI => (State::Cupti, None),
            state::DIVIDED => (State::Divided, None),
            state::CONFIDENTIAL => (State::Confidential, None),
            _ => (State::On, None),
        });
    let own: u64 = c.own.values().sum();
    let timed = c.own_timed.saturating_add(c.graph_timed);
    let kernels = own.saturating_add(c.in_graphs).saturating_add(c.not_understood).max(timed);
    if kernels == 0 && ends.is_none_or(|ends| ends.stamped == 0) && state == State::NotBegun {
        return None;
    }
    let mut left = kernels - timed;
    let mut lacking = Vec::new();
    let mut put = |reason, kernels: u64| {
        let kernels = kernels.min(left);
        if kernels > 0 {
            left -= kernels;
            lacking.push(LackingRow::of(reason, kernels));
        }
    };
    // First the reasons that were counted kernel by kernel, then the one that explains all others.
    let e = ends.unwrap_or_default();
    put(Reason::Cupti, e.by_cupti);
    put(Reason::WordsInUse, e.words_in_use);
    put(Reason::OtherVersion, e.other_version);
    put(Reason::SlotsFull, e.slots_full);
    put(Reason::NoShadow, e.no_shadow);
    let elsewhere = c.own.iter().filter(|(gpu, _)| !c.gpus.is_empty() && !c.gpus.contains(gpu));
    put(Reason::OtherGpu, elsewhere.map(|(_, n)| n).sum());
    if on_tape > 0 && !image.is_some_and(|image| image.has_clock()) {
        put(Reason::NoClock, on_tape);
    }
    put(if is_part { Reason::UploadedBefore } else { Reason::NotUnderstood }, c.not_understood);
    let never = e.stamped.saturating_sub(e.ends);
    let given_up = e.given_up.min(never);
    put(Reason::GivenUp, given_up);
    put(Reason::NotEnded, never - given_up);
    if matches!(state, State::On | State::ContextGone | State::Cupti) {
        let again = c.in_graphs.saturating_sub(c.graph_timed);
        put(Reason::PastCuda, c.past_cuda.min(again));
        put(Reason::GraphAgain, again.saturating_sub(c.past_cuda));
    }
    put(Reason::NotMapped, c.early.iter().filter(|(gpu, _)| c.gpus.contains(gpu)).map(|(_, n)| n).sum());
    put(state.reason().unwrap_or(Reason::NotKnown), u64::MAX);
    let stamped = ends.map(|ends| ends.stamped);
    Some(KernelTimes { process, pid, state, cuda_result: result, kernels, timed, stamped, ends: on_tape, lacking })
}
