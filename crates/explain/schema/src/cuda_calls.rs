//! CUDA calls and the locks that they take.

use crate::histogram::Step;
use crate::holds::HoldsOthers;
use crate::python::MainLine;
use crate::symbols::Symbols;
use serde::Serialize;
use std::collections::BTreeMap;

/// The CUDA calls on a tape.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Calls {
    /// The recording has only waits for locks (`record --locks=waits`). The locks that calls take and hold are not counted: those
    /// numbers are 0, and there are no patterns.
    pub waits_only: bool,
    /// By kind: launches, copies and so on.
    pub totals: BTreeMap<&'static str, Total>,
    /// By function, direction and size, the longest total time first.
    pub calls: Vec<CallRow>,
    /// Locks that more than one function takes, the longest waits first.
    pub shared: Vec<SharedRow>,
    /// Calls that had not returned when their thread, or the recording, ended.
    pub unfinished: u64,
    /// How often `cuGetExportTable` gave the program, or a library in it, a table of functions without names. Calls through such
    /// tables are not recorded. Absent if it never did, and on older tapes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub export_tables: Option<u64>,
    /// Calls that are counted only, because they are short: of the driver's rarer functions without a stream, those that succeeded within about 10 us
    /// (`cuCtxGetCurrent`, `cuPointerGetAttribute`). They have numbers among their thread's calls, and no rows. Absent if there were none, and on older tapes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub short: Option<u64>,
    /// Calls that took more locks than were remembered: their counts lack some.
    pub cut: u64,
    /// Names from the source for the locks, if this is a separate document.
    pub symbols: Symbols,
}

/// Sums over calls. Locks are counted by takings: a lock and its unlock are one.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Total {
    pub calls: u64,
    /// Calls that returned an error (`not ready` is none).
    pub failed: u64,
    pub ns: u64,
    pub mean_ns: u64,
    pub bytes: u64,
    /// More bytes were moved: of batches with more than 4,096 copies only so many are added up, and elements of CUDA arrays
    /// count as one byte each. Absent if `bytes` is all.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub bytes_at_least: bool,
    /// Copies in their batches (`cuMemcpyBatchAsync`). Absent without batches.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub copies: Option<u64>,
    /// Doorbells that were rung in them.
    pub submissions: u64,
    pub mutex_locks: u64,
    /// rwlocks taken for reading.
    pub read_locks: u64,
    /// rwlocks taken for writing.
    pub write_locks: u64,
    /// Operations that took no mutex or rwlock: failed tries, conditions, semaphores, making and destroying.
    pub other_operations: u64,
    /// Takings that had to wait, and how long.
    pub contended: u64,
    pub wait_ns: u64,
    /// Time off CPU except waits for a mutex or rwlock; absent without context switches.
    pub off_cpu_ns: Option<u64>,
    /// Time in which at least one lock was held.
    pub held_ns: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct CallRow {
    pub call: String,
    /// `launch`, `async copy`, ...
    pub kind: &'static str,
    /// The direction of a copy, if the caller passed it.
    pub direction: Option<&'static str>,
    /// The size of copies and memsets: `to 4 KiB`, ...
    pub size: Option<&'static str>,
    #[serde(flatten)]
    pub total: Total,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// How many calls took how long.
    pub histogram: Vec<Step>,
    /// When the longest began, and its thread.
    pub max_at: f64,
    /// The same, time stamp.
    #[serde(serialize_with = "crate::wide::decimal")]
    pub max_tsc: u64,
    /// Index of that thread's process image.
    pub max_process: u32,
    /// Thread of the longest.
    pub max_tid: i32,
    /// The line of Python that makes it most often; absent if none was recorded.
    pub python: Option<MainLine>,
    /// For how long the function was measured to hold other threads up; null if it was not, or for less than 0.2 ms.
    pub holds_others: Option<HoldsOthers>,
    /// The most frequent patterns first.
    pub patterns: Vec<PatternRow>,
    /// Calls that follow other patterns.
    pub other_patterns: u64,
}

/// The locks of a call in the order of their taking.
#[derive(Clone, Debug, Serialize)]
pub struct PatternRow {
    /// Calls that follow it.
    pub calls: u64,
    pub mean_ns: u64,
    pub locks: Vec<ElementRow>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ElementRow {
    pub lock: String,
    /// `mutex`, `read` or `write`.
    pub mode: &'static str,
    /// Locks of the same call that are held then: 0 is sequential, more is nested.
    pub depth: u8,
    /// It was tried or timed, and not acquired.
    pub failed: bool,
    /// Taken again on return from a wait for a condition.
    pub again: bool,
    /// Average number of times in a call; times below are of one taking.
    pub times: f64,
    /// From the call's begin to the first taking.
    pub at_ns: u64,
    pub wait_ns: u64,
    /// Time held.
    pub hold_ns: u64,
}

#[derive(Clone, Debug, Serialize)]
pub struct SharedRow {
    pub lock: String,
    pub wait_ns: u64,
    pub by: Vec<ShareRow>,
}

/// What one function does with a lock that others take, too.
#[derive(Clone, Debug, Serialize)]
pub struct ShareRow {
    pub call: String,
    pub mutex_locks: u64,
    /// rwlocks taken for reading.
    pub read_locks: u64,
    /// rwlocks taken for writing.
    pub write_locks: u64,
    pub wait_ns: u64,
}
