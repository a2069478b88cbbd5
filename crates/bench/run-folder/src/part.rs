//! What one process measured of one stage in one repeat.

use crate::commands::{Commands, Counter, Recorded};
use serde::{Deserialize, Serialize};

/// One stage in one repeat. Its samples lie beside it, in a file of their own.
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
    /// How far the GPU's clock and the CPU's can be apart, ns; none where there is no such clock.
    pub clock_error_ns: Option<u64>,
    /// What the machine and the GPU counted meanwhile: name and value (`steal_ms`, `pcie_to_gpu_bytes`, `energy_mj`).
    pub counted: Vec<(String, f64)>,
    pub notes: Vec<String>,
    /// Where the process is recorded: how its samples are found on the tape.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<Counter>,
    /// Its recording, once that was read.
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
    /// The slowest of this part by what the subject observes, the slowest first, with where their time went.
    pub worst: Vec<Explained>,
    /// From the rounds in which counters were read.
    pub counted: Option<Tally>,
    /// When the rounds were over.
    #[serde(default)]
    pub metered: Option<Metered>,
    /// Work between samples that waited for the loads.
    #[serde(default)]
    pub stuck_between: Option<StuckBetween>,
    /// In the order of the rounds; a round in which it had no turn is left out. Empty: an older doorbell measured it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<CellTurn>,
    /// What its calls sent to the GPU, by the recording.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<Commands>,
}

/// One turn of a cell: its samples of one round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellTurn {
    pub round: u32,
    /// Its wall time, with what is not timed (new bytes, comparisons, waits until the loads went on).
    pub ns: u64,
    pub ended: EndedBy,
    /// Of this the time in which the loads rested, for something of the turn was stuck behind them.
    #[serde(default, skip_serializing_if = "is_zero_ns")]
    pub rested_ns: u64,
}

/// What ended a turn, or all turns of a cell; the later ones are the worse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// All samples that were asked for were taken.
    Samples,
    /// Its time was over.
    Time,
    /// Its time was over while its last call was stuck behind the loads: that one is a sample cut short.
    Capped,
    /// There was no room for more samples.
    Room,
    /// The run was stopped.
    Interrupted,
    Failed,
}

/// Comparing, or giving back what a call made, went on only when the loads rested. No sample has this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StuckBetween {
    pub times: u64,
    pub longest_ns: u64,
}

/// A cell that went on while it was counted, when the rounds were over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metered {
    pub seconds: f64,
    /// None of them is a sample.
    pub transfers: u64,
    /// What the loads did in this time.
    pub loads: Vec<Loaded>,
    /// As [`Part::counted`].
    pub counted: Vec<(String, f64)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_count: Option<LinkCount>,
}

/// In a note of a part whose bytes of the link are no counter's.
pub const BY_RATES: &str = "by the GPU's rates, which lag";

/// Who counted the bytes of the GPU's link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkCount {
    /// `None` where nothing counted.
    pub by: Option<LinkBy>,
    /// Looks at the counters. What a look itself sends crosses the link, too.
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
    /// It was measured, but not beside what it was to be measured beside: a load missed its rate.
    Invalid(String),
}

/// Transfers whose bytes were compared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Compared {
    pub whole: u64,
    /// Bytes before and behind the destination were compared too.
    pub guards: bool,
}

/// One transfer or call. Times are ns since the part began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub round: u32,
    /// When it should have started: of a closed loop when it did.
    pub release_ns: u64,
    /// When the call was made.
    pub call_ns: u64,
    /// When it came back: of our own transfers right behind the doorbell.
    pub submitted_ns: u64,
    /// When the engine started and ended by the GPU's clock, as the CPU's; 0: not known.
    pub started_ns: u64,
    pub ended_ns: u64,
    /// When the CPU saw the end.
    pub done_ns: u64,
    /// Cut short: the loads rested until it was over. Nobody knows how long it would have taken beside them.
    pub capped: bool,
}

impl Sample {
    pub fn submit(&self) -> u64 {
        self.submitted_ns.saturating_sub(self.call_ns)
    }

    pub fn done(&self) -> u64 {
        self.done_ns.saturating_sub(self.release_ns)
    }

    /// `None` where the engine's times are not known.
    pub fn engine(&self) -> Option<u64> {
        (self.started_ns > 0 && self.ended_ns > 0).then(|| self.ended_ns.saturating_sub(self.started_ns))
    }
}

/// One of the slowest samples: its times, and where they went. All ns; what is not known is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Explained {
    /// Which sample of the cell in this part it is, from 0.
    pub index: u64,
    pub round: u32,
    pub at_ns: u64,
    pub total_ns: u64,
    pub submit_ns: u64,
    /// From the doorbell until the engine had released it. Negative if the release came before the call was back.
    pub engine_ns: Option<i64>,
    /// From the release until the CPU saw it.
    pub seen_ns: Option<i64>,
    /// The longest time in which a polling CPU did not look.
    pub longest_gap_ns: Option<u64>,
    pub asleep_ns: Option<u64>,
    pub run_queue_ns: Option<u64>,
    pub on_cpu_ns: Option<u64>,
    pub capped: bool,
}

/// The kernel's counters round each call of the rounds in which they were read, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tally {
    pub calls: u64,
    pub wall_ns: u64,
    pub on_cpu_ns: u64,
    /// Ready, and without a CPU.
    pub run_queue_ns: u64,
    /// Neither: in a lock, or in the kernel.
    pub asleep_ns: u64,
    /// Calls in which the thread slept.
    pub slept: u64,
    /// Calls in which its CPU was taken away.
    pub preempted: u64,
    /// Calls whose time asleep is not told from that in the run queue.
    pub unknown: u64,
}

/// What a load did while the cells took turns.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    pub name: String,
    pub what: String,
    pub threads: u32,
    /// Of all transfers together; 0 of calls, which move none of their bytes or any part of them.
    pub bytes: u64,
    pub transfers: u64,
    pub seconds: f64,
    /// Of these the time in which the loads rested, because a call of a cell's was stuck behind them.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rested: f64,
    /// Transfers a second before the measurement, with no other load and nothing measured; where the experiment asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alone: Option<f64>,
    /// The longest one of them.
    pub longest_ns: u64,
    /// Of one CPU, what all its threads had together, and waited for.
    pub on_cpu: f64,
    pub waiting: f64,
    /// Transfers whose bytes were compared.
    pub checked: u64,
    /// Why threads did not start, stopped early or were wrong, and how many.
    pub failed: Vec<(String, u32)>,
    /// Why there is no such load on this machine: the stage was measured without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable: Option<String>,
    /// What it had to reach and did not, of the first repeat where it did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<String>,
}

fn is_zero_ns(ns: &u64) -> bool {
    *ns == 0
}

fn is_zero(seconds: &f64) -> bool {
    *seconds == 0.0
}

/// Gaps between consecutive readings of the clock on a thread that does nothing else.
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
