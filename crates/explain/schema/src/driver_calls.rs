//! Driver calls, one by one and counted.

use serde::Serialize;
use std::borrow::Cow;

/// A driver call: an ioctl, or a call that makes, moves or ends a mapping or a descriptor.
#[derive(Default, Serialize)]
pub struct DriverCallRow<'a> {
    pub call: &'static str,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    pub seconds: Option<f64>,
    /// Index of the process image, and the process.
    pub process: u32,
    pub pid: i32,
    pub tid: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The descriptor; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fd: Option<i32>,
    /// The request of an ioctl, by name if that is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub what: Option<String>,
    /// Number of an ioctl's request; absent for other calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<u64>,
    /// What an ioctl returned; absent for other calls.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ret: Option<i32>,
    /// The driver's own status; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u32>,
    /// Its name; absent where it is not known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status_name: Option<&'static str>,
    /// Ticks that the call took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ticks: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<Cow<'a, str>>,
}

/// Driver calls of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DriverCallCount {
    /// The kind of call: `RM_ALLOC HOPPER_CHANNEL_GPFIFO_A`, `mmap`, ...
    pub what: String,
    pub calls: u64,
    /// Calls that returned an error, or whose driver status was one.
    pub failed: u64,
    /// Only ioctls are timed. Time in all of them, and of one of them.
    pub ns: Option<u64>,
    pub mean_ns: Option<u64>,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub max_ns: Option<u64>,
    /// CUDA calls that made them, the most frequent first, if calls were recorded.
    pub within: Vec<WithinCount>,
}

/// Driver calls within CUDA calls of one function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WithinCount {
    pub call: String,
    pub driver_calls: u64,
}
