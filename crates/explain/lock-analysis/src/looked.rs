//! Facts about the longest waits: the holders of the lock, what they did, and what they waited for themselves.

use crate::calls::Gather;
use crate::facts::{Facts, Wait};
use crate::holders::InTheWay;
use crate::labels::Labels;
use crate::spans::{Seen, Span, Spans};
use decode::events::{self, What};
use decode::python::stacks;
use decode::{InsightError, Recording, Source};
use schema::cuda_calls::Calls;
use std::collections::HashMap;

/// Results for the waits' threads: for each wait, one of the waiter and one of each holder.
#[derive(Default)]
pub struct Looked {
    seen: Vec<Seen>,
    /// For each wait: the index of its first result.
    first: Vec<usize>,
    /// By name: the index of the result for its locks' longest hold.
    holds: HashMap<String, usize>,
}

/// Names whose longest hold is examined.
const HOLDS: usize = 10_000;

impl Looked {
    /// With the calls, if there are any.
    pub fn of(
        r: &Recording,
        labels: &Labels<'_>,
        kept: &[Wait],
        found: &[InTheWay],
    ) -> Result<(Looked, Option<Calls>), InsightError> {
        let facts = labels.facts;
        if !facts.has_switches() && facts.calls.is_none() {
            return Ok((Looked::default(), None));
        }
        let (mut spans, mut first) = (Vec::new(), Vec::new());
        for (w, way) in kept.iter().zip(found) {
            first.push(spans.len());
            let free_from = way.released.unwrap_or(u64::MAX);
            let process = facts.process(w.lock);
            let thread = |tid: i32| Source { process, tid };
            spans.push(Span { thread: thread(w.tid), from: w.from, to: w.to(), at: w.from, call: None, free_from });
            spans.extend(way.holders.iter().map(|h| {
                let (from, to) = (w.from.max(h.taken), w.to().min(h.released));
                Span { thread: thread(h.tid), from, to, at: h.taken, call: h.open, free_from: u64::MAX }
            }));
        }
        let mut holds: HashMap<String, usize> = HashMap::new();
        let mut longest: Vec<usize> = (0..facts.locks.len()).filter(|i| facts.locks[*i].longest_hold > 0).collect();
        longest.sort_by_key(|i| std::cmp::Reverse(facts.locks[*i].longest_hold));
        for i in longest {
            let (Some((name, _)), Some(l)) = (labels.names.get(i), facts.locks.get(i)) else { continue };
            if holds.len() < HOLDS && !holds.contains_key(name) {
                let (_, from, tid) = l.longest_hold_at;
                holds.insert(name.clone(), spans.len());
                let to = from.saturating_add(l.longest_hold);
                let thread = Source { process: l.process, tid };
                spans.push(Span { thread, from, to, at: from, call: None, free_from: u64::MAX });
            }
        }
        let mut spans = Spans::new(spans);
        let mut calls = match facts.calls {
            Some(_) => Some(Gather::new(labels, &facts.callers, stacks(r)?)),
            None => None,
        };
        events::each_step(r, |what| match what {
            What::Event(source, e) => {
                spans.event(source, e);
                if let Some(c) = &mut calls {
                    c.event(source, e);
                }
            }
            What::Submission(s) => {
                if let Some(c) = &mut calls {
                    c.submission(s);
                }
            }
        })?;
        spans.finish();
        Ok((Looked { seen: spans.seen, first, holds }, calls.map(Gather::finish)))
    }

    /// The waiter's result.
    pub fn waiter(&self, wait: usize) -> Option<&Seen> {
        self.seen.get(*self.first.get(wait)?)
    }

    pub fn holder(&self, wait: usize, holder: usize) -> Option<&Seen> {
        self.seen.get(*self.first.get(wait)? + 1 + holder)
    }

    pub fn longest_hold(&self, name: &str) -> Option<&Seen> {
        self.seen.get(*self.holds.get(name)?)
    }
}

/// The kept waits, with their results.
pub struct Found<'a> {
    pub waits: &'a [Wait],
    pub ways: &'a [InTheWay],
    pub seen: &'a Looked,
    /// For each thread: its waits by the time they began. (A thread's waits do not overlap.)
    of_thread: HashMap<Source, Vec<usize>>,
}

impl<'a> Found<'a> {
    pub fn new(facts: &Facts, waits: &'a [Wait], ways: &'a [InTheWay], seen: &'a Looked) -> Found<'a> {
        let mut of_thread: HashMap<Source, Vec<usize>> = HashMap::new();
        for (i, w) in waits.iter().enumerate() {
            let thread = Source { process: facts.process(w.lock), tid: w.tid };
            of_thread.entry(thread).or_default().push(i);
        }
        of_thread.values_mut().for_each(|rows| rows.sort_by_key(|&i| waits[i].from));
        Found { waits, ways, seen, of_thread }
    }

    /// The thread's wait with the largest share of a time span, if that is a tenth or more, and the share.
    pub fn longest(&self, thread: Source, from: u64, to: u64) -> Option<(usize, u64)> {
        let rows = self.of_thread.get(&thread)?;
        let first = rows.partition_point(|&i| self.waits[i].to() <= from);
        let inside = rows.get(first..)?.iter().take_while(|&&i| self.waits[i].from < to);
        let share = |i: usize| self.waits[i].to().min(to).saturating_sub(self.waits[i].from.max(from));
        let longest = inside.map(|&i| (i, share(i))).max_by_key(|(_, share)| *share)?;
        (longest.1 >= to.saturating_sub(from) / 10 && longest.1 > 0).then_some(longest)
    }
}
