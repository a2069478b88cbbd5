//! What the recording of one rank contributes to a comparison of all ranks: totals, and what the rank did between events that all ranks have.
//!
//! The tape is walked once. The kernels, copies, calls and waits of that walk are kept in memory, up to a limit, and divided into [`crate::steps`] afterwards.

use crate::activity::What as Waited;
use crate::gather::waited;
use crate::steps::{Event as Moment, Level, Span, Step, steps};
use decode::ranges::{Open, Range, Style, Texts};
use decode::walk::{At, GraphKernel, Pattern, Sink, walk};
use decode::{InsightError, Recording, Source};
use lock_analysis::call_kind::CallKind;
use lock_analysis::facts::{Addresses, Facts};
use lock_analysis::fast_map::FastMap;
use lock_analysis::labels::{Labels, function_name};
use pushbuf::ops::{Op, What};
use schema::names::{Named, parts};
use schema::operations::{GpuTime, Mode, Shape, Start};
use schema::rank::{Rank, Ranks, SpentOn, Steps, Total};
use schema::{Summary, copy_names, rank};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use tape::call::{self, CallBody, Class};
use tape::event::{Body, Event};

/// Maximum numbers of things with a time, and of submissions, that are kept (24 and 16 bytes each).
const MOST: usize = 1 << 21;
/// Maximum number of kernels, calls, locks and kinds of copies that are told apart.
const KEYS: usize = 1 << 16;
/// Rows of one kind, and columns of the steps.
const ROWS: usize = 64;
const COLUMNS: usize = 32;
/// Kinds of ranges and of calls that ranks may be compared by.
const SOURCES: usize = 3;
/// With fewer events ranks are not compared.
const FEWEST: usize = 3;
/// How [`Steps::by`] names them.
const COLLECTIVES: &str = "collectives";
/// Runs before a collective that it may have waited for.
const BEFORE: usize = 256;

/// The rank of the recording, or each one of a recording of several.
pub fn ranks(r: &Recording, together: &Pattern) -> Result<Ranks, InsightError> {
    let summary = decode::summary(r)?;
    // (The image that did the most is the rank's program, others are what it was started through.)
    let mut of_rank = BTreeMap::new();
    for p in &summary.processes {
        if let Some(rank) = &p.rank {
            let most = of_rank.entry(rank.rank).or_insert(p);
            if (p.submissions, p.driver_calls) > (most.submissions, most.driver_calls) {
                *most = p;
            }
        }
    }
    if of_rank.len() < 2 {
        return Ok(Ranks { ranks: vec![rank(r, summary, together)?] });
    }
    let each = of_rank.values().map(|p| {
        let process = Recording::open_process(r.path(), p.pid, &mut |_, _| ())?;
        rank(&process, decode::summary(&process)?, together)
    });
    Ok(Ranks { ranks: each.collect::<Result<_, _>>()? })
}

/// What time is spent on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Kernel(String),
    Collective(String),
    Copy(String),
    /// Index of the lock.
    Lock(usize),
    Condition(usize),
    Call(CallKind),
    Outside,
}

/// A kernel or a copy with a time.
#[derive(Clone, Copy, Debug)]
struct Run {
    rung: u64,
    span: Span,
    /// Only bounds of its start are known.
    is_bounded: bool,
    thread: Source,
}

/// All of a key; ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Sum {
    count: u64,
    ticks: u64,
    longest: u64,
    bytes: u64,
}

impl Sum {
    fn add(&mut self, ticks: u64, bytes: u64) {
        self.count += 1;
        self.ticks = self.ticks.saturating_add(ticks);
        self.longest = self.longest.max(ticks);
        self.bytes = self.bytes.saturating_add(bytes);
    }
}

struct Gather<'a> {
    together: &'a Pattern,
    /// Whether it matches a name.
    is_together: HashMap<String, bool>,
    facts: Facts,
    addresses: Addresses,
    numbers: HashMap<Key, u32>,
    keys: Vec<Key>,
    sums: Vec<Sum>,
    runs: Vec<Run>,
    /// Calls and waits of each thread.
    threads: FastMap<Source, Vec<Span>>,
    submissions: Vec<(u64, Source)>,
    ranges: Vec<Moment>,
    labels: HashMap<String, u32>,
    /// Things with a time.
    kept: usize,
    cut: bool,
}

/// The rank of a recording. `together`: names of kernels that all ranks run together.
///
/// # Errors
/// The recording cannot be read.
pub fn rank(r: &Recording, summary: Summary, together: &Pattern) -> Result<Rank, InsightError> {
    let mut g = Gather {
        together,
        is_together: HashMap::new(),
        facts: Facts::default(),
        addresses: Addresses::default(),
        numbers: HashMap::new(),
        keys: Vec::new(),
        sums: Vec::new(),
        runs: Vec::new(),
        threads: FastMap::default(),
        submissions: Vec::new(),
        ranges: Vec::new(),
        labels: HashMap::new(),
        kept: 0,
        cut: false,
    };
    let outside = g.number(Key::Outside).unwrap_or(0);
    let outcome = walk(r, &mut g)?;
    (g.facts.layout, g.facts.calls) = (outcome.lock_layout, outcome.call_layout);
    let facts = std::mem::take(&mut g.facts).finished(r)?.unwrap_or_default();
    let labels = Labels::new(r, &facts);
    let steps = g.steps(&labels, outside);
    let rank = summary.processes.iter().find_map(|p| p.rank.clone());
    let world_size = summary.processes.iter().filter_map(|p| p.rank.as_ref()?.world_size).max();
    let rows = g.rows(&labels);
    let mut rank = Rank { rank: rank.map(|rank| rank.rank), world_size, summary, rows, steps, cut: g.cut };
    let (places, locks) = (lock_analysis::places(r, &facts), |kind: &str| matches!(kind, "locks" | "conditions"));
    let names = rank.rows.iter().filter(|row| locks(row.kind)).map(|row| parts(&row.name).0);
    let symbols = symbols::look_up(&places, names);
    let named = Named { places: &places, symbols: &symbols };
    for row in rank.rows.iter_mut().filter(|row| locks(row.kind)) {
        row.name = named.lock_and_key(&row.name);
    }
    for of in rank.steps.iter_mut().flat_map(|steps| &mut steps.of).filter(|of| locks(of.kind)) {
        of.name = of.name.as_deref().map(|name| named.lock_and_key(name));
    }
    Ok(rank)
}

impl Gather<'_> {
    fn number(&mut self, key: Key) -> Option<u32> {
        if let Some(number) = self.numbers.get(&key) {
            return Some(*number);
        }
        if self.keys.len() >= KEYS {
            self.cut = true;
            return None;
        }
        let number = self.keys.len() as u32;
        self.keys.push(key.clone());
        self.sums.push(Sum::default());
        self.numbers.insert(key, number);
        Some(number)
    }

    fn add(&mut self, key: Key, ticks: u64, bytes: u64) -> Option<u32> {
        let number = self.number(key)?;
        self.sums.get_mut(number as usize)?.add(ticks, bytes);
        Some(number)
    }

    /// Whether there is room for one more.
    fn has_room(&mut self) -> bool {
        self.kept += 1;
        self.cut |= self.kept > MOST;
        self.kept <= MOST
    }

    fn ran(&mut self, at: &At<'_>, gpu: Option<GpuTime>, key: Key, bytes: u64) {
        let times = gpu.and_then(|gpu| Some((at.tsc_at(gpu.start_ns)?, at.tsc_at(gpu.end_ns)?, gpu.start)));
        let (from, to, start) = times.unwrap_or((0, 0, Start::Stored));
        let level = match key {
            Key::Copy(_) => Level::Copy,
            Key::Collective(_) => Level::Collective,
            _ => Level::Kernel,
        };
        let Some(of) = self.add(key, to.saturating_sub(from), bytes) else { return };
        if times.is_some() && self.has_room() {
            let thread = Source { process: at.channel.process, tid: at.submission.tid };
            let (rung, is_bounded) = (at.submission.tsc, start == Start::Bounded);
            self.runs.push(Run { rung, span: Span { from, to: to.max(from), level, of }, is_bounded, thread });
        }
    }

    fn kernel(&mut self, at: &At<'_>, gpu: Option<GpuTime>, shape: &Shape, name: Option<&str>) {
        // (Addresses differ from rank to rank.)
        let name = name.map_or_else(|| unnamed(shape), str::to_owned);
        let is_together = self.is_together.get(&name).copied().unwrap_or_else(|| {
            let matches = self.together.matches(&name);
            if self.is_together.len() < KEYS {
                self.is_together.insert(name.clone(), matches);
            }
            matches
        });
        let key = if is_together { Key::Collective(name) } else { Key::Kernel(name) };
        self.ran(at, gpu, key, 0);
    }

    fn spent(&mut self, thread: Source, from: u64, to: u64, level: Level, key: Key, bytes: u64) {
        let to = to.max(from);
        if let Some(of) = self.add(key, to - from, bytes)
            && self.has_room()
        {
            self.threads.entry(thread).or_default().push(Span { from, to, level, of });
        }
    }

    fn call(&mut self, thread: Source, function: u16, ended: u64, c: &CallBody) {
        let key = Key::Call(CallKind::of(function, c));
        self.spent(thread, c.began, ended, Level::Call, key, c.size);
    }

    fn steps(&mut self, labels: &Labels<'_>, outside: u32) -> Vec<Steps> {
        self.start_of_collectives();
        let gpu: Vec<Span> = self.runs.iter().map(|run| run.span).collect();
        let mut out = Vec::new();
        for (by, moments) in self.sources() {
            let events = moments.len() as u64;
            let found = steps(moments, &gpu, &self.threads, &self.submissions, outside);
            if out.is_empty() {
                let mut sum = Sum::default();
                let times = found.iter().flat_map(|step| &step.spent).filter(|(of, _)| *of == outside);
                times.for_each(|(_, ticks)| sum.add(*ticks, 0));
                self.sums.get_mut(outside as usize).into_iter().for_each(|of| *of = sum);
            }
            let at = |tsc: u64| (labels.seconds(tsc) * 1e9).round() as i64;
            let is_collective = by == COLLECTIVES;
            let (of, spent) = self.columns(labels, &found);
            let list = found.iter().zip(spent).map(|(step, ticks)| rank::Step {
                event: if is_collective { self.name(labels, step.event.name).1 } else { String::new() },
                number: step.number,
                begin_ns: at(step.event.begin),
                end_ns: at(step.event.end),
                ns: ticks.into_iter().map(|ticks| labels.ns(ticks)).collect(),
            });
            let list = list.collect();
            out.push(Steps { by, events, of, list });
        }
        out
    }

    /// The events by which ranks can be compared: collectives if there are any.
    fn sources(&self) -> Vec<(String, Vec<Moment>)> {
        let of = |name: u32, thread: &Source, s: &Span| Moment { begin: s.from, end: s.to, name, thread: *thread };
        let collectives = self.runs.iter().filter(|run| run.span.level == Level::Collective);
        let collectives: Vec<Moment> = collectives.map(|run| of(run.span.of, &run.thread, &run.span)).collect();
        if collectives.len() >= FEWEST {
            return vec![(COLLECTIVES.to_owned(), collectives)];
        }
        let mut ranges = BTreeMap::<u32, Vec<Moment>>::new();
        self.ranges.iter().for_each(|m| ranges.entry(m.name).or_default().push(*m));
        let labels: BTreeMap<u32, &str> = self.labels.iter().map(|(label, number)| (*number, label.as_str())).collect();
        let label = |number: u32| labels.get(&number).copied().unwrap_or_default();
        let mut sources = longest(ranges.into_iter().map(|(number, all)| (format!("ranges {}", label(number)), all)));
        // By the call that waits, `None` for launches: those of the thread that makes the most of them.
        let mut calls = BTreeMap::<Option<u16>, Vec<Moment>>::new();
        for (thread, spans) in &self.threads {
            let mut here = BTreeMap::<Option<u16>, Vec<Moment>>::new();
            for s in spans.iter().filter(|s| s.level == Level::Call) {
                let Some(Key::Call(kind)) = self.keys.get(s.of as usize) else { continue };
                let key = match call::function(kind.function).map(|f| f.class) {
                    Some(Class::Synchronize) => Some(kind.function),
                    Some(Class::Launch | Class::GraphLaunch) => None,
                    _ => continue,
                };
                here.entry(key).or_default().push(of(0, thread, s));
            }
            let rank = |all: &[Moment]| (all.len(), Reverse(all.first().map(|m| m.begin)));
            for (key, all) in here {
                let most = calls.entry(key).or_default();
                if rank(&all) > rank(most) {
                    *most = all;
                }
            }
        }
        let launches = calls.remove(&None).filter(|all| all.len() >= FEWEST);
        let name = |function: Option<u16>| format!("calls {}", function.map_or_else(String::new, function_name));
        sources.extend(longest(calls.into_iter().map(|(function, all)| (name(function), all))));
        sources.extend(launches.map(|all| ("launches".to_owned(), all)));
        sources
    }

    /// A collective whose start is not known began after the last run that was submitted before it: its stream waits for that of the program.
    fn start_of_collectives(&mut self) {
        for i in 0..self.runs.len() {
            let Run { rung, span, is_bounded, thread } = self.runs[i];
            if span.level == Level::Collective && is_bounded {
                let before = self.runs[i.saturating_sub(BEFORE)..i].iter();
                let before = before
                    .filter(|run| run.rung <= rung && run.span.to <= span.to && run.thread.process == thread.process);
                let last = before.map(|run| run.span.to).max().unwrap_or(0);
                self.runs[i].span.from = span.from.max(last);
            }
        }
    }

    /// What each column of the steps belongs to, and the columns of each step; the first step has none.
    fn columns(&self, labels: &Labels<'_>, steps: &[Step]) -> (Vec<SpentOn>, Vec<Vec<u64>>) {
        let mut totals = BTreeMap::<u32, u64>::new();
        for (of, ticks) in steps.iter().flat_map(|step| &step.spent) {
            *totals.entry(*of).or_default() += ticks;
        }
        let mut ordered: Vec<(u32, u64)> = totals.into_iter().collect();
        ordered.sort_by_key(|(of, ticks)| (Reverse(*ticks), *of));
        let mut columns = Vec::<SpentOn>::new();
        let mut column_of = BTreeMap::new();
        for (n, (of, _)) in ordered.into_iter().enumerate() {
            let (kind, name) = self.name(labels, of);
            let wanted = SpentOn { kind, name: (n < COLUMNS).then_some(name) };
            let column = columns.iter().position(|known| *known == wanted).unwrap_or_else(|| {
                columns.push(wanted);
                columns.len() - 1
            });
            column_of.insert(of, column);
        }
        let each = steps.iter().enumerate().map(|(n, step)| {
            let mut ticks = vec![0u64; if n == 0 { 0 } else { columns.len() }];
            for (of, spent) in &step.spent {
                column_of.get(of).and_then(|column| ticks.get_mut(*column)).into_iter().for_each(|all| *all += spent);
            }
            ticks
        });
        let each = each.collect();
        (columns, each)
    }

    fn rows(&self, labels: &Labels<'_>) -> Vec<Total> {
        let mut all = BTreeMap::<(&str, String), Total>::new();
        for (of, sum) in self.sums.iter().enumerate().filter(|(_, sum)| sum.count > 0) {
            let (kind, name) = self.name(labels, of as u32);
            let row = Total { kind, name: name.clone(), count: 0, ns: 0, longest_ns: 0, bytes: 0 };
            let row = all.entry((kind, name)).or_insert(row);
            row.count += sum.count;
            row.ns = row.ns.saturating_add(labels.ns(sum.ticks));
            row.longest_ns = row.longest_ns.max(labels.ns(sum.longest));
            row.bytes = row.bytes.saturating_add(sum.bytes);
        }
        let mut rows: Vec<Total> = all.into_values().collect();
        rows.sort_by(|a, b| (a.kind, Reverse(a.ns), Reverse(a.count)).cmp(&(b.kind, Reverse(b.ns), Reverse(b.count))));
        let mut count = BTreeMap::<&str, usize>::new();
        rows.retain(|row| {
            let n = count.entry(row.kind).or_default();
            *n += 1;
            *n <= ROWS
        });
        rows
    }

    /// Its kind and its name.
    fn name(&self, labels: &Labels<'_>, of: u32) -> (&'static str, String) {
        match self.keys.get(of as usize) {
            Some(Key::Kernel(name)) => ("kernels", name.clone()),
            Some(Key::Collective(name)) => (COLLECTIVES, name.clone()),
            Some(Key::Copy(name)) => ("copies", name.clone()),
            Some(Key::Lock(lock)) => ("locks", labels.name(*lock)),
            Some(Key::Condition(lock)) => ("conditions", labels.name(*lock)),
            Some(Key::Call(kind)) => {
                let waits = call::function(kind.function).is_some_and(|f| f.class == Class::Synchronize);
                let name = function_name(kind.function);
                let words: Vec<&str> = [name.as_str()].into_iter().chain(kind.direction()).chain(kind.size()).collect();
                (if waits { "waiting calls" } else { "calls" }, words.join(" "))
            }
            Some(Key::Outside) | None => ("outside", "outside of CUDA's calls".into()),
        }
    }
}

/// The sources whose events took the longest, the longest first.
fn longest(sources: impl Iterator<Item = (String, Vec<Moment>)>) -> Vec<(String, Vec<Moment>)> {
    let time = |all: &[Moment]| all.iter().fold(0u64, |sum, m| sum.saturating_add(m.end.saturating_sub(m.begin)));
    let mut all: Vec<_> = sources.filter(|(_, all)| all.len() >= FEWEST).collect();
    all.sort_by_key(|(_, moments)| Reverse(time(moments)));
    all.truncate(SOURCES);
    all
}

fn unnamed(shape: &Shape) -> String {
    let extent = |[x, y, z]: [u32; 3]| format!("{x}x{y}x{z}");
    format!("without a name ({} blocks of {}, {} registers)", extent(shape.grid), extent(shape.block), shape.registers)
}

impl Sink for Gather<'_> {
    fn submission(&mut self, at: &At<'_>) {
        if self.submissions.len() < MOST {
            let thread = Source { process: at.channel.process, tid: at.submission.tid };
            self.submissions.push((at.submission.tsc, thread));
        }
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        match &op.what {
            What::Launch(_) => {
                let Some(started) = at.started().filter(|started| !started.again) else { return };
                if let Some(shape) = started.shape.filter(|shape| !shape.is_empty()) {
                    self.kernel(at, at.gpu_time(), &shape, at.kernel().as_ref().map(|kernel| kernel.name.as_str()));
                }
            }
            What::Copy(c) => {
                let place = |va| (at.place(va), None);
                let name = copy_names::name_of_many(Mode::CopyEngine, Some(place(c.src)), place(c.dst));
                self.ran(at, at.gpu_time(), Key::Copy(name), c.bytes());
            }
            What::Fill(f) => {
                let name = copy_names::name_of_many(Mode::Fill, None, (at.place(f.dst), None));
                self.ran(at, at.gpu_time(), Key::Copy(name), f.bytes());
            }
            _ => {}
        }
    }

    fn graph_kernel(&mut self, at: &At<'_>, k: &GraphKernel) {
        self.kernel(at, Some(k.gpu), &k.shape, k.kernel.as_ref().map(|kernel| kernel.name.as_str()));
    }

    fn range(&mut self, range: &Range, texts: &Texts) {
        let Some((end, _)) = range.ended.filter(|_| range.style != Style::Mark) else { return };
        let label = texts.label(range.key);
        let next = self.labels.len() as u32;
        if self.labels.len() >= KEYS && !self.labels.contains_key(&label) || !self.has_room() {
            return;
        }
        let name = *self.labels.entry(label).or_insert(next);
        self.ranges.push(Moment { begin: range.began, end: end.max(range.began), name, thread: range.source });
    }

    fn wants_events(&self) -> bool {
        true
    }

    fn event(&mut self, thread: Source, e: &Event<'_>, _: Option<&Open>) {
        self.facts.event(thread, e);
        match &e.body {
            Body::Call(c) | Body::InCall(c) => self.call(thread, e.head.flags, e.head.tsc, c),
            _ => {
                if let Some(s) = waited(&mut self.addresses, thread, e) {
                    let (level, key) = match s.what {
                        Waited::Lock => (Level::Lock, Key::Lock(s.of as usize)),
                        _ => (Level::Condition, Key::Condition(s.of as usize)),
                    };
                    self.spent(thread, s.from, s.to, level, key, 0);
                }
            }
        }
    }
}
