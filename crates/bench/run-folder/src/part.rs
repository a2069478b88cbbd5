//! The measurement of one stage in one repeat by one process.

use crate::commands::{Commands, Counter, Recorded};
use serde::{Deserialize, Serialize};

/// One stage in one repeat. Its samples are in a separate file next to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    pub stage: u32,
    pub repeat: u32,
    /// UTC, RFC 3339.
    pub began: String,
    pub seconds: f64,
    /// The CPU and the scheduling class that the measuring thread was given.
    pub cpu: Option<usize>,
    pub class: String,
    /// Periods in which a thread with a budget used it up.
    pub throttled: u64,
    pub cells: Vec<PartCell>,
    pub loads: Vec<Loaded>,
    /// The machine's own noise on the same CPU, under the same load, before and after.
    pub noise: Vec<Noise>,
    /// How far the GPU's clock and the CPU's can be apart, ns; none if there is no such clock.
    pub clock_error_ns: Option<u64>,
    /// The counts of the machine and the GPU during the part: name and value (`steal_ms`, `pcie_to_gpu_bytes`, `energy_mj`).
    pub counted: Vec<(String, f64)>,
    pub notes: Vec<String>,
    /// If the process is recorded: data for finding its samples in the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<Counter>,
    /// Its recording, once it was evaluated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
}

/// One cell of a part, in the order of the stage's cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartCell {
    /// What moves the bytes, in one line.
    pub about: String,
    pub status: Status,
    pub samples: u64,
    pub compared: Compared,
    /// The slowest of this part by the observed value, the slowest first, with where their time was spent.
    pub worst: Vec<Explained>,
    /// From the rounds in which counters were read.
    pub counted: Option<Tally>,
    /// After the rounds.
    #[serde(default)]
    pub metered: Option<Metered>,
    /// Work between samples that was stuck because of the loads.
    #[serde(default)]
    pub stuck_between: Option<StuckBetween>,
    /// In the order of the rounds; a round without a turn is left out. Empty: an older doorbell measured it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<CellTurn>,
    /// The commands of its calls, from the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Commands>,
}

/// One turn of a cell: its samples of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellTurn {
    pub round: u32,
    /// Its wall time, including untimed work (new bytes, comparisons, waits until the loads continued).
    pub ns: u64,
    pub ended: EndedBy,
    /// The part of it in which the loads rested, because work of the turn was stuck because of them.
    #[serde(default, skip_serializing_if = "is_zero_ns")]
    pub rested_ns: u64,
}

/// What ended a turn, or all turns of a cell; later ones are worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// All requested samples were taken.
    Samples,
    /// Its time was over.
    Time,
    /// Its time was over while its last call was stuck because of the loads: that sample was cut short.
    Capped,
    /// There was no room for more samples.
    Room,
    /// The run was stopped.
    Interrupted,
    Failed,
}

/// A comparison, or freeing a call's result, continued only when the loads rested. No sample contains this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckBetween {
    pub times: u64,
    pub longest_ns: u64,
}

/// A cell that continued after the rounds while counters were read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metered {
    pub seconds: f64,
    /// None of them is a sample.
    pub transfers: u64,
    /// The work of the loads in this time.
    pub loads: Vec<Loaded>,
    /// As [`Part::counted`].
    pub counted: Vec<(String, f64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_count: Option<LinkCount>,
}

/// Part of a note if the bytes of the link are not from a counter.
pub const BY_RATES: &str = "by the GPU's rates, which lag";

/// How the bytes of the GPU's link were counted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCount {
    /// `None` if they were not counted.
    pub by: Option<LinkBy>,
    /// Number of readings of the counters. A reading itself also sends bytes over the link.
    pub looks: u32,
    /// Why the accumulating counters did not count.
    pub why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkBy {
    /// The GPU's accumulating counters.
    Counters,
    /// Its rates times the time, which lag.
    Rates,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Measured,
    /// It does not exist on this machine, or not for this size.
    Unavailable(String),
    Failed(String),
    /// It was measured, but not under its intended load: a load missed its rate.
    Invalid(String),
}

/// Transfers whose bytes were compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    pub whole: u64,
    /// Bytes before and after the destination were compared too.
    pub guards: bool,
}

/// One transfer or call. Times are ns since the part began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub round: u32,
    /// When it should have started; in a closed loop, when it did.
    pub release_ns: u64,
    /// When the call was made.
    pub call_ns: u64,
    /// When the call returned; for doorbell's own transfers this is right after the doorbell.
    pub submitted_ns: u64,
    /// When the engine started and ended by the GPU's clock, converted to the CPU's (0: unknown).
    pub started_ns: u64,
    pub ended_ns: u64,
    /// When the CPU saw the end.
    pub done_ns: u64,
    /// Cut short: the loads rested until it ended. How long it would have taken with the loads is unknown.
    pub capped: bool,
}

impl Sample {
    pub fn submit(&self) -> u64 {
        self.submitted_ns.saturating_sub(self.call_ns)
    }

    pub fn done(&self) -> u64 {
        self.done_ns.saturating_sub(self.release_ns)
    }

    /// `None` if the engine's times are unknown.
    pub fn engine(&self) -> Option<u64> {
        (self.started_ns > 0 && self.ended_ns > 0).then(|| self.ended_ns.saturating_sub(self.started_ns))
    }
}

/// One of the slowest samples: its times, and where they were spent. All in ns; unknown values are none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// Which sample of the cell in this part it is, from 0.
    pub index: u64,
    pub round: u32,
    pub at_ns: u64,
    pub total_ns: u64,
    pub submit_ns: u64,
    /// From the doorbell until the engine had released it. Negative if the release came before the call returned.
    pub engine_ns: Option<i64>,
    /// From the release until the CPU saw it.
    pub seen_ns: Option<i64>,
    /// The longest time in which a polling CPU did not poll.
    pub longest_gap_ns: Option<u64>,
    pub asleep_ns: Option<u64>,
    pub run_queue_ns: Option<u64>,
    pub on_cpu_ns: Option<u64>,
    pub capped: bool,
}

/// The kernel's counters around each call of the rounds in which they were read, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub calls: u64,
    pub wall_ns: u64,
    pub on_cpu_ns: u64,
    /// Runnable without a CPU.
    pub run_queue_ns: u64,
    /// Neither: in a lock, or in the kernel.
    pub asleep_ns: u64,
    /// Calls in which the thread slept.
    pub slept: u64,
    /// Calls in which its CPU was taken away.
    pub preempted: u64,
    /// Calls whose time asleep cannot be separated from that in the run queue.
    pub unknown: u64,
}

/// The work of a load while the cells took turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    pub name: String,
    pub what: String,
    pub threads: u32,
    /// Bytes of all transfers together; 0 for calls, because it is unknown how much of their size they move.
    pub bytes: u64,
    pub transfers: u64,
    pub seconds: f64,
    /// The part of it in which the loads rested, because a cell's call was stuck because of them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rested: f64,
    /// Transfers a second before the measurement, without other loads or measurements; only if the experiment needs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<f64>,
    /// The longest one of them.
    pub longest_ns: u64,
    /// CPU time of all its threads together, and their time waiting for a CPU, in units of one CPU.
    pub on_cpu: f64,
    pub waiting: f64,
    /// Transfers whose bytes were compared.
    pub checked: u64,
    /// Why threads did not start, stopped early or were wrong, and how many.
    pub failed: Vec<(String, u32)>,
    /// Why the load does not exist on this machine: the stage was measured without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// The minimum that it missed, in the first repeat in which it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
}

fn is_zero_ns(ns: &u64) -> bool {
    *ns == 0
}

fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// Gaps between consecutive readings of the clock on a thread that does no other work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    pub readings: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// Longer than a microsecond, and their part of the time in millionths.
    pub interruptions: u64,
    pub lost_ppm: f64,
}
