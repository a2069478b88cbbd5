//! One operation of a lock.

use serde::Serialize;

/// An operation, or a lock and its unlock, in the form on the tape. Rows are in the order of their ends.
#[derive(Clone, Debug, Serialize)]
pub struct UseRow {
    /// When it ended, seconds and time stamp.
    pub at: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    pub process: u32,
    pub pid: i32,
    pub tid: i32,
    /// The function that was called; for a hold, the one that took the lock.
    pub operation: &'static str,
    pub lock: String,
    pub address: u64,
    /// Kind and protocol of the lock.
    pub kind: Vec<&'static str>,
    /// Where it was called.
    pub site: String,
    /// Its return value, or errno for functions that return -1.
    pub result: i32,
    pub wait_ns: u64,
    /// Duration of a hold; absent if it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_ns: Option<u64>,
    /// For a hold that began at an unknown time (`record --locks=waits`): from the moment when a thread began to wait
    /// for it to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held_at_least_ns: Option<u64>,
    /// How the hold ended: `unlock`, `cond_wait`, `cancelled_wait`, `by_another`, `at_the_end`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<&'static str>,
    /// Where it was released.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub release_site: Option<String>,
    /// Locks that the thread already held when it took this one; 3 for more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth: Option<u8>,
    /// Time stamps between which it waited, and held the lock. JSON has the durations.
    #[serde(skip)]
    pub waited: Option<(u64, u64)>,
    #[serde(skip)]
    pub held: Option<(u64, u64)>,
}
