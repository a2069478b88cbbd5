//! Which submissions a reader wants.

use super::At;
use schema::Clock;
use schema::channel::Channel;

/// Which submissions a reader wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filter {
    /// Slot, and generation if only one use of the slot is wanted.
    pub channel: Option<(u32, Option<u32>)>,
    /// `COPY2`, `graphics`: as the channel's engine, in any case.
    pub engine: Option<String>,
    pub thread: Option<i32>,
    /// Seconds of the recording's clock, from and to.
    pub between: Option<(f64, f64)>,
    /// At most so many of whatever is listed.
    pub limit: Option<u64>,
}

impl Filter {
    /// Whether anything of a channel is wanted.
    pub fn wants(&self, c: &Channel) -> bool {
        let slot =
            |&(slot, generation): &(u32, Option<u32>)| c.slot == slot && generation.is_none_or(|g| c.generation == g);
        self.channel.as_ref().is_none_or(slot) && self.engine.as_ref().is_none_or(|e| c.engine.eq_ignore_ascii_case(e))
    }

    /// Whether a submission is wanted.
    pub fn wants_at(&self, at: &At<'_>, clock: &Clock) -> bool {
        let inside = |&(from, to): &(f64, f64)| {
            clock.seconds(at.submission.tsc).is_some_and(|seconds| (from..=to).contains(&seconds))
        };
        self.wants(at.channel)
            && self.thread.is_none_or(|t| at.submission.tid == t)
            && self.between.as_ref().is_none_or(inside)
    }
}
