//! The line that `top` prints for a program each second.

use serde::Serialize;

/// A second of a program that is being recorded, counted by its recorder.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Top {
    pub pid: i32,
    /// Empty with `record --no-args`.
    pub program: String,
    /// `recording`, `paused`, `dormant` or `stopped`.
    pub state: &'static str,
    /// Since the recording began.
    pub seconds: f64,
    /// Doorbells.
    pub submissions_per_second: f64,
    /// Launches in the commands; for a graph only those that start it.
    pub kernels_per_second: f64,
    /// Copies and fills by copy engines.
    pub copies_per_second: f64,
    /// Bytes of copies.
    pub bytes_per_second: f64,
    /// Absent if calls are not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calls_per_second: Option<f64>,
    /// The longest call that returned in the last second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_call: Option<TopWorst>,
    /// Waits for mutexes and rwlocks. Absent if locks are not recorded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lock_waits_per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst_lock_wait: Option<TopWorst>,
    /// The CUDA call that has not returned, or the wait for a mutex or a rwlock, that has lasted the longest. Absent if none has lasted a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_wait: Option<TopWorst>,
    /// Events that did not fit into the rings, since the recording began.
    pub lost_events: u64,
    /// CPU time of the recorder in this second, in percent of one CPU.
    pub recorder_cpu_percent: f64,
    /// The most memory of it that was resident so far.
    pub recorder_peak_memory_bytes: u64,
    /// Processes that are recorded.
    pub processes: usize,
}

/// A call or a wait for a lock.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TopWorst {
    /// The CUDA call, or a lock's kind and address.
    pub name: String,
    pub pid: i32,
    pub tid: i32,
    /// The thread's name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// Milliseconds.
    pub ms: f64,
}
