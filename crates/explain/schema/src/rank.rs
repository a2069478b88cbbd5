//! What the recording of one rank contributes to a comparison of all ranks of a job.

use crate::summary::Summary;
use serde::Serialize;

/// The ranks of a recording: one, or those of a machine.
#[derive(Clone, Debug, Serialize)]
pub struct Ranks {
    pub ranks: Vec<Rank>,
}

#[derive(Clone, Debug, Serialize)]
pub struct Rank {
    /// Its number, as its launcher sets it in the environment; absent if the recording has none.
    pub rank: Option<u32>,
    /// Ranks of the job; null if it is not known.
    pub world_size: Option<u32>,
    pub summary: Summary,
    /// Totals, the longest first within each kind.
    pub rows: Vec<Total>,
    /// Events by which ranks are compared: collectives if there are any, else the longest ranges of NVTX, the calls that wait, and launches.
    pub steps: Vec<Steps>,
    /// There was more than is looked at: steps are those of the first part of the recording.
    pub cut: bool,
}

/// All of one kernel, call, lock or kind of copy.
#[derive(Clone, Debug, Serialize)]
pub struct Total {
    /// `kernels`, `collectives`, `copies`, `locks`, `conditions`, `calls`, `waiting calls` or `outside`.
    pub kind: &'static str,
    pub name: String,
    pub count: u64,
    pub ns: u64,
    pub longest_ns: u64,
    pub bytes: u64,
}

/// Events of one kind, each with what the rank did since the one before.
#[derive(Clone, Debug, Serialize)]
pub struct Steps {
    /// `collectives`, `ranges NAME`, `calls NAME` or `launches`.
    pub by: String,
    /// All events. At most 256 of each name are listed: each, or every 2nd, 4th, 8th ...
    pub events: u64,
    /// What each number in [`Step::ns`] belongs to.
    pub of: Vec<SpentOn>,
    pub list: Vec<Step>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SpentOn {
    /// As in `rows`.
    pub kind: &'static str,
    /// Absent for all that are not listed by name.
    pub name: Option<String>,
}

/// An event, and how the time from the begin of the listed event before it to its own begin was spent.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Its name, and its number among those of that name.
    pub event: String,
    /// Its number among the events of that name, from 0.
    pub number: u64,
    /// On the recording's clock.
    pub begin_ns: i64,
    /// When it ended.
    pub end_ns: i64,
    /// They add up to the time; empty for the first event.
    pub ns: Vec<u64>,
}
