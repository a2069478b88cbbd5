//! Whether a submission that a walk has reached is wanted.

use super::At;
use crate::filter::Filter;
use schema::Clock;
use tape::call;

impl Filter {
    /// Whether a submission is wanted.
    pub fn wants_at(&self, at: &At<'_>, clock: &Clock) -> bool {
        let inside = |&(from, to): &(f64, f64)| {
            clock.seconds(at.submission.tsc).is_some_and(|seconds| (from..=to).contains(&seconds))
        };
        self.wants(at.channel)
            && self.thread.is_none_or(|t| at.submission.tid == t)
            && self.between.as_ref().is_none_or(inside)
            && self.wants_call(at)
            && self.during.as_ref().is_none_or(|during| during.holds(at.channel.process, at.submission.tsc))
            && self.range.as_ref().is_none_or(|pattern| at.ranges().any(|label| pattern.matches(&label)))
    }

    fn wants_call(&self, at: &At<'_>) -> bool {
        if self.call.is_none() && self.stream.is_none() {
            return true;
        }
        at.submission.ring.filter(|ring| ring.function != 0).is_some_and(|ring| {
            self.call.as_ref().is_none_or(|name| *name == call::name(ring.function))
                && self.stream.is_none_or(|s| s == ring.stream)
        })
    }
}
