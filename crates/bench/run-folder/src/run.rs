//! What a run says: `run.json`, one document with everything but the samples. Tables, comparisons and plots read it.
//!
//! All times are nanoseconds. What was not measured, or has too few samples to be said, is null or is left out; no number
//! stands in for it.

mod arrivals;
mod asserts;
mod beside;
mod best;
mod budget;
mod capped;
mod cells;
mod ends;
mod largest;
mod lasted;
mod metric;
mod places;
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
pub use ends::Ends;
pub use largest::{AtValue, LargestOfRun};
pub use lasted::{Lasted, Rested, StageLasted};
pub use places::Places;
pub use repaid::{After, Repaid};
pub use scaling::{Member, Scaling};
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
    /// UTC, RFC 3339. A run that was resumed started when it was begun first.
    pub started: String,
    pub ended: String,
    /// Every part is there.
    pub complete: bool,
    /// The parts that are not.
    pub missing: Vec<Missing>,
    /// On the software GPU: what works is a result, how long it took is none.
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
    /// How calls grow with their number, in runs in which something is recorded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scaling: Vec<Scaling>,
    /// Which route is the best from which size to which one.
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
    /// Of all repeats together, with opening, noise and closing.
    pub seconds: f64,
    /// None of a run that an older doorbell measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasted: Option<StageLasted>,
    /// The longest gap of the machine's own noise, before and after, in any repeat.
    pub noise_floor_ns: Option<u64>,
    /// The largest part of the time in which the measuring CPU was taken away, in any repeat: by the noise measurement before and
    /// after, or by steal meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away: Option<f64>,
    /// Of all repeats together: sums, and of `on_cpu` and `waiting` the means over time.
    pub loads: Vec<Loaded>,
    #[serde(flatten)]
    pub used: Used,
}

/// What was counted meanwhile, of all repeats together; null where it is not counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// What crossed the link to the GPU.
    pub link: Option<Link>,
    /// Of the GPU.
    pub energy_j: Option<f64>,
    /// The highest at the end of a repeat.
    pub temperature_c: Option<f64>,
    /// Of this run's processes, user and system.
    pub cpu_seconds: Option<f64>,
}

/// A cell that went on alone when the rounds were over.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeteredOfRun {
    pub seconds: f64,
    pub transfers: u64,
    #[serde(flatten)]
    pub used: Used,
    /// Of all repeats together: the worse way, all looks, each reason once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_count: Option<LinkCount>,
}

/// Bytes that crossed the link meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    pub to_gpu: Crossed,
    pub from_gpu: Crossed,
}

/// In one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Crossed {
    /// Of the samples and of the loads. What else was moved meanwhile (warm-ups, comparisons by CUDA) is not in it.
    pub payload_bytes: f64,
    /// By the GPU's counter: heads of packets, requests, doorbells and polled words are in it.
    pub counted_bytes: f64,
}

/// What one process did.
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
    /// Which of its stage's, as in the samples' column `cell`.
    pub cell: u32,
    pub point: Vec<Coordinate>,
    pub subject: String,
    pub what: What,
    /// What moves the bytes, in one line.
    pub about: String,
    /// 0 for calls that move nothing.
    pub bytes: u64,
    /// So many copies are one sample.
    pub back_to_back: u32,
    pub arrival: Arrival,
    pub policy: String,
    pub status: Status,
    pub samples: u64,
    /// Of these the ones that nobody knows the time of, but that it was at least so long.
    pub capped: u64,
    /// With samples.
    pub rounds: u64,
    /// None where nothing was measured, and of a run that an older doorbell measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lasted: Option<Lasted>,
    pub checked: Compared,
    /// Which of the figures stands for the cell.
    pub observe: Observe,
    pub figures: Figures,
    /// Of what `observe` names.
    pub per_round: PerRound,
    pub misses: Option<Misses>,
    /// Of paced arrivals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arrivals: Option<Arrivals>,
    pub rate: Option<Rate>,
    pub ratio: Option<RatioOfRun>,
    /// Of a sweep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub places: Option<Places>,
    /// By what `observe` names, the slowest first.
    pub worst: Vec<WorstOfRun>,
    pub tally: Option<Tally>,
    pub metered: Option<MeteredOfRun>,
    /// The same of the rounds in which counters were read, where the kernel says more of their time.
    pub worst_counted: Vec<WorstOfRun>,
    /// What its calls sent to the GPU; only where the process was recorded. Its times are those of a recorded process then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands: Option<CommandsOfRun>,
    /// Where the time of its samples goes; only in runs in which something is recorded.
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

    /// Beside others of the same direction: what moves the bytes, and the kind of memory where it is not the plain one; the subject's
    /// name where it has one of its own.
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
    /// From the call until it came back.
    pub submit: Option<Figure>,
    /// From the engine's start to its end.
    pub engine: Option<Figure>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    #[serde(flatten)]
    pub summary: Summary,
    /// 95 %; null with fewer than six rounds, and of a tail whose samples come from a few rounds.
    pub p50_interval: Option<Interval<f64>>,
    #[serde(rename = "p99.9_interval")]
    pub p999_interval: Option<Interval<f64>>,
}

/// Columns: the i-th of each is of the same round. In the order of repeats and rounds; rounds without samples are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerRound {
    pub repeat: Vec<u32>,
    pub round: Vec<u32>,
    pub samples: Vec<u64>,
    pub p50: Vec<u64>,
    /// None with fewer than a thousand samples in the round.
    pub p99: Vec<Option<u64>>,
    pub max: Vec<u64>,
    /// For how long the loads rested meanwhile; empty where they did not.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rested_ns: Vec<u64>,
}

/// Without a pause where the arrivals are closed; as they came where they are paced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    pub transfers_per_second: f64,
    /// None of calls that move nothing.
    pub bytes_per_second: Option<f64>,
    /// Of `transfers_per_second`.
    pub interval: Option<Interval<f64>>,
}

/// So many times what the baseline takes (of `rate`: does).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RatioOfRun {
    /// A subject's name, or a policy.
    pub baseline: String,
    pub metric: Metric,
    /// Where samples of one of the two were cut short.
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
    /// When it should have started, since the part began.
    pub at_ns: u64,
    /// The time that the cell's `observe` names.
    pub value_ns: u64,
    /// From the intended release until the CPU saw the end.
    pub total_ns: u64,
    /// From the intended release until the call: it waited for those before it.
    pub queued_ns: u64,
    /// From the call until it came back.
    pub submit_ns: u64,
    /// From then until the engine had released it. Negative if the release came before the call was back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine_ns: Option<i64>,
    /// From the release until the CPU saw it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seen_ns: Option<i64>,
    /// The longest time in which a polling CPU did not look.
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

/// What more than half of a sample's time is known to have been spent on, of the time that the cell's `observe` names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It waited for those before it.
    Queue,
    /// In the call: of our own, stores to the GPU, or the CPU was taken away there.
    Submission,
    /// Between doorbell and release: fetching, waiting in the engine, moving.
    Engine,
    /// The CPU was kept from looking.
    CpuKeptAway,
    /// Between the release and the CPU's next look: the write's way to memory.
    Seeing,
    /// Asleep: locks of libcuda's, or the kernel.
    Asleep,
    RunQueue,
    /// On a CPU, where libcuda's code, its spinning locks and its spinning for the engine are not told apart.
    OnCpu,
    #[default]
    Unknown,
}

/// An assert of the experiment, and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    pub assert: Assert,
    pub verdict: Verdict,
    /// One for each cell that it is about.
    pub cells: Vec<JudgedCell>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Held,
    /// The value or the bound is not known. An assert that says nothing has not held.
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
    /// Why it is not judged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What a run has measured, while it is summed up.
pub(crate) struct Measured<'r> {
    stages: &'r [StageOfRun],
    cells: &'r [CellOfRun],
    /// What stands for each cell, by stage and cell.
    values: &'r HashMap<(u32, u32), Rounds>,
    functional: bool,
}

impl Run {
    /// Sums up the parts and samples that are there. Samples are read cell by cell.
    ///
    /// # Errors
    /// A part or its samples cannot be read, or are not those of the experiment.
    pub fn from_folder(folder: &Folder, context: Context) -> Result<Run, Error> {
        sum_up::run(folder, context)
    }

    /// The same run, summed up once more: an older doorbell may have computed less of it.
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
        // Those that summing up finds are there from the first time.
        let mut known = Vec::new();
        again.warnings.retain(|warning| {
            let is_new = !known.contains(warning);
            known.push(warning.clone());
            is_new
        });
        Ok(again)
    }

    /// What can be said of its best routes without its samples, where it says nothing of them.
    pub fn with_best(mut self) -> Run {
        if self.best.is_empty() && !self.functional {
            self.best = self.measured(&HashMap::new()).best();
        }
        self
    }

    /// Holds it against other asserts than those of its experiment, as far as its figures say it without samples.
    pub fn judged_by(mut self, asserts: &[Assert]) -> Run {
        self.asserts = asserts.iter().map(|assert| self.measured(&HashMap::new()).judge(assert)).collect();
        self.experiment.asserts = asserts.to_vec();
        self
    }

    fn measured<'r>(&'r self, values: &'r HashMap<(u32, u32), Rounds>) -> Measured<'r> {
        let functional = self.functional;
        Measured { stages: &self.stages, cells: &self.cells, values, functional }
    }

    /// No assert was broken, and none left open. Of a functional run none says anything.
    pub fn asserts_held(&self) -> bool {
        self.functional || self.asserts.iter().all(|a| a.verdict == Verdict::Held)
    }

    pub fn is_functional(experiment: &Experiment) -> bool {
        experiment.run.gpu == Gpu::Soft
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

    /// What it ran on, in a line.
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
    /// The run is not summed up yet, or by a doorbell that wrote another schema.
    pub fn run(&self) -> Result<Run, Error> {
        Run::read(&self.path().join(folder::RUN))
    }

    /// # Errors
    /// It cannot be written; what was there stays.
    pub fn write_run(&self, run: &Run) -> Result<(), Error> {
        let path = self.path().join(folder::RUN);
        let text = run.to_json().map_err(|e| Error::Write { path: path.clone(), cause: e.into() })?;
        folder::whole(&path, &text)
    }
}
