//! One CUDA call, one context switch, one NVTX range.

use crate::python::FrameRow;
use crate::ranges::RangeWork;
use serde::Serialize;

/// A CUDA call.
#[derive(Clone, Debug, Serialize)]
pub struct OneCall {
    /// When it began, seconds and time stamp.
    pub at: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    pub process: u32,
    pub pid: i32,
    pub tid: i32,
    pub call: String,
    /// Counts the thread's outermost calls, from 1. Submissions made in the call have this number. Absent on older
    /// tapes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u32>,
    /// `launch`, `async copy`, ...
    pub kind: &'static str,
    /// Absent if it had not returned when its thread, or the recording, ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns: Option<u64>,
    /// `CUresult` or `cudaError_t`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<i32>,
    /// As the caller passed it: 0 default, 1 legacy, 2 per thread.
    pub stream: u64,
    /// Kernel, graph, event or address. Of a batch: the first copy's destination.
    pub object: u64,
    /// Bytes; blocks of a launch.
    pub size: u64,
    /// More bytes were moved: a batch with more than 4,096 copies, of which only so many are added up, or one of CUDA arrays,
    /// whose elements count as one byte each. Absent if `size` is all.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub size_at_least: bool,
    /// Copies of a batch. Absent for other calls, and if it had not returned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u32>,
    /// Address from which the first of them reads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<u64>,
    /// Where it was called.
    pub site: String,
    /// Tapped calls that it made itself.
    pub inner: u16,
    /// The Python frames that made it, the innermost first. Absent if there were none, or none were recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub python: Vec<FrameRow>,
    /// NVTX ranges around it, as `text` or `domain:text`: those of the thread, the outermost first, then those of the
    /// process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<String>,
}

/// A thread of the program was switched off or onto a CPU.
#[derive(Clone, Debug, Serialize)]
pub struct OneSwitch {
    /// Seconds and time stamp.
    pub at: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    pub process: u32,
    pub pid: i32,
    pub tid: i32,
    pub cpu: u32,
    /// `preempted`: switched off while it could have run on. `blocked`: switched off to wait. `on`: switched onto the
    /// CPU.
    pub what: &'static str,
    /// The thread that had the CPU next, or before: 0 if the CPU was idle; absent if not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other: Option<i32>,
    /// Name of that thread; absent if that is not known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub other_name: String,
}

/// An NVTX range, or a mark.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OneRange {
    /// When it began, seconds and time stamp.
    pub at: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    pub process: u32,
    pub pid: i32,
    pub tid: i32,
    /// Absent for the default domain.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain: Option<String>,
    /// Its text.
    pub text: String,
    /// `push_pop` (of a thread), `start_end` (of the process) or `mark`.
    pub style: &'static str,
    /// Absent if its end is not on the tape, and for marks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns: Option<u64>,
    /// Thread that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_tid: Option<i32>,
    /// Ranges of its thread around it.
    pub level: u64,
    /// The program's number, in decimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<String>,
    /// `#rrggbb`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub color: Option<String>,
    /// Absent where it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub category: Option<u32>,
    /// The GPU's work that any thread of the process submitted in it. Absent without `record --gpu-times`, for marks, if its end is not on the tape, and
    /// if it is too much to keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub all_threads: Option<RangeWork>,
}

impl OneRange {
    /// `text`, or `domain:text`.
    pub fn label(&self) -> String {
        self.domain.as_ref().map_or_else(|| self.text.clone(), |domain| format!("{domain}:{}", self.text))
    }
}
