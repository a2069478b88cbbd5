//! An experiment, read and checked. All times are nanoseconds, all sizes bytes.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// One file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Experiment {
    /// As files and folders are named: letters, digits, `-` and `_`.
    pub name: String,
    /// Which of its file's variants it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// A one-line description.
    pub about: String,
    pub run: Run,
    pub subjects: Vec<SubjectSpec>,
    pub loads: Vec<LoadSpec>,
    /// Every combination of their values is a stage.
    pub matrix: Vec<Axis>,
    pub verify: Verify,
    pub compare: Option<Compare>,
    /// One-time costs, and after how many transfers they are repaid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repays: Vec<Repay>,
    /// The largest value of an axis up to which a bound holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub largests: Vec<Largest>,
    pub asserts: Vec<Assert>,
}

impl Experiment {
    /// Its displayed name: `device`, or `device, variant sweep`.
    pub fn title(&self) -> String {
        match &self.variant {
            Some(variant) => format!("{}, variant {variant}", self.name),
            None => self.name.clone(),
        }
    }

    /// Its name for folders: `device`, or `device-sweep`.
    pub fn file_name(&self) -> String {
        match &self.variant {
            Some(variant) => format!("{}-{variant}", self.name),
            None => self.name.clone(),
        }
    }

    /// The baseline of a subject: a subject's name, or a policy; the subject's own name if it is the baseline itself.
    pub fn baseline_of(&self, subject: &str) -> Option<&str> {
        let compare = self.compare.as_ref()?;
        let own = self.subjects.iter().find(|s| s.name == subject).and_then(|s| s.baseline.as_deref());
        Some(own.unwrap_or(&compare.baseline))
    }
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Settings that apply to everything.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Seed of random data and of every random order.
    pub seed: u64,
    /// How often the cells of a stage take turns, each time in a new random order.
    pub rounds: u32,
    /// How often everything is repeated, each time by new processes. All other numbers are those of one repeat.
    pub repeats: u32,
    /// Samples of each cell of a stage, over the rounds of one repeat. At least one of `samples` and `duration_ns` is given; whichever is reached
    /// first ends the stage.
    pub samples: Option<u64>,
    /// Time of a stage in one repeat.
    pub duration_ns: Option<u64>,
    /// A transfer that takes longer is lost, and ends its cell.
    pub timeout_ns: u64,
    /// Duration of the measurement of the machine's own noise before a stage and after it.
    pub noise_ns: u64,
    /// In each n-th round the kernel's counters are read around each call, and its samples have no other use (0: never).
    pub counters_every: u32,
    /// After all rounds each cell continues for this time, between two readings of the counters of the GPU and the machine (0: not at all).
    #[serde(default)]
    pub meter_ns: u64,
    /// If a call lasts this long while a load runs, the loads rest until it returns. The default is the stage's time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_ns: Option<u64>,
    /// Class of the measuring thread, unless a subject has its own.
    pub class: Class,
    pub cpus: Cpus,
    /// `stock`, `agent`, `traced`, or values of `run --lock-policy`, joined by `+`.
    pub policy: String,
    pub gpu: Gpu,
    /// The device that routes call `device`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub device: Device,
    /// What is evaluated from a recording of the measuring process.
    #[serde(default, skip_serializing_if = "is_default")]
    pub record: Record,
}

/// The device that routes call `device`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Device {
    /// A copy engine in its place.
    #[default]
    Engine,
    /// QEMU's edu, which this program starts.
    Edu,
    /// An FPGA with Xilinx's XDMA, by its address on the bus.
    Xdma(String),
}

impl Device {
    /// The forms that [`Device::from_str`] accepts.
    pub const FORMS: &str = "`engine`, `edu`, or an FPGA by its address on the bus as `xdma@0000:04:00.0`";
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Device, String> {
        match (text, text.split_once('@')) {
            ("engine", _) => Ok(Device::Engine),
            ("edu", _) => Ok(Device::Edu),
            (_, Some(("xdma", address))) if !address.is_empty() => Ok(Device::Xdma(address.into())),
            _ => Err(format!("{text:?} is no device")),
        }
    }
}

impl TryFrom<String> for Device {
    type Error = String;

    fn try_from(text: String) -> Result<Device, String> {
        text.parse()
    }
}

impl From<Device> for String {
    fn from(device: Device) -> String {
        device.to_string()
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Engine => f.write_str("engine"),
            Device::Edu => f.write_str("edu"),
            Device::Xdma(address) => write!(f, "xdma@{address}"),
        }
    }
}

/// Whether the process of a stage is recorded, and what is evaluated from its recording.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    #[default]
    No,
    /// The commands that each call of a cell's subject sends to the GPU. The times are those of a recorded process.
    Commands,
}

impl Record {
    pub fn is_no(&self) -> bool {
        *self == Record::No
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gpu {
    #[default]
    Real,
    /// Results show what works; times have no meaning.
    Soft,
    /// No GPU is opened: subjects that need one are unavailable.
    None,
}

/// A route or a call, by its text.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// `host->ce2->gpu0`
    Route(String),
    /// `launch`, `graph(20)`, `malloc`
    Call(String),
}

/// A subject of measurement.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubjectSpec {
    /// Unique in the experiment; by default the text of the route or call.
    pub name: String,
    pub what: What,
    /// One cell each. Empty: sizes of the matrix, else the call's default.
    pub sizes: Vec<u64>,
    /// This many copies back to back count as one sample, timed by the GPU's clock (1: each copy separately).
    pub back_to_back: u32,
    pub addresses: Addresses,
    pub data: Data,
    pub arrival: Arrival,
    pub observe: Observe,
    pub class: Option<Class>,
    pub cpus: Option<Cpus>,
    /// A sample that takes longer, from its intended release to its end, has missed its deadline.
    pub deadline_ns: Option<u64>,
    /// Whether doorbell's armed or spinning work is released after each turn.
    pub rests: bool,
    /// The name of its baseline, in place of that of `[compare]`; its own name: no baseline.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// It has cells only in stages in which one of these loads runs; [`ALONE`] means stages without a load. Empty: in all stages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
}

/// Means no load at all.
pub const ALONE: &str = "none";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    #[default]
    Fixed,
    /// Another place within the buffers for each transfer.
    Random,
    /// In each round the next multiple of `step` bytes below `range`, in memory other than the host's.
    Sweep { step: u64, range: u64 },
}

/// Maximum number of places of a sweep, so that it needs no endless number of rounds.
pub const MOST_PLACES: u64 = 4096;

impl Addresses {
    /// Number of places of a sweep; 1 if it is no sweep.
    pub fn places(self) -> u64 {
        match self {
            Addresses::Sweep { step, range } => (range / step.max(1)).max(1),
            _ => 1,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    /// Bytes at the start, in the middle and at the end change before each transfer.
    #[default]
    Fresh,
    Fixed,
}

/// Maximum number of simultaneous transfers of one subject.
pub const MOST_DEPTH: u32 = 32;

/// When the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// `depth` transfers in flight at a time; the next starts when one has ended.
    Closed { depth: u32 },
    /// One each period, whatever the state of earlier ones: a late one makes later ones wait, and that counts.
    Paced { period_ns: u64 },
}

impl Default for Arrival {
    fn default() -> Arrival {
        Arrival::Closed { depth: 1 }
    }
}

/// The part of a sample that is used in tables, ratios and comparisons. All parts are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observe {
    /// From the call until it returned.
    Submit,
    /// Until the CPU saw the end; with paced arrivals from the intended release.
    #[default]
    Done,
    /// From the engine's start to its end, by the GPU's clock.
    Engine,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    #[default]
    Other,
    Nice(i32),
    Fifo(u32),
    /// SCHED_DEADLINE with most of a CPU.
    Deadline,
    /// The first that the kernel grants of FIFO 80, DEADLINE, nice -20.
    RealTime,
}

/// The CPUs of threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cpus {
    /// Any CPU, chosen by the kernel.
    #[default]
    Any,
    /// The last CPU of this process, without other threads of this process.
    Last,
    /// All CPUs except those of the measuring thread.
    Others,
    These(Vec<usize>),
}

/// A load that runs during the measurement, without a pause or at a rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSpec {
    /// Unique in the experiment.
    pub name: String,
    pub what: What,
    pub bytes: u64,
    /// Threads (0: none).
    pub count: u32,
    /// Transfers of each thread a second; no pause if there is none.
    pub rate: Option<f64>,
    pub cpus: Cpus,
    pub class: Class,
    /// Compares the bytes of each n-th transfer (0: only those of the last).
    pub check_every: u64,
    /// The minimum that it must reach, or the stage has no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub must_reach: Option<MustReach>,
    #[serde(default, skip_serializing_if = "is_default")]
    pub process: Process,
}

/// The process of a load's threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Process {
    /// In the measuring process.
    #[default]
    Shared,
    /// Each in a separate process, with a separate CUDA context.
    Own,
}

/// The minimum that all threads of a load together must reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MustReach {
    /// Transfers or calls a second.
    Times(f64),
    Bytes(f64),
    /// A part of its own `rate`; for a load without one, of its rate alone.
    Percent(f64),
}

/// One name and its values, as text: `bytes`, `policy`, `LOAD.count`, `LOAD.bytes`, `SUBJECT.period`, `run.class`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    pub name: String,
    pub values: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verify {
    /// In addition to the first and the last of a turn, each n-th transfer is compared whole (1: all, 0: none).
    pub every: u64,
}

/// The comparison within one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compare {
    /// The name of a subject, or of a policy where policies are compared. Subjects may have their own.
    pub baseline: String,
    pub metric: Metric,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    Min,
    Mean,
    #[default]
    P50,
    P99,
    #[serde(rename = "p99.9")]
    P999,
    #[serde(rename = "p99.99")]
    P9999,
    Max,
    /// Missed deadlines, as a part of all.
    Misses,
    /// Bytes a second.
    Rate,
}

/// A one-time cost that makes each transfer faster: after how many transfers is it repaid? All three are sums of subjects' medians, at the same
/// size in the same stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repay {
    /// The one-time cost.
    pub once: Vec<String>,
    /// The cost of each transfer with it.
    pub each: Vec<String>,
    /// The cost of each transfer without it.
    pub against: Vec<String>,
}

/// The largest value of an axis up to which a bound holds: at that value and at each one before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Largest {
    /// An axis of the matrix; `bytes` is also the size if subjects have several.
    pub axis: String,
    pub subject: String,
    pub metric: Metric,
    /// [`Bound::AtMost`], [`Bound::AtLeast`] or [`Bound::AtMostTimes`].
    pub bound: Bound,
}

/// A bound that sets the exit status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assert {
    /// A subject's name; `*` for every subject.
    pub subject: String,
    pub metric: Metric,
    pub bound: Bound,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Nanoseconds; for `misses` a part of all, for `rate` bytes a second.
    AtMost(f64),
    AtLeast(f64),
    /// A multiple of the same metric of another subject.
    AtMostTimes(f64, String),
    /// This many nanoseconds above the longest gap of the machine's own noise.
    AboveNoise(f64),
    /// As good as the best other subject that moves bytes between the same two memories.
    WithinBest(WithinBest),
}

/// The maximum above the best one: whichever of the two allows more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WithinBest {
    pub percent: f64,
    pub ns: f64,
    /// The names of the subjects to compare with (empty: all of them).
    pub among: Vec<String>,
}

/// One combination of the matrix's values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    pub number: u32,
    /// Names and values of the axes, as written in the file.
    pub point: Vec<(String, String)>,
    pub run: Run,
    pub verify: Verify,
    /// The cells that take turns.
    pub cells: Vec<Cell>,
    /// Its loads; only those with threads.
    pub loads: Vec<LoadSpec>,
}

/// One subject at one size in one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub subject: SubjectSpec,
    /// 0 for calls that move no bytes.
    pub bytes: u64,
}
