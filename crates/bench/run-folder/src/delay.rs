//! Where the time of one slow transfer was spent, from the recording of its process.

use serde::{Deserialize, Serialize};

/// The events of a recording from a call to its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// Waits of the measuring thread for locks, the longest first.
    pub waits: Vec<Waited>,
    /// The measuring thread's time off its CPU; null if the recording has no context switches.
    pub off_cpu: Option<OffCpu>,
    /// CUDA's calls of the measuring thread.
    pub calls: Vec<CudaCall>,
    /// Calls of other threads at the same time, the longest first.
    pub beside: Vec<CudaCall>,
    /// Why the recording is incomplete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete_because: Vec<String>,
}

/// The part of a wait for a lock within the transfer's time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// `libcuda+0x3f21c0/mutex`.
    pub lock: String,
    pub ns: u64,
    /// How much of it the lock was free: the thread was woken but did not run, or others were faster.
    pub free_ns: u64,
    /// The CUDA call in which it waited.
    pub inside: Option<String>,
    /// Those that held it the longest, at most three.
    pub holders: Vec<Holder>,
}

/// A thread that held a lock while the measuring thread waited for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub tid: i32,
    /// Its name; empty if it has none.
    pub thread: String,
    /// How much of the wait it held the lock.
    pub of_wait_ns: u64,
    /// The CUDA call in which it took the lock.
    pub inside: Option<String>,
    /// The place of the call that took it: module and offset.
    pub site: String,
    /// How much of this it was off its CPU; null if that is not recorded.
    pub off_cpu_ns: Option<u64>,
}

/// How long a thread did not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffCpu {
    pub ns: u64,
    /// The part in which it was runnable. The rest: it slept, or waited for something.
    pub preempted_ns: u64,
    /// The last thread on its CPU while it was preempted; empty if unknown.
    pub by: String,
}

/// A CUDA call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaCall {
    pub tid: i32,
    pub call: String,
    /// Null: it had not returned when the recording ended.
    pub ns: Option<u64>,
    /// Bytes; blocks of a launch.
    pub size: u64,
}
