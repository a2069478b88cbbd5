//! What a filter could have asked for, where it asks for what a recording does not have.

use crate::recording::{InsightError, Recording};
use crate::rows;
use crate::walk::{At, Filter, Sink, walk};
use schema::Clock;
use std::collections::BTreeSet;

/// What there is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Present {
    /// Label and engine of each channel.
    pub channels: Vec<(String, String)>,
    /// Threads that submitted.
    pub threads: BTreeSet<i32>,
    /// Calls in which they did, and their streams.
    pub calls: BTreeSet<&'static str>,
    pub streams: BTreeSet<u64>,
    /// Ranges in which they did.
    pub ranges: BTreeSet<String>,
    /// Seconds of the first and the last submission.
    pub span: Option<(f64, f64)>,
}

/// What a recording has, if nothing of it is what the filter wants: no such channel, or no submission. `None` as soon as something is.
///
/// # Errors
/// The recording cannot be read.
pub fn unmatched(r: &Recording, filter: &Filter) -> Result<Option<Present>, InsightError> {
    let of_submissions = filter.thread.is_some()
        || filter.between.is_some()
        || filter.call.is_some()
        || filter.stream.is_some()
        || filter.range.is_some()
        || filter.during.is_some();
    let clock = rows::clock(r);
    if filter.between.is_some() || r.checkpoints().next().is_some() {
        // (What there is instead is looked for where this finds nothing.)
        let mut look = Look { filter, clock, is_short: true, found: false, present: Present::default() };
        walk(r, &mut look)?;
        if look.found {
            return Ok(None);
        }
    }
    let mut look = Look { filter, clock, is_short: false, found: false, present: Present::default() };
    let out = walk(r, &mut look)?;
    let found = look.found || !of_submissions && out.channels.iter().any(|c| filter.wants(c));
    let channels = out.channels.iter().map(|c| (c.label(), c.engine.clone())).collect();
    Ok((!found).then_some(Present { channels, ..look.present }))
}

/// Streams that are told apart, at most.
const STREAMS: usize = 1000;
/// The same of ranges.
const RANGES: usize = 1000;

struct Look<'f> {
    filter: &'f Filter,
    clock: Clock,
    /// Only what the filter wants is of interest.
    is_short: bool,
    found: bool,
    present: Present,
}

impl Sink for Look<'_> {
    fn done(&self) -> bool {
        self.found
    }

    fn from(&self) -> Option<u64> {
        self.filter.from(&self.clock).filter(|_| self.is_short)
    }

    fn until(&self) -> Option<u64> {
        self.filter.until(&self.clock).filter(|_| self.is_short)
    }

    fn filter(&self) -> Option<&Filter> {
        self.is_short.then_some(self.filter)
    }

    fn submission(&mut self, at: &At<'_>) {
        self.found |= self.filter.wants_at(at, &self.clock);
        self.present.threads.insert(at.submission.tid);
        if let Some(call) = rows::in_call(at) {
            self.present.calls.insert(call.name);
            if self.present.streams.len() < STREAMS {
                self.present.streams.insert(call.stream);
            }
        }
        if self.present.ranges.len() < RANGES {
            self.present.ranges.extend(at.ranges());
        }
        if let Some(seconds) = self.clock.seconds(at.submission.tsc) {
            let (first, last) = self.present.span.unwrap_or((seconds, seconds));
            self.present.span = Some((first.min(seconds), last.max(seconds)));
        }
    }
}
