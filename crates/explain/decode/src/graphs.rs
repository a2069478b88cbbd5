//! CUDA graphs: which launches of a recording are launches of a graph, and what the graph consists of.
//!
//! A kernel launched for itself has its QMD written in the submission that starts it. A graph's QMDs are written once, by its first launch; a submission that
//! starts a QMD without writing it is a later launch of a graph. The words of the submission that wrote the QMD, and of the first two launches after it, go to
//! crate `cuda-graph`. A graph that was launched only once looks like kernels launched one by one, and is not found.
//!
//! The arguments of the macro that fills memory are inferred from all its calls on the tape together, from streams and from graphs, if these suffice.
//!
//! A launch may have several submissions. If calls were recorded, these submissions belong to one call. Otherwise a submission belongs to the launch if it
//! waits for a counter that the launch has set, and sets none of these counters again.

mod rows;

pub use rows::graph as row;

use crate::kernel::{Codes, Kernel};
use crate::qmds;
use crate::recording::{InsightError, Recording};
use crate::walk::{At, Segment, Sink, walk};
use cuda_graph::{FillCall, FillMacro, Recipe, Refused, Segment as Words};
use pushbuf::class::Family;
use pushbuf::decode::Item;
use pushbuf::encode::offset;
use pushbuf::ops::{Op, What};
use schema::Clock;
use schema::operations::Shape;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::rc::Rc;
use tape::call::Class;

/// A kernel of a graph.
#[derive(Debug, Clone, Copy)]
pub struct Ran<'a> {
    pub shape: Shape,
    /// Each launch runs it. Otherwise a conditional node decides on the GPU.
    pub always: bool,
    pub kernel: Option<&'a Rc<Kernel>>,
}

impl Graph {
    /// Its kernels; `None` if they are not known.
    pub fn kernels(&self) -> Option<impl Iterator<Item = Ran<'_>>> {
        let of_nodes = |recipe: &Recipe| {
            recipe.nodes.iter().filter_map(|n| n.work.kernel()).map(|k| (qmds::shape(&k.qmd), true)).collect()
        };
        let all: Vec<(Shape, bool)> = self.recipe.as_ref().map_or_else(|_| self.kernels.clone(), of_nodes);
        let named = |(shape, always): (Shape, bool)| Ran {
            shape,
            always: !self.codes.switched && (always || !self.codes.conditional),
            kernel: self.codes.at(shape.code(), self.last),
        };
        (!all.is_empty()).then(|| all.into_iter().filter(|(shape, _)| !shape.is_empty()).map(named))
    }

    /// Whether it is known which kernels its launches run: then its uploads start none for themselves.
    pub fn is_known(&self) -> bool {
        self.recipe.is_ok() || !self.kernels.is_empty()
    }
}

/// A graph that was launched more than once.
#[derive(Debug)]
pub struct Graph {
    pub process: u32,
    pub pid: i32,
    pub tid: i32,
    pub slot: u32,
    pub generation: u32,
    /// The submission that uploads it, as `--submissions` numbers it; `None` if that is not on the tape.
    pub uploaded_by: Option<u64>,
    /// All submissions of the upload, which is the first launch.
    pub uploads: Vec<u64>,
    /// The first submission of the first launch after the upload, and its time.
    pub submission: u64,
    pub seconds: Option<f64>,
    /// Launches on the tape. The upload is among them, unless a call of its own made it.
    pub launches: u64,
    /// Those of them after the upload, on a channel that no call of CUDA's has used: libdoorbell's, or another library's.
    pub past_cuda: u64,
    /// The words of the upload, if they are on the tape, and those of the first launch after it.
    pub upload: Option<Sent>,
    pub launch: Sent,
    pub recipe: Result<Recipe, Refused>,
    /// Its kernels, if it has no recipe and they are known, and whether each launch runs them. (Otherwise a conditional node decides.)
    pub kernels: Vec<(Shape, bool)>,
    /// Names of its process's kernels, as far as launches outside of graphs give them. `last` is its last launch, at which its kernels' code was loaded.
    pub codes: Rc<Codes>,
    pub last: u64,
}

/// The amount that one launch sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sent {
    pub submissions: usize,
    pub words: usize,
}

impl Sent {
    fn of(submissions: &[Rc<Submission>]) -> Sent {
        Sent { submissions: submissions.len(), words: submissions.iter().map(|s| s.words).sum() }
    }
}

/// All graphs of a recording, in the order of their first launches.
pub fn graphs(r: &Recording) -> Result<Vec<Graph>, InsightError> {
    let mut finder = Finder::new(r);
    let codes = walk(r, &mut finder)?.codes;
    Ok(finder.finish(codes.into_iter().map(|(p, all)| (p, Rc::new(all))).collect()))
}

/// The submissions that upload graphs whose kernels are known.
pub(crate) fn uploads(graphs: &[Graph]) -> BTreeSet<u64> {
    graphs.iter().filter(|g| g.is_known()).flat_map(|g| g.uploads.iter().copied()).collect()
}

/// Bytes of the chip's QMDs: 64 words from Volta on, 96 from Hopper on.
pub(crate) fn qmd_bytes(op: &Op) -> u64 {
    if (0xc3c0..0xcbc0).contains(&op.class_id) { 0x100 } else { 0x180 }
}

/// Maximum number of words kept for uploads that are not overwritten yet: 256 MiB.
const KEPT: usize = 64 << 20;

/// Maximum number of segments whose memory is kept.
const SPARE: usize = 16;

/// Maximum number of fill macro calls that are used, for one process.
const CALLS: usize = 1 << 16;

/// The parts of a submission that concern graphs.
#[derive(Debug, Default)]
struct Submission {
    number: u64,
    pid: i32,
    tid: i32,
    slot: u32,
    generation: u32,
    seconds: Option<f64>,
    /// The call that launches a graph and made this submission: its thread, and its number.
    call: Option<(i32, u32)>,
    /// A call that launches nothing has made it.
    apart: bool,
    /// Index of its channel.
    channel: usize,
    /// The number of words sent, whether the tape has them or not.
    words: usize,
    segments: Vec<Vec<u32>>,
    /// QMDs that it starts or arms, and the addresses that it writes which may be QMDs.
    started: Vec<u64>,
    written: Vec<u64>,
    /// Whether one of its writes has the size of a QMD.
    sized: bool,
    acquired: Vec<u64>,
    /// Four-byte words that it writes.
    set: Vec<u64>,
    /// Whether an engine's macro supplies the data of an inline write.
    by_macro: bool,
}

/// The submissions of one launch, so far.
#[derive(Debug, Default)]
struct Launch {
    submissions: Vec<Rc<Submission>>,
    set: HashSet<u64>,
    started: HashSet<u64>,
}

impl Launch {
    /// Whether a submission belongs to it: it waits for a counter of the launch, or starts only QMDs of the same graph (`own`). The next launch of the graph
    /// sets the same counters again, and starts the same QMDs.
    fn goes_on_with(&self, next: &Submission, own: impl Fn(&u64) -> bool) -> bool {
        let call = self.submissions.last().and_then(|s| s.call);
        if call.is_some() || next.call.is_some() {
            return call == next.call;
        }
        let among = |all: &[u64]| all.iter().any(|address| self.set.contains(address));
        let rest = |qmd: &u64| own(qmd) && !self.started.contains(qmd);
        let starts_the_rest = !next.started.is_empty() && next.started.iter().all(rest);
        (among(&next.acquired) || starts_the_rest) && !among(&next.set)
    }

    fn add(&mut self, next: Submission) {
        self.set.extend(&next.set);
        self.started.extend(&next.started);
        self.submissions.push(Rc::new(next));
    }
}

/// A launch that writes QMDs.
type Upload = Rc<RefCell<Launch>>;

/// What is in progress in a process.
#[derive(Debug, Default)]
struct Process {
    /// The launch that last wrote each QMD.
    writers: HashMap<u64, Upload>,
    words: usize,
    upload: Option<Upload>,
    /// A launch after the upload, and the uploads that wrote the QMDs that it starts.
    launch: Option<(Launch, BTreeMap<u64, Upload>)>,
}

#[derive(Debug)]
struct Found {
    process: u32,
    first: Rc<Submission>,
    uploads: BTreeMap<u64, Upload>,
    launches: u64,
    /// Those of them that are not the upload.
    again: u64,
    /// The first submission of the latest launch.
    last: u64,
    /// The first two launches after the upload.
    samples: Vec<Vec<Rc<Submission>>>,
}

/// Finds graphs during a walk.
pub(crate) struct Finder {
    clock: Clock,
    processes: BTreeMap<u32, Process>,
    /// By process, submission of the upload, and first QMD.
    graphs: BTreeMap<(u32, Option<u64>, u64), Found>,
    /// Channels by their number in the recording.
    channels: Vec<cuda_graph::Channel>,
    numbers: HashMap<usize, usize>,
    /// Those that CUDA's calls have used, as indices of `channels`.
    by_calls: HashSet<usize>,
    /// Calls of the fill macro, by process.
    fills: BTreeMap<u32, HashSet<FillCall>>,
    now: Submission,
    /// Memory of segments, for reuse.
    spare: Vec<Vec<u32>>,
}

impl Sink for Finder {
    fn submission(&mut self, at: &At<'_>) {
        let channels = &mut self.channels;
        let channel = *self.numbers.entry(at.channel.number).or_insert_with(|| {
            let known = at.graph.channel(at.channel.client, at.channel.handle);
            channels.push(cuda_graph::Channel {
                class: at.channel.class,
                engines: known.map_or(Vec::new(), |c| c.engines.iter().map(|(_, class)| *class).collect()),
                group: known.and_then(|c| c.group),
            });
            channels.len() - 1
        });
        let now = &mut self.now;
        self.spare.append(&mut now.segments);
        self.spare.truncate(SPARE);
        [&mut now.started, &mut now.written, &mut now.acquired, &mut now.set].into_iter().for_each(Vec::clear);
        let memory = Submission {
            segments: std::mem::take(&mut now.segments),
            started: std::mem::take(&mut now.started),
            written: std::mem::take(&mut now.written),
            acquired: std::mem::take(&mut now.acquired),
            set: std::mem::take(&mut now.set),
            ..Submission::default()
        };
        let ring = at.submission.ring;
        // (Outside of a call it is not known.)
        let launches = ring.and_then(|ring| ring.called()).map(|f| f.class == Class::GraphLaunch);
        if launches.is_some() {
            self.by_calls.insert(channel);
        }
        self.now = Submission {
            number: at.number,
            pid: at.channel.pid,
            tid: at.submission.tid,
            slot: at.channel.slot,
            generation: at.channel.generation,
            seconds: self.clock.seconds(at.submission.tsc),
            call: ring.filter(|_| launches == Some(true)).map(|ring| (at.submission.tid, ring.call)),
            apart: launches == Some(false),
            channel,
            ..memory
        };
    }

    fn segment(&mut self, _: &At<'_>, segment: &Segment<'_>) {
        self.now.words += segment.dwords as usize;
        if segment.dwords > 0 {
            let mut words = self.spare.pop().unwrap_or_default();
            words.clear();
            words.extend_from_slice(segment.words);
            self.now.segments.push(words);
        }
    }

    fn item(&mut self, _: &At<'_>, item: &Item<'_>) {
        if let Item::Write(write) = item
            && write.address == offset::SEND_PCAS_A
            && !write.host
            && Family::of(write.target.class_id) == Some(Family::Compute)
        {
            self.now.started.push(u64::from(write.value) << 8);
        }
    }

    fn op(&mut self, _: &At<'_>, op: &Op) {
        match &op.what {
            What::Inline(inline) if inline.by_macro => self.now.by_macro = true,
            What::Inline(inline) if inline.bytes() == 4 => self.now.set.push(inline.dst),
            What::Inline(inline) => {
                self.now.written.push(inline.dst);
                self.now.sized |= inline.bytes() == qmd_bytes(op);
            }
            What::Semaphore(s) if s.operation.is_acquire() => self.now.acquired.push(s.address),
            _ => {}
        }
    }

    fn submission_end(&mut self, at: &At<'_>) {
        let now = &self.now;
        if now.by_macro {
            let segments: Vec<Words<'_>> =
                now.segments.iter().map(|words| Words { channel: now.channel, words }).collect();
            let calls = self.fills.entry(at.channel.process).or_default();
            // Addresses do not matter here, and calls that differ only in addresses are redundant: `CALLS` of them suffice.
            calls.extend(
                cuda_graph::fill_calls(&self.channels, &segments).into_iter().take(CALLS.saturating_sub(calls.len())),
            );
        }
        if at.submission.ring.is_some_and(|ring| ring.kernel != 0) {
            self.alone(at.channel.process);
        } else {
            let now = std::mem::take(&mut self.now);
            self.take(at.channel.process, now);
        }
    }
}

impl Finder {
    pub fn new(r: &Recording) -> Finder {
        Finder {
            clock: crate::rows::clock(r),
            processes: BTreeMap::new(),
            graphs: BTreeMap::new(),
            channels: Vec::new(),
            numbers: HashMap::new(),
            by_calls: HashSet::new(),
            fills: BTreeMap::new(),
            now: Submission::default(),
            spare: Vec::new(),
        }
    }

    /// The graphs found, when the walk is over, with the names of each process's kernels.
    pub fn finish(mut self, codes: BTreeMap<u32, Rc<Codes>>) -> Vec<Graph> {
        let processes: Vec<u32> = self.processes.keys().copied().collect();
        processes.into_iter().for_each(|process| self.close(process));
        let mut found: Vec<Found> = self.graphs.into_values().collect();
        found.sort_by_key(|f| f.first.number);
        let of_calls = |calls: &HashSet<FillCall>| FillMacro::of_calls(&Vec::from_iter(calls.iter().copied()));
        let fills: BTreeMap<u32, FillMacro> =
            self.fills.iter().filter_map(|(process, calls)| Some((*process, of_calls(calls)?))).collect();
        let learn = |found: Found| {
            let fills = fills.get(&found.process).copied();
            let codes = codes.get(&found.process).cloned().unwrap_or_default();
            let past_cuda = if self.by_calls.contains(&found.first.channel) { 0 } else { found.again };
            Graph { past_cuda, ..found.learn(&self.channels, fills, codes) }
        };
        found.into_iter().map(learn).collect()
    }

    /// Submissions that may turn out to upload graphs.
    pub fn candidates(&self) -> HashSet<u64> {
        let mut all = HashSet::new();
        let mut add = |upload: &Upload| all.extend(upload.borrow().submissions.iter().map(|s| s.number));
        for process in self.processes.values() {
            process.writers.values().chain(&process.upload).for_each(&mut add);
            process.launch.iter().flat_map(|(_, uploads)| uploads.values()).for_each(&mut add);
        }
        self.graphs.values().flat_map(|found| found.uploads.values()).for_each(&mut add);
        all
    }

    /// A kernel that was launched by its handle belongs to no graph: forgets the writers of the QMDs that are written for it.
    fn alone(&mut self, process: u32) {
        self.close(process);
        let state = self.processes.entry(process).or_default();
        state.upload = None;
        if !state.writers.is_empty() {
            self.now.written.iter().for_each(|qmd| drop(state.writers.remove(qmd)));
        }
    }

    fn take(&mut self, process: u32, now: Submission) {
        let state = self.processes.entry(process).or_default();
        let writers = &state.writers;
        let of = |qmd: &u64, upload: &Upload| writers.get(qmd).is_some_and(|writer| Rc::ptr_eq(writer, upload));
        if let Some((launch, uploads)) = &mut state.launch
            && launch.goes_on_with(&now, |qmd| uploads.values().any(|upload| of(qmd, upload)))
        {
            let more = now.started.iter().filter_map(|qmd| state.writers.get(qmd));
            uploads.extend(more.filter_map(|u| Some((u.borrow().submissions.first()?.number, Rc::clone(u)))));
            return launch.add(now);
        }
        // An upload that is separate from the first launch may start no QMD.
        let alone = now.started.is_empty() && now.sized;
        let written: HashSet<u64> = now.written.iter().copied().collect();
        let writes = alone || now.started.iter().any(|qmd| written.contains(qmd));
        let goes_on = |u: &&Upload| u.borrow().goes_on_with(&now, |qmd| of(qmd, u) && !written.contains(qmd));
        if let Some(upload) = state.upload.as_ref().filter(goes_on) {
            let upload = Rc::clone(upload);
            return self.wrote(process, now, upload);
        }
        if writes {
            self.close(process);
            return self.wrote(process, now, Upload::default());
        }
        if now.started.is_empty() {
            return;
        }
        self.close(process);
        let state = self.processes.entry(process).or_default();
        state.upload = None;
        let uploads = state.writers_of(&now);
        let mut launch = Launch::default();
        launch.add(now);
        state.launch = Some((launch, uploads));
    }

    /// Keeps a submission of a launch that writes QMDs.
    fn wrote(&mut self, process: u32, now: Submission, upload: Upload) {
        let state = self.processes.entry(process).or_default();
        state.words += now.segments.iter().map(Vec::len).sum::<usize>();
        if state.words > KEPT {
            state.writers.clear();
            state.words = 0;
        }
        // Constant banks are among the writes, but no submission starts them. Another submission of the launch may start a QMD.
        for written in &now.written {
            state.writers.insert(*written, Rc::clone(&upload));
        }
        upload.borrow_mut().add(now);
        state.upload = Some(upload);
    }

    /// Ends the launch in progress.
    fn close(&mut self, process: u32) {
        let Some((launch, uploads)) = self.processes.get_mut(&process).and_then(|p| p.launch.take()) else { return };
        let Some(first) = launch.submissions.first() else { return };
        let upload = uploads.keys().next().copied();
        let launches = |u: &Upload| u.borrow().submissions.iter().any(|s| !s.apart);
        let is_launch = uploads.values().next().is_some_and(launches);
        let key = (process, upload, first.started.first().copied().unwrap_or(0));
        let found = self.graphs.entry(key).or_insert_with(|| Found {
            process,
            first: Rc::clone(first),
            uploads,
            launches: u64::from(is_launch),
            again: 0,
            last: 0,
            samples: Vec::new(),
        });
        found.launches += 1;
        found.again += 1;
        found.last = first.number;
        if found.samples.len() < 2 {
            found.samples.push(launch.submissions);
        }
    }
}

impl Process {
    /// The uploads that wrote the QMDs that a submission starts, by the number of their first submission.
    fn writers_of(&self, now: &Submission) -> BTreeMap<u64, Upload> {
        let uploads = now.started.iter().filter_map(|qmd| self.writers.get(qmd));
        uploads.filter_map(|u| Some((u.borrow().submissions.first()?.number, Rc::clone(u)))).collect()
    }
}

impl Found {
    fn learn(self, channels: &[cuda_graph::Channel], fills: Option<FillMacro>, codes: Rc<Codes>) -> Graph {
        let uploads = self.uploads.values().flat_map(|u| u.borrow().submissions.clone());
        let uploads: Vec<Rc<Submission>> = uploads.collect();
        // The graph numbers its channels itself, in the order in which it uses them.
        let submissions = uploads.iter().chain(self.samples.iter().flatten());
        let mut used: Vec<usize> = Vec::new();
        submissions.for_each(|s| {
            if !used.contains(&s.channel) {
                used.push(s.channel)
            }
        });
        let own: Vec<cuda_graph::Channel> = used.iter().filter_map(|i| channels.get(*i).cloned()).collect();
        let again: Vec<Vec<cuda_graph::Segment<'_>>> = self.samples.iter().map(|s| segments(&used, s.iter())).collect();
        let again: Vec<&[cuda_graph::Segment<'_>]> = again.iter().map(Vec::as_slice).collect();
        let upload = segments(&used, uploads.iter());
        let recipe = cuda_graph::learn_with(fills, &own, &upload, &again);
        let kernels = match again.first().filter(|_| recipe.is_err()) {
            Some(again) => cuda_graph::kernels(fills, &own, &upload, again),
            None => Vec::new(),
        };
        Graph {
            process: self.process,
            pid: self.first.pid,
            tid: self.first.tid,
            slot: self.first.slot,
            generation: self.first.generation,
            uploaded_by: self.uploads.keys().next().copied(),
            uploads: uploads.iter().map(|s| s.number).collect(),
            submission: self.first.number,
            seconds: self.first.seconds,
            launches: self.launches,
            past_cuda: 0,
            upload: (!uploads.is_empty()).then(|| Sent::of(&uploads)),
            launch: self.samples.first().map_or(Sent::of(&[]), |first| Sent::of(first)),
            recipe,
            kernels: kernels.iter().map(|(qmd, always)| (qmds::shape(qmd), *always)).collect(),
            codes,
            last: self.last,
        }
    }
}

fn segments<'a>(used: &[usize], submissions: impl Iterator<Item = &'a Rc<Submission>>) -> Vec<cuda_graph::Segment<'a>> {
    let of = |s: &'a Rc<Submission>| {
        let channel = used.iter().position(|i| *i == s.channel).unwrap_or(usize::MAX);
        s.segments.iter().map(move |words| cuda_graph::Segment { channel, words })
    };
    submissions.flat_map(of).collect()
}
