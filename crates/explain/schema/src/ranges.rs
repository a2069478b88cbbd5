//! One row for each text of NVTX ranges, or for each range.

use crate::happened::OneRange;
use serde::{Deserialize, Serialize};

/// The NVTX ranges in a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ranges {
    pub watched: Watched,
    /// The longest total time first; marks after the ranges.
    pub ranges: Vec<RangeRow>,
    /// Ends whose begin is not on the tape.
    pub stray_ends: u64,
    /// Ranges that are in no row: too many were open at the same time, or there are too many texts.
    pub left_out: u64,
}

/// Whether ranges were recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// The recording was started with them.
    pub asked: bool,
    /// A copy of NVTX in the program was connected. If none was, the program set no range (or set it where doorbell was
    /// not loaded).
    pub connected: bool,
    /// A copy of NVTX was not watched: the program has its own injection library, or an unknown version of NVTX.
    pub missed: bool,
    /// Ranges that began, and marks.
    pub seen: u64,
}

/// The GPU's work in ranges that ended: kernels and copies that have a time. Of several ranges, all figures are added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RangeWork {
    /// How many.
    pub runs: u64,
    /// Their times, added up.
    pub ns: u64,
    /// Time in which at least one of them ran, on each GPU.
    pub busy_ns: u64,
    /// Those of `runs` that are copies and fills.
    pub copies: u64,
    /// Times of these copies, added up.
    pub copies_ns: u64,
    /// Time in which at least one of them was between its doorbell and its start, whether others ran or not.
    pub queued_ns: u64,
    /// Time in which none of them ran on any GPU, from the range's begin to its end, or to the end of its last work if that is later.
    pub idle_ns: u64,
    /// Launches, and copies and fills of copy engines, that have no time: where they ran, `idle_ns` is too long. Kernels of graphs without a time are not counted.
    pub without_time: u64,
}

impl std::ops::AddAssign for RangeWork {
    fn add_assign(&mut self, other: RangeWork) {
        let RangeWork { runs, ns, busy_ns, copies, copies_ns, queued_ns, idle_ns, without_time } = other;
        for (sum, more) in [
            (&mut self.runs, runs),
            (&mut self.ns, ns),
            (&mut self.busy_ns, busy_ns),
            (&mut self.copies, copies),
            (&mut self.copies_ns, copies_ns),
            (&mut self.queued_ns, queued_ns),
            (&mut self.idle_ns, idle_ns),
            (&mut self.without_time, without_time),
        ] {
            *sum = sum.saturating_add(more);
        }
    }
}

/// What happened in ranges, also in nested ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RangeCounts {
    /// Doorbells. As all counts, also in nested ranges.
    pub submissions: u64,
    /// Launches of kernels that are in the stream.
    pub launches: u64,
    pub copies: u64,
    /// Their bytes.
    pub copy_bytes: u64,
    /// CUDA calls; `None` if calls were not recorded.
    pub calls: Option<u64>,
    /// Time in those.
    pub calls_ns: Option<u64>,
    /// Waits for mutexes and rwlocks; `None` if locks were not recorded.
    pub lock_waits: Option<u64>,
    /// Time in those.
    pub lock_wait_ns: Option<u64>,
}

/// Ranges of one domain, text and style.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RangeRow {
    /// `None` for the default domain.
    pub domain: Option<String>,
    /// Its text; `text 0x...` where the text is not in the recording.
    pub text: String,
    /// The text is longer than its recorded part.
    pub cut: bool,
    /// `push_pop` (of a thread), `start_end` (of the process) or `mark`.
    pub style: &'static str,
    /// Ranges whose end is on the tape; marks.
    pub count: u64,
    /// Ranges whose end is not on the tape: their threads or the recording ended before, or a pause began, or the end
    /// was lost.
    pub unfinished: u64,
    /// Times of the ranges that ended.
    pub ns: u64,
    pub mean_ns: u64,
    /// The shortest.
    pub min_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// When the longest began, and its thread.
    pub max_at: f64,
    /// The same as a time stamp.
    #[serde(serialize_with = "crate::wide::decimal")]
    pub max_tsc: u64,
    /// The process image in which it began.
    pub max_process: u32,
    /// The thread in which it began.
    pub max_tid: i32,
    /// Threads in which they began.
    pub threads: u64,
    #[serde(flatten)]
    pub counts: RangeCounts,
    /// The GPU's work that their threads submitted in them, and what any thread of the process submitted while they were open (autograd's has no range of its
    /// own). Work during two ranges of a row counts for both. `None` without `record --gpu-times`, and if it is too much to keep.
    pub work: Option<RangeWork>,
    /// The same of all threads.
    pub all_threads: Option<RangeWork>,
    /// Values of the first range that had them: `#rrggbb`, and a number that the program chose.
    pub color: Option<String>,
    /// Category of the first that had one.
    pub category: Option<u32>,
}

/// The NVTX ranges in a recording, one by one.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct EachRange {
    pub watched: Watched,
    /// Those whose end is on the tape, the longest first.
    pub ranges: Vec<EachRow>,
    /// Ranges whose end is not on the tape.
    pub unfinished: u64,
    /// Ranges that have no row: more than 262,144 have one, or too many were open at the same time.
    pub left_out: u64,
    /// Submissions, operations, calls and waits after the first four million: the counts of later ranges lack them.
    pub not_counted: u64,
}

/// A range, and what happened in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EachRow {
    #[serde(flatten)]
    pub range: OneRange,
    #[serde(flatten)]
    pub counts: RangeCounts,
    /// The GPU's work that its thread submitted in it, or all threads of the process for `start_end`. `None` without `record --gpu-times`, and if it is too
    /// much to keep.
    pub work: Option<RangeWork>,
    /// Where its time was spent; `None` in the same cases.
    pub parts: Option<RangeParts>,
}

/// Where a range's time was spent. These times do not overlap: each moment belongs to the first of them. Without `after_ns`, their sum is the range's `ns`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RangeParts {
    /// Work that any thread of the process submitted in it ran on a GPU.
    pub gpu_ns: u64,
    /// Its thread, or for `start_end` any thread of the process, waited for a mutex or a rwlock.
    pub lock_ns: u64,
    /// Such work was between its doorbell and its start.
    pub queued_ns: u64,
    /// None of these.
    pub other_ns: u64,
    /// From its end to the end of its last work, 0 if that was before.
    pub after_ns: u64,
}
