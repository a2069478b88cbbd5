//! One row for each range of NVTX.

use serde::{Deserialize, Serialize};

/// What a recording says of NVTX.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Ranges {
    pub watched: Watched,
    /// What took the most time in all first; marks behind them.
    pub ranges: Vec<RangeRow>,
    /// Ends whose begin is not on the tape.
    pub stray_ends: u64,
    /// Ranges that are in no row: too many were open at a time, or there are too many texts.
    pub left_out: u64,
}

/// Whether ranges were recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// The recording was to have them.
    pub asked: bool,
    /// A copy of NVTX in the program was connected. Where none was, the program set no range (or set it where doorbell was not).
    pub connected: bool,
    /// A copy of NVTX was not watched: the program has its own injection library, or an unknown version of NVTX.
    pub missed: bool,
    /// Ranges that began, and marks.
    pub seen: u64,
}

/// Ranges of one domain, text and style.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RangeRow {
    /// `None` for the default domain.
    pub domain: Option<String>,
    pub text: String,
    /// The text is longer than is recorded.
    pub cut: bool,
    /// `push_pop` (of a thread), `start_end` (of the process) or `mark`.
    pub style: &'static str,
    /// Ranges whose end is on the tape; marks.
    pub count: u64,
    /// Ranges whose end is not: their threads or the recording ended before, or a pause began, or it was lost.
    pub unfinished: u64,
    /// Of those that ended.
    pub ns: u64,
    pub mean_ns: u64,
    pub min_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// When the longest began, and its thread.
    pub max_at: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub max_tsc: u64,
    pub max_process: u32,
    pub max_tid: i32,
    /// Threads in which they began.
    pub threads: u64,
    /// What was done in them, also in ranges inside: doorbells, launches of kernels that are in the stream, copies and their bytes.
    pub submissions: u64,
    pub launches: u64,
    pub copies: u64,
    pub copy_bytes: u64,
    /// CUDA's calls, and the time in them; `None` where calls were not recorded.
    pub calls: Option<u64>,
    pub calls_ns: Option<u64>,
    /// Waits for mutexes and rwlocks; `None` where locks were not recorded.
    pub lock_waits: Option<u64>,
    pub lock_wait_ns: Option<u64>,
    /// Of the first one that had it: `#rrggbb`, and a number of the program's.
    pub color: Option<String>,
    pub category: Option<u32>,
}
