//! What is known of a whole recording before its rows are written.

use crate::ExportError;
use decode::Recording;
use schema::lines::RecordingRow;
use schema::locks::{ThreadRow, WaitRow};
use schema::operations::Ran;
use schema::{Clock, Summary};

/// A recording at a glance.
pub struct About {
    pub summary: Summary,
    pub row: RecordingRow,
    pub threads: Vec<ThreadRow>,
    /// The longest waits for locks.
    pub waits: Vec<WaitRow>,
    /// Recorded with `--gpu-times`.
    pub has_gpu_times: bool,
    clock: Clock,
    /// CLOCK_MONOTONIC at the recording's second 0; 0 if it is not known.
    pub monotonic_ns: u64,
}

impl About {
    /// `waits`: how many of the longest waits are kept.
    pub fn of(r: &Recording, waits: usize) -> Result<About, ExportError> {
        let summary = decode::summary(r)?;
        let locks = lock_analysis::locks(r, waits)?;
        let mut incomplete_because = summary.incomplete_because.clone();
        for reason in locks.incomplete_because {
            if !incomplete_because.contains(&reason) {
                incomplete_because.push(reason);
            }
        }
        let row = RecordingRow {
            complete: incomplete_because.is_empty(),
            incomplete_because,
            lost: summary.lost,
            lost_detail: summary.lost_detail.clone(),
            clock_error_ns: decode::clock_error_ns(r),
        };
        let hz = r.header().tsc_hz;
        // (As for locks: if the recording does not state the rate of its time stamps, one step is taken as a nanosecond.)
        let clock = decode::rows::clock_at(r, if hz.is_finite() && hz > 0.0 { hz } else { 1e9 });
        let monotonic_ns = r.clocks().first().map_or(0, |c| c.monotonic_ns);
        let has_gpu_times = r.header().gpu_times;
        Ok(About { summary, row, threads: locks.threads, waits: locks.waits, has_gpu_times, clock, monotonic_ns })
    }

    /// Nanoseconds since the recording's second 0.
    pub fn ns(&self, tsc: u64) -> i64 {
        self.clock.ns(tsc).unwrap_or(0)
    }

    /// From start to end, in ns since the recording's second 0; `None` if that is not known.
    pub fn ran(&self, ran: &Ran) -> Option<(i64, i64)> {
        let [from, to] = ran.tsc?.map(|tsc| self.ns(tsc));
        Some((from, to.max(from)))
    }

    /// CLOCK_MONOTONIC, by the recording's clock.
    pub fn monotonic(&self, tsc: u64) -> u64 {
        self.monotonic_ns.saturating_add_signed(self.ns(tsc))
    }
}
