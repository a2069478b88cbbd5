//! Which kernels ran, and how often: by themselves and in graphs.
//!
//! A graph's kernels are in the stream once, when it is uploaded, and each launch of it runs them all. So what an upload starts is counted
//! with the graph, and so is what starts a QMD that was not written since. A graph that was launched once is known by its call alone.

use crate::graphs::{self, Graph};
use crate::histogram::Sparse;
use crate::kernel_times::kernel_times;
use crate::python::main_line;
use crate::recording::{InsightError, Recording};
use crate::rows;
use crate::streams::{Stream, Streams};
use crate::tally::Commonest;
use crate::walk::{At, Filter, GraphKernel, Sink, walk};
use pushbuf::ops::{Op, What};
use schema::Clock;
use schema::kernels::{CallCount, GpuTimes, KernelRow, Kernels};
use schema::operations::{GpuTime, LaunchRow, Shape, Start};
use schema::python::FrameRow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use tape::call::Class;

/// Writes a graph's kernels for later launches.
const UPLOADS: u16 = tape::call::number("cuGraphUpload");

/// Kernels that are told apart, at most.
const MOST: usize = 1 << 17;
/// Threads, streams and lines of Python of one kernel that are told apart, at most.
const FEW: usize = 1 << 12;

/// What ran: what took the GPU longest first, where times were recorded, then the commonest. Graphs are counted where the filter wants everything.
///
/// # Errors
/// The recording cannot be read.
pub fn kernels(r: &Recording, filter: &Filter) -> Result<Kernels, InsightError> {
    let whole = *filter == Filter { limit: filter.limit, kernel: filter.kernel.clone(), ..Filter::default() };
    let graphs = if whole { graphs::graphs(r)? } else { Vec::new() };
    let uploads = graphs::uploads(&graphs);
    let streams = (whole && filter.kernel.is_none()).then(Streams::default);
    let mut tally = Tally {
        clock: rows::clock(r),
        filter,
        uploads,
        of: HashMap::new(),
        without_qmd: 0,
        writes: false,
        started: HashSet::new(),
        first: HashMap::new(),
        launched: HashSet::new(),
        device_parents: 0,
        whole,
        streams,
    };
    let outcome = walk(r, &mut tally)?;
    let streams =
        tally.streams.take().map_or_else(Vec::new, |streams| streams.rows(&outcome.channels, outcome.streams.values()));
    for (row, shape) in std::mem::take(&mut tally.first).into_values() {
        tally.launch(row, shape, false);
    }
    let device_graphs = outcome.codes.values().map(|codes| codes.device_graphs).sum();
    if device_graphs == 0 {
        tally.of.values_mut().for_each(|one| one.from_gpu = false);
    }
    let device_parents = tally.device_parents;
    let unknown = tally.graphs(&graphs);
    // (Bodies of conditional nodes, and graphs that are not known: what has a time has run.)
    tally.of.values_mut().for_each(|k| k.in_graphs = k.in_graphs.max(k.timed_in_graphs));
    let total: u64 = tally.of.values().map(|k| k.launches + k.in_graphs).sum();
    let mut kernels: Vec<KernelRow> = tally.of.into_iter().filter_map(|(key, k)| k.row(key, total, whole)).collect();
    kernels.sort_by(|a, b| {
        let time = |k: &KernelRow| k.gpu.map_or(0, |gpu| gpu.total_ns);
        let ran = |k: &KernelRow| k.launches + k.in_graphs.unwrap_or(0);
        time(b).cmp(&time(a)).then_with(|| ran(b).cmp(&ran(a))).then_with(|| (&a.name, a.code).cmp(&(&b.name, b.code)))
    });
    kernels.truncate(filter.limit.unwrap_or(u64::MAX).try_into().unwrap_or(usize::MAX));
    let (without_qmd, gpu_times) = (tally.without_qmd, r.header().gpu_times);
    Ok(Kernels {
        kernels,
        without_qmd,
        unknown_graph_launches: unknown,
        device_graphs,
        device_parents,
        gpu_times,
        kernel_times: kernel_times(r)?,
        streams,
    })
}

/// By its symbol, in whatever process; one without name by its process and the address of its code.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Symbol(String),
    Code(u32, u64),
}

#[derive(Debug, Default)]
struct One {
    name: Option<String>,
    code: u64,
    launches: u64,
    in_graphs: u64,
    /// Launches of graphs with a conditional node that decides whether it runs.
    undecided: u64,
    /// It is in a graph that was uploaded, and kernels may launch that graph.
    from_gpu: bool,
    /// Runs in graphs that have a time.
    timed_in_graphs: u64,
    shapes: Commonest<Shape>,
    threads: HashSet<(u32, i32)>,
    streams: HashSet<(u32, u64)>,
    calls: BTreeMap<&'static str, u64>,
    lines: HashMap<FrameRow, u64>,
    first: Option<f64>,
    last: Option<f64>,
    gpu: Option<GpuTimes>,
    times: Sparse,
}

impl One {
    fn row(self, key: Key, total: u64, whole: bool) -> Option<KernelRow> {
        let (shape, shape_launches) = self.shapes.top(1).first().copied()?;
        let mut calls: Vec<CallCount> =
            self.calls.into_iter().map(|(name, launches)| CallCount { name, launches }).collect();
        calls.sort_by_key(|c| std::cmp::Reverse(c.launches));
        Some(KernelRow {
            symbol: if let Key::Symbol(symbol) = key { Some(symbol) } else { None },
            name: self.name,
            code: self.code,
            launches: self.launches,
            in_graphs: whole.then_some(self.in_graphs),
            conditional: self.from_gpu || self.undecided > 0 && self.timed_in_graphs < self.undecided,
            share: (self.launches + self.in_graphs) as f64 / total.max(1) as f64,
            shape,
            shape_launches,
            shapes: self.shapes.distinct() as u64,
            threads: self.threads.len() as u64,
            streams: self.streams.len() as u64,
            calls,
            python: main_line(self.lines),
            first_seconds: self.first,
            last_seconds: self.last,
            gpu: self.gpu,
            gpu_histogram: self.times.steps(|ns| ns),
        })
    }

    fn ran(&mut self, time: &GpuTime) {
        let ns = time.duration_ns();
        self.times.add(ns);
        let gpu = self.gpu.get_or_insert(GpuTimes { shortest_ns: u64::MAX, ..GpuTimes::default() });
        gpu.runs += 1;
        gpu.bounded += u64::from(time.start == Start::Bounded);
        gpu.total_ns = gpu.total_ns.saturating_add(ns);
        gpu.shortest_ns = gpu.shortest_ns.min(ns);
        gpu.longest_ns = gpu.longest_ns.max(ns);
        gpu.queued_ns = gpu.queued_ns.saturating_add(time.queued_ns);
    }
}

struct Tally<'f> {
    clock: Clock,
    filter: &'f Filter,
    /// Submissions that upload graphs which are understood.
    uploads: BTreeSet<u64>,
    of: HashMap<Key, One>,
    without_qmd: u64,
    /// The submission writes a QMD.
    writes: bool,
    /// The QMDs that it has started so far.
    started: HashSet<u64>,
    /// Kernels that were launched for the first time, by process and thread. What the same call submits after it is the kernel itself: then this one was
    /// CUDA's own, which prepared it.
    first: HashMap<(u32, i32), (LaunchRow, Shape)>,
    /// Symbols of kernels that were launched by their handle.
    launched: HashSet<String>,
    device_parents: u64,
    /// The filter wants everything.
    whole: bool,
    /// `None` where rows were chosen.
    streams: Option<Streams>,
}

impl Sink for Tally<'_> {
    fn from(&self) -> Option<u64> {
        self.filter.from(&self.clock)
    }

    fn until(&self) -> Option<u64> {
        self.filter.until(&self.clock)
    }

    fn filter(&self) -> Option<&Filter> {
        Some(self.filter)
    }

    fn submission(&mut self, _: &At<'_>) {
        self.writes = false;
        self.started.clear();
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        // (Constants may be in the same write.)
        self.writes |= matches!(&op.what, What::Inline(inline) if inline.bytes() >= graphs::qmd_bytes(op));
        if let (What::Launch(_), Some(time)) = (&op.what, at.gpu_time()) {
            self.ran(at, &time);
        }
        // (A kernel that was launched by its handle is none of a graph's, though its submission may look like a part of an upload.)
        let by_handle = at.submission.ring.is_some_and(|ring| ring.kernel != 0);
        if (self.uploads.contains(&at.number) && !by_handle) || !self.filter.wants_at(at, &self.clock) {
            return;
        }
        let Some(row) = rows::launch(at, op, &self.clock) else { return };
        let is_first = matches!(&op.what, What::Launch(l) if self.started.insert(l.qmd_address));
        // (A graph that is launched once is known by its call alone.)
        let called = at.submission.ring.and_then(|ring| ring.called());
        let in_graph = self.whole && called.is_some_and(|f| f.class == Class::GraphLaunch);
        let apart = self.whole && called.is_some_and(|f| f.number == UPLOADS);
        match row.shape {
            // (What is uploaded apart is launched later: by the host, or by kernels, which is not seen. CUDA's own kernels have no name.)
            Some(shape) if apart && row.name.is_some() => {
                let kernel = row.symbol.as_deref().zip(row.name.as_deref());
                self.one(row.when.process, shape.code(), kernel).into_iter().for_each(|one| one.from_gpu = true);
            }
            None => self.without_qmd += u64::from(self.filter.kernel.is_none()),
            // (A launch of a graph that was updated since writes some of its QMDs, and starts others.)
            Some(shape)
                if !row.empty
                    && (if in_graph { self.writes && is_first } else { !row.again })
                    && self.filter.wants_kernel(row.name.as_deref()) =>
            {
                if by_handle {
                    self.launch_by_handle(row, shape);
                } else {
                    self.launch(row, shape, in_graph);
                }
            }
            Some(_) => {}
        }
    }

    fn graph_kernel(&mut self, at: &At<'_>, k: &GraphKernel) {
        self.ran(at, &k.gpu);
        let name = k.kernel.as_ref().map(|kernel| (kernel.symbol.as_str(), kernel.name.as_str()));
        if !self.filter.wants_at(at, &self.clock) || !self.filter.wants_kernel(name.map(|(_, name)| name)) {
            return;
        }
        if let Some(one) = self.one(at.channel.process, k.shape.code(), name) {
            one.shapes.add_many(k.shape, 0);
            one.timed_in_graphs += 1;
            one.ran(&k.gpu);
        }
    }
}

impl Tally<'_> {
    fn ran(&mut self, at: &At<'_>, time: &GpuTime) {
        let c = at.channel;
        let handle = at.submission.ring.filter(|ring| ring.function != 0).map(|ring| ring.stream);
        if let Some(streams) = &mut self.streams {
            streams.add(Stream { process: c.process, slot: c.slot, generation: c.generation, handle }, time);
        }
    }

    fn one(&mut self, process: u32, code: u64, kernel: Option<(&str, &str)>) -> Option<&mut One> {
        let key = kernel.map_or(Key::Code(process, code), |(symbol, _)| Key::Symbol(symbol.to_owned()));
        if self.of.len() >= MOST && !self.of.contains_key(&key) {
            return None;
        }
        let name = || kernel.map(|(_, name)| name.to_owned());
        Some(self.of.entry(key).or_insert_with(|| One { name: name(), code, ..One::default() }))
    }

    fn launch_by_handle(&mut self, row: LaunchRow, shape: Shape) {
        let (thread, submission) = ((row.when.process, row.when.tid), row.when.submission);
        let call = |row: &LaunchRow| row.when.call.as_ref().map(|call| call.number);
        if !self.first.is_empty()
            && let Some((mut first, of_first)) = self.first.remove(&thread)
        {
            if call(&first).is_some() && call(&first) == call(&row) && first.when.submission != submission {
                (first.symbol, first.name) = (None, None);
            }
            if self.filter.wants_kernel(first.name.as_deref()) {
                self.launch(first, of_first, false);
            }
        }
        let new = row.symbol.as_ref().filter(|symbol| !self.launched.contains(*symbol)).cloned();
        match new.filter(|_| self.first.len() < FEW && self.launched.len() < MOST) {
            Some(symbol) => {
                self.launched.insert(symbol);
                self.first.insert(thread, (row, shape));
            }
            None => self.launch(row, shape, false),
        }
    }

    fn launch(&mut self, row: LaunchRow, shape: Shape, in_graph: bool) {
        self.device_parents += u64::from(shape.kernel.is_some());
        let kernel = row.symbol.as_deref().zip(row.name.as_deref());
        let Some(one) = self.one(row.when.process, shape.code(), kernel) else { return };
        *(if in_graph { &mut one.in_graphs } else { &mut one.launches }) += 1;
        one.shapes.add(shape);
        if one.threads.len() < FEW {
            one.threads.insert((row.when.process, row.when.tid));
        }
        if let Some(call) = &row.when.call {
            if one.streams.len() < FEW {
                one.streams.insert((row.when.process, call.stream));
            }
            *one.calls.entry(call.name).or_default() += 1;
            if let Some(line) = &call.python {
                if let Some(n) = one.lines.get_mut(line) {
                    *n += 1;
                } else if one.lines.len() < FEW {
                    one.lines.insert(line.clone(), 1);
                }
            }
        }
        row.gpu.iter().for_each(|time| one.ran(time));
        one.first = one.first.or(row.when.seconds);
        one.last = row.when.seconds.or(one.last);
    }

    /// Adds what graphs ran. Launches of graphs whose kernels are not known.
    fn graphs(&mut self, graphs: &[Graph]) -> u64 {
        let mut unknown = 0u64;
        for g in graphs {
            let Some(kernels) = g.kernels() else {
                unknown = unknown.saturating_add(u64::from(g.recipe.is_err()) * g.launches);
                continue;
            };
            for graphs::Ran { shape, always, kernel } in kernels {
                let kernel = kernel.map(|kernel| (kernel.symbol.as_str(), kernel.name.as_str()));
                if !self.filter.wants_kernel(kernel.map(|(_, name)| name)) {
                    continue;
                }
                let Some(one) = self.one(g.process, shape.code(), kernel) else { continue };
                *(if always { &mut one.in_graphs } else { &mut one.undecided }) += g.launches;
                one.shapes.add_many(shape, g.launches);
            }
        }
        unknown
    }
}
