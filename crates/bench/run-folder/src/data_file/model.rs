//! What a data file holds.

use crate::data_file::Series;
use crate::samples::Sum;
use experiment::Observe;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub const SCHEMA: &str = "doorbell.digest/1";

/// The origin of figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// The experiment's name.
    pub name: String,
    pub about: String,
    /// The version of the doorbell that measured, and the commit that it was built from. `-changed` after it: files differed.
    pub doorbell: String,
    pub commit: Option<String>,
    pub command: Vec<String>,
    /// UTC, RFC 3339.
    pub started: String,
    /// On the software GPU: its times are no results.
    pub functional: bool,
    pub complete: bool,
    /// Facts of the environment, by the names of `docs/reference/environment.md`.
    pub machine: BTreeMap<String, serde_json::Value>,
    /// The experiment as TOML.
    pub experiment: String,
}

impl Origin {
    /// The facts of an environment that a figure may depend on.
    pub fn facts(environment: &serde_json::Value) -> BTreeMap<String, serde_json::Value> {
        let facts = environment.get("facts");
        FACTS.iter().filter_map(|name| Some(((*name).to_owned(), facts?.get(*name)?.clone()))).collect()
    }

    /// Why its figures are no results to publish.
    pub fn refused(&self) -> Option<String> {
        match self.commit.as_deref() {
            _ if self.functional => Some("it was measured on the software GPU, whose times are no results".into()),
            Some(commit) if commit.contains("-changed") => {
                Some(format!("it was measured by {commit}: files differed from that commit"))
            }
            None => Some("it names no commit".into()),
            _ if !self.complete => Some("its run is not complete".into()),
            _ => None,
        }
    }
}

/// Facts that a page names, or that a figure depends on.
const FACTS: [&str; 22] = [
    "clock.source",
    "cpu.model",
    "cpu.online",
    "cpu.pressure",
    "cpu.steal_since_boot",
    "gpu.cuda",
    "gpu.driver",
    "gpu.link_generation",
    "gpu.link_width",
    "gpu.memory_mib",
    "gpu.mps",
    "gpu.mig",
    "gpu.name",
    "gpu.persistence",
    "gpu.sm_most_mhz",
    "gpu.virtualization",
    "host.virtual_machine",
    "iommu.units",
    "kernel.preemption",
    "kernel.release",
    "kernel.rt_runtime_us",
    "memory.total_kb",
];

/// One run. All times are nanoseconds, all sizes bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Digest {
    pub schema: String,
    #[serde(flatten)]
    pub origin: Origin,
    /// The files that the figures were computed from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub samples: Vec<SamplesFile>,
    pub stages: Vec<Stage>,
}

/// `samples/STAGE-REPEAT.parquet` of the run's folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SamplesFile {
    pub stage: u32,
    pub repeat: u32,
    #[serde(flatten)]
    pub sum: Sum,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    pub number: u32,
    /// Axes of the matrix and their values, as the experiment writes them.
    pub point: Vec<(String, String)>,
    pub policy: String,
    /// Rounds of one repeat.
    pub rounds: u32,
    pub repeats: u32,
    /// Time of all repeats together.
    pub seconds: f64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<Load>,
    pub cells: Vec<Cell>,
}

/// A load at the same time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Load {
    pub name: String,
    pub what: String,
    pub threads: u32,
    pub transfers: u64,
    pub bytes: u64,
    pub seconds: f64,
    pub longest_ns: u64,
}

/// One subject at one size in one stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub subject: String,
    /// The route or call.
    pub what: String,
    pub bytes: u64,
    /// Number of copies in one sample.
    pub back_to_back: u32,
    /// The part of a sample that is evaluated.
    pub observe: Observe,
    /// The subject, or the policy, that the experiment compares it with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<String>,
    /// Why there are no samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing: Option<String>,
    /// With paced arrivals: the time between two releases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
    /// From the first release of each round to its last end. Only if samples are not back to back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spans_ns: Option<Vec<u64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<Series>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submit: Option<Series>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<Series>,
    /// The commands that its calls sent to the GPU, by name: a round of [`Series`] whose values are counts or bytes. Only if the process was
    /// recorded.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub commands: BTreeMap<String, String>,
}

/// The kept figures of each call's commands.
pub const COMMANDS: [&str; 5] = ["doorbells", "entries", "pushbuffer_bytes", "inline_bytes", "locks"];

impl Cell {
    pub fn series(&self, part: Observe) -> Option<&Series> {
        match part {
            Observe::Done => self.done.as_ref(),
            Observe::Submit => self.submit.as_ref(),
            Observe::Engine => self.engine.as_ref(),
        }
    }
}
