//! Which submissions a reader wants.

use crate::during::During;
use regex_lite::Regex;
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
    /// Only what was submitted in calls of this function (`cudaMemcpyAsync`), or with this stream.
    pub call: Option<String>,
    pub stream: Option<u64>,
    /// Of launches: only those of kernels with such a name.
    pub kernel: Option<Pattern>,
    /// Only what was submitted in ranges of NVTX with such a name.
    pub range: Option<Pattern>,
    /// Only what any thread submitted while a range was open.
    pub during: Option<During>,
    /// At most so many of whatever is listed.
    pub limit: Option<u64>,
}

impl Filter {
    /// Whether it asks for more than a time and a number.
    pub(crate) fn chooses(&self) -> bool {
        *self != Filter { between: self.between, limit: self.limit, ..Filter::default() }
    }

    /// Whether anything of a channel is wanted.
    pub fn wants(&self, c: &Channel) -> bool {
        let slot =
            |&(slot, generation): &(u32, Option<u32>)| c.slot == slot && generation.is_none_or(|g| c.generation == g);
        self.channel.as_ref().is_none_or(slot) && self.engine.as_ref().is_none_or(|e| c.engine.eq_ignore_ascii_case(e))
    }

    /// The time stamp before which no submission is wanted.
    pub fn from(&self, clock: &Clock) -> Option<u64> {
        let (from, _) = self.between?;
        // (One less, for one that was rounded.)
        clock.tsc(from).map(|tsc| tsc.saturating_sub(1))
    }

    /// The time stamp after which no submission is wanted.
    pub fn until(&self, clock: &Clock) -> Option<u64> {
        let (_, to) = self.between?;
        // (No counter is below 0. And one more, for one that was rounded.)
        let tsc = if to < 0.0 { Some(clock.tsc(to).unwrap_or(0)) } else { clock.tsc(to) };
        tsc.map(|tsc| tsc.saturating_add(1))
    }

    /// Whether a kernel of this name is wanted; `None`: it has none.
    pub fn wants_kernel(&self, name: Option<&str>) -> bool {
        self.kernel.as_ref().is_none_or(|pattern| pattern.matches(name.unwrap_or_default()))
    }
}

/// A regular expression that a name has somewhere in it. Nothing matches a kernel without name but what matches no letters.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Pattern {
    /// # Errors
    /// It is no regular expression: why not.
    pub fn new(text: &str) -> Result<Pattern, String> {
        Regex::new(text).map(Pattern).map_err(|e| format!("{text:?} is no regular expression: {e}"))
    }

    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}

impl std::fmt::Display for Pattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.as_str().fmt(f)
    }
}

impl PartialEq for Pattern {
    fn eq(&self, other: &Pattern) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}
