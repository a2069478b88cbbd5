//! The result of a run: `run.json`, one document with everything except the samples. Tables, comparisons and plots read it.
//!
//! All times are nanoseconds. Values that were not measured, or have too few samples, are null or left out; no number replaces them.

mod arrivals;
mod asserts;
mod beside;
mod best;
mod budget;
mod capped;
mod cells;
mod ends;
mod findings;
pub mod groups;
mod largest;
mod lasted;
mod metric;
mod places;
mod pressure;
mod reached;
mod repaid;
mod scaling;
mod sum_up;
mod uneven;

pub use arrivals::Arrivals;
pub use beside::{Beside, Point, Times, Victim};
pub use best::{Against, BestAt, BestOfRun, BestRange, SAME};
pub use budget::{Budget, Mostly, PartOfBudget, Span};
pub use capped::Bounded;
pub(crate) use cells::back_to_back;
pub use cells::observed;
pub use ends::Ends;
pub use findings::{Delay, Extremes, baselines, causes, slowest};
pub use groups::{Group, place};
pub use largest::{AtValue, LargestOfRun};
pub use lasted::{Lasted, Rested, StageLasted};
pub use places::Places;
pub use repaid::{After, Repaid};
pub use scaling::{Member, Scaling};
pub(crate) use sum_up::add_load;
pub use sum_up::{Context, Interrupted};

use crate::commands::{CommandsOfRun, Recorded};
use crate::part::{Compared, LinkCount, Loaded, Noise, Status, Tally};
use crate::{Error, Folder, folder, json};
use experiment::{Arrival, Assert, Experiment, Gpu, Metric, Observe, What};
use serde::{Deserialize, Serialize};
use statistics::{Interval, Misses, Rounds, Summary};
use std::collections::HashMap;

pub const SCHEMA: &str = "doorbell.run/1";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Run {
    pub schema: String,
    /// The version of the doorbell that wrote it, and the commit that it was built from.
    pub doorbell: String,
    pub commit: Option<String>,
    /// The command line.
    pub command: Vec<String>,
    /// UTC, RFC 3339. For a resumed run, when it was first begun.
    pub started: String,
    pub ended: String,
    /// Every part exists.
    pub complete: bool,
    /// The missing parts.
    pub missing: Vec<Missing>,
    /// Whether it ran on the software GPU. Then results show what works, but times have no meaning.
    pub functional: bool,
    pub experiment: Experiment,
    pub environment: serde_json::Value,
    pub warnings: Vec<String>,
    pub stages: Vec<StageOfRun>,
    pub cells: Vec<CellOfRun>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub repaid: Vec<Repaid>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub largest: Vec<LargestOfRun>,
    /// How calls grow with their number, in runs with recorded stages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaling: Vec<Scaling>,
    /// The best route for each range of sizes.
    #[serde(default)]
    pub best: Vec<BestOfRun>,
    pub asserts: Vec<Judged>,
    pub parts: Vec<PartOfRun>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Missing {
    pub stage: u32,
    pub repeat: u32,
    pub why: String,
}

/// Name and value of an axis of the matrix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Coordinate {
    pub name: String,
    pub value: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageOfRun {
    pub number: u32,
    pub point: Vec<Coordinate>,
    pub policy: String,
    /// Time of all repeats together, with opening, noise and closing.
    pub seconds: f64,
    /// None for a run that an older doorbell measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasted: Option<StageLasted>,
    /// The longest gap of the machine's own noise, before and after, in any repeat.
    pub noise_floor_ns: Option<u64>,
    /// The largest part of the time in which the measuring CPU was taken away, in any repeat: from the noise measurement before and after, or from
    /// steal in between.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away: Option<f64>,
    /// For all repeats together: sums, and for `on_cpu` and `waiting` the means over time.
    pub loads: Vec<Loaded>,
    #[serde(flatten)]
    pub used: Used,
}

/// The counts of all repeats together; null if not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// Bytes over the link to the GPU.
    pub link: Option<Link>,
    /// Of the GPU.
    pub energy_j: Option<f64>,
    /// The highest at the end of a repeat.
    pub temperature_c: Option<f64>,
    /// CPU time of this run's processes, user and system.
    pub cpu_seconds: Option<f64>,
}

/// A cell that continued alone after the rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeteredOfRun {
    pub seconds: f64,
    pub transfers: u64,
    #[serde(flatten)]
    pub used: Used,
    /// For all repeats together: the worse method, all readings, each reason once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_count: Option<LinkCount>,
}

/// Bytes that crossed the link during the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    pub to_gpu: Crossed,
    pub from_gpu: Crossed,
}

/// In one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Crossed {
    /// Payload of the samples and of the loads. Other traffic (warm-ups, comparisons by CUDA) is not included.
    pub payload_bytes: f64,
    /// From the GPU's counter: includes packet headers, requests, doorbells and polled words.
    pub counted_bytes: f64,
}

/// The work of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PartOfRun {
    pub stage: u32,
    pub repeat: u32,
    pub began: String,
    pub seconds: f64,
    pub cpu: Option<usize>,
    pub class: String,
    pub throttled: u64,
    pub noise: Vec<Noise>,
    pub clock_error_ns: Option<u64>,
    pub counted: Vec<Counted>,
    pub notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Recorded>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counted {
    pub name: String,
    pub value: f64,
}

/// One subject at one size in one stage, all repeats together. Samples of rounds in which counters were read are in `tally`
/// only.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CellOfRun {
    pub stage: u32,
    /// Its index in the stage, as in the samples' column `cell`.
    pub cell: u32,
    pub point: Vec<Coordinate>,
    pub subject: String,
    pub what: What,
    /// What moves the bytes, in one line.
    pub about: String,
    /// 0 for calls that move no bytes.
    pub bytes: u64,
    /// Number of copies in one sample.
    pub back_to_back: u32,
    pub arrival: Arrival,
    pub policy: String,
    pub status: Status,
    pub samples: u64,
    /// How many of them were cut short, so that only a lower bound of their time is known.
    pub capped: u64,
    /// Rounds with samples.
    pub rounds: u64,
    /// None without a measurement, and for a run that an older doorbell measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasted: Option<Lasted>,
    pub checked: Compared,
    /// Which of the figures represents the cell.
    pub observe: Observe,
    pub figures: Figures,
    /// Of the observed figure.
    pub per_round: PerRound,
    pub misses: Option<Misses>,
    /// With paced arrivals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    pub rate: Option<Rate>,
    pub ratio: Option<RatioOfRun>,
    /// Of a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<Places>,
    /// By the observed value, the slowest first.
    pub worst: Vec<WorstOfRun>,
    pub tally: Option<Tally>,
    pub metered: Option<MeteredOfRun>,
    /// The same for the rounds in which counters were read, where the kernel's counters explain more of their time.
    pub worst_counted: Vec<WorstOfRun>,
    /// The commands of its calls; only if the process was recorded. Its times are then those of a recorded process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<CommandsOfRun>,
    /// How the time of its samples is divided; only in runs with recorded stages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
}

impl CellOfRun {
    pub fn observed(&self) -> Option<&Figure> {
        match self.observe {
            Observe::Submit => self.figures.submit.as_ref(),
            Observe::Done => self.figures.done.as_ref(),
            Observe::Engine => self.figures.engine.as_ref(),
        }
    }

    /// The observed figure, if it counts: what a failed cell measured is none.
    pub fn valid(&self) -> Option<&Figure> {
        self.observed().filter(|_| self.status == Status::Measured)
    }

    /// A label among others of the same direction: the executor, and the kind of memory if it is not the plain one; or the subject's name if it has
    /// its own.
    pub fn label(&self) -> String {
        let Some(ends) = Ends::of(&self.what).filter(|_| self.subject == self.what.text()) else {
            return self.subject.clone();
        };
        let (from, to) = ends.direction();
        let mut label = ends.executor.to_owned();
        label.push_str(match self.observe {
            Observe::Done => "",
            Observe::Submit => " (the call)",
            Observe::Engine => " (the engine)",
        });
        for memory in [ends.source, ends.destination].into_iter().filter(|m| *m != from && *m != to) {
            label.push_str(", ");
            label.push_str(memory);
        }
        label
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// From the intended release until the CPU saw the end.
    pub done: Option<Figure>,
    /// From the call until it returned.
    pub submit: Option<Figure>,
    /// From the engine's start to its end.
    pub engine: Option<Figure>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    #[serde(flatten)]
    pub summary: Summary,
    /// 95 %; null with fewer than three processes, for a tail whose samples come from fewer, and if it would end beyond the samples.
    pub p50_interval: Option<Interval<f64>>,
    #[serde(rename = "p99.9_interval")]
    pub p999_interval: Option<Interval<f64>>,
}

/// Columns: the i-th elements are of the same round. In the order of repeats and rounds; rounds without samples are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerRound {
    pub repeat: Vec<u32>,
    pub round: Vec<u32>,
    pub samples: Vec<u64>,
    pub p50: Vec<u64>,
    /// None with fewer than a thousand samples in the round.
    pub p99: Vec<Option<u64>>,
    pub max: Vec<u64>,
    /// How long the loads rested in the round; empty if they did not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rested_ns: Vec<u64>,
}

/// Back to back for closed arrivals; at the arrival times for paced ones.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub transfers_per_second: f64,
    /// None for calls that move no bytes.
    pub bytes_per_second: Option<f64>,
    /// Of `transfers_per_second`.
    pub interval: Option<Interval<f64>>,
}

/// As a multiple of the baseline's time (for `rate`: of its rate).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioOfRun {
    /// A subject's name, or a policy.
    pub baseline: String,
    pub metric: Metric,
    /// Set if samples of one of the two were cut short.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bounded: Option<Bounded>,
    #[serde(flatten)]
    pub ratio: statistics::Ratio,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorstOfRun {
    pub repeat: u32,
    /// The row among those of this cell in the part's file of samples, from 0.
    pub index: u64,
    pub round: u32,
    /// Its intended start, since the part began.
    pub at_ns: u64,
    /// The observed value of the cell.
    pub value_ns: u64,
    /// From the intended release until the CPU saw the end.
    pub total_ns: u64,
    /// From the intended release until the call: it waited for earlier ones.
    pub queued_ns: u64,
    /// From the call until it returned.
    pub submit_ns: u64,
    /// From the call's return until the engine had released it. Negative if the release came before the call returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_ns: Option<i64>,
    /// From the release until the CPU saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_ns: Option<i64>,
    /// The longest time in which a polling CPU did not poll.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_gap_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asleep_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_queue_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_cpu_ns: Option<u64>,
    pub capped: bool,
    pub mostly: Cause,
}

/// The known cause of more than half of a sample's time, of the time that the cell observes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It waited for earlier ones.
    Queue,
    /// In the call: for doorbell's own transfers, stores to the GPU, or the CPU was taken away there.
    Submission,
    /// Between doorbell and release: fetching, waiting in the engine, moving.
    Engine,
    /// The CPU was kept from polling.
    CpuKeptAway,
    /// Between the release and the CPU's next poll: the write's way to memory.
    Seeing,
    /// Asleep: libcuda's locks, or the kernel.
    Asleep,
    RunQueue,
    /// On a CPU: libcuda's code, its spinning locks and its spinning for the engine cannot be separated.
    OnCpu,
    #[default]
    Unknown,
}

/// An assert of the experiment, and its result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    pub assert: Assert,
    pub verdict: Verdict,
    /// One for each cell that it applies to.
    pub cells: Vec<JudgedCell>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Held,
    /// The value or the bound is unknown. Such an assert counts as not held.
    NotJudged,
    Broken,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgedCell {
    pub stage: u32,
    pub subject: String,
    pub bytes: u64,
    pub verdict: Verdict,
    pub value: Option<f64>,
    pub bound: Option<f64>,
    /// The best one, of `within_best`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub against: Option<Against>,
    /// Why it was not judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The measurements of a run, while it is summarized.
pub(crate) struct Measured<'r> {
    stages: &'r [StageOfRun],
    cells: &'r [CellOfRun],
    /// The observed samples of each cell, by stage and cell.
    values: &'r HashMap<(u32, u32), Rounds>,
    functional: bool,
}

impl Run {
    /// Summarizes the existing parts and samples. Samples are read cell by cell.
    ///
    /// # Errors
    /// A part or its samples cannot be read, or do not belong to the experiment.
    pub fn from_folder(folder: &Folder, context: Context) -> Result<Run, Error> {
        sum_up::run(folder, context)
    }

    /// The same run, summarized again: an older doorbell may have computed less.
    ///
    /// # Errors
    /// As [`Run::from_folder`].
    pub fn summed_up_again(&self, folder: &Folder) -> Result<Run, Error> {
        let context = Context {
            commit: self.commit.clone(),
            command: self.command.clone(),
            started: self.started.clone(),
            ended: self.ended.clone(),
            environment: self.environment.clone(),
            warnings: self.warnings.clone(),
            ..sum_up::context_of(&self.missing)
        };
        let mut again = sum_up::run(folder, context)?;
        again.doorbell.clone_from(&self.doorbell);
        // Warnings that summarizing finds already exist from the first time.
        let mut known = Vec::new();
        again.warnings.retain(|warning| {
            let is_new = !known.contains(warning);
            known.push(warning.clone());
            is_new
        });
        Ok(again)
    }

    /// Adds the best routes, as far as they can be computed without the samples, if the run has none.
    pub fn with_best(mut self) -> Run {
        if self.best.is_empty() && !self.functional {
            self.best = self.measured(&HashMap::new()).best();
        }
        self
    }

    /// Judges it by other asserts than those of its experiment, as far as its figures allow it without samples.
    pub fn judged_by(mut self, asserts: &[Assert]) -> Run {
        self.asserts = asserts.iter().map(|assert| self.measured(&HashMap::new()).judge(assert)).collect();
        self.experiment.asserts = asserts.to_vec();
        self
    }

    fn measured<'r>(&'r self, values: &'r HashMap<(u32, u32), Rounds>) -> Measured<'r> {
        let functional = self.functional;
        Measured { stages: &self.stages, cells: &self.cells, values, functional }
    }

    /// Every assert held. In a functional run asserts have no meaning.
    pub fn asserts_held(&self) -> bool {
        self.functional || self.asserts.iter().all(|a| a.verdict == Verdict::Held)
    }

    pub fn is_functional(experiment: &Experiment) -> bool {
        experiment.run.gpu == Gpu::Soft
    }

    /// `doorbell 1.2.0 (0123456789ab), 2026-11-30T08:00:00Z`: what measured it, and when.
    pub fn version(&self) -> String {
        let commit = self.short_commit().map_or(String::new(), |c| format!(" ({c})"));
        format!("doorbell {}{commit}, {}", self.doorbell, self.started)
    }

    /// The commit, short: twelve digits, and whether files differed from it.
    pub fn short_commit(&self) -> Option<String> {
        let (digits, rest) = self.commit.as_deref()?.split_at_checked(12).unwrap_or((self.commit.as_deref()?, ""));
        let changed = rest.find('-').map_or("", |at| &rest[at..]);
        Some(format!("{digits}{changed}"))
    }

    /// A `run.json`, wherever it is.
    ///
    /// # Errors
    /// It cannot be read, or another schema wrote it.
    pub fn read(path: &std::path::Path) -> Result<Run, Error> {
        folder::read_json(path, SCHEMA)
    }

    /// The text of `run.json`.
    ///
    /// # Errors
    /// A number that JSON does not have.
    pub fn to_json(&self) -> serde_json::Result<Vec<u8>> {
        json::to_vec(self)
    }

    /// The machine, in a line.
    pub fn machine(&self) -> String {
        let fact = |name: &str| {
            let v = self.environment.get("facts")?.get(name)?;
            Some(v.as_str().map_or_else(|| v.to_string(), str::to_owned))
        };
        let named = |what: &str, name: &str| fact(name).map(|v| format!("{what} {v}"));
        let link = fact("gpu.link_generation").zip(fact("gpu.link_width")).map(|(g, w)| format!("PCIe {g} x{w}"));
        let all = [
            fact("host.name"),
            fact("gpu.name"),
            named("driver", "gpu.driver"),
            named("CUDA", "gpu.cuda"),
            link,
            fact("cpu.model"),
            named("kernel", "kernel.release"),
        ];
        let all: Vec<String> = all.into_iter().flatten().collect();
        if all.is_empty() { "machine unknown".into() } else { all.join(", ") }
    }

    /// The cells of a stage.
    pub fn cells_of(&self, stage: u32) -> impl Iterator<Item = &CellOfRun> {
        self.cells.iter().filter(move |c| c.stage == stage)
    }
}

impl Folder {
    pub fn has_run(&self) -> bool {
        self.path().join(folder::RUN).exists()
    }

    /// # Errors
    /// The run is not summarized yet, or a doorbell with another schema did it.
    pub fn run(&self) -> Result<Run, Error> {
        Run::read(&self.path().join(folder::RUN))
    }

    /// # Errors
    /// It cannot be written; the old file stays.
    pub fn write_run(&self, run: &Run) -> Result<(), Error> {
        let path = self.path().join(folder::RUN);
        let text = run.to_json().map_err(|e| Error::Write { path: path.clone(), cause: e.into() })?;
        folder::whole(&path, &text)
    }
}
