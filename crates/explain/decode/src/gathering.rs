//! Gathers a [`Span`] from the submissions of a walk.

use crate::kernel::Kernel;
use crate::ranges::Open;
use crate::span::{MOST, Span};
use crate::walk::At;
use pushbuf::ops::{Op, What};
use std::collections::HashSet;
use std::hash::{Hash, Hasher};
use std::ptr;
use std::rc::Rc;
use std::sync::Arc;

/// The span so far. Most submissions repeat the values of an earlier one.
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
    fn hash<H: Hasher>(&self, state: &mut H) {
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
