//! Driver calls by kind: how many, how long they took, and which CUDA calls made them.

use crate::driver_calls::driver_call;
use crate::histogram::Histogram;
use crate::ranges::Open;
use crate::recording::{InsightError, Recording, Source};
use crate::rows;
use crate::walk::{Call, Sink, walk};
use rm::abi::Branch;
use schema::Clock;
use schema::driver_calls::{DriverCallCount, WithinCount};
use std::collections::{BTreeMap, HashMap};
use tape::event::{Body, Event};

/// Kinds that are counted separately; a program makes some hundred. Later kinds are counted as
/// [`OTHERS`].
const MOST: usize = 4096;
const OTHERS: &str = "others";
/// Driver calls of a thread that wait for the end of the call around them.
const PENDING: usize = 1 << 16;

/// Counts driver calls by kind, the largest total time first.
///
/// # Errors
/// The recording cannot be read.
pub fn driver_call_counts(r: &Recording) -> Result<Vec<DriverCallCount>, InsightError> {
    let clock = rows::clock(r);
    let mut counts = Counts { recording: r, clock, of: Vec::new(), number: HashMap::new(), pending: HashMap::new() };
    walk(r, &mut counts)?;
    let mut rows: Vec<DriverCallCount> = counts.of.into_iter().map(|one| one.row(|ticks| r.ns(ticks))).collect();
    rows.sort_by(|a, b| (b.ns, b.calls, &a.what).cmp(&(a.ns, a.calls, &b.what)));
    Ok(rows)
}

#[derive(Debug, Default)]
struct One {
    what: String,
    calls: u64,
    failed: u64,
    timed: u64,
    ticks: u64,
    longest: u64,
    each: Histogram,
    within: BTreeMap<u16, u64>,
}

impl One {
    fn row(self, ns: impl Fn(u64) -> u64) -> DriverCallCount {
        let timed = |ticks: u64| (self.timed > 0).then(|| ns(ticks));
        let name = |n: u16| tape::call::function(n).map_or_else(|| format!("call {n}"), |f| f.name.into());
        let mut within: Vec<WithinCount> =
            self.within.iter().map(|(call, n)| WithinCount { call: name(*call), driver_calls: *n }).collect();
        within.sort_by_key(|w| std::cmp::Reverse(w.driver_calls));
        DriverCallCount {
            calls: self.calls,
            failed: self.failed,
            ns: timed(self.ticks),
            mean_ns: timed(self.ticks / self.timed.max(1)),
            p50_ns: timed(self.each.percentile(50.0)),
            p99_ns: timed(self.each.percentile(99.0)),
            max_ns: timed(self.longest),
            within,
            what: self.what,
        }
    }
}

struct Counts<'r> {
    recording: &'r Recording,
    clock: Clock,
    of: Vec<One>,
    number: HashMap<String, usize>,
    /// For each thread, the time and kind of each driver call since its last CUDA call.
    pending: HashMap<Source, Vec<(u64, usize)>>,
}

impl Counts<'_> {
    fn one(&mut self, what: String) -> usize {
        let what = if self.of.len() < MOST || self.number.contains_key(&what) { what } else { OTHERS.to_owned() };
        let next = self.of.len();
        let i = *self.number.entry(what.clone()).or_insert(next);
        if i == next {
            self.of.push(One { what, ..One::default() });
        }
        i
    }
}

impl Sink for Counts<'_> {
    fn call(&mut self, source: Source, tsc: u64, call: &Call<'_>, branch: &Branch) {
        let row = driver_call(self.recording, source, tsc, call, branch, &self.clock);
        let failed = row.ret.is_some_and(|ret| ret < 0) || row.status.is_some_and(|status| status != 0);
        let ticks = row.ticks;
        let i = self.one(row.what.unwrap_or_else(|| row.call.to_owned()));
        let Some(one) = self.of.get_mut(i) else { return };
        one.calls += 1;
        one.failed += u64::from(failed);
        if let Some(ticks) = ticks {
            one.timed += 1;
            one.ticks = one.ticks.saturating_add(ticks);
            one.longest = one.longest.max(ticks);
            one.each.add(ticks);
        }
        let pending = self.pending.entry(source).or_default();
        if pending.len() < PENDING {
            pending.push((tsc, i));
        }
    }

    fn wants_events(&self) -> bool {
        true
    }

    fn event(&mut self, source: Source, e: &Event<'_>, _: Option<&Open>) {
        let (Body::Call(c) | Body::InCall(c)) = &e.body else { return };
        for (tsc, i) in self.pending.get_mut(&source).map(std::mem::take).into_iter().flatten() {
            if tsc >= c.began
                && let Some(one) = self.of.get_mut(i)
            {
                *one.within.entry(e.head.flags).or_default() += 1;
            }
        }
    }
}
