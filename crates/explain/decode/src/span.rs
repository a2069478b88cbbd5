//! What the submissions in a part of a recording have in common with filters, so that a walk skips the parts without a match.

use crate::filter::Filter;
use pushbuf::snapshot::Snapshot;
use std::collections::HashSet;
use std::hash::Hash;
use tape::call;

/// Maximum number of different values of a kind. A part with more matches every filter.
pub const MOST: usize = 2000;

/// The values that occur; `None`: too many.
#[derive(Debug)]
pub struct Seen<T>(Option<HashSet<T>>);

impl<T> Default for Seen<T> {
    fn default() -> Seen<T> {
        Seen(Some(HashSet::new()))
    }
}

impl<T: Snapshot + Eq + Hash> Snapshot for Seen<T> {
    fn save(&self, to: &mut Vec<u8>) {
        self.0.save(to);
    }

    fn load(from: &mut &[u8]) -> Option<Seen<T>> {
        Snapshot::load(from).map(Seen)
    }
}

impl<T: Eq + Hash> Seen<T> {
    pub fn add(&mut self, one: T) {
        if let Some(all) = &mut self.0 {
            all.insert(one);
        }
        self.0.take_if(|all| all.len() > MOST);
    }

    fn append(&mut self, others: Seen<T>) {
        match others.0 {
            Some(others) => others.into_iter().for_each(|one| self.add(one)),
            None => self.0 = None,
        }
    }

    /// Whether a value like this may occur.
    fn has(&self, like: impl FnMut(&T) -> bool) -> bool {
        self.0.as_ref().is_none_or(|all| all.iter().any(like))
    }
}

/// What was submitted in a part of a recording, as a [`Filter`] asks for it.
#[derive(Debug, Default)]
pub struct Span {
    /// Slot, generation and engine.
    pub channels: Seen<(u32, u32, String)>,
    pub threads: Seen<i32>,
    /// CUDA calls: number and stream.
    pub calls: Seen<(u32, u64)>,
    /// Labels.
    pub ranges: Seen<String>,
    /// Names of kernels; empty: a kernel without one.
    pub kernels: Seen<String>,
}

pushbuf::snapshot!(Span { channels, threads, calls, ranges, kernels });

impl Span {
    pub fn append(&mut self, later: Span) {
        self.channels.append(later.channels);
        self.threads.append(later.threads);
        self.calls.append(later.calls);
        self.ranges.append(later.ranges);
        self.kernels.append(later.kernels);
    }

    /// Whether a submission that the filter wants may be among these.
    pub fn may_have(&self, filter: &Filter) -> bool {
        let Filter { channel, engine, thread, between: _, call, stream, kernel, range, during: _, limit: _ } = filter;
        let is_in = |(slot, generation, of): &(u32, u32, String)| {
            channel.is_none_or(|(wanted, of)| wanted == *slot && of.is_none_or(|of| of == *generation))
                && engine.as_ref().is_none_or(|engine| engine.eq_ignore_ascii_case(of))
        };
        let is_called = |(function, of): &(u32, u64)| {
            call.as_ref().is_none_or(|name| call::name(*function) == name) && stream.is_none_or(|s| s == *of)
        };
        self.channels.has(is_in)
            && thread.is_none_or(|thread| self.threads.has(|t| *t == thread))
            && (call.is_none() && stream.is_none() || self.calls.has(is_called))
            && kernel.as_ref().is_none_or(|pattern| self.kernels.has(|name| pattern.matches(name)))
            && range.as_ref().is_none_or(|pattern| self.ranges.has(|label| pattern.matches(label)))
    }
}
