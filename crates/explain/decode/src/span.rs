//! What the submissions in a part of a recording have in common with filters, so that a walk skips the parts without a match.

use crate::kernel::Kernel;
use crate::ranges::Open;
use crate::walk::{At, Filter};
use pushbuf::ops::{Op, What};
use pushbuf::snapshot::Snapshot;
use std::collections::HashSet;
use std::hash::Hash;
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;
use tape::call;

/// Maximum number of different values of a kind. A part with more matches every filter.
const MOST: usize = 2000;

/// The values that occur; `None`: too many.
#[derive(Debug)]
struct Seen<T>(Option<HashSet<T>>);

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
    fn add(&mut self, one: T) {
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
    channels: Seen<(u32, u32, String)>,
    threads: Seen<i32>,
    /// CUDA calls: number and stream.
    calls: Seen<(u32, u64)>,
    /// Labels.
    ranges: Seen<String>,
    /// Names of kernels; empty: a kernel without one.
    kernels: Seen<String>,
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
        let Filter { channel, engine, thread, between: _, call, stream, kernel, range, limit: _ } = filter;
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

/// Gathers a [`Span`]. Most submissions repeat the values of an earlier one.
#[derive(Debug, Default)]
pub struct Gathering {
    span: Span,
    /// Of the last submission: channel, its generation, thread, call and stream; and the channel's engine, which may become known later.
    last: Option<(usize, u32, i32, u32, u64)>,
    engine: String,
    /// Ranges and kernels that are in the span.
    ranges: Option<Arc<Open>>,
    kernels: HashSet<ByAddress>,
}

#[derive(Debug)]
struct ByAddress(Rc<Kernel>);

impl PartialEq for ByAddress {
    fn eq(&self, other: &ByAddress) -> bool {
        Rc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for ByAddress {}

impl Hash for ByAddress {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        ptr::hash(Rc::as_ptr(&self.0), state);
    }
}

impl Gathering {
    /// Returns the span since the last call.
    pub fn take(&mut self) -> Span {
        std::mem::take(self).span
    }

    /// Adds an earlier span.
    pub fn append(&mut self, before: Span) {
        self.span.append(before);
    }

    pub fn submission(&mut self, at: &At<'_>) {
        let (c, s) = (at.channel, at.submission);
        let (function, stream) = s.ring.map_or((0, 0), |ring| (ring.function, ring.stream));
        let this = (c.number, c.generation, s.tid, function, stream);
        if self.last != Some(this) || self.engine != c.engine {
            self.last = Some(this);
            self.engine.clone_from(&c.engine);
            self.span.channels.add((c.slot, c.generation, c.engine.clone()));
            self.span.threads.add(s.tid);
            if function != 0 {
                self.span.calls.add((function, stream));
            }
        }
        let known = match (&self.ranges, &s.ranges) {
            (Some(known), Some(open)) => Arc::ptr_eq(known, open),
            (_, None) => true,
            (None, Some(_)) => false,
        };
        if !known {
            at.ranges().for_each(|label| self.span.ranges.add(label));
            self.ranges.clone_from(&s.ranges);
        }
    }

    pub fn op(&mut self, at: &At<'_>, op: &Op) {
        if let What::Launch(_) = op.what {
            self.kernel(at.kernel());
        }
    }

    /// A kernel that ran; `None`: it has no name.
    pub fn kernel(&mut self, kernel: Option<Rc<Kernel>>) {
        match kernel {
            None => self.span.kernels.add(String::new()),
            Some(kernel) if self.kernels.contains(&ByAddress(kernel.clone())) => {}
            Some(kernel) => {
                self.span.kernels.add(kernel.name.clone());
                if self.kernels.len() < MOST {
                    self.kernels.insert(ByAddress(kernel));
                }
            }
        }
    }
}
