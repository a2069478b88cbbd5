//! CUDA's calls: their times, the waits in them, the locks that they took, and the locks that they share.
//!
//! The events of a thread's holds precede that of the call around them, so each call is complete at its event. Memory
//! grows with the kinds of calls and the locks that they take, not with the calls.

use crate::call_kind::CallKind;
use crate::facts::{Addresses, Held};
use crate::fast_map::FastMap;
use crate::holds;
use crate::labels::{Labels, function_name};
use crate::ops::{self, Class};
use crate::pattern::{Mode, Patterns, Taken};
use decode::Source;
use decode::histogram::Histogram;
use decode::merge::Submission;
use decode::python::{frame, main_line};
use decode::python_frames::{Found, Stacks};
use schema::cuda_calls::{CallRow, Calls, ElementRow, PatternRow, ShareRow, SharedRow, Total};
use schema::python::FrameRow;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use tape::call::{self, CallBody, flag};
use tape::event::{Body, Event};
use tape::switch::switch_flags;

/// Uses of locks by a thread since its last call that are kept.
const PENDING: usize = 1 << 18;
/// Python stacks of one kind of call that are counted separately.
const STACKS: usize = 1 << 16;
/// CUDA's `not ready`, which is no error.
pub const NOT_READY: i32 = 600;

#[derive(Debug, Default)]
struct Group {
    total: Total,
    /// Ticks; `total` gets them as nanoseconds at the end.
    ticks: u64,
    wait: u64,
    off: u64,
    held: u64,
    latency: Histogram,
    max: (u64, u64, Source),
    patterns: Patterns,
    /// Calls by process image and Python stack.
    stacks: HashMap<(u32, u32), u64>,
}

/// Events of a thread since its last call.
#[derive(Debug, Default)]
struct Pending {
    taken: VecDeque<Taken>,
    /// Other operations: when.
    others: VecDeque<u64>,
    /// Off CPU, from and to.
    off: VecDeque<(u64, u64)>,
    out: Option<u64>,
    /// Doorbells that it rang in the call that it is in.
    submissions: u64,
    /// End of the last use that was dropped.
    cut: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Share {
    takings: [u64; 3],
    wait: u64,
}

/// Takes all events with their threads, after the locks are known.
pub struct Gather<'a> {
    labels: &'a Labels<'a>,
    /// Threads that make calls.
    callers: &'a HashSet<Source>,
    stacks: Stacks,
    /// The number of each lock's name, and the names.
    name_of: Vec<u32>,
    names: Vec<&'a str>,
    addresses: Addresses,
    threads: FastMap<Source, Pending>,
    groups: BTreeMap<CallKind, Group>,
    shares: BTreeMap<(usize, u16), Share>,
    unfinished: u64,
    export_tables: u64,
    cut: u64,
}

impl<'a> Gather<'a> {
    pub fn new(labels: &'a Labels<'a>, callers: &'a HashSet<Source>, stacks: Stacks) -> Gather<'a> {
        let mut numbers: HashMap<&str, u32> = HashMap::new();
        let mut names = Vec::new();
        let name_of = labels
            .names
            .iter()
            .map(|(n, _)| {
                *numbers.entry(n.as_str()).or_insert_with(|| {
                    names.push(n.as_str());
                    names.len() as u32 - 1
                })
            })
            .collect();
        Gather {
            labels,
            callers,
            stacks,
            name_of,
            names,
            addresses: Addresses::default(),
            threads: FastMap::default(),
            groups: BTreeMap::new(),
            shares: BTreeMap::new(),
            unfinished: 0,
            export_tables: 0,
            cut: 0,
        }
    }

    /// Call it for all events, in order.
    pub fn event(&mut self, source: Source, e: &Event<'_>) {
        let process = source.process;
        let op = (e.head.flags >> 8) as u8;
        match &e.body {
            Body::Call(c) => self.call(source, e.head.flags, e.head.tsc, c),
            Body::InCall(c) => {
                self.unfinished += u64::from(!self.labels.facts.is_superseded(source, c.seq, e.head.tsc));
            }
            Body::ExportTable(_) => self.export_tables += 1,
            Body::Switch(s) if self.callers.contains(&Source { process, tid: s.tid }) => {
                let p = self.threads.entry(Source { process, tid: s.tid }).or_default();
                if e.head.flags & switch_flags::OUT != 0 {
                    p.out = Some(e.head.tsc);
                } else if let Some(since) = p.out.take() {
                    push(&mut p.off, (since, e.head.tsc));
                }
            }
            Body::SwitchesLost(_) => self.threads.values_mut().for_each(|p| p.out = None),
            _ => {
                if let Some(h) = Held::of(e) {
                    self.held(source, &h);
                } else if let Body::Op(o) = &e.body
                    && let Some(class) = Class::of(op)
                {
                    if let Some((lock, _)) = self.addresses.lock(process, o.addr, class, op, o.result) {
                        self.op(source, lock, op, e.head.tsc, o.wait);
                    }
                } else if let Body::Held(h) = &e.body
                    && let Some(class) = Class::of(op)
                {
                    self.addresses.lock(process, h.addr, class, op, 0);
                }
            }
        }
    }

    /// Call it for all submissions, among the events.
    pub fn submission(&mut self, s: &Submission) {
        let thread = Source { process: s.process, tid: s.tid };
        if s.ring.is_some_and(|ring| ring.function != 0) && self.callers.contains(&thread) {
            self.threads.entry(thread).or_default().submissions += 1;
        }
    }

    fn held(&mut self, source: Source, h: &Held) {
        let Some(class) = Class::of_hold(h.op) else { return };
        let Some((lock, _)) = self.addresses.lock(source.process, h.addr, class, h.op, 0) else { return };
        let name = self.name_of.get(lock).copied().unwrap_or(0);
        let (taken, released) = if h.taken == 0 { (h.released, h.released) } else { (h.taken, h.released) };
        self.remember(source, Taken { lock, name, op: h.op, taken, released, wait: h.wait, failed: false });
    }

    fn op(&mut self, source: Source, lock: usize, op: u8, tsc: u64, wait: u64) {
        if !self.callers.contains(&source) {
            return;
        }
        push(&mut self.threads.entry(source).or_default().others, tsc);
        if ops::takes(op) {
            let name = self.name_of.get(lock).copied().unwrap_or(0);
            self.remember(source, Taken { lock, name, op, taken: tsc, released: tsc, wait, failed: true });
        }
    }

    fn remember(&mut self, source: Source, t: Taken) {
        if !self.callers.contains(&source) {
            return;
        }
        let p = self.threads.entry(source).or_default();
        if let Some(old) = push(&mut p.taken, t) {
            p.cut = p.cut.max(old.released);
        }
    }

    fn call(&mut self, source: Source, function: u16, ended: u64, c: &CallBody) {
        let p = self.threads.entry(source).or_default();
        let mut taken: Vec<Taken> = p.taken.drain(..).filter(|t| t.taken >= c.began && t.taken <= ended).collect();
        let others = p.others.drain(..).filter(|t| *t >= c.began && *t <= ended).count() as u64;
        let off: Vec<(u64, u64)> = p.off.drain(..).collect();
        self.cut += u64::from(std::mem::take(&mut p.cut) > c.began);
        let submissions = std::mem::take(&mut p.submissions);
        taken.sort_by_key(|t| (t.taken, std::cmp::Reverse(t.released)));
        let ticks = ended.saturating_sub(c.began);
        let g = self.groups.entry(CallKind::of(function, c)).or_default();
        g.total.calls += 1;
        g.total.failed += u64::from(c.result != 0 && c.result != NOT_READY);
        g.total.bytes = g.total.bytes.saturating_add(c.size);
        g.total.bytes_at_least |= c.flags & flag::AT_LEAST != 0;
        add_some(&mut g.total.copies, (c.copies > 0).then_some(c.copies.into()));
        g.total.other_operations += if self.labels.facts.waits_only() { 0 } else { others };
        g.total.submissions += submissions;
        g.ticks = g.ticks.saturating_add(ticks);
        g.latency.add(ticks);
        if g.total.calls == 1 || ticks > g.max.0 {
            g.max = (ticks, c.began, source);
        }
        let stack = (source.process, c.python);
        if c.python != 0 && (g.stacks.len() < STACKS || g.stacks.contains_key(&stack)) {
            *g.stacks.entry(stack).or_default() += 1;
        }
        let waits_only = self.labels.facts.waits_only();
        let mut held_until = 0;
        let mut waits: Vec<(u64, u64)> = Vec::new();
        for t in &taken {
            if t.wait > 0 {
                g.total.contended += 1;
                waits.push((t.taken.saturating_sub(t.wait), t.taken));
                g.wait = g.wait.saturating_add(t.wait.min(ticks));
            }
            // (A recording of waits lacks most locks that a call takes and holds.)
            if waits_only {
                continue;
            }
            // (A hold that this thread did not release counts until the call's end at most.)
            let released = t.released.min(ended);
            g.held = g.held.saturating_add(released.saturating_sub(t.taken.max(held_until)));
            held_until = held_until.max(released);
            if t.failed {
                continue;
            }
            let mode = Mode::of(t.op);
            *match mode {
                Mode::Mutex => &mut g.total.mutex_locks,
                Mode::Read => &mut g.total.read_locks,
                Mode::Write => &mut g.total.write_locks,
            } += 1;
            let share = self.shares.entry((t.lock, function)).or_default();
            share.takings[mode as usize] += 1;
            share.wait = share.wait.saturating_add(t.wait);
        }
        g.off = g.off.saturating_add(outside(&off, &waits, c.began, ended));
        if !waits_only {
            g.patterns.add(c.began, ticks, &taken);
        }
    }

    pub fn finish(self) -> Calls {
        let t = self.labels;
        let mut totals: BTreeMap<&'static str, Total> = BTreeMap::new();
        let switches = t.facts.has_switches();
        let mut calls: Vec<CallRow> = Vec::new();
        for (key, g) in self.groups {
            let total = Total {
                ns: t.ns(g.ticks),
                mean_ns: t.ns(g.ticks / g.total.calls.max(1)),
                wait_ns: t.ns(g.wait),
                off_cpu_ns: switches.then(|| t.ns(g.off)),
                held_ns: t.ns(g.held),
                ..g.total
            };
            let kind = call::function(key.function).map_or("other", |f| f.class.name());
            add(totals.entry(kind).or_default(), &total);
            let mut patterns: Vec<PatternRow> = Vec::new();
            for (elements, s) in g.patterns.known {
                let locks = elements.iter().zip(&s.elements).map(|(e, sum)| ElementRow {
                    lock: self.names.get(e.name as usize).copied().unwrap_or_default().into(),
                    mode: e.mode.name(),
                    depth: e.depth,
                    failed: e.failed,
                    again: e.again,
                    times: sum.times as f64 / s.calls.max(1) as f64,
                    at_ns: t.ns(sum.at / s.calls.max(1)),
                    wait_ns: t.ns(sum.wait / sum.times.max(1)),
                    hold_ns: t.ns(sum.hold / sum.times.max(1)),
                });
                patterns.push(PatternRow {
                    calls: s.calls,
                    mean_ns: t.ns(s.ticks / s.calls.max(1)),
                    locks: locks.collect(),
                });
            }
            let text = |p: &PatternRow| p.locks.iter().map(|l| (l.lock.clone(), l.mode, l.depth)).collect::<Vec<_>>();
            patterns.sort_by_cached_key(|p| (std::cmp::Reverse(p.calls), text(p)));
            calls.push(CallRow {
                call: function_name(key.function),
                kind,
                direction: key.direction(),
                holds_others: holds::of_call(&function_name(key.function), key.direction(), key.size()),
                size: key.size(),
                total,
                p50_ns: t.ns(g.latency.percentile(50.0)),
                p99_ns: t.ns(g.latency.percentile(99.0)),
                max_ns: t.ns(g.max.0),
                histogram: g.latency.steps(|ticks| t.ns(ticks)),
                max_at: t.seconds(g.max.1),
                max_tsc: g.max.1,
                max_process: g.max.2.process,
                max_tid: g.max.2.tid,
                python: main_line(lines(&self.stacks, g.stacks)),
                patterns,
                other_patterns: g.patterns.others,
            });
        }
        calls.sort_by_key(|c| std::cmp::Reverse(c.total.ns));
        for total in totals.values_mut() {
            total.mean_ns = total.ns / total.calls.max(1);
        }
        let shared = shared(t, &self.shares, &self.names, &self.name_of);
        let waits_only = t.facts.waits_only();
        let export_tables = (self.export_tables > 0).then_some(self.export_tables);
        let (unfinished, cut) = (self.unfinished, self.cut);
        let short = Some(t.recording.total(|e| e.short_calls, |e| e.short_calls)).filter(|n| *n > 0);
        Calls { waits_only, totals, calls, shared, unfinished, export_tables, short, cut, ..Calls::default() }
    }
}

/// How often each line of the user's code is in these stacks.
fn lines(all: &Stacks, of: HashMap<(u32, u32), u64>) -> HashMap<FrameRow, u64> {
    let mut lines = HashMap::new();
    for ((process, number), calls) in of {
        if let Found::Stack(stack) = all.stack(process, number)
            && let Some(user) = stack.user()
        {
            *lines.entry(frame(user)).or_default() += calls;
        }
    }
    lines
}

fn add(to: &mut Total, o: &Total) {
    for (sum, more) in [
        (&mut to.calls, o.calls),
        (&mut to.failed, o.failed),
        (&mut to.ns, o.ns),
        (&mut to.bytes, o.bytes),
        (&mut to.submissions, o.submissions),
        (&mut to.mutex_locks, o.mutex_locks),
        (&mut to.read_locks, o.read_locks),
        (&mut to.write_locks, o.write_locks),
        (&mut to.other_operations, o.other_operations),
        (&mut to.contended, o.contended),
        (&mut to.wait_ns, o.wait_ns),
        (&mut to.held_ns, o.held_ns),
    ] {
        *sum = sum.saturating_add(more);
    }
    to.bytes_at_least |= o.bytes_at_least;
    add_some(&mut to.copies, o.copies);
    add_some(&mut to.off_cpu_ns, o.off_cpu_ns);
}

fn add_some(to: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *to = Some(to.unwrap_or(0).saturating_add(more));
    }
}

/// Keeps [`PENDING`] at most; returns the one that was dropped.
fn push<T>(to: &mut VecDeque<T>, what: T) -> Option<T> {
    let old = if to.len() >= PENDING { to.pop_front() } else { None };
    to.push_back(what);
    old
}

/// Ticks off CPU between two times, outside of the waits. Both lists are in the order of time, each without overlap.
fn outside(off: &[(u64, u64)], waits: &[(u64, u64)], from: u64, to: u64) -> u64 {
    let both = |a: (u64, u64), b: (u64, u64)| a.1.min(b.1).saturating_sub(a.0.max(b.0));
    let (mut sum, mut first) = (0u64, 0);
    for &o in off {
        let o = (o.0.max(from), o.1.min(to));
        if o.0 >= o.1 {
            continue;
        }
        while waits.get(first).is_some_and(|w| w.1 <= o.0) {
            first += 1;
        }
        let waited =
            waits.iter().skip(first).take_while(|w| w.0 < o.1).fold(0u64, |n, w| n.saturating_add(both(*w, o)));
        sum = sum.saturating_add((o.1 - o.0).saturating_sub(waited));
    }
    sum
}

fn shared(t: &Labels<'_>, shares: &BTreeMap<(usize, u16), Share>, names: &[&str], name_of: &[u32]) -> Vec<SharedRow> {
    let mut functions: HashMap<usize, usize> = HashMap::new();
    shares.keys().for_each(|(lock, _)| *functions.entry(*lock).or_default() += 1);
    let mut rows: BTreeMap<u32, BTreeMap<u16, Share>> = BTreeMap::new();
    for ((lock, function), share) in shares.iter().filter(|((lock, _), _)| functions.get(lock) > Some(&1)) {
        let name = name_of.get(*lock).copied().unwrap_or(0);
        let to = rows.entry(name).or_default().entry(*function).or_default();
        to.takings.iter_mut().zip(share.takings).for_each(|(to, n)| *to += n);
        to.wait = to.wait.saturating_add(share.wait);
    }
    let mut out: Vec<SharedRow> = rows
        .into_iter()
        .map(|(name, by)| {
            let mut by: Vec<ShareRow> = by
                .into_iter()
                .map(|(function, s)| ShareRow {
                    call: function_name(function),
                    mutex_locks: s.takings[Mode::Mutex as usize],
                    read_locks: s.takings[Mode::Read as usize],
                    write_locks: s.takings[Mode::Write as usize],
                    wait_ns: t.ns(s.wait),
                })
                .collect();
            by.sort_by_key(|s| std::cmp::Reverse(s.wait_ns));
            SharedRow {
                lock: names.get(name as usize).copied().unwrap_or_default().into(),
                wait_ns: by.iter().fold(0, |n, s| n.saturating_add(s.wait_ns)),
                by,
            }
        })
        .collect();
    let takings = |r: &SharedRow| r.by.iter().map(|s| s.mutex_locks + s.read_locks + s.write_locks).sum::<u64>();
    out.sort_by_cached_key(|r| std::cmp::Reverse((r.wait_ns, takings(r))));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_cpu_counts_where_no_lock_was_waited_for() {
        let off = [(10, 20), (30, 60), (90, 120)];
        assert_eq!(outside(&off, &[], 0, 100), 50);
        assert_eq!(outside(&off, &[(35, 40), (50, 70), (95, 96)], 0, 100), 10 + 30 - 15 + 9);
        assert_eq!(outside(&off, &[(0, 1000)], 0, 100), 0);
        assert_eq!(outside(&off, &[], 15, 16), 1);
        assert_eq!(outside(&[(9, 3)], &[], 0, 100), 0);
    }
}
