//! Where the time of one slow transfer went, as the recording of its process says it.

use serde::{Deserialize, Serialize};

/// What a recording says of the time from a call until its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// Waits of the measuring thread for locks, the longest first.
    pub waits: Vec<Waited>,
    /// The measuring thread's time off its CPU; null where the recording has no context switches.
    pub off_cpu: Option<OffCpu>,
    /// CUDA's calls of the measuring thread.
    pub calls: Vec<CudaCall>,
    /// Of other threads at the same time, the longest first.
    pub beside: Vec<CudaCall>,
    /// What keeps the recording from being complete.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete_because: Vec<String>,
}

/// A wait for a lock, as far as it lies in the transfer's time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waited {
    /// `libcuda+0x3f21c0/mutex`.
    pub lock: String,
    pub ns: u64,
    /// How much of it nobody held the lock: the thread was woken and not run, or others were faster.
    pub free_ns: u64,
    /// The call of CUDA's in which it waited.
    pub inside: Option<String>,
    /// Those that held it the longest, at most three.
    pub holders: Vec<Holder>,
}

/// A thread that held a lock while the measuring thread waited for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub tid: i32,
    /// Its name; empty where it has none.
    pub thread: String,
    /// How much of the wait it held the lock.
    pub of_wait_ns: u64,
    /// The call of CUDA's in which it took it.
    pub inside: Option<String>,
    /// Where it took it: module and offset.
    pub site: String,
    /// How much of this it was off its CPU; null where that is not recorded.
    pub off_cpu_ns: Option<u64>,
}

/// How long a thread did not run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OffCpu {
    pub ns: u64,
    /// Of this: it could have run on. The rest: it slept, or waited for something.
    pub preempted_ns: u64,
    /// Who had its CPU while it was preempted, the last one; empty where that is not known.
    pub by: String,
}

/// A call of CUDA's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CudaCall {
    pub tid: i32,
    pub call: String,
    /// Null: it had not returned when the recording ended.
    pub ns: Option<u64>,
    /// Bytes; blocks of a launch.
    pub size: u64,
}
