//! Ranges of NVTX: their times, and counts of what happened in them.
//!
//! An event in a range counts for it and for those around it. A range of a thread counts that thread's events, a range of the
//! process those of all its threads.

use crate::facts::Held;
use crate::range_work::Works;
use decode::histogram::Histogram;
use decode::ranges::{Key, Open, Range, Style, watched};
use decode::walk::{At, Filter, GraphKernel, Sink, walk};
use decode::{InsightError, LaunchWrites, Recording, Source, rows};
use pushbuf::ops::{Op, What};
use schema::Clock;
use schema::ranges::{RangeRow, Ranges};
use std::collections::{HashMap, HashSet};
use tape::event::{Body, Event};
use tape::nvtx::{LAYOUT, range_flags};

/// Maximum numbers of separate rows, and of threads of one.
const ROWS: usize = 1 << 16;
const THREADS: usize = 1 << 12;

/// All ranges; those that the filter wants, by their name.
///
/// # Errors
/// The recording cannot be read, or its ranges are of another layout.
pub fn ranges(r: &Recording, filter: &Filter) -> Result<Ranges, InsightError> {
    let mut tally = Tally {
        own: LaunchWrites::of(r)?,
        rows: HashMap::new(),
        around: HashMap::new(),
        works: Works::default(),
        left_out: 0,
    };
    let out = walk(r, &mut tally)?;
    if let Some((found, _)) = out.nvtx.filter(|(layout, _)| *layout != LAYOUT) {
        return Err(InsightError::Layout { path: r.path().into(), what: "ranges", found, known: LAYOUT });
    }
    let to = Told {
        recording: r,
        clock: rows::clock(r),
        calls: out.call_layout.is_some(),
        locks: out.lock_layout.is_some(),
    };
    let seen = tally.left_out + tally.rows.values().map(|own| own.count + own.unfinished).sum::<u64>();
    let mut all: Vec<RangeRow> = Vec::new();
    for ((style, key), own) in tally.rows {
        let label = out.texts.label(key);
        if !filter.range.as_ref().is_none_or(|pattern| pattern.matches(&label)) {
            continue;
        }
        let around = tally.around.get(&(style, key)).copied().unwrap_or_default();
        let work = if r.header().gpu_times { tally.works.of((style, key)) } else { None };
        let [work, all_threads] = work.filter(|_| style != Style::Mark).map_or([None; 2], |both| both.map(Some));
        let named = RangeRow {
            work,
            all_threads,
            domain: out.texts.domain(key),
            text: out.texts.text(key),
            cut: out.texts.is_cut(key),
            style: style.name(),
            ..RangeRow::default()
        };
        all.push(to.row(named, own, around));
    }
    all.sort_by(|a, b| {
        let rank = |r: &RangeRow| (r.style == Style::Mark.name(), std::cmp::Reverse((r.ns, r.count + r.unfinished)));
        rank(a).cmp(&rank(b)).then_with(|| (&a.domain, &a.text, a.style).cmp(&(&b.domain, &b.text, b.style)))
    });
    all.truncate(filter.limit.unwrap_or(u64::MAX).try_into().unwrap_or(usize::MAX));
    Ok(Ranges {
        watched: watched(out.nvtx, seen),
        ranges: all,
        stray_ends: out.range_oddities.strays,
        left_out: out.range_oddities.left_out + tally.left_out,
    })
}

/// Times of ranges.
#[derive(Default)]
struct Own {
    count: u64,
    unfinished: u64,
    ticks: u64,
    least: u64,
    times: Times,
    max: (u64, u64, Source),
    threads: HashSet<Source>,
    color: Option<u32>,
    category: Option<u32>,
}

/// Times that are kept one by one before they are counted, because programs may give each range its own text.
const FEW: usize = 32;

#[derive(Default)]
struct Times {
    few: Vec<u64>,
    /// All of them, when there are more.
    many: Option<Histogram>,
}

impl Times {
    fn add(&mut self, ticks: u64) {
        match &mut self.many {
            Some(many) => many.add(ticks),
            None if self.few.len() < FEW => self.few.push(ticks),
            None => {
                let many = self.many.insert(Histogram::default());
                self.few.drain(..).chain([ticks]).for_each(|ticks| many.add(ticks));
            }
        }
    }

    /// The value that so many per cent do not exceed.
    fn percentile(&mut self, percent: f64) -> u64 {
        if let Some(many) = &self.many {
            return many.percentile(percent);
        }
        self.few.sort_unstable();
        let wanted = (self.few.len() as f64 * percent / 100.0).ceil() as usize;
        self.few.get(wanted.saturating_sub(1)).copied().unwrap_or(0)
    }
}

/// Counts of the events in them.
#[derive(Clone, Copy, Default)]
struct Around {
    submissions: u64,
    launches: u64,
    copies: u64,
    copy_bytes: u64,
    calls: u64,
    call_ticks: u64,
    waits: u64,
    wait_ticks: u64,
}

type Row = (Style, Key);

struct Tally {
    /// Inline writes that are no copies.
    own: LaunchWrites,
    rows: HashMap<Row, Own>,
    around: HashMap<Row, Around>,
    works: Works,
    left_out: u64,
}

impl Tally {
    fn around(&mut self, open: Option<&Open>, add: impl Fn(&mut Around)) {
        let Some(open) = open else { return };
        let mut one = |style, key: &Key| {
            if self.around.len() < ROWS || self.around.contains_key(&(style, *key)) {
                add(self.around.entry((style, *key)).or_default());
            }
        };
        open.of_thread.iter().for_each(|key| one(Style::Thread, key));
        open.process.iter().for_each(|key| one(Style::Process, key));
    }
}

impl Sink for Tally {
    fn wants_events(&self) -> bool {
        true
    }

    fn range(&mut self, r: &Range, _: &decode::ranges::Texts) {
        self.works.range(r);
        if self.rows.len() >= ROWS && !self.rows.contains_key(&(r.style, r.key)) {
            self.left_out += 1;
            return;
        }
        let own = self.rows.entry((r.style, r.key)).or_default();
        if own.threads.len() < THREADS {
            own.threads.insert(r.source);
        }
        if r.flags & range_flags::COLOR != 0 {
            own.color.get_or_insert(r.body.color);
        }
        if r.flags & range_flags::CATEGORY != 0 {
            own.category.get_or_insert(r.body.category);
        }
        let Some((ended, _)) = r.ended else {
            own.unfinished += 1;
            return;
        };
        let ticks = ended.saturating_sub(r.began);
        own.count += 1;
        own.ticks = own.ticks.saturating_add(ticks);
        own.least = if own.count == 1 { ticks } else { own.least.min(ticks) };
        own.times.add(ticks);
        if own.count == 1 || ticks > own.max.0 {
            own.max = (ticks, r.began, r.source);
        }
    }

    fn event(&mut self, _: Source, e: &Event<'_>, open: Option<&Open>) {
        let wait = match &e.body {
            Body::Call(c) => {
                let ticks = e.head.tsc.saturating_sub(c.began);
                return self.around(open, |a| {
                    a.calls += 1;
                    a.call_ticks = a.call_ticks.saturating_add(ticks);
                });
            }
            Body::Op(o) => o.wait,
            _ => Held::of(e).map_or(0, |h| h.wait),
        };
        if wait > 0 {
            self.around(open, |a| {
                a.waits += 1;
                a.wait_ticks = a.wait_ticks.saturating_add(wait);
            });
        }
    }

    fn submission(&mut self, at: &At<'_>) {
        self.around(at.submission.ranges.as_deref(), |a| a.submissions += 1);
    }

    fn graph_kernel(&mut self, at: &At<'_>, kernel: &GraphKernel) {
        self.works.ran(at, &kernel.gpu);
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        if let Some(time) = at.gpu_time() {
            self.works.ran(at, &time);
        }
        let Some(open) = at.submission.ranges.as_deref() else { return };
        if let What::Launch(_) = &op.what {
            if !at.started().and_then(|s| s.shape).is_some_and(|s| s.is_empty()) {
                self.around(Some(open), |a| a.launches += 1);
            }
        } else if let Some(row) = rows::copy(at, op, &Clock::new(0, 1e9))
            && !self.own.holds(at, op)
        {
            self.around(Some(open), |a| {
                a.copies += 1;
                a.copy_bytes = a.copy_bytes.saturating_add(row.bytes);
            });
        }
    }
}

/// Data that a row needs in addition to its counts.
struct Told<'r> {
    recording: &'r Recording,
    clock: Clock,
    calls: bool,
    locks: bool,
}

impl Told<'_> {
    fn ns(&self, ticks: u64) -> u64 {
        self.recording.ns(ticks)
    }

    fn row(&self, named: RangeRow, mut own: Own, a: Around) -> RangeRow {
        RangeRow {
            count: own.count,
            unfinished: own.unfinished,
            ns: self.ns(own.ticks),
            mean_ns: self.ns(own.ticks / own.count.max(1)),
            min_ns: self.ns(own.least),
            p50_ns: self.ns(own.times.percentile(50.0)),
            p99_ns: self.ns(own.times.percentile(99.0)),
            max_ns: self.ns(own.max.0),
            max_at: self.clock.seconds(own.max.1).unwrap_or(0.0),
            max_tsc: own.max.1,
            max_process: own.max.2.process,
            max_tid: own.max.2.tid,
            threads: own.threads.len() as u64,
            submissions: a.submissions,
            launches: a.launches,
            copies: a.copies,
            copy_bytes: a.copy_bytes,
            calls: self.calls.then_some(a.calls),
            calls_ns: self.calls.then(|| self.ns(a.call_ticks)),
            lock_waits: self.locks.then_some(a.waits),
            lock_wait_ns: self.locks.then(|| self.ns(a.wait_ticks)),
            color: own.color.map(rows::color),
            category: own.category,
            ..named
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_times_are_exact_and_many_are_counted() {
        let mut t = Times::default();
        assert_eq!(t.percentile(50.0), 0);
        for n in (1..=FEW as u64).rev() {
            t.add(n * 1000);
        }
        assert_eq!((t.percentile(50.0), t.percentile(99.0), t.many.is_none()), (16_000, 32_000, true));
        t.add(33_000);
        let half = t.percentile(50.0) as f64;
        assert!(t.few.is_empty() && (17_000.0 * 63.0 / 64.0..=17_000.0).contains(&half), "{half}");
    }
}
