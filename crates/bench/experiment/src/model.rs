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
    /// One line for people.
    pub about: String,
    pub run: Run,
    pub subjects: Vec<SubjectSpec>,
    pub loads: Vec<LoadSpec>,
    /// Every combination of their values is a stage.
    pub matrix: Vec<Axis>,
    pub verify: Verify,
    pub compare: Option<Compare>,
    /// What is paid once, and after how many transfers it has paid.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repays: Vec<Repay>,
    /// Up to which value of an axis a bound holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub largests: Vec<Largest>,
    pub asserts: Vec<Assert>,
}

impl Experiment {
    /// Its name for people: `device`, or `device, variant sweep`.
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

    /// What a subject is compared with: a subject's name, or a policy; its own name where it is the baseline itself.
    pub fn baseline_of(&self, subject: &str) -> Option<&str> {
        let compare = self.compare.as_ref()?;
        let own = self.subjects.iter().find(|s| s.name == subject).and_then(|s| s.baseline.as_deref());
        Some(own.unwrap_or(&compare.baseline))
    }
}

/// How everything is run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Of random data and of every random order.
    pub seed: u64,
    /// How often the cells of a stage take turns, in an order drawn anew each time.
    pub rounds: u32,
    /// How often the whole is done, each time by new processes. Rounds of all repeats count together.
    pub repeats: u32,
    /// Samples of each cell of a stage, over the rounds of one repeat. Of `samples` and `duration_ns` one at least is given;
    /// whichever is reached first ends the stage.
    pub samples: Option<u64>,
    /// Of a stage in one repeat.
    pub duration_ns: Option<u64>,
    /// A transfer that takes longer is lost, and ends its cell.
    pub timeout_ns: u64,
    /// The machine's own noise is looked at for so long before a stage and after it.
    pub noise_ns: u64,
    /// In each n-th round the kernel's counters are read round each call, and its samples count for nothing else; 0: never.
    pub counters_every: u32,
    /// When all rounds are over each cell goes on for so long, between two looks at what the GPU and the machine count; 0: it
    /// does not.
    #[serde(default)]
    pub meter_ns: u64,
    /// A call that is under way for so long beside a load: the loads rest until it is over. The stage's time unless it is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patience_ns: Option<u64>,
    /// Of the measuring thread, where a subject says nothing else.
    pub class: Class,
    pub cpus: Cpus,
    /// `stock`, `agent`, `traced`, or what `run --lock-policy` takes, with `+` between several.
    pub policy: String,
    pub gpu: Gpu,
    /// What routes call `device`.
    #[serde(default, skip_serializing_if = "Device::is_engine")]
    pub device: Device,
    /// What is read from a recording of the process that measures.
    #[serde(default, skip_serializing_if = "Record::is_no")]
    pub record: Record,
}

/// What routes call `device`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Device {
    /// A copy engine in the place of one.
    #[default]
    Engine,
    /// QEMU's edu, which this program starts.
    Edu,
    /// An FPGA with Xilinx's XDMA, by its address on the bus.
    Xdma(String),
}

impl Device {
    /// The words of [`Device::from_str`].
    pub const FORMS: &str = "`engine`, `edu`, or an FPGA by its address on the bus as `xdma@0000:04:00.0`";

    pub fn is_engine(&self) -> bool {
        *self == Device::Engine
    }
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

/// Whether the process of a stage is recorded, and what is read from its tape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Record {
    #[default]
    No,
    /// What each call of a cell's subject sends to the GPU. The times are those of a recorded process.
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
    /// What works is a result; how long it took is none.
    Soft,
    /// None is opened: what needs one is not available.
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

/// What is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SubjectSpec {
    /// Unique in the experiment; the text of the route or call unless the file says otherwise.
    pub name: String,
    pub what: What,
    /// One cell each. Empty: what the matrix says, else what the call needs by itself.
    pub sizes: Vec<u64>,
    /// So many copies back to back count as one sample, timed by the GPU's clock; 1: each copy by itself.
    pub back_to_back: u32,
    pub addresses: Addresses,
    pub data: Data,
    pub arrival: Arrival,
    pub observe: Observe,
    pub class: Option<Class>,
    pub cpus: Option<Cpus>,
    /// A sample that takes longer, from its intended release to its end, has missed it.
    pub deadline_ns: Option<u64>,
    /// What of ours is armed or spins is let go of behind each turn.
    pub rests: bool,
    /// The name of the subject that it is compared with, in the place of that of `[compare]`; its own: with none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// It has cells only in stages in which one of these loads runs; [`ALONE`]: in those without a load. Empty: in all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub beside: Vec<String>,
}

/// Stands for no load at all.
pub const ALONE: &str = "none";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    #[default]
    Fixed,
    /// Another place within the buffers for each transfer.
    Random,
    /// In each round the next multiple of `step` bytes below `range`, of memory that is not the host's.
    Sweep { step: u64, range: u64 },
}

/// Places of a sweep: more are more rounds than anybody waits for.
pub const MOST_PLACES: u64 = 4096;

impl Addresses {
    /// How many places a sweep has; 1 for what is no sweep.
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

/// How many transfers of one subject may run at once.
pub const MOST_DEPTH: u32 = 32;

/// When the next one starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Arrival {
    /// So many under way at a time; the next starts when one has ended.
    Closed { depth: u32 },
    /// One each period, whatever the one before does: a late one makes those behind it wait, and that counts.
    Paced { period_ns: u64 },
}

impl Default for Arrival {
    fn default() -> Arrival {
        Arrival::Closed { depth: 1 }
    }
}

/// Which part of a sample stands for it in tables, ratios and comparisons. All parts are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Observe {
    /// From the call until it came back.
    Submit,
    /// Until the CPU saw the end; of paced arrivals from the intended release.
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

/// Where threads run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cpus {
    /// Wherever the kernel puts them.
    #[default]
    Any,
    /// The last CPU of this process; nothing else of this process runs there.
    Last,
    /// All but those of the measuring thread.
    Others,
    These(Vec<usize>),
}

/// What runs beside the measurement, without a pause or at a rate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadSpec {
    /// Unique in the experiment.
    pub name: String,
    pub what: What,
    pub bytes: u64,
    /// Threads; 0: none.
    pub count: u32,
    /// Of each thread, a second; without a pause if there is none.
    pub rate: Option<f64>,
    pub cpus: Cpus,
    pub class: Class,
    /// Compare the bytes of each n-th transfer; 0: only those of the last.
    pub check_every: u64,
    /// What it has to reach, or the stage has no figures.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub must_reach: Option<MustReach>,
    #[serde(default, skip_serializing_if = "Process::is_shared")]
    pub process: Process,
}

/// Where a load's threads run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Process {
    /// In the process that measures.
    #[default]
    Shared,
    /// Each in a process of its own, with a CUDA context of its own.
    Own,
}

impl Process {
    fn is_shared(&self) -> bool {
        *self == Process::Shared
    }
}

/// What all threads of a load together have to reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MustReach {
    /// Transfers or calls a second.
    Times(f64),
    Bytes(f64),
    /// Of its own `rate`; of a load without one, of what it reached alone.
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
    /// Besides the first and the last of a turn each n-th transfer is compared whole; 1: all are; 0: none.
    pub every: u64,
}

/// What is compared, within one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compare {
    /// The name of a subject, or of a policy where policies are compared. Subjects may have another one of their own.
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
    /// Deadlines missed, of all.
    Misses,
    /// Bytes a second.
    Rate,
}

/// Something that is paid once, so that each transfer takes less: after how many transfers has it paid? All are sums of subjects'
/// medians, at the same size in the same stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Repay {
    /// What is paid once.
    pub once: Vec<String>,
    /// What each transfer takes then.
    pub each: Vec<String>,
    /// What it takes otherwise.
    pub against: Vec<String>,
}

/// The largest value of an axis up to which a bound holds: at that value and at each one before it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Largest {
    /// An axis of the matrix; `bytes` is also the size where subjects have several.
    pub axis: String,
    pub subject: String,
    pub metric: Metric,
    /// [`Bound::AtMost`], [`Bound::AtLeast`] or [`Bound::AtMostTimes`].
    pub bound: Bound,
}

/// A bound that sets the exit status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assert {
    /// A subject's name; `*` for every one.
    pub subject: String,
    pub metric: Metric,
    pub bound: Bound,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Nanoseconds; of `misses` a part of all, of `rate` bytes a second.
    AtMost(f64),
    AtLeast(f64),
    /// So many times the same metric of another subject.
    AtMostTimes(f64, String),
    /// So many nanoseconds above the longest gap of the machine's own noise.
    AboveNoise(f64),
    /// As good as the best other subject that moves bytes between the same two memories.
    WithinBest(WithinBest),
}

/// At most so much above the best one: whichever of the two allows more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WithinBest {
    pub percent: f64,
    pub ns: f64,
    /// The names of the subjects that it is held against; empty: all of them.
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
    /// What takes turns.
    pub cells: Vec<Cell>,
    /// What runs beside it; those with threads.
    pub loads: Vec<LoadSpec>,
}

/// One subject at one size in one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub subject: SubjectSpec,
    /// 0 for calls that move nothing.
    pub bytes: u64,
}
