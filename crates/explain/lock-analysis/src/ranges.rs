//! Ranges of NVTX: their times, and counts of what happened in them.
//!
//! An event in a range counts for it and for those around it. A range of a thread counts that thread's events, a range of the
//! process those of all its threads.

use crate::in_range::{Counts, Did, Keep, walk_ranges};
use crate::range_work::{Span, Works};
use decode::histogram::Histogram;
use decode::ranges::{Key, Open, Range, Style, Texts, watched};
use decode::walk::{Filter, Outcome};
use decode::{InsightError, Recording, Source, rows};
use schema::Clock;
use schema::ranges::{RangeRow, RangeWork, Ranges};
use std::collections::{HashMap, HashSet};
use tape::nvtx::range_flags;

/// Maximum numbers of separate rows, of threads of one, and of ranges whose work is added up. (Beyond that, no row has work.)
const ROWS: usize = 1 << 16;
const THREADS: usize = 1 << 12;
const RANGES: usize = 1 << 20;

/// All ranges; those that the filter wants, by their name.
///
/// # Errors
/// The recording cannot be read, or its ranges are of another layout.
pub fn ranges(r: &Recording, filter: &Filter) -> Result<Ranges, InsightError> {
    let (mut tally, out) = walk_ranges(r, Tally::default())?;
    let to = Told { recording: r, clock: rows::clock(r), out: &out };
    let seen = tally.left_out + tally.rows.values().map(|own| own.count + own.unfinished).sum::<u64>();
    let mut all: Vec<(Row, RangeRow)> = Vec::new();
    for ((style, key), own) in std::mem::take(&mut tally.rows) {
        let label = out.texts.label(key);
        if !filter.range.as_ref().is_none_or(|pattern| pattern.matches(&label)) {
            continue;
        }
        let around = tally.around.get(&(style, key)).copied().unwrap_or_default();
        let named = RangeRow {
            domain: out.texts.domain(key),
            text: out.texts.text(key),
            cut: out.texts.is_cut(key),
            style: style.name(),
            ..RangeRow::default()
        };
        all.push(((style, key), to.row(named, own, around)));
    }
    all.sort_by(|(_, a), (_, b)| {
        let rank = |r: &RangeRow| (r.style == Style::Mark.name(), std::cmp::Reverse((r.ns, r.count + r.unfinished)));
        rank(a).cmp(&rank(b)).then_with(|| (&a.domain, &a.text, a.style).cmp(&(&b.domain, &b.text, b.style)))
    });
    all.truncate(filter.limit.unwrap_or(u64::MAX).try_into().unwrap_or(usize::MAX));
    for (key, row) in &mut all {
        [row.work, row.all_threads] = tally.work(r, *key).map_or([None; 2], |both| both.map(Some));
    }
    Ok(Ranges {
        watched: watched(out.nvtx, seen),
        ranges: all.into_iter().map(|(_, row)| row).collect(),
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

type Row = (Style, Key);

#[derive(Default)]
struct Tally {
    rows: HashMap<Row, Own>,
    around: HashMap<Row, Counts>,
    works: Works,
    spans: HashMap<Row, Vec<Span>>,
    /// In `spans`.
    ranges: usize,
    left_out: u64,
}

impl Tally {
    /// The work of a row's threads, and of all threads; `None` for marks, if no times were recorded, and if there was too much to keep.
    fn work(&mut self, r: &Recording, row: Row) -> Option<[RangeWork; 2]> {
        if row.0 == Style::Mark || !r.header().gpu_times || self.ranges > RANGES {
            return None;
        }
        let mut sum = [RangeWork::default(); 2];
        for span in self.spans.remove(&row).unwrap_or_default() {
            let work = self.works.of(r, span)?;
            sum[0] += work.own;
            sum[1] += work.all_threads;
        }
        Some(sum)
    }
}

impl Keep for Tally {
    fn works(&mut self) -> &mut Works {
        &mut self.works
    }

    fn range(&mut self, r: &Range, _: &Texts) {
        if let Some(span) = Span::of(r) {
            self.ranges += 1;
            if self.ranges <= RANGES {
                self.spans.entry((r.style, r.key)).or_default().push(span);
            }
        }
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

    fn did(&mut self, _: Source, _: u64, open: Option<&Open>, did: Did) {
        let Some(open) = open else { return };
        let mut one = |style, key: &Key| {
            if self.around.len() < ROWS || self.around.contains_key(&(style, *key)) {
                self.around.entry((style, *key)).or_default().add(did);
            }
        };
        open.of_thread.iter().for_each(|key| one(Style::Thread, key));
        open.process.iter().for_each(|key| one(Style::Process, key));
    }
}

/// Data that a row needs in addition to its counts.
struct Told<'r> {
    recording: &'r Recording,
    clock: Clock,
    out: &'r Outcome,
}

impl Told<'_> {
    fn ns(&self, ticks: u64) -> u64 {
        self.recording.ns(ticks)
    }

    fn row(&self, named: RangeRow, mut own: Own, counts: Counts) -> RangeRow {
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
            counts: counts.row(self.recording, self.out),
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
