//! The account of a soak: the types of `soak.json` (`docs/reference/soak.schema.json`) and of its periods.
//!
//! Times are nanoseconds if their name says so, else seconds. Unknown values are null. A soak on the software GPU is `functional`: it shows what
//! works, and its times and rates are those of an emulation.

use crate::Sample;
use crate::commands::Counter;
use crate::delay::Delay;
use experiment::Experiment;
use serde::{Deserialize, Serialize};
use statistics::{Bucket, Interval};

pub const SCHEMA: &str = "doorbell.soak/1";

/// `soak.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Soak {
    pub schema: String,
    /// The version of the doorbell that wrote it, and the commit that it was built from.
    pub doorbell: String,
    pub commit: Option<String>,
    /// The command line.
    pub command: Vec<String>,
    /// The experiment, with all defaults filled in.
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub experiment: Experiment,
    /// UTC, RFC 3339.
    pub started: String,
    pub ended: String,
    /// How long it should measure, and how long it has measured: the seconds of its periods.
    pub asked_s: f64,
    pub done_s: f64,
    /// How long a period is to be.
    pub every_s: f64,
    /// It has measured for as long as it was asked to.
    pub complete: bool,
    /// Why it ended before that.
    pub stopped_because: Option<String>,
    /// On the software GPU: what works is a result, its times are not.
    pub functional: bool,
    /// Its clock does not run as time does: nothing in it is a measurement.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub simulated_clock: bool,
    /// As in `run.json`: facts about the machine, and warnings about what is unknown.
    pub environment: serde_json::Value,
    pub warnings: Vec<String>,
    /// In order: usually there is one.
    pub processes: Vec<Process>,
    pub periods: Vec<Period>,
    /// Times between the start and the end in which nothing was measured.
    pub gaps: Vec<Gap>,
    /// Over all periods, one line per cell.
    pub cells: Vec<CellOfSoak>,
    /// The periods in three parts of equal length.
    pub thirds: Vec<Third>,
    /// Over all periods together.
    pub power: Option<Power>,
    pub drift: Vec<Drift>,
    pub leaks: Vec<Leak>,
    pub faults: Vec<Fault>,
    /// The sample that was above the bound of `--stop-above`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<Above>,
    pub verdict: Verdict,
}

/// The sample above the bound, and what the recording of its process shows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Above {
    pub period: u32,
    pub cell: CellName,
    /// Its times since its lap began, ns.
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub sample: Sample,
    /// What the host took from the measuring CPU in its lap.
    pub steal_ms: Option<f64>,
    /// The measuring thread, and the time stamp counter at two moments; null without a recording.
    #[cfg_attr(test, schemars(with = "Option<serde_json::Value>"))]
    pub counter: Option<Counter>,
    /// The recording, in the soak's folder.
    pub recording: Option<String>,
    /// What delayed the sample, by the recording.
    #[cfg_attr(test, schemars(with = "Option<serde_json::Value>"))]
    pub delay: Option<Delay>,
    /// Why the recording does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_joined: Option<String>,
}

/// A process that measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Process {
    pub pid: u32,
    /// The first period that it measured, or was to measure.
    pub from_period: u32,
    /// UTC, RFC 3339.
    pub started: String,
    /// Why it ended; null if it was killed together with the leading process.
    pub ended_because: Option<String>,
}

/// A time in which nothing was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Gap {
    /// UTC, RFC 3339.
    pub from: String,
    pub to: String,
    pub seconds: f64,
    pub why: String,
}

/// The name of a cell: one subject at one size in one stage.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CellName {
    pub stage: u32,
    pub subject: String,
    /// 0 for calls that move nothing.
    pub bytes: u64,
}

/// A period: its measurements, and what was watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Period {
    /// From 0.
    pub index: u32,
    /// UTC, RFC 3339.
    pub started: String,
    pub ended: String,
    /// Measured time. The last period before a stop is shorter than the others.
    pub seconds: f64,
    /// Which of `processes` measured it.
    pub process: u32,
    /// How often the experiment's stages were measured in it.
    pub laps: u64,
    pub cells: Vec<CellOfSoak>,
    pub loads: Vec<LoadOfPeriod>,
    pub machine: Machine,
    /// What the measuring process holds at the end of the period.
    pub held: Held,
    /// The longest gap of the machine's own noise.
    pub noise_ns: Option<u64>,
    /// What was noted, each text once.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Faults seen while it was measured, the first of each kind and cell.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

/// A cell in a period, or over all periods. Figures are null without samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct CellOfSoak {
    #[serde(flatten)]
    pub cell: CellName,
    /// `read` is to the host or, for a device, from it; `write` is the opposite; null if nothing moves or there is no direction.
    pub direction: Option<Direction>,
    /// Why it is not measured on this machine.
    pub unavailable: Option<String>,
    /// The first reason for which it failed in this period.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Samples. All following figures are those that the subject observes.
    pub count: u64,
    /// Transfers whose bytes were compared, and those with a wrong byte.
    pub checked: u64,
    pub wrong: u64,
    /// Transfers that did not end within the time limit.
    pub lost: u64,
    /// Deadlines missed; null without a deadline.
    pub misses: Option<u64>,
    pub mean_ns: Option<f64>,
    pub min_ns: Option<u64>,
    pub max_ns: Option<u64>,
    pub p50_ns: Option<u64>,
    /// Null with fewer than ten samples beyond it.
    pub p99_ns: Option<u64>,
    pub p999_ns: Option<u64>,
    pub stddev_ns: Option<f64>,
    /// `max_ns` - `min_ns`.
    pub jitter_ns: Option<u64>,
    /// `stddev_ns` / `mean_ns`.
    pub relative_fluctuation: Option<f64>,
    /// The rate at the mean time without a pause; null if no bytes move.
    pub bytes_per_second: Option<f64>,
    /// In buckets at most a 64th of their value wide; of a period only in its own file.
    #[cfg_attr(test, schemars(with = "Vec<serde_json::Value>"))]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub histogram: Vec<Bucket>,
    /// The slowest samples, the slowest first; of a period only in its own file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub worst: Vec<Slow>,
    /// Only over all periods.
    #[serde(flatten)]
    pub over: Option<OverPeriods>,
}

/// What the periods of a cell show together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct OverPeriods {
    /// Periods in which it has samples.
    pub periods: u32,
    /// Over the means of the periods: the minimum, the maximum, and half their distance over the mean.
    pub least_mean_ns: Option<f64>,
    pub largest_mean_ns: Option<f64>,
    pub fluctuation_of_means: Option<f64>,
    pub speed_up: Option<SpeedUp>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    Read,
    Write,
}

/// One of the slowest samples, and where its time went. Unknown values are null.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Slow {
    pub period: u32,
    /// UTC, RFC 3339, to the microsecond.
    pub at: String,
    /// What the subject observes.
    pub value_ns: u64,
    /// From the intended release until the CPU saw the end.
    pub total_ns: u64,
    /// Behind those before it: of paced arrivals.
    pub waited_ns: u64,
    pub submit_ns: u64,
    /// From the doorbell until the engine's release; negative if the release came before the call returned.
    pub engine_ns: Option<i64>,
    /// From the release until the CPU saw it.
    pub seen_ns: Option<i64>,
    /// The longest time between two polls of the CPU.
    pub longest_gap_ns: Option<u64>,
    pub run_queue_ns: Option<u64>,
    pub asleep_ns: Option<u64>,
    /// The loads rested until it ended: with loads it would have taken longer.
    pub capped: bool,
}

/// A load in a period.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct LoadOfPeriod {
    pub stage: u32,
    pub name: String,
    pub threads: u32,
    pub transfers: u64,
    /// Transfers a second, of all threads together.
    pub reached: f64,
    /// The rate that it should reach: its own, or its stated minimum, or half of what it reached in the first period. Null in the first period of a
    /// load without a rate.
    pub wanted: Option<f64>,
    /// It reached that rate, and all its threads work.
    pub held: bool,
    /// Why threads ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failed: Vec<String>,
    pub unavailable: Option<String>,
}

/// The minimum, mean and maximum of the readings in a period.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Spread {
    pub mean: f64,
    pub min: f64,
    pub max: f64,
}

/// The GPU and the machine in a period.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Machine {
    pub power_w: Option<Spread>,
    pub temperature_c: Option<Spread>,
    pub sm_clock_mhz: Option<Spread>,
    pub energy_j: Option<f64>,
    /// Why clocks were lower than possible.
    pub throttle: Vec<String>,
    /// Time that the host of this virtual machine took from the measuring CPU.
    pub steal_ms: Option<f64>,
    pub pcie_replays: Option<f64>,
    pub ecc_corrected: Option<f64>,
    pub ecc_uncorrected: Option<f64>,
}

/// What the measuring process holds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Held {
    /// Resident memory.
    pub rss_bytes: Option<u64>,
    /// Mappings of its address space.
    pub mappings: Option<u64>,
    pub descriptors: Option<u64>,
    pub threads: Option<u64>,
    /// Open files of the GPU's driver: sessions, events, devices.
    pub handles: Option<u64>,
    /// GPU memory in use, by this process if the driver tells processes apart.
    pub gpu_used_bytes: Option<u64>,
}

/// The speed-up of a cell over its baseline: the baseline's mean divided by the cell's, paired by periods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct SpeedUp {
    /// The subject.
    pub over: String,
    pub times: f64,
    /// 95 %, over periods; null with fewer than three.
    #[cfg_attr(test, schemars(with = "Option<serde_json::Value>"))]
    pub interval: Option<Interval<f64>>,
}

/// A third of the periods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Third {
    /// Seconds of measuring, from the start.
    pub from_s: f64,
    pub to_s: f64,
    pub periods: u32,
    /// The means, in the order of `cells`.
    pub mean_ns: Vec<Option<f64>>,
    pub power_w: Option<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Power {
    pub mean_w: f64,
    pub min_w: f64,
    pub max_w: f64,
    /// (`max_w` - `min_w`) / 2 / `mean_w`.
    pub fluctuation: f64,
    pub energy_j: Option<f64>,
}

/// A cell's metric in the first third of the periods, compared with the last third.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Drift {
    pub cell: CellName,
    /// `mean`, `p50` or `p99`.
    pub metric: String,
    /// Means over periods, ns.
    pub first_third: f64,
    pub last_third: f64,
    /// `last_third` / `first_third`.
    pub ratio: f64,
    /// 95 % for all lines together, over periods.
    #[cfg_attr(test, schemars(with = "Option<serde_json::Value>"))]
    pub interval: Option<Interval<f64>>,
    pub drifted: bool,
    /// Why it is not judged.
    pub not_judged: Option<String>,
}

/// A resource that the measuring process holds, over the periods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Leak {
    /// A key of [`Held`].
    pub what: String,
    pub slope_per_hour: Option<f64>,
    /// 95 % for all lines together, over periods.
    #[cfg_attr(test, schemars(with = "Option<serde_json::Value>"))]
    pub interval: Option<Interval<f64>>,
    /// At the end of the first and of the last period that count.
    pub from: Option<u64>,
    pub to: Option<u64>,
    /// The growth over the whole soak that would matter.
    pub matters: f64,
    pub leaking: bool,
    pub not_judged: Option<String>,
}

impl Leak {
    /// It is no leak for certain, and growth that matters over this many seconds is not ruled out.
    pub fn is_open(&self, seconds: f64) -> bool {
        !self.leaking && self.interval.is_some_and(|i| i.high * seconds / 3600.0 >= self.matters)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// A transfer left a wrong byte.
    Corrupted,
    /// A transfer did not end within the time limit.
    Lost,
    /// A subject failed in another way.
    Failed,
    Leak,
    Drift,
    /// The measuring process stalled.
    Stall,
    /// The measuring process ended by itself.
    Died,
    DeadLoad,
    /// A sample was above the bound of `--stop-above`.
    Above,
}

/// Something that must not happen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Fault {
    pub kind: FaultKind,
    /// UTC, RFC 3339; null if it is seen only over all periods.
    pub at: Option<String>,
    pub period: Option<u32>,
    pub cell: Option<CellName>,
    /// In one line.
    pub what: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Verdict {
    /// No fault in the measured time.
    pub held: bool,
    /// The requested and the measured time, for a headline: `9 min of 12 h`.
    pub headline: String,
    /// For how long it ran without a fault, or what the fault was.
    pub text: String,
}
