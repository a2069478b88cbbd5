//! The counts and times of a loop, read while it runs.

use crate::histogram::Distribution;
use crate::memory::Memory;
use crate::source::read;

/// Counts and times (nanoseconds) since the start. Each is right by itself; two of them may be a frame apart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Frames that were launched and whose results were published.
    pub frames: u64,
    /// Ticks that passed without a launch.
    pub missed: u64,
    /// Results after their deadline.
    pub late: u64,
    /// Inputs that were not launched: overtaken by newer ones, or too late.
    pub skipped: u64,
    /// Ticks without an input.
    pub starved: u64,
    /// Results that overwrote an unread one.
    pub overruns: u64,
    /// Launches that found another thread launching, and were tried again.
    pub busy: u64,
    /// Launches whose result was not waited for, because the loop was stopped or its limit had passed.
    pub abandoned: u64,
    /// From the tick (or, as frames come, from the commit) until the result was seen.
    pub done: Distribution,
    /// How much later than requested the thread woke up.
    pub wake: Distribution,
}

impl Statistics {
    pub(crate) fn of(memory: &Memory) -> Statistics {
        let header = memory.header();
        let counters = &header.counters;
        Statistics {
            frames: read(&counters.frames),
            missed: read(&counters.missed),
            late: read(&counters.late),
            skipped: read(&counters.skipped),
            starved: read(&counters.starved),
            overruns: read(&counters.overruns),
            busy: read(&counters.busy),
            abandoned: read(&counters.abandoned),
            done: header.done.read(),
            wake: header.wake.read(),
        }
    }
}
