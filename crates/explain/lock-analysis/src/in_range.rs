//! What counts for the ranges of NVTX around it.

use crate::facts::Held;
use crate::ops;
use crate::range_work::Works;
use decode::ranges::{Open, Range, Texts};
use decode::walk::{At, GraphKernel, Outcome, Sink, walk};
use decode::{InsightError, LaunchWrites, Recording, Source, rows};
use pushbuf::ops::{Op, What};
use schema::Clock;
use schema::ranges::RangeCounts;
use tape::call::Class;
use tape::event::{Body, Event};
use tape::nvtx::LAYOUT;

/// One thing that a thread did. Times are in ticks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Did {
    Submission,
    Launch,
    /// Its bytes.
    Copy(u64),
    /// The time in it.
    Call(u64),
    /// When it began to wait for a lock, and when it had it.
    Wait([u64; 2]),
}

/// How often each was done.
#[derive(Clone, Copy, Default)]
pub struct Counts {
    submissions: u64,
    launches: u64,
    copies: u64,
    copy_bytes: u64,
    calls: u64,
    call_ticks: u64,
    waits: u64,
    wait_ticks: u64,
}

impl Counts {
    pub fn add(&mut self, did: Did) {
        let (times, sum) = match did {
            Did::Submission => return self.submissions += 1,
            Did::Launch => return self.launches += 1,
            Did::Copy(_) => (&mut self.copies, &mut self.copy_bytes),
            Did::Call(_) => (&mut self.calls, &mut self.call_ticks),
            Did::Wait(_) => (&mut self.waits, &mut self.wait_ticks),
        };
        *times += 1;
        *sum = sum.saturating_add(match did {
            Did::Copy(n) | Did::Call(n) => n,
            Did::Wait([from, to]) => to.saturating_sub(from),
            Did::Submission | Did::Launch => 0,
        });
    }

    pub fn row(&self, r: &Recording, out: &Outcome) -> RangeCounts {
        let (calls, locks) = (out.call_layout.is_some(), out.lock_layout.is_some());
        RangeCounts {
            submissions: self.submissions,
            launches: self.launches,
            copies: self.copies,
            copy_bytes: self.copy_bytes,
            calls: calls.then_some(self.calls),
            calls_ns: calls.then(|| r.ns(self.call_ticks)),
            lock_waits: locks.then_some(self.waits),
            lock_wait_ns: locks.then(|| r.ns(self.wait_ticks)),
        }
    }
}

/// Is given the ranges of a recording and what happened.
pub trait Keep {
    fn range(&mut self, r: &Range, texts: &Texts);
    /// At a time stamp, in ranges. (A wait is given when the lock was released, which may be after a range in which the thread waited.)
    fn did(&mut self, source: Source, tsc: u64, open: Option<&Open>, did: Did);
    fn works(&mut self) -> &mut Works;
}

/// # Errors
/// The recording cannot be read, or its ranges are of another layout.
pub fn walk_ranges<K: Keep>(r: &Recording, keep: K) -> Result<(K, Outcome), InsightError> {
    let mut all = All { own: LaunchWrites::of(r)?, gpu_times: r.header().gpu_times, keep };
    let out = walk(r, &mut all)?;
    if let Some((found, _)) = out.nvtx.filter(|(layout, _)| *layout != LAYOUT) {
        return Err(InsightError::Layout { path: r.path().into(), what: "ranges", found, known: LAYOUT });
    }
    all.keep.works().sort();
    Ok((all.keep, out))
}

struct All<K> {
    /// Inline writes that are no copies.
    own: LaunchWrites,
    gpu_times: bool,
    keep: K,
}

impl<K: Keep> All<K> {
    fn sent(&mut self, at: &At<'_>, did: Did) {
        let source = Source { process: at.channel.process, tid: at.submission.tid };
        self.keep.did(source, at.submission.tsc, at.submission.ranges.as_deref(), did);
    }
}

impl<K: Keep> Sink for All<K> {
    fn wants_events(&self) -> bool {
        true
    }

    fn range(&mut self, r: &Range, texts: &Texts) {
        self.keep.range(r, texts);
    }

    fn event(&mut self, source: Source, e: &Event<'_>, open: Option<&Open>) {
        let did = match &e.body {
            Body::Call(c) => Some(Did::Call(e.head.tsc.saturating_sub(c.began))),
            _ => waited(e).map(Did::Wait),
        };
        if let Some(did) = did {
            self.keep.did(source, e.head.tsc, open, did);
        }
    }

    fn submission(&mut self, at: &At<'_>) {
        self.sent(at, Did::Submission);
    }

    fn graph_kernel(&mut self, at: &At<'_>, kernel: &GraphKernel) {
        self.keep.works().graph_kernel(at, kernel);
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        if self.gpu_times {
            self.keep.works().op(at, op);
        }
        if let What::Launch(_) = &op.what {
            if !at.started().and_then(|s| s.shape).is_some_and(|s| s.is_empty()) {
                self.sent(at, Did::Launch);
            }
        } else if at.submission.ranges.is_some()
            // (A launch writes counters of the driver's.)
            && !(matches!(&op.what, What::Inline(inline) if inline.bytes() <= COUNTER) && is_launch(at))
            && let Some(row) = rows::copy(at, op, &Clock::new(0, 1e9))
            && !self.own.holds(at, op)
        {
            self.sent(at, Did::Copy(row.bytes));
        }
    }
}

/// Bytes of the driver's counters.
const COUNTER: u64 = 8;

fn is_launch(at: &At<'_>) -> bool {
    let called = at.submission.ring.and_then(|ring| ring.called());
    called.is_some_and(|f| matches!(f.class, Class::Launch | Class::GraphLaunch))
}

/// When a thread began to wait for a mutex or a rwlock, and when it had it or gave up.
fn waited(e: &Event<'_>) -> Option<[u64; 2]> {
    let (to, wait) = match (Held::of(e), &e.body) {
        (Some(h), _) => (if h.taken == 0 { h.released } else { h.taken }, h.wait),
        (None, Body::Op(o)) if ops::takes((e.head.flags >> 8) as u8) => (e.head.tsc, o.wait),
        _ => return None,
    };
    (wait > 0).then(|| [to.saturating_sub(wait), to])
}
