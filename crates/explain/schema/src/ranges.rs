//! One row for each NVTX range.

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

/// Kernels and copies that have a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RangeWork {
    /// How many.
    pub runs: u64,
    /// Their times, added up.
    pub ns: u64,
    /// Time in which at least one of them ran, on each GPU.
    pub busy_ns: u64,
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
    /// Work done in them, also in nested ranges: doorbells, launches of kernels that are in the stream, copies and
    /// their bytes.
    pub submissions: u64,
    pub launches: u64,
    pub copies: u64,
    /// Their bytes.
    pub copy_bytes: u64,
    /// CUDA calls, and the time in them; `None` if calls were not recorded.
    pub calls: Option<u64>,
    /// Time in those.
    pub calls_ns: Option<u64>,
    /// Waits for mutexes and rwlocks; `None` if locks were not recorded.
    pub lock_waits: Option<u64>,
    /// Time in those.
    pub lock_wait_ns: Option<u64>,
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
