//! The result of a run: the types of `saturate.json` (`docs/reference/saturate.schema.json`) and of its parts.
//!
//! Rates are bytes or I/Os a second, times are nanoseconds if their name says so. Unknown values are null. A run on the software GPU or on an
//! emulated device is `functional`: it shows what works, and contains no rates or times.

use crate::knee::Knee;
use crate::link::{Access, Link, Packets};
use crate::plan::{CellName, Plan};
use crate::source::Checked;
use crate::wire::{OnWire, Way};
use serde::{Deserialize, Serialize};
use statistics::{Histogram, Interval};

pub const SCHEMA: &str = "doorbell.saturate/2";

/// Confidence of intervals over repeats.
pub const CONFIDENCE: f64 = statistics::CONFIDENCE;

/// `saturate.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Saturated {
    pub schema: String,
    /// The version of the doorbell that wrote it, and the commit that it was built from.
    pub doorbell: String,
    pub commit: Option<String>,
    pub command: Vec<String>,
    pub plan: Plan,
    /// UTC, RFC 3339.
    pub started: String,
    pub ended: String,
    /// Every cell was measured in every repeat or, if the knee was searched, every cell that decides it.
    pub complete: bool,
    /// On the software GPU or an emulated device: results show what works; speeds have no meaning.
    pub functional: bool,
    /// As in `run.json`: facts about the machine, and unknown facts.
    pub environment: serde_json::Value,
    pub warnings: Vec<String>,
    /// A short description of the devices.
    pub source: String,
    /// Null if the link is unknown.
    pub link: Option<LinkOfRun>,
    pub cells: Vec<Total>,
    /// One for each target, size, depth, number of queues and kind of submission that has several numbers of threads or devices.
    pub knees: Vec<KneeOfRun>,
}

/// The link, and assumptions about its packets.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LinkOfRun {
    pub link: Link,
    /// Bytes a second each way.
    pub line_rate: f64,
    pub packets: Packets,
    /// Values that the machine did not report, or that the user changed.
    pub assumed: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct KneeOfRun {
    /// With the knee's threads and devices, if there is one.
    pub cell: CellName,
    pub knee: Option<Knee>,
    /// Why there is none.
    pub why: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Done,
    /// Not possible on this machine, and why.
    Unavailable(String),
    Failed(String),
}

/// A cell in one repeat: a file of `parts`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Part {
    pub repeat: u32,
    /// Its place among the plan's cells.
    pub number: u32,
    pub cell: CellName,
    /// UTC, RFC 3339.
    pub started: String,
    pub status: Status,
    /// I/Os within the measured time, all submitted ones, and those that returned an error status.
    pub ios: u64,
    pub submitted: u64,
    pub refused: u64,
    pub checked: Checked,
    /// Null if the run is functional, as in the whole file.
    pub measured: Option<Measured>,
    pub notes: Vec<String>,
}

/// The figures of a cell in one repeat.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Measured {
    pub seconds: f64,
    pub iops: f64,
    pub payload: f64,
    /// Latency of every I/O, from before its submission until its completion was seen, ns: buckets of a thousandth, which can be merged over
    /// repeats.
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub latency: Histogram,
    /// CPU time of the submitting threads, for each I/O. They poll without rest.
    pub cpu_ns_per_io: f64,
    pub cycles_per_io: Option<f64>,
    /// Whether cycles in the kernel are included.
    pub cycles_with_kernel: bool,
    pub wire: OnWire,
}

/// The median over repeats, and its 95 % interval, with three repeats or more.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Over {
    pub median: f64,
    #[cfg_attr(test, schemars(with = "Option<std::collections::BTreeMap<String, f64>>"))]
    pub interval: Option<Interval<f64>>,
    pub repeats: u32,
}

/// A cell over all repeats.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Total {
    pub number: u32,
    pub cell: CellName,
    pub status: Status,
    pub repeats: u32,
    pub ios: u64,
    pub submitted: u64,
    pub refused: u64,
    pub checked: Checked,
    /// Null if the run is functional.
    pub figures: Option<Figures>,
    pub notes: Vec<String>,
}

/// The figures of a cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Figures {
    pub iops: Over,
    pub payload: Over,
    pub latency: Latency,
    pub cpu_ns_per_io: Over,
    pub cycles_per_io: Option<Over>,
    /// For the GPU's link; null if it is not counted.
    pub wire: Option<Wired>,
    /// By counting packets; null if the link is unknown, or the payload does not cross it.
    pub reachable: Option<Reachable>,
}

/// Percentiles of the I/Os of all repeats together that ended within the measured time: at most a 1024th above the exact ones, and null with fewer
/// than ten samples beyond them. Count and maximum are exact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Latency {
    pub count: u64,
    pub p50_ns: Option<u64>,
    pub p99_ns: Option<u64>,
    pub p999_ns: Option<u64>,
    pub max_ns: Option<u64>,
}

/// Link traffic compared with the payload. `along` is the payload's direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Wired {
    /// `counters` or `samples`.
    pub by: String,
    pub along: Over,
    pub against: Over,
    /// From the samples of all repeats: medians of each repeat's percentiles.
    pub along_p50: f64,
    pub along_p95: f64,
    /// Bytes along divided by payload bytes, both within the same moments.
    pub factor: Over,
}

/// Payload bytes a second that the packets allow, with completions of maximum and of minimum length; the second is null if the payload is written.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Reachable {
    pub access: Access,
    pub payload: f64,
    pub with_short_completions: Option<f64>,
    /// TLP bytes along the payload for each byte of it, by the same count.
    pub factor: f64,
    pub factor_with_short_completions: Option<f64>,
}

impl Total {
    pub fn is_peak(&self) -> bool {
        self.cell.role == crate::plan::Role::Peak
    }
}

impl Saturated {
    /// The measured peak of a plain copy towards that target.
    pub fn peak(&self, target: crate::source::Target) -> Option<&Over> {
        let peak = self.cells.iter().find(|total| total.is_peak() && total.cell.target == target)?;
        peak.figures.as_ref().map(|figures| &figures.payload)
    }
}

/// The direction of the payload, and the other one.
pub(crate) fn ways(crossed: &crate::wire::Crossed, flow: crate::source::Flow) -> (Way, Way) {
    match flow.is_to_gpu() {
        true => (crossed.to_gpu, crossed.from_gpu),
        false => (crossed.from_gpu, crossed.to_gpu),
    }
}
