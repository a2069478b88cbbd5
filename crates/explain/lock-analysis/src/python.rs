//! CUDA's calls by the line of Python that makes them.

use crate::calls::NOT_READY;
use crate::labels::function_name;
use decode::events;
use decode::histogram::Sparse;
use decode::python::{frame, stacks};
use decode::python_frames::{Found, Stacks};
use decode::{InsightError, Recording, Source};
use schema::python::{FrameRow, FunctionRow, InterpreterRow, LineRow, Python};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use tape::call::{CallBody, Class, function};
use tape::event::{Body, Event};

/// Maximum number of lines that are counted separately.
const MOST: usize = 1 << 16;

/// The calls of a recording by the innermost line of the user's code.
///
/// # Errors
/// The recording cannot be read.
pub fn python(r: &Recording) -> Result<Python, InsightError> {
    let recorded = r.header().python;
    if !recorded {
        return Ok(Python::default());
    }
    let stacks = stacks(r)?;
    let mut tally = Tally {
        stacks: &stacks,
        lines: HashMap::new(),
        of: Vec::new(),
        known: HashMap::new(),
        without: 0,
        lost: 0,
        others: 0,
    };
    events::each(r, |source, e| tally.event(source, e))?;
    let hz = Some(r.header().tsc_hz).filter(|hz| hz.is_finite() && *hz > 0.0).unwrap_or(1e9);
    let clock = decode::rows::clock_at(r, hz);
    let ns = |ticks: u64| (ticks as f64 / hz * 1e9).round() as u64;
    let (without, lost, others) = (tally.without, tally.lost, tally.others);
    let row = |(at, one): (FrameRow, One)| {
        let mut functions: Vec<FunctionRow> = one
            .functions
            .into_iter()
            .map(|(number, calls)| FunctionRow { name: function_name(number), calls })
            .collect();
        functions.sort_by_key(|f| Reverse(f.calls));
        let usual = one.stacks.iter().max_by_key(|(key, n)| (**n, Reverse(**key))).map(|(key, _)| *key);
        let usual = usual.map_or(Found::None, |(process, number)| stacks.stack(process, number));
        let (stack, deeper) = match usual {
            Found::Stack(s) => (s.frames.iter().map(frame).collect(), s.deeper),
            _ => (Vec::new(), false),
        };
        LineRow {
            at,
            calls: one.calls,
            failed: one.failed,
            launches: one.launches,
            bytes: one.bytes,
            ns: ns(one.ticks),
            mean_ns: ns(one.ticks / one.calls.max(1)),
            p50_ns: ns(one.latency.percentile(50.0)),
            p99_ns: ns(one.latency.percentile(99.0)),
            max_ns: ns(one.max.0),
            max_at: clock.seconds(one.max.1).unwrap_or(0.0),
            functions,
            stacks: one.stacks.len() as u64,
            stack,
            deeper,
        }
    };
    let mut at: Vec<(FrameRow, usize)> = tally.lines.into_iter().collect();
    at.sort_by_key(|(_, place)| *place);
    let mut lines: Vec<LineRow> = at.into_iter().map(|(at, _)| at).zip(tally.of).map(row).collect();
    lines.sort_by_key(|l| Reverse(l.ns));
    let interpreters = stacks.interpreters().iter().map(|i| InterpreterRow {
        process: i.process,
        pid: r.pid(i.process),
        version: i.version.clone(),
        read: i.is_read(),
        why: i.why(),
    });
    Ok(Python { recorded, interpreters: interpreters.collect(), lines, without, lost, others })
}

#[derive(Debug, Default)]
struct One {
    calls: u64,
    failed: u64,
    launches: u64,
    bytes: u64,
    ticks: u64,
    latency: Sparse,
    /// Ticks, and when it began.
    max: (u64, u64),
    functions: BTreeMap<u16, u64>,
    /// By image and number.
    stacks: HashMap<(u32, u32), u64>,
}

struct Tally<'s> {
    stacks: &'s Stacks,
    /// The index in `of` of a line, and of a stack by image and number; `None` for one too many.
    lines: HashMap<FrameRow, usize>,
    known: HashMap<(u32, u32), Option<usize>>,
    of: Vec<One>,
    without: u64,
    lost: u64,
    others: u64,
}

impl Tally<'_> {
    fn event(&mut self, source: Source, e: &Event<'_>) {
        let Body::Call(c) = &e.body else { return };
        let stack = match self.stacks.stack(source.process, c.python) {
            Found::None => return self.without += 1,
            Found::Lost => return self.lost += 1,
            Found::Stack(stack) => stack,
        };
        let (lines, of) = (&mut self.lines, &mut self.of);
        let place = *self.known.entry((source.process, c.python)).or_insert_with(|| {
            let line = stack.user().map(frame)?;
            if of.len() >= MOST && !lines.contains_key(&line) {
                return None;
            }
            let place = *lines.entry(line).or_insert(of.len());
            if place == of.len() {
                of.push(One::default());
            }
            Some(place)
        });
        match place.and_then(|place| self.of.get_mut(place)) {
            Some(one) => one.add(source.process, e.head.flags, e.head.tsc, c),
            None => self.others += 1,
        }
    }
}

impl One {
    fn add(&mut self, process: u32, number: u16, ended: u64, c: &CallBody) {
        let ticks = ended.saturating_sub(c.began);
        self.calls += 1;
        self.failed += u64::from(c.result != 0 && c.result != NOT_READY);
        let class = function(number).map(|f| f.class);
        let launches = matches!(class, Some(Class::Launch | Class::GraphLaunch));
        self.launches += u64::from(launches);
        if !launches {
            self.bytes = self.bytes.saturating_add(c.size);
        }
        self.ticks = self.ticks.saturating_add(ticks);
        self.latency.add(ticks);
        if self.calls == 1 || ticks > self.max.0 {
            self.max = (ticks, c.began);
        }
        *self.functions.entry(number).or_default() += 1;
        *self.stacks.entry((process, c.python)).or_default() += 1;
    }
}
