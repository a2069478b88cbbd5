//! Ranges of NVTX one by one, the longest first: what happened in each, and where its time was spent.

use crate::in_range::{Counts, Did, Keep, walk_ranges};
use crate::range_work::{Span, Works};
use decode::ranges::{Open, Range, Style, Texts, watched};
use decode::walk::{Filter, Outcome};
use decode::{InsightError, RangeNames, Recording, Source, rows};
use schema::Clock;
use schema::happened::OneRange;
use schema::ranges::{EachRange, EachRow};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Ranges that have a row, and the minimum that are kept beyond it until they are sorted.
const RANGES: usize = 1 << 18;
const MORE: usize = 1 << 16;
/// What threads did that is kept, and how much of it is looked at for all ranges together. (Beyond that, ranges have no row.)
const DID: usize = 1 << 22;
const VISITS: usize = 1 << 26;

/// The ranges that the filter wants, by their name; its limit is for rows.
///
/// # Errors
/// The recording cannot be read, or its ranges are of another layout.
pub fn each_range(r: &Recording, filter: &Filter) -> Result<EachRange, InsightError> {
    let most = filter.limit.and_then(|limit| limit.try_into().ok()).unwrap_or(RANGES).min(RANGES);
    let (mut each, out) = walk_ranges(r, Each::new(filter, most))?;
    each.longest();
    // (With a limit, what is beyond it is not left out.)
    let left_out = if most == RANGES { each.ended.saturating_sub(RANGES as u64) } else { 0 };
    // (A wait comes after what its thread did until the lock was released.)
    each.did.values_mut().for_each(|did| did.sort_by_key(|(tsc, _)| *tsc));
    let clock = rows::clock(r);
    let kept = std::mem::take(&mut each.ranges);
    let ranges: Vec<EachRow> = kept.iter().filter_map(|range| each.row(r, range, &out, &clock)).collect();
    Ok(EachRange {
        watched: watched(out.nvtx, each.seen),
        unfinished: each.unfinished,
        left_out: out.range_oddities.left_out + left_out + (kept.len() - ranges.len()) as u64,
        ranges,
        not_counted: each.all_did.saturating_sub(DID) as u64,
    })
}

struct Each<'f> {
    names: RangeNames<'f>,
    most: usize,
    ranges: Vec<Range>,
    seen: u64,
    unfinished: u64,
    ended: u64,
    /// What threads did in ranges, and all of their waits.
    did: BTreeMap<Source, Vec<(u64, Did)>>,
    all_did: usize,
    /// What was looked at, of `did`.
    visits: usize,
    works: Works,
}

fn ticks(r: &Range) -> u64 {
    r.ended.map_or(0, |(ended, _)| ended.saturating_sub(r.began))
}

impl<'f> Each<'f> {
    fn new(filter: &'f Filter, most: usize) -> Each<'f> {
        Each {
            names: RangeNames::new(filter.range.as_ref()),
            most,
            ranges: Vec::new(),
            seen: 0,
            unfinished: 0,
            ended: 0,
            did: BTreeMap::new(),
            all_did: 0,
            visits: 0,
            works: Works::default(),
        }
    }

    /// Keeps the ranges that have a row, in the order of the rows.
    fn longest(&mut self) {
        self.ranges.sort_by_key(|r| (Reverse(ticks(r)), r.began, r.source));
        self.ranges.truncate(self.most);
    }

    fn row(&mut self, r: &Recording, range: &Range, out: &Outcome, clock: &Clock) -> Option<EachRow> {
        let span = Span::of(range)?;
        let did = did_in(&self.did, span);
        self.visits = did.clone().fold(self.visits, |visits, did| visits.saturating_add(1 + did.len()));
        if self.visits > VISITS {
            return None;
        }
        let did = did.flatten().map(|(_, did)| *did);
        let mut counts = Counts::default();
        did.clone().for_each(|did| counts.add(did));
        let waits = did.filter_map(|did| if let Did::Wait(wait) = did { Some(wait) } else { None });
        let row = rows::range(r, range, &out.texts, clock);
        let work = if r.header().gpu_times { self.works.of(r, span) } else { None };
        Some(EachRow {
            counts: counts.row(r, out),
            work: work.as_ref().map(|work| work.own),
            parts: work.as_ref().map(|work| work.parts(r, row.ns.unwrap_or(0), waits)),
            range: OneRange { all_threads: work.map(|work| work.all_threads), ..row },
        })
    }
}

/// What a range's thread did in it, or all threads of the process.
fn did_in(all: &BTreeMap<Source, Vec<(u64, Did)>>, span: Span) -> impl Iterator<Item = &[(u64, Did)]> + Clone {
    let thread = |tid| Source { process: span.process, tid };
    let threads = thread(span.tid.unwrap_or(i32::MIN))..=thread(span.tid.unwrap_or(i32::MAX));
    all.range(threads).map(move |(_, did)| {
        let first = did.partition_point(|(tsc, _)| *tsc < span.began);
        let end = did.partition_point(|(tsc, _)| *tsc <= span.ended);
        did.get(first..end).unwrap_or(&[])
    })
}

impl Keep for Each<'_> {
    fn works(&mut self) -> &mut Works {
        &mut self.works
    }

    fn range(&mut self, r: &Range, texts: &Texts) {
        self.seen += 1;
        if r.style == Style::Mark || !self.names.has(r, texts) {
            return;
        }
        if r.ended.is_none() {
            self.unfinished += 1;
            return;
        }
        self.ended += 1;
        self.ranges.push(*r);
        if self.ranges.len() > 2 * self.most.max(MORE) {
            self.longest();
        }
    }

    fn did(&mut self, source: Source, tsc: u64, open: Option<&Open>, did: Did) {
        // (A lock may be released after the range in which the thread waited for it.)
        let tsc = if let Did::Wait([_, to]) = did { to } else { tsc };
        if open.is_none() && !matches!(did, Did::Wait(_)) {
            return;
        }
        self.all_did += 1;
        if self.all_did <= DID {
            self.did.entry(source).or_default().push((tsc, did));
        }
    }
}
